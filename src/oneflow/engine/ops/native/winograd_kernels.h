/* What training and prediction by Winograd's filtering share, for one kind of processor; LANES, MR and NAME as gemm.h takes them. */

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
                for (int64_t d = 0; d < depth; d += DEPTHS) {
                    const float *left = patches + place * patch_plane + (d / DEPTHS * rows + row) * DEPTHS;
                    NAME(add_products)(tile, left, DEPTHS, 1, panel + d * NR, least(DEPTHS, depth - d));
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

/* What prediction does with an output before it is written: nothing where there is no `ending`. */
INLINE VEC NAME(endinged)(VEC v, const Ending *ending, const float *output, const float *at, int64_t channel) {
    if (ending == NULL)
        return v;
    if (ending->bias != NULL)
        v += LOAD(ending->bias + channel);
    if (ending->residual != NULL)
        v += LOAD(ending->residual + (at - output));
    return NAME(clipped)(v, ending->low, ending->high);
}

/* A' sums A of tiles [begin, end) and channels [first, last), written where they are inside of the picture. */
static void NAME(outputs)(
    const Shape *s, const float *sums, int64_t sum_plane, int64_t columns, int64_t begin, int64_t end, int64_t first, int64_t last, const Ending *ending, float *output
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
            STORE(to[0], NAME(endinged)(m[1][1] - m[1][2] - m[1][3], ending, output, to[0], c));
            STORE(to[1], NAME(endinged)(m[1][0] + m[1][1] + m[1][2], ending, output, to[1], c));
            STORE(to[2], NAME(endinged)(m[0][1] - m[0][2] - m[0][3], ending, output, to[2], c));
            STORE(to[3], NAME(endinged)(m[0][0] + m[0][1] + m[0][2], ending, output, to[3], c));
        }
    }
}
