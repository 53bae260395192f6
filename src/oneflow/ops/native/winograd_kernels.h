/* The kernels of _winograd.c for one kind of processor; LANES, MR and NAME as gemm.h takes them. */

#include "gemm.h"

#define VEC NAME(vec)
#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))

/* The processor's max(a, b) and min(a, b) give b if either is a NaN, so a value that comes second stays a NaN. */
#if LANES == 16
INLINE VEC NAME(clipped)(VEC v, float low, float high) { return (VEC)_mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), (__m512)v)); }
#else
INLINE VEC NAME(clipped)(VEC v, float low, float high) { return (VEC)_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), (__m256)v)); }
#endif

/* ------------------------------------------------------------------ filters */

/* G filter G' of LANES filters: nine numbers of each to sixteen. */
INLINE void NAME(filter_places)(const VEC g[9], VEC u[PLACES]) {
    VEC rows[4][3];
    for (int x = 0; x < 3; x++) {
        const VEC ends = (g[x] + g[6 + x]) * 0.5f, middle = g[3 + x] * 0.5f;
        rows[0][x] = g[x];
        rows[1][x] = ends + middle;
        rows[2][x] = ends - middle;
        rows[3][x] = g[6 + x];
    }
    for (int y = 0; y < 4; y++) {
        const VEC ends = (rows[y][0] + rows[y][2]) * 0.5f, middle = rows[y][1] * 0.5f;
        u[y * 4 + 0] = rows[y][0];
        u[y * 4 + 1] = ends + middle;
        u[y * 4 + 2] = ends - middle;
        u[y * 4 + 3] = rows[y][2];
    }
}

typedef int32_t NAME(index) __attribute__((vector_size(4 * LANES)));

/* LANES vectors, transposed: lane l of vector v and lane v of vector l change places, bit by bit of the two numbers. */
INLINE void NAME(transpose)(VEC v[LANES]) {
    NAME(index) lane;
#pragma GCC unroll 16
    for (int l = 0; l < LANES; l++)
        lane[l] = l;
#pragma GCC unroll 4
    for (int bit = 1; bit < LANES; bit *= 2) {
        const NAME(index) is_set = (lane & bit) != 0; /* all bits where it is */
        const NAME(index) low = (is_set & (LANES + (lane ^ bit))) | (~is_set & lane), high = (is_set & (LANES + lane)) | (~is_set & (lane ^ bit));
#pragma GCC unroll 16
        for (int one = 0; one < LANES; one++) {
            if (one & bit)
                continue;
            const VEC first = v[one], second = v[one | bit];
            v[one] = __builtin_shuffle(first, second, low);
            v[one | bit] = __builtin_shuffle(first, second, high);
        }
    }
}

/* taps[d]: one number of LANES filters side by side, of depths [0, count). */
INLINE void NAME(gather_tap)(const float *from, const Filters *f, int64_t count, int64_t columns, VEC taps[LANES]) {
    if (f->column_step == 1 && columns >= LANES) {
        for (int64_t d = 0; d < count; d++)
            taps[d] = LOAD(from + d * f->depth_step);
    } else if (f->depth_step == 1 && columns >= LANES && count == LANES) {
        VEC rows[LANES];
#pragma GCC unroll 16
        for (int l = 0; l < LANES; l++)
            rows[l] = LOAD(from + l * f->column_step);
        NAME(transpose)(rows);
#pragma GCC unroll 16
        for (int d = 0; d < LANES; d++)
            taps[d] = rows[d];
    } else {
        for (int64_t d = 0; d < count; d++) {
            float lanes[LANES] = {0};
            for (int64_t l = 0; l < least(LANES, columns); l++)
                lanes[l] = from[d * f->depth_step + l * f->column_step];
            taps[d] = LOAD(lanes);
        }
    }
}

/* One panel, NR columns of all depths of a part, of each of the 16 places. */
static void NAME(filter_panel)(const float *weight, const Filters *f, int part, int64_t depth, int64_t columns, float *panel, int64_t plane) {
    for (int64_t lane = 0; lane < NR; lane += LANES)
        for (int64_t start = 0; start < depth; start += LANES) {
            const int64_t count = least(LANES, depth - start);
            VEC taps[9][LANES];
            for (int i = 0; i < 9; i++)
                if (f->tap[part][i] < 0)
                    memset(taps[i], 0, sizeof taps[i]);
                else
                    NAME(gather_tap)(weight + lane * f->column_step + start * f->depth_step + f->tap[part][i], f, count, columns - lane, taps[i]);
            for (int64_t d = 0; d < count; d++) {
                VEC g[9], u[PLACES];
                for (int i = 0; i < 9; i++)
                    g[i] = taps[i][d];
                NAME(filter_places)(g, u);
                for (int place = 0; place < PLACES; place++)
                    STORE(panel + place * plane + (start + d) * NR + lane, u[place]);
            }
        }
}

/* ------------------------------------------------------------------ patches of the input */

INLINE void NAME(patch_column)(const float *const rows[4], int64_t at, int inside, VEC column[4]) {
    if (!inside) {
        column[0] = column[1] = column[2] = column[3] = (VEC){0};
        return;
    }
    const VEC d0 = LOAD(rows[0] + at), d1 = LOAD(rows[1] + at), d2 = LOAD(rows[2] + at), d3 = LOAD(rows[3] + at);
    column[0] = d0 - d2;
    column[1] = d1 + d2;
    column[2] = d2 - d1;
    column[3] = d1 - d3;
}

/* B' patch B of the tiles of a run, of LANES channels: `step` floats lie between tiles of what is made, `plane` between places. */
INLINE void NAME(run_of_patches)(
    const float *const rows[4], const Run *run, int64_t width, int64_t channels, int64_t shift, int64_t channel, float *made, int64_t step, int64_t plane
) {
    const int64_t start = run->column * 2 + shift;
    VEC c[4][4];
    for (int x = 0; x < 2; x++)
        NAME(patch_column)(rows, (start + x) * channels + channel, start + x >= 0 && start + x < width, c[x]);
    for (int64_t tile = 0; tile < run->count; tile++) {
        for (int x = 2; x < 4; x++) {
            const int64_t at = start + tile * 2 + x;
            NAME(patch_column)(rows, at * channels + channel, at >= 0 && at < width, c[x]);
        }
        float *to = made + tile * step;
#pragma GCC unroll 4
        for (int y = 0; y < 4; y++) {
            STORE(to + (y * 4 + 0) * plane, c[0][y] - c[2][y]);
            STORE(to + (y * 4 + 1) * plane, c[1][y] + c[2][y]);
            STORE(to + (y * 4 + 2) * plane, c[2][y] - c[1][y]);
            STORE(to + (y * 4 + 3) * plane, c[1][y] - c[3][y]);
            c[0][y] = c[2][y];
            c[1][y] = c[3][y];
        }
    }
}

/* All channels of tiles [begin, end), once for each part of the filters: made[place][group of depths][tile][depth of the group], `rows` tiles in a group. */
static void NAME(patches)(
    const Shape *s, const float *input, const float *zeros, int64_t begin, int64_t end, float *made, int64_t group, int64_t rows, int64_t plane
) {
    for (int64_t tile = begin; tile < end;) {
        const Run run = run_at(s, tile, end);
        for (int64_t part = 0; part < s->parts * s->parts; part++) {
            const float *lines[4];
            for (int y = 0; y < 4; y++) {
                const int64_t line = run.row * 2 - s->pad_height + part / s->parts * 3 + y;
                lines[y] = line >= 0 && line < s->height ? input + (run.picture * s->height + line) * s->width * s->channels : zeros;
            }
            for (int64_t channel = 0; channel < s->channels; channel += LANES) {
                const int64_t depth = part * s->channels + channel;
                float *to = made + (depth / group * rows + (tile - begin)) * group + depth % group;
                NAME(run_of_patches)(lines, &run, s->width, s->channels, part % s->parts * 3 - s->pad_width, channel, to, group, plane);
            }
        }
        tile += run.count;
    }
}

/* ------------------------------------------------------------------ products and outputs */

/* sums[place][row][column] of the first `used` of `rows` tiles, both multiples of MR. */
static void NAME(products)(
    const float *patches, int64_t patch_plane, const float *filters, int64_t filter_plane, int64_t rows, int64_t used, int64_t depth, int64_t columns,
    float *sums, int64_t sum_plane
) {
    for (int place = 0; place < PLACES; place++) {
        for (int64_t column = 0; column < columns; column += NR) {
            const float *panel = filters + place * filter_plane + column * depth;
            for (int64_t row = 0; row < used; row += MR) {
                VEC tile[MR][2] = {0};
                for (int64_t d = 0; d < depth; d += BLOCK) {
                    const float *left = patches + place * patch_plane + (d / BLOCK * rows + row) * BLOCK;
                    NAME(add_products)(tile, left, BLOCK, 1, panel + d * NR, least(BLOCK, depth - d));
                }
                float *to = sums + place * sum_plane + row * columns + column;
#pragma GCC unroll 16
                for (int r = 0; r < MR; r++) {
                    STORE(to + r * columns, tile[r][0]);
                    STORE(to + r * columns + LANES, tile[r][1]);
                }
            }
        }
    }
}

/* What prediction does with an output before it is written: nothing where there is no `finish`. */
INLINE VEC NAME(finished)(VEC v, const Finish *finish, const float *output, const float *at, int64_t channel) {
    if (finish == NULL)
        return v;
    if (finish->bias != NULL)
        v += LOAD(finish->bias + channel);
    if (finish->residual != NULL)
        v += LOAD(finish->residual + (at - output));
    return NAME(clipped)(v, finish->low, finish->high);
}

/* A' sums A of tiles [begin, end) and channels [first, last), written where they are inside of the picture. */
static void NAME(outputs)(
    const Shape *s, const float *sums, int64_t sum_plane, int64_t columns, int64_t begin, int64_t end, int64_t first, int64_t last, const Finish *finish, float *output
) {
    const int64_t channels = s->made_channels;
    for (int64_t tile = begin; tile < end; tile++) {
        const Run at = run_at(s, tile, tile + 1);
        const int64_t row = at.row * 2, column = at.column * 2;
        float *corner = output + ((at.picture * s->made_height + row) * s->made_width + column) * channels;
        const int64_t below = row + 1 < s->made_height ? s->made_width * channels : 0, beside = column + 1 < s->made_width ? channels : 0;
        const float *from = sums + (tile - begin) * columns - first;
        for (int64_t c = first; c < last; c += LANES) {
            VEC m[2][4];
#pragma GCC unroll 4
            for (int x = 0; x < 4; x++) {
                const VEC m0 = LOAD(from + x * sum_plane + c), m1 = LOAD(from + (4 + x) * sum_plane + c), m2 = LOAD(from + (8 + x) * sum_plane + c),
                          m3 = LOAD(from + (12 + x) * sum_plane + c);
                m[0][x] = m0 + m1 + m2;
                m[1][x] = m1 - m2 - m3;
            }
            /* What lies outside is written first, over it what lies inside: the places are the same then. */
            float *to[4] = {corner + below + beside + c, corner + below + c, corner + beside + c, corner + c};
            STORE(to[0], NAME(finished)(m[1][1] - m[1][2] - m[1][3], finish, output, to[0], c));
            STORE(to[1], NAME(finished)(m[1][0] + m[1][1] + m[1][2], finish, output, to[1], c));
            STORE(to[2], NAME(finished)(m[0][1] - m[0][2] - m[0][3], finish, output, to[2], c));
            STORE(to[3], NAME(finished)(m[0][0] + m[0][1] + m[0][2], finish, output, to[3], c));
        }
    }
}

/* ------------------------------------------------------------------ the convolution */

/* output = input convolved with the filters of `weight`. 0 if there was memory for it. */
static int NAME(convolve)(const Shape *s, const float *input, const float *weight, const Filters *f, float *output, int threads) {
    const int64_t tiles = tiles_of(s), depth = depth_of(s), columns = round_up(s->made_channels, NR);
    const int64_t rows = rows_of_block(tiles, depth + columns, MR, threads), blocks = (tiles + rows - 1) / rows;
    const int64_t filter_plane = columns * depth + APART, patch_plane = rows * round_up(depth, BLOCK) + APART, sum_plane = rows * columns + APART;
    float *filters = room(PLACES * filter_plane), *zeros = calloc(s->width * s->channels, sizeof(float));
    float *scratch = room(threads * PLACES * (patch_plane + sum_plane));
    const int failed = filters == NULL || zeros == NULL || scratch == NULL;
    if (!failed) {
#pragma omp parallel num_threads(threads)
        {
            float *patches = scratch + omp_get_thread_num() * PLACES * (patch_plane + sum_plane), *sums = patches + PLACES * patch_plane;
            memset(patches, 0, PLACES * patch_plane * sizeof(float)); /* rows that fill up a tile are computed too */
#pragma omp for schedule(static)
            for (int64_t column = 0; column < columns; column += NR)
                for (int part = 0; part < s->parts * s->parts; part++)
                    NAME(filter_panel)(
                        weight + column * f->column_step, f, part, s->channels, s->made_channels - column,
                        filters + column * depth + part * s->channels * NR, filter_plane
                    );
#pragma omp for schedule(static) nowait
            for (int64_t block = 0; block < blocks; block++) {
                const int64_t begin = block * rows, end = least(begin + rows, tiles);
                NAME(patches)(s, input, zeros, begin, end, patches, BLOCK, rows, patch_plane);
                NAME(products)(patches, patch_plane, filters, filter_plane, rows, round_up(end - begin, MR), depth, columns, sums, sum_plane);
                NAME(outputs)(s, sums, sum_plane, columns, begin, end, 0, s->made_channels, NULL, output);
            }
        }
    }
    free(filters);
    free(zeros);
    free(scratch);
    return failed ? -1 : 0;
}

/* ------------------------------------------------------------------ the convolution of prediction */

/* How far apart the 16 places of prepared filters lie. */
static int64_t NAME(prepared_plane)(int64_t depth, int64_t columns) { return round_up(columns, NR) * depth + APART; }

/* The filters of `weight` as the products take them. */
static void NAME(prepare)(const float *weight, const Filters *f, int64_t depth, int64_t columns, float *filters) {
    for (int64_t column = 0; column < columns; column += NR)
        NAME(filter_panel)(
            weight + column * f->column_step, f, 0, depth, columns - column, filters + column * depth, NAME(prepared_plane)(depth, columns)
        );
}

/* output = input convolved with prepared filters, finished. Threads share blocks of tiles; or columns where there are few tiles, since each reads all its filters. */
static int NAME(predict)(const Shape *s, const float *input, const float *filters, const Finish *finish, float *output, int threads) {
    const int64_t tiles = tiles_of(s), channels = s->channels, columns = round_up(s->made_channels, NR), panels = columns / NR;
    const int64_t shares = tiles < 64 * threads ? least(threads, panels) : 1, widest = (panels + shares - 1) / shares * NR;
    const int64_t rows = rows_of_block(tiles, channels + widest, MR, shares > 1 ? 1 : threads), blocks = (tiles + rows - 1) / rows;
    const int64_t filter_plane = NAME(prepared_plane)(channels, s->made_channels), patch_plane = rows * round_up(channels, BLOCK) + APART, sum_plane = rows * widest + APART;
    const int64_t items = blocks * shares;
    const int count = (int)least(threads, items);
    float *zeros = calloc(s->width * channels, sizeof(float)), *scratch = room(count * PLACES * (patch_plane + sum_plane));
    const int failed = zeros == NULL || scratch == NULL;
    if (!failed) {
#pragma omp parallel num_threads(count) if (count > 1)
        {
            float *patches = scratch + omp_get_thread_num() * PLACES * (patch_plane + sum_plane), *sums = patches + PLACES * patch_plane;
            if (tiles % MR) /* rows that fill up a tile are computed too */
                memset(patches, 0, PLACES * patch_plane * sizeof(float));
#pragma omp for schedule(static)
            for (int64_t item = 0; item < items; item++) {
                const int64_t share = item % shares, begin = item / shares * rows, end = least(begin + rows, tiles);
                const int64_t first = panels * share / shares * NR, width = panels * (share + 1) / shares * NR - first;
                NAME(patches)(s, input, zeros, begin, end, patches, BLOCK, rows, patch_plane);
                NAME(products)(
                    patches, patch_plane, filters + first * channels, filter_plane, rows, round_up(end - begin, MR), channels, width, sums, sum_plane
                );
                NAME(outputs)(s, sums, sum_plane, width, begin, end, first, least(first + width, s->made_channels), finish, output);
            }
        }
    }
    free(zeros);
    free(scratch);
    return failed ? -1 : 0;
}

/* ------------------------------------------------------------------ the gradient of the filters */

INLINE VEC NAME(inside)(const float *at, int is_inside) { return is_inside ? LOAD(at) : (VEC){0}; }

/* A gradient A' of tiles [begin, end) and filters [first, last): made[place][block of filters][tile][BLOCK]. */
static void NAME(gradient_places)(
    const Shape *s, const float *gradient, int64_t begin, int64_t end, int64_t first, int64_t last, float *made, int64_t rows, int64_t plane
) {
    const int64_t channels = s->made_channels;
    for (int64_t tile = begin; tile < end; tile++) {
        const Run at = run_at(s, tile, tile + 1);
        const int64_t row = at.row * 2, column = at.column * 2;
        const float *corner = gradient + ((at.picture * s->made_height + row) * s->made_width + column) * channels + first;
        const int below = row + 1 < s->made_height, beside = column + 1 < s->made_width;
        for (int64_t c = 0; c < last - first; c += LANES) {
            const VEC g0 = LOAD(corner + c), g1 = NAME(inside)(corner + channels + c, beside), g2 = NAME(inside)(corner + s->made_width * channels + c, below),
                      g3 = NAME(inside)(corner + (s->made_width + 1) * channels + c, below && beside);
            const VEC left[4] = {g0, g0 + g2, g0 - g2, -g2}, right[4] = {g1, g1 + g3, g1 - g3, -g3};
            float *to = made + (c / BLOCK * rows + (tile - begin)) * BLOCK + c % BLOCK;
#pragma GCC unroll 4
            for (int y = 0; y < 4; y++) {
                STORE(to + (y * 4 + 0) * plane, left[y]);
                STORE(to + (y * 4 + 1) * plane, left[y] + right[y]);
                STORE(to + (y * 4 + 2) * plane, left[y] - right[y]);
                STORE(to + (y * 4 + 3) * plane, -right[y]);
            }
        }
    }
}

/* totals[filter][column] of one place and panel (+)= the sum over tiles of gradient(filter, tile) * patch(tile, column). */
static void NAME(products_over_tiles)(
    const float *gradients, const float *panel, int64_t rows, int64_t tiles, int64_t filters, float *totals, int64_t columns, int is_first
) {
    for (int64_t filter = 0; filter < filters; filter += MR) {
        VEC tile[MR][2] = {0};
        float *to = totals + filter * columns;
        NAME(add_products)(tile, gradients + filter / BLOCK * rows * BLOCK + filter % BLOCK, 1, BLOCK, panel, tiles);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++) { /* a block's sum begins at zero, so that long sums lose fewer digits */
            if (!is_first) {
                tile[r][0] += LOAD(to + r * columns);
                tile[r][1] += LOAD(to + r * columns + LANES);
            }
            STORE(to + r * columns, tile[r][0]);
            STORE(to + r * columns + LANES, tile[r][1]);
        }
    }
}

/* totals[place][filter][column] of filters [first, last): sums over tiles [begin, end), `rows` at a time. */
static void NAME(sum_tiles)(
    const Shape *s, const float *input, const float *gradient, const float *zeros, int64_t begin, int64_t end, int64_t first, int64_t last, int64_t rows, float *patches,
    float *totals, int64_t total_plane
) {
    const int64_t columns = round_up(depth_of(s), NR), patch_plane = rows * columns + APART, gradient_plane = rows * round_up(last - first, BLOCK) + APART;
    float *gradients = patches + PLACES * patch_plane;
    if (columns > depth_of(s)) /* columns that fill up a panel are computed too */
        memset(patches, 0, PLACES * patch_plane * sizeof(float));
    for (int64_t tile = begin; tile < end; tile += rows) {
        const int64_t count = least(rows, end - tile);
        NAME(patches)(s, input, zeros, tile, tile + count, patches, NR, rows, patch_plane);
        NAME(gradient_places)(s, gradient, tile, tile + count, first, last, gradients, rows, gradient_plane);
        for (int place = 0; place < PLACES; place++)
            for (int64_t column = 0; column < columns; column += NR)
                NAME(products_over_tiles)(
                    gradients + place * gradient_plane, patches + place * patch_plane + column * rows, rows, count, last - first,
                    totals + place * total_plane + first * columns + column, columns, tile == begin
                );
    }
}

/* The sum of one number of all copies of the totals. */
INLINE VEC NAME(total)(const float *totals, int64_t plane, int64_t copies) {
    VEC sum = LOAD(totals);
    for (int64_t copy = 1; copy < copies; copy++)
        sum += LOAD(totals + copy * PLACES * plane);
    return sum;
}

/* G' totals G of LANES channels of one filter, written tap by tap. */
INLINE void NAME(filter_gradient)(const float *totals, int64_t plane, int64_t copies, float *made, int64_t channel_step, const int64_t tap[9]) {
    VEC h[3][4];
#pragma GCC unroll 4
    for (int x = 0; x < 4; x++) {
        VEC u[4];
        for (int y = 0; y < 4; y++)
            u[y] = NAME(total)(totals + (y * 4 + x) * plane, plane, copies);
        const VEC half = (u[1] + u[2]) * 0.5f;
        h[0][x] = u[0] + half;
        h[1][x] = (u[1] - u[2]) * 0.5f;
        h[2][x] = half + u[3];
    }
#pragma GCC unroll 3
    for (int y = 0; y < 3; y++) {
        const VEC half = (h[y][1] + h[y][2]) * 0.5f, taps[3] = {h[y][0] + half, (h[y][1] - h[y][2]) * 0.5f, half + h[y][3]};
        for (int x = 0; x < 3; x++)
            if (tap[y * 3 + x] < 0)
                continue;
            else if (channel_step == 1)
                STORE(made + tap[y * 3 + x], taps[x]);
            else
                for (int l = 0; l < LANES; l++)
                    made[tap[y * 3 + x] + l * channel_step] = taps[x][l];
    }
}

/* made = the gradient of filters, which lie as `f` says. Threads share filters out, and tiles where there are more threads than filters to share: those have copies
 * of the totals, which are added up. 0 if there was memory for it. */
static int NAME(convolve_filters)(const Shape *s, const float *input, const float *gradient, const Filters *f, float *made, int threads) {
    const int64_t tiles = tiles_of(s), depth = depth_of(s), columns = round_up(depth, NR), filters = s->made_channels;
    const int64_t shares = least(threads, (filters + 31) / 32), copies = least(threads / shares, tiles), step = round_up((filters + shares - 1) / shares, LANES);
    const int64_t rows = rows_of_sum((tiles + copies - 1) / copies, depth, step);
    const int64_t scratch_size = PLACES * (rows * (columns + round_up(step, BLOCK)) + 2 * APART), total_plane = filters * columns + APART;
    float *scratch = room(shares * copies * scratch_size), *totals = room(copies * PLACES * total_plane), *zeros = calloc(s->width * s->channels, sizeof(float));
    const int failed = scratch == NULL || totals == NULL || zeros == NULL;
    if (!failed) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int64_t item = 0; item < shares * copies; item++) {
            const int64_t copy = item / shares, first = item % shares * step, last = least(first + step, filters);
            if (first < last)
                NAME(sum_tiles)(
                    s, input, gradient, zeros, tiles * copy / copies, tiles * (copy + 1) / copies, first, last, rows, scratch + item * scratch_size,
                    totals + copy * PLACES * total_plane, total_plane
                );
        }
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t filter = 0; filter < filters; filter++)
            for (int64_t d = 0; d < depth; d += LANES)
                NAME(filter_gradient)(
                    totals + filter * columns + d, total_plane, copies, made + filter * f->column_step + d % s->channels * f->depth_step, f->depth_step,
                    f->tap[d / s->channels]
                );
    }
    free(scratch);
    free(totals);
    free(zeros);
    return failed ? -1 : 0;
}

#undef VEC
#undef LOAD
#undef STORE
#undef NR
