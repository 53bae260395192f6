/* Prediction by Winograd's filtering, for one kind of processor; LANES, MR and NAME as gemm.h takes them. */

#include "winograd_kernels.h"

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

/* Has threads share blocks of tiles; or columns where there are few tiles, since each reads all its filters. */
static void NAME(plan_winograd)(Winograd *w, int threads) {
    const Shape *s = &w->shape;
    const int64_t tiles = tiles_of(s), panels = round_up(s->made_channels, NR) / NR;
    w->shares = tiles < 64 * threads ? least(threads, panels) : 1;
    w->widest = (panels + w->shares - 1) / w->shares * NR;
    const int64_t sharing = w->shares > 1 ? 1 : threads, fit = rows_of_block(tiles, s->channels + w->widest, MR, (int)sharing);
    w->blocks = round_up((tiles + fit - 1) / fit, sharing);
    w->rows = round_up((tiles + w->blocks - 1) / w->blocks, MR) + MR; /* at most, since blocks begin at multiples of MR */
    w->patch_plane = w->rows * round_up(s->channels, DEPTHS) + APART;
    w->sum_plane = w->rows * w->widest + APART;
}

/* Patches that fill up a tile of the product are computed too. */
INLINE void NAME(clear_patches)(const Winograd *w, int64_t from, int64_t to, float *patches) {
    for (int place = 0; place < PLACES && from < to; place++)
        for (int64_t group = 0; group < w->shape.channels; group += DEPTHS)
            memset(patches + place * w->patch_plane + (group / DEPTHS * w->rows + from) * DEPTHS, 0, (to - from) * DEPTHS * sizeof(float));
}

/* One of blocks * shares items: a convolution with prepared filters, finished. */
static void NAME(winograd_item)(const Winograd *w, int64_t item, float *scratch) {
    const Shape *s = &w->shape;
    const int64_t tiles = tiles_of(s), panels = round_up(s->made_channels, NR) / NR, share = item % w->shares, block = item / w->shares;
    const int64_t begin = tiles * block / w->blocks / MR * MR, end = block + 1 == w->blocks ? tiles : tiles * (block + 1) / w->blocks / MR * MR;
    const int64_t first = panels * share / w->shares * NR, width = panels * (share + 1) / w->shares * NR - first, used = round_up(end - begin, MR);
    float *patches = scratch, *sums = patches + PLACES * w->patch_plane, *zeros = sums + PLACES * w->sum_plane;
    memset(zeros, 0, s->width * s->channels * sizeof(float));
    NAME(clear_patches)(w, end - begin, used, patches);
    NAME(patches)(s, w->input, zeros, begin, end, patches, DEPTHS, w->rows, w->patch_plane);
    NAME(products)(
        patches, w->patch_plane, w->filters + first * s->channels, NAME(prepared_plane)(s->channels, s->made_channels), w->rows, used, s->channels, width, sums,
        w->sum_plane
    );
    NAME(outputs)(s, sums, w->sum_plane, width, begin, end, first, least(first + width, s->made_channels), &w->ending, w->made);
}

#undef VEC
#undef LOAD
#undef STORE
#undef NR
