/* The kernels of _winograd.c for one kind of processor; LANES, MR and NAME as gemm.h takes them. */

#include "winograd_kernels.h"

/* ------------------------------------------------------------------ the convolution */

/* output = input convolved with the filters of `weight`. 0 if there was memory for it. */
static int NAME(convolve)(const Shape *s, const float *input, const float *weight, const Filters *f, float *output, int threads) {
    const int64_t tiles = tiles_of(s), depth = depth_of(s), columns = round_up(s->made_channels, NR);
    const int64_t rows = rows_of_block(tiles, depth + columns, MR, threads), blocks = (tiles + rows - 1) / rows;
    const int64_t filter_plane = columns * depth + APART, patch_plane = rows * round_up(depth, DEPTHS) + APART, sum_plane = rows * columns + APART;
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
                NAME(patches)(s, input, zeros, begin, end, patches, DEPTHS, rows, patch_plane);
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

/* ------------------------------------------------------------------ the gradient of the filters */

INLINE VEC NAME(inside)(const float *at, int is_inside) { return is_inside ? LOAD(at) : (VEC){0}; }

/* A gradient A' of tiles [begin, end) and filters [first, last): made[place][block of filters][tile][DEPTHS]. */
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
            float *to = made + (c / DEPTHS * rows + (tile - begin)) * DEPTHS + c % DEPTHS;
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
        NAME(add_products)(tile, gradients + filter / DEPTHS * rows * DEPTHS + filter % DEPTHS, 1, DEPTHS, panel, tiles);
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
    const int64_t columns = round_up(depth_of(s), NR), patch_plane = rows * columns + APART, gradient_plane = rows * round_up(last - first, DEPTHS) + APART;
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
    const int64_t scratch_size = PLACES * (rows * (columns + round_up(step, DEPTHS)) + 2 * APART), total_plane = filters * columns + APART;
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
