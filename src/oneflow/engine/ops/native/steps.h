/* The steps of prediction: what each does, into how many items its work is cut, and one item of it. Items of a step may run in any order and on any thread; no sum
 * is ever split between them, so results do not depend on the number of threads. */

#include <math.h>
#include <sched.h>

#include "winograd.h"

#define PANEL 32
#define DEPTH 384       /* at most so much of the depth at a time: the rows of a tile then stay in the first cache */
#define LEFT (96 << 10) /* floats of the left operand at a time: they stay in the second */
#define WIDE 28         /* outputs of a line, at least, of a convolution that reads lines where they lie */
#define GAP 16          /* floats between gathered rows beyond their length, lest they fall into the same sets of the cache */

enum { CUT = 1, HALF }; /* what counts of a last vector */
enum { NONE, CLIP, HARD_SWISH, HARD_SIGMOID, SILU, SIGMOID, GELU, GELU_TANH };

typedef struct {
    const float *bias; /* of as many numbers as the panels have columns; or NULL */
    float low, high;   /* values are clipped to these; infinite where they are not */
    int kind;
} Finish;

/* How filters pass over pictures. */
typedef struct {
    int64_t pictures, height, width, channels, made_height, made_width;
    int64_t across_height, across_width, stride_height, stride_width, pad_height, pad_width;
} Window;

typedef struct {
    const float *input, *panels, *residual;
    float *made;
    Finish finish;
    Window window;
    int64_t apart_height, apart_width;
    int64_t rows, depth, columns; /* of the product */
    int gathers;                  /* whether rows are put together from several pixels, or moved apart */
    int by_lines;                 /* or are read where they lie, a line of the picture for each line of a filter */
} Product;

typedef struct {
    const float *input, *weight; /* weight[tap][channel] */
    float *made;
    Finish finish;
    Window window;
} Depthwise;

/* A product whose pixels a depthwise convolution reads: lines of them stay in the cache. */
typedef struct {
    Product product;
    Depthwise depthwise;
} Pair;

/* Pictures of few channels, from planes to pixels that lie together, with zeros around them. */
typedef struct {
    const float *input;
    float *made;
    int64_t pictures, channels, height, width, made_height, made_width, top, left;
} Lay;

/* For each picture a row of numbers, and `places` rows: their mean, or their product with it. */
typedef struct {
    const float *input, *factors;
    float *made;
    int64_t pictures, places, channels;
} Rows;

/* Rows of the left operand, `step` apart; each is in so many segments, `segment_step` apart. */
typedef struct {
    const float *at;
    int64_t step, segments, segment_step;
} Operand;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")
#define LANES 16
#define MR 14
#define NAME(x) x##_v4
#include "conv_kernels.h"
#undef MR
#define MR 8
#include "winograd_predict.h"
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define MR 6
#define NAME(x) x##_v3
#include "conv_kernels.h"
#undef MR
#define MR 4
#include "winograd_predict.h"
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options
#else
#error "written for x86-64 and GCC"
#endif

typedef struct {
    void (*gather)(const Product *, int64_t, int64_t, int64_t, int64_t, float *, int64_t);
    void (*panel)(const Product *, const Operand *, const float *, int64_t, int64_t, int64_t, int64_t, int64_t, int, int);
    void (*depthwise)(const Depthwise *, int64_t, int64_t, int64_t);
    void (*pool)(const Depthwise *, int64_t, int64_t, int64_t);
    void (*mean)(const float *, int64_t, int64_t, float, float *);
    void (*scale)(const float *, const float *, int64_t, int64_t, float *);
    void (*lay)(const Lay *, int64_t);
    void (*plan_winograd)(Winograd *, int);
    void (*winograd)(const Winograd *, int64_t, float *);
    void (*prepare)(const float *, const Filters *, int64_t, int64_t, float *);
    int64_t (*prepared_plane)(int64_t, int64_t);
} Kernels;

static Kernels kernels; /* chosen once, when the module is loaded */

#define OF(kind) \
    (Kernels){gather_##kind, panel_##kind, depthwise_##kind, pool_##kind, mean_##kind, scale_##kind, lay_##kind, plan_winograd_##kind, winograd_item_##kind, \
              prepare_##kind, prepared_plane_##kind}
static Kernels kernels_of(int kind) { return kind == 2 ? OF(v4) : OF(v3); }
#undef OF

/* ------------------------------------------------------------------ products */

/* The part of a product in rows [row, last_row) and in panels [panel, last_panel). */
static void multiply_rows(const Product *p, int64_t row, int64_t last_row, int64_t panel, int64_t last_panel, float *buffer) {
    const int64_t pieces = (p->depth + DEPTH - 1) / DEPTH, piece = (p->depth + pieces - 1) / pieces;
    int64_t at_once = LEFT / (piece + GAP);
    if (p->depth * p->columns <= LEFT / 2) /* the panels are in the cache, so the rows that are made may be few enough to be there too */
        at_once = least(at_once, 4 * 14);
    for (int64_t rows; row < last_row; row += rows) {
        rows = least(at_once, last_row - row);
        for (int64_t begin = 0; begin < p->depth; begin += piece) {
            const int64_t end = least(begin + piece, p->depth), step = p->gathers ? piece + GAP : p->depth;
            const Operand left = {p->gathers ? buffer : p->input + row * p->depth + begin, step, 1, 0};
            if (p->gathers)
                kernels.gather(p, row, rows, begin, end, buffer, step);
            for (int64_t one = panel; one < last_panel; one++) {
                const float *right = p->panels + (one * p->depth + begin) * PANEL;
                kernels.panel(p, &left, right, end - begin, row, rows, one * PANEL, least(PANEL, p->columns - one * PANEL), begin == 0, end == p->depth);
            }
        }
    }
}

/* The part of a product that makes lines [line, last_line) of all pictures. */
static void multiply_lines(const Product *p, int64_t line, int64_t last_line) {
    const Window *w = &p->window;
    const int64_t input_line = w->width * w->channels;
    for (; line < last_line; line++) {
        const int64_t top = line / w->made_height * w->height + line % w->made_height * w->stride_height;
        const Operand left = {p->input + top * input_line, w->stride_width * w->channels, w->across_height, input_line};
        for (int64_t column = 0; column < p->columns; column += PANEL)
            kernels.panel(
                p, &left, p->panels + column * p->depth, w->across_width * w->channels, line * w->made_width, w->made_width, column,
                least(PANEL, p->columns - column), 1, 1
            );
    }
}

static int64_t panels_of(const Product *p) { return (p->columns + PANEL - 1) / PANEL; }

/* Two items for each thread where they are long, so that one may take what another has not come to. */
static int64_t items_of(int64_t work, int threads) {
    if (threads == 1 || work < 1 << 17)
        return 1;
    return work > (int64_t)threads << 21 ? 2 * threads : threads;
}

static int64_t product_items(const Product *p, int threads) {
    const int64_t items = items_of(p->rows * p->columns * p->depth, threads);
    return least(items, p->by_lines ? p->window.pictures * p->window.made_height : p->rows < p->columns ? panels_of(p) : p->rows);
}

static void product_item(const Product *p, int64_t item, int64_t items, float *buffer) {
    const int64_t panels = panels_of(p), lines = p->window.pictures * p->window.made_height;
    if (p->by_lines)
        multiply_lines(p, lines * item / items, lines * (item + 1) / items);
    else if (p->rows < p->columns && (panels % items == 0 || panels >= 8 * items))
        multiply_rows(p, 0, p->rows, panels * item / items, panels * (item + 1) / items, buffer);
    else
        multiply_rows(p, p->rows * item / items, p->rows * (item + 1) / items, 0, panels, buffer);
}

/* ------------------------------------------------------------------ lines of pictures */

/* How many lines of an input fit into the cache. */
static int64_t fitting_lines(const Window *w) { return LEFT / (w->width * w->channels * w->stride_height) + 1; }

/* In how many parts of lines the pictures of an output are made. */
static int64_t parts_of_lines(const Window *w, int64_t at_most, int threads) {
    const int64_t shared = (w->made_height * w->pictures + threads - 1) / threads, lines = least(at_most, least(shared, w->made_height));
    return (w->made_height + lines - 1) / lines;
}

static void lines_item(void (*kernel)(const Depthwise *, int64_t, int64_t, int64_t), const Depthwise *d, int64_t item, int64_t items) {
    const int64_t parts = items / d->window.pictures, one = item % parts;
    kernel(d, item / parts, d->window.made_height * one / parts, d->window.made_height * (one + 1) / parts);
}

/* ------------------------------------------------------------------ pairs */

static int64_t pair_lines(const Window *w) {
    const int64_t fit = LEFT / (w->width * w->channels), least_lines = w->across_height + w->stride_height;
    return fit < least_lines ? least_lines : fit;
}

static int64_t expanded_size(const Window *w) { return pair_lines(w) * w->width * w->channels; }

/* Lines [line, last) of a picture. Lines of the product are made as they are wanted, and those that the next outputs read too are kept. */
static void pair_part(const Pair *pair, int64_t picture, int64_t line, int64_t last, float *lines) {
    const Window *w = &pair->depthwise.window;
    const int64_t size = w->width * w->channels, panels = panels_of(&pair->product), capacity = pair_lines(w);
    int64_t base = 0, have = 0; /* lines [base, have) of the product are there */
    for (int64_t end; line < last; line = end) {
        const int64_t first = line * w->stride_height > w->pad_height ? line * w->stride_height - w->pad_height : 0, until = least(w->height, first + capacity);
        if (have > first)
            memmove(lines, lines + (first - base) * size, (have - first) * size * sizeof(float));
        else
            have = first;
        base = first;
        Product some = pair->product;
        const int64_t above = picture * w->height; /* lines of other pictures */
        some.made = lines - (above + base) * size;
        if (some.by_lines)
            multiply_lines(&some, above + have, above + until);
        else
            multiply_rows(&some, (above + have) * w->width, (above + until) * w->width, 0, panels, NULL);
        have = until;
        end = until == w->height ? last : least(last, (until + w->pad_height - w->across_height) / w->stride_height + 1);
        Depthwise then = pair->depthwise;
        then.input = lines - base * size;
        then.made += picture * w->made_height * w->made_width * w->channels;
        kernels.depthwise(&then, 0, line, end);
    }
}

/* ------------------------------------------------------------------ steps */

enum { CONVOLUTION, DEPTHWISE, WINOGRAD, MEAN, SCALE, LAY, POOL, PAIR };

typedef struct {
    int kind;
    int64_t items;
    union {
        Product product;
        Depthwise depthwise;
        Winograd winograd;
        Rows rows;
        Lay lay;
        Pair pair;
    } of;
} Step;

static void plan_step(Step *step, int threads) {
    const Window *w = &step->of.depthwise.window;
    switch (step->kind) {
    case CONVOLUTION: step->items = product_items(&step->of.product, threads); break;
    case DEPTHWISE:
    case POOL: step->items = w->pictures * parts_of_lines(w, fitting_lines(w), threads); break;
    case WINOGRAD:
        kernels.plan_winograd(&step->of.winograd, threads);
        step->items = step->of.winograd.blocks * step->of.winograd.shares;
        break;
    case MEAN:
    case SCALE: step->items = step->of.rows.pictures; break;
    case LAY: step->items = least(step->of.lay.pictures * step->of.lay.made_height, 4 * threads); break;
    case PAIR: w = &step->of.pair.depthwise.window; step->items = w->pictures * parts_of_lines(w, w->made_height, threads); break;
    }
}

/* How many floats of its own a thread needs for an item. */
static int64_t scratch_of(const Step *step) {
    const Winograd *w = &step->of.winograd;
    switch (step->kind) {
    case CONVOLUTION: return step->of.product.gathers ? LEFT : 0;
    case WINOGRAD: return PLACES * (w->patch_plane + w->sum_plane) + w->shape.width * w->shape.channels;
    case PAIR: return expanded_size(&step->of.pair.depthwise.window);
    default: return 0;
    }
}

static void run_item(const Step *step, int64_t item, float *scratch) {
    const Rows *r = &step->of.rows;
    const int64_t size = r->places * r->channels; /* of a picture, where there are rows */
    switch (step->kind) {
    case CONVOLUTION: product_item(&step->of.product, item, step->items, scratch); break;
    case DEPTHWISE: lines_item(kernels.depthwise, &step->of.depthwise, item, step->items); break;
    case POOL: lines_item(kernels.pool, &step->of.depthwise, item, step->items); break;
    case WINOGRAD: kernels.winograd(&step->of.winograd, item, scratch); break;
    case MEAN: kernels.mean(r->input + item * size, r->places, r->channels, 1.0f / (float)r->places, r->made + item * r->channels); break;
    case SCALE: kernels.scale(r->input + item * size, r->factors + item * r->channels, r->places, r->channels, r->made + item * size); break;
    case LAY: {
        const int64_t lines = step->of.lay.pictures * step->of.lay.made_height, last = lines * (item + 1) / step->items;
        for (int64_t line = lines * item / step->items; line < last; line++)
            kernels.lay(&step->of.lay, line);
        break;
    }
    case PAIR: {
        const Window *w = &step->of.pair.depthwise.window;
        const int64_t parts = step->items / w->pictures, one = item % parts;
        pair_part(&step->of.pair, item / parts, w->made_height * one / parts, w->made_height * (one + 1) / parts, scratch);
        break;
    }
    }
}

/* ------------------------------------------------------------------ a sequence of steps */

typedef struct {
    int64_t count;
    char apart[56]; /* no two of these in one line of the cache */
} Counter;

/* A thread does the items that are its own, those that lie where its last ones did; then what others have not begun. */
static void take_items(const Step *step, Counter *begun, Counter *done, int me, int threads, float *scratch) {
    for (int other = 0; other < threads; other++) {
        const int whose = (me + other) % threads;
        const int64_t first = step->items * whose / threads, count = step->items * (whose + 1) / threads - first;
        for (int64_t i; (i = __atomic_fetch_add(&begun[whose].count, 1, __ATOMIC_RELAXED)) < count;) {
            run_item(step, first + i, scratch);
            __atomic_fetch_add(&done->count, 1, __ATOMIC_RELEASE);
        }
    }
}

/* A step is over when its items are done. Who has none of them is not waited for: it may sleep, or not have a processor. */
static void wait_for(const Step *step, const Counter *done) {
    for (int64_t looks = 0; __atomic_load_n(&done->count, __ATOMIC_ACQUIRE) < step->items; looks++)
        if (looks < 4096)
            __builtin_ia32_pause();
        else
            sched_yield();
}

/* All steps, one after the other. 0 if there was memory for it. */
static int run_steps(Step *steps, int64_t count, int threads) {
    int64_t scratch = 0;
    for (int64_t i = 0; i < count; i++) {
        plan_step(&steps[i], threads);
        scratch = scratch < scratch_of(&steps[i]) ? scratch_of(&steps[i]) : scratch;
    }
    if (count == 1 && steps->items < threads)
        threads = steps->items > 1 ? (int)steps->items : 1;
    scratch = round_up(scratch, 16) + 16;
    float *buffers = room(threads * scratch);
    Counter *counters = calloc(count * (threads + 1), sizeof(Counter)); /* of a step the items that were begun, by whose they are, and those that are done */
    const int failed = buffers == NULL || counters == NULL;
    if (!failed) {
#pragma omp parallel num_threads(threads) if (threads > 1)
        {
            const int me = omp_get_thread_num(), all = omp_get_num_threads();
            for (int64_t i = 0; i < count; i++) {
                Counter *begun = counters + i * (threads + 1), *done = begun + threads;
                take_items(&steps[i], begun, done, me, all, buffers + me * scratch);
                wait_for(&steps[i], done);
            }
        }
    }
    free(buffers);
    free(counters);
    return failed ? -1 : 0;
}
