/* The kernels of steps.h for one kind of processor. Included once per kind, with LANES floats of a vector register, tiles of MR rows, and NAME(x): x with
 * an ending of that kind. */

#if LANES == 16
#define VEC __m512
#define MASK __mmask16
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define ALL(x) _mm512_set1_ps(x)
#define ADD _mm512_add_ps
#define SUB _mm512_sub_ps
#define MUL _mm512_mul_ps
#define DIV _mm512_div_ps
#define FMA _mm512_fmadd_ps
#define HALF_FMA(a, b, c) \
    _mm512_castps256_ps512(_mm256_fmadd_ps(_mm512_castps512_ps256(a), _mm512_castps512_ps256(b), _mm512_castps512_ps256(c)))
#define MAX _mm512_max_ps
#define MIN _mm512_min_ps
#define ABS _mm512_abs_ps
#define SOME(p, mask) _mm512_maskz_loadu_ps(mask, p)
#define STORE_SOME(p, mask, v) _mm512_mask_storeu_ps(p, mask, v)
#define FIRST(count) ((__mmask16)((1u << (count)) - 1u))
#define SIGN_OF(sign, v) _mm512_castsi512_ps(_mm512_or_epi32(_mm512_and_epi32(_mm512_castps_si512(sign), _mm512_set1_epi32(INT32_MIN)), _mm512_castps_si512(v)))
#define OR_NAN(v, other) _mm512_mask_mov_ps(other, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v)
#define WHOLE(v) _mm512_roundscale_ps(v, 8)
#define POWER(n) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23))
#else
#define VEC __m256
#define MASK __m256i
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define ALL(x) _mm256_set1_ps(x)
#define ADD _mm256_add_ps
#define SUB _mm256_sub_ps
#define MUL _mm256_mul_ps
#define DIV _mm256_div_ps
#define FMA _mm256_fmadd_ps
#define HALF_FMA FMA
#define MAX _mm256_max_ps
#define MIN _mm256_min_ps
#define ABS(v) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)
#define SOME(p, mask) _mm256_maskload_ps(p, mask)
#define STORE_SOME(p, mask, v) _mm256_maskstore_ps(p, mask, v)
#define FIRST(count) _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define SIGN_OF(sign, v) _mm256_or_ps(_mm256_and_ps(sign, _mm256_set1_ps(-0.0f)), v)
#define OR_NAN(v, other) _mm256_blendv_ps(other, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q))
#define WHOLE(v) _mm256_round_ps(v, 8)
#define POWER(n) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23))
#endif

/* ------------------------------------------------------------------ activations */

/* The processor's max(a, b) and min(a, b) give b if either is a NaN, so a value that comes second stays a NaN. */
INLINE VEC NAME(clip)(VEC v, float low, float high) { return MIN(ALL(high), MAX(ALL(low), v)); }

/* e^v within two units of the last place; 0 and infinity beyond what a float holds. */
INLINE VEC NAME(exponential)(VEC v) {
    v = NAME(clip)(v, -104.0f, 89.0f);
    const VEC n = WHOLE(MUL(v, ALL(1.44269504f)));
    const VEC r = FMA(n, ALL(2.12194440e-4f), FMA(n, ALL(-0.693359375f), v));
    VEC p = FMA(ALL(1.9875691500e-4f), r, ALL(1.3981999507e-3f));
    p = FMA(p, r, ALL(8.3334519073e-3f));
    p = FMA(p, r, ALL(4.1665795894e-2f));
    p = FMA(p, r, ALL(1.6666665459e-1f));
    p = FMA(p, r, ALL(5.0000001201e-1f));
    p = ADD(FMA(p, MUL(r, r), r), ALL(1.0f));
    const VEC half = WHOLE(MUL(n, ALL(0.5f))); /* 2^n in two factors, each of which a float holds */
    return MUL(MUL(p, POWER(half)), POWER(SUB(n, half)));
}

INLINE VEC NAME(sigmoid)(VEC v) { return DIV(ALL(1.0f), ADD(ALL(1.0f), NAME(exponential)(SUB(ALL(0.0f), v)))); }

/* Abramowitz and Stegun 7.1.26, within 1.5e-7. */
INLINE VEC NAME(error_function)(VEC v) {
    const VEC x = ABS(v), t = DIV(ALL(1.0f), FMA(x, ALL(0.3275911f), ALL(1.0f)));
    VEC p = FMA(ALL(1.061405429f), t, ALL(-1.453152027f));
    p = FMA(p, t, ALL(1.421413741f));
    p = FMA(p, t, ALL(-0.284496736f));
    p = MUL(FMA(p, t, ALL(0.254829592f)), t);
    return SIGN_OF(v, SUB(ALL(1.0f), MUL(p, NAME(exponential)(SUB(ALL(0.0f), MUL(x, x))))));
}

INLINE VEC NAME(hyperbolic_tangent)(VEC v) { return SUB(ALL(1.0f), DIV(ALL(2.0f), ADD(ALL(1.0f), NAME(exponential)(ADD(v, v))))); }

INLINE VEC NAME(activated)(VEC v, const int kind) {
    switch (kind) {
    case HARD_SWISH: return DIV(MUL(v, NAME(clip)(ADD(v, ALL(3.0f)), 0.0f, 6.0f)), ALL(6.0f));
    case HARD_SIGMOID: return DIV(NAME(clip)(ADD(v, ALL(3.0f)), 0.0f, 6.0f), ALL(6.0f));
    case SILU: return DIV(v, ADD(ALL(1.0f), NAME(exponential)(SUB(ALL(0.0f), v))));
    case SIGMOID: return NAME(sigmoid)(v);
    case GELU: return MUL(MUL(v, ALL(0.5f)), ADD(ALL(1.0f), NAME(error_function)(MUL(v, ALL(0.70710678f)))));
    case GELU_TANH: {
        const VEC inner = MUL(ALL(0.79788456f), FMA(MUL(MUL(v, v), v), ALL(0.044715f), v));
        return MUL(MUL(v, ALL(0.5f)), ADD(ALL(1.0f), NAME(hyperbolic_tangent)(inner)));
    }
    default: return v;
    }
}

INLINE void NAME(activate_kind)(float *at, int64_t count, const int kind) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        STORE(at + i, NAME(activated)(LOAD(at + i), kind));
    if (i < count)
        STORE_SOME(at + i, FIRST(count - i), NAME(activated)(SOME(at + i, FIRST(count - i)), kind));
}

/* Numbers that were just stored, and so are in the nearest cache: these activations take more registers than a tile leaves. */
static void NAME(activate)(float *at, int64_t count, int kind) {
    switch (kind) {
    case HARD_SWISH: NAME(activate_kind)(at, count, HARD_SWISH); break;
    case HARD_SIGMOID: NAME(activate_kind)(at, count, HARD_SIGMOID); break;
    case SILU: NAME(activate_kind)(at, count, SILU); break;
    case SIGMOID: NAME(activate_kind)(at, count, SIGMOID); break;
    case GELU: NAME(activate_kind)(at, count, GELU); break;
    case GELU_TANH: NAME(activate_kind)(at, count, GELU_TANH); break;
    }
}

/* ------------------------------------------------------------------ products */

/* A tile of `rows` x `vectors` * LANES sums in registers: what is there already, or the bias if it `begins`, plus left x right; finished if there is a `finish`.
 * Of the last vector a part counts if it is `cut`; where that is no more than a HALF, the shorter instruction is enough, and as fast or faster.
 * Rows of the left, the first of which is `row`, lie a step apart: three of them at constant multiples of it from one pointer, since there are not registers for all. */
INLINE void NAME(tile)(
    const int rows, const int vectors, const Operand *left, int64_t row, const float *right, int64_t depth, float *made, int64_t made_step, int begins,
    const Finish *finish, const float *bias, const float *residual, MASK last, const int cut
) {
    VEC sums[MR][2];
    const char *from[(MR + 2) / 3];
    const int64_t step = left->step * 4, on = (left->segment_step - depth) * 4;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        const VEC first = bias == NULL ? ALL(0.0f) : LOAD(bias + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            sums[r][v] = begins ? first : (cut && v == vectors - 1) ? SOME(made + r * made_step + v * LANES, last) : LOAD(made + r * made_step + v * LANES);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r += 3)
        from[r / 3] = (const char *)(left->at + (row + r) * left->step);
    if (begins && depth > 24) /* what will be written is fetched while the sums are made */
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                __builtin_prefetch(made + r * made_step + v * LANES, 1);
    if (residual != NULL)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                __builtin_prefetch(residual + r * made_step + v * LANES);
#define ONE_DEPTH(at) \
    { \
        VEC b[2]; \
        _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) b[v] = LOAD(right + (at) * PANEL + v * LANES); \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) { \
            const VEC one = ALL(*(const float *)(from[r / 3] + (r % 3) * step + (at) * 4)); \
            _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) sums[r][v] = cut == HALF && v == vectors - 1 ? HALF_FMA(one, b[v], sums[r][v]) : FMA(one, b[v], sums[r][v]); \
        } \
    }
    for (int64_t segment = 0;;) {
        int64_t d = 0;
        for (; d + 4 <= depth; d += 4) {
            ONE_DEPTH(0) ONE_DEPTH(1) ONE_DEPTH(2) ONE_DEPTH(3)
            right += 4 * PANEL;
#pragma GCC unroll 16
            for (int r = 0; r < rows; r += 3)
                from[r / 3] += 16;
        }
        for (; d < depth; d++) {
            ONE_DEPTH(0)
            right += PANEL;
#pragma GCC unroll 16
            for (int r = 0; r < rows; r += 3)
                from[r / 3] += 4;
        }
        if (++segment >= left->segments)
            break;
#pragma GCC unroll 16
        for (int r = 0; r < rows; r += 3)
            from[r / 3] += on;
    }
#undef ONE_DEPTH
    if (residual != NULL)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                const float *other = residual + r * made_step + v * LANES;
                sums[r][v] = ADD(sums[r][v], (cut && v == vectors - 1) ? SOME(other, last) : LOAD(other));
            }
    if (finish != NULL && finish->kind == CLIP) {
        const VEC low = ALL(finish->low), high = ALL(finish->high);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sums[r][v] = MIN(high, MAX(low, sums[r][v]));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *to = made + r * made_step + v * LANES;
            if (cut && v == vectors - 1)
                STORE_SOME(to, last, sums[r][v]);
            else
                STORE(to, sums[r][v]);
        }
}

#define CASES(r, vectors, cut) \
    case r: NAME(tile)(r, vectors, left, row, right, depth, made, made_step, begins, finish, bias, residual, last, cut); break;
#if MR == 14
#define ALL_CASES(vectors, cut) \
    CASES(1, vectors, cut) CASES(2, vectors, cut) CASES(3, vectors, cut) CASES(4, vectors, cut) CASES(5, vectors, cut) CASES(6, vectors, cut) \
    CASES(7, vectors, cut) CASES(8, vectors, cut) CASES(9, vectors, cut) CASES(10, vectors, cut) CASES(11, vectors, cut) CASES(12, vectors, cut) \
    CASES(13, vectors, cut) CASES(14, vectors, cut)
#else
#define ALL_CASES(vectors, cut) \
    CASES(1, vectors, cut) CASES(2, vectors, cut) CASES(3, vectors, cut) CASES(4, vectors, cut) CASES(5, vectors, cut) CASES(6, vectors, cut)
#endif

#define TILES(name, vectors, cut) \
    static void NAME(name)( \
        int rows, const Operand *left, int64_t row, const float *right, int64_t depth, float *made, int64_t made_step, int begins, const Finish *finish, \
        const float *bias, const float *residual, MASK last \
    ) { \
        switch (rows) { ALL_CASES(vectors, cut) } \
    }
TILES(wide_tiles, 2, 0)
TILES(wide_cut_tiles, 2, CUT)
TILES(narrow_tiles, 1, 0)
TILES(narrow_cut_tiles, 1, CUT)
#if LANES == 16
TILES(wide_half_tiles, 2, HALF)
TILES(narrow_half_tiles, 1, HALF)
#endif
#undef TILES
#undef CASES
#undef ALL_CASES

/* The columns [column, column + width) of rows [row, row + rows), width at most PANEL: a panel of the right operand that begins at `right`. */
static void NAME(panel)(
    const Product *p, const Operand *left, const float *right, int64_t depth, int64_t row, int64_t rows, int64_t column, int64_t width, int begins, int ends
) {
    const int64_t blocks = (rows + MR - 1) / MR;
    for (int64_t start = 0; start < width; start += 2 * LANES) {
        const int64_t here = least(2 * LANES, width - start), tail = here % LANES;
        const MASK last = FIRST(tail);
        const float *bias = begins && p->finish.bias != NULL ? p->finish.bias + column + start : NULL;
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t begin = rows * block / blocks, end = rows * (block + 1) / blocks;
            float *made = p->made + (row + begin) * p->columns + column + start;
            const float *residual = ends && p->residual != NULL ? p->residual + (made - p->made) : NULL;
#define ARGUMENTS \
    (int)(end - begin), left, begin, right + start, depth, made, p->columns, begins, ends ? &p->finish : NULL, bias, residual, last
            if (here == 2 * LANES)
                NAME(wide_tiles)(ARGUMENTS);
#if LANES == 16
            else if (here > LANES && tail <= LANES / 2)
                NAME(wide_half_tiles)(ARGUMENTS);
            else if (here <= LANES / 2)
                NAME(narrow_half_tiles)(ARGUMENTS);
#endif
            else if (here > LANES)
                NAME(wide_cut_tiles)(ARGUMENTS);
            else if (here == LANES)
                NAME(narrow_tiles)(ARGUMENTS);
            else
                NAME(narrow_cut_tiles)(ARGUMENTS);
#undef ARGUMENTS
            if (ends && p->finish.kind >= HARD_SWISH)
                for (int64_t r = 0; r < end - begin; r++)
                    NAME(activate)(made + r * p->columns, here, p->finish.kind);
        }
    }
}

INLINE void NAME(copy)(const float *from, int64_t count, float *to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        STORE(to + i, LOAD(from + i));
    if (i < count)
        STORE_SOME(to + i, FIRST(count - i), SOME(from + i, FIRST(count - i)));
}

INLINE void NAME(clear)(int64_t count, float *to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        STORE(to + i, ALL(0.0f));
    if (i < count)
        STORE_SOME(to + i, FIRST(count - i), ALL(0.0f));
}

/* The numbers [begin, end) of the rows [row, row + rows) of a convolution, which lie `step` apart in `to`. */
static void NAME(gather)(const Product *p, int64_t row, int64_t rows, int64_t begin, int64_t end, float *to, int64_t step) {
    const Window *w = &p->window;
    const int64_t channels = w->channels, across = w->across_width;
    const int64_t line = begin / (across * channels), inside = begin % (across * channels); /* of a filter, the line and the number in it that come first */
    int64_t column = row % w->made_width, height = row / w->made_width % w->made_height, picture = row / w->made_width / w->made_height;
    for (int64_t r = 0; r < rows; r++, to += step) {
        const int64_t top = height * w->stride_height - w->pad_height, left = column * w->stride_width - w->pad_width;
        const float *image = p->input + picture * w->height * w->width * channels;
        const int is_joined = p->apart_width == 1 && left >= 0 && left + across <= w->width; /* the taps of a line lie side by side */
        float *at = to;
        int64_t tap_line = line, skip = inside;
        for (int64_t wanted = end - begin; wanted > 0; tap_line++, skip = 0) {
            const int64_t y = top + tap_line * p->apart_height, count = least(across * channels - skip, wanted);
            const float *pixels = image + y * w->width * channels;
            wanted -= count;
            if (y < 0 || y >= w->height) {
                NAME(clear)(count, at);
                at += count;
            } else if (is_joined) {
                NAME(copy)(pixels + left * channels + skip, count, at);
                at += count;
            } else {
                for (int64_t done = skip; done < skip + count;) {
                    const int64_t tap = done / channels, x = left + tap * p->apart_width, some = least((tap + 1) * channels, skip + count) - done;
                    if (x < 0 || x >= w->width)
                        NAME(clear)(some, at);
                    else
                        NAME(copy)(pixels + x * channels + done - tap * channels, some, at);
                    done += some;
                    at += some;
                }
            }
        }
        if (++column == w->made_width) {
            column = 0;
            if (++height == w->made_height) {
                height = 0;
                picture++;
            }
        }
    }
}

/* ------------------------------------------------------------------ depthwise */

#define OUTPUTS 7
#define WIDEST (2 * (OUTPUTS - 1) + 7) /* columns of the input that so many outputs read */

/* `count` outputs in a row, of at most LANES channels. At an edge the columns of the input have masks: none of the channels where they are outside. */
INLINE void NAME(depthwise_places)(
    const int count, const int across, const int stride, const int is_edge, const Depthwise *d, const float *at, int64_t row_step, const float *weight, int top,
    int bottom, float *made, VEC bias, const MASK *inside, MASK some
) {
    VEC sums[OUTPUTS];
    const int64_t channels = d->window.channels;
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        sums[i] = bias;
    for (int y = top; y < bottom; y++) {
        const float *row = at + y * row_step, *taps = weight + y * across * channels;
        VEC w[7];
#pragma GCC unroll 7
        for (int x = 0; x < across; x++)
            w[x] = is_edge ? SOME(taps + x * channels, some) : LOAD(taps + x * channels);
#pragma GCC unroll 20
        for (int column = 0; column < (count - 1) * stride + across; column++) {
            const VEC v = is_edge ? SOME(row + column * channels, inside[column]) : LOAD(row + column * channels);
#pragma GCC unroll 7
            for (int x = 0; x < across; x++)
                if (column >= x && (column - x) % stride == 0 && (column - x) / stride < count)
                    sums[(column - x) / stride] = FMA(v, w[x], sums[(column - x) / stride]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        const VEC v = NAME(clip)(sums[i], d->finish.low, d->finish.high);
        if (is_edge)
            STORE_SOME(made + i * channels, some, v);
        else
            STORE(made + i * channels, v);
    }
}

INLINE void NAME(depthwise_line)(const int across, const int stride, const Depthwise *d, int64_t picture, int64_t row, int64_t channel) {
    const int64_t channels = d->window.channels, first = row * d->window.stride_height - d->window.pad_height, count = least(LANES, channels - channel);
    const int top = first < 0 ? (int)-first : 0, bottom = (int)least(d->window.across_height, d->window.height - first);
    const float *input = d->input + ((picture * d->window.height + first) * d->window.width - d->window.pad_width) * channels + channel;
    const MASK some = FIRST(count), nothing = FIRST(0);
    const VEC bias = d->finish.bias == NULL ? ALL(0.0f) : SOME(d->finish.bias + channel, some);
    float *made = d->made + (picture * d->window.made_height + row) * d->window.made_width * channels + channel;
    for (int64_t column = 0; column < d->window.made_width;) {
        const int64_t left = d->window.made_width - column, places = left >= OUTPUTS ? OUTPUTS : left >= 2 ? 2 : 1;
        const int64_t start = column * stride - d->window.pad_width, last = start + (places - 1) * stride + across;
        const float *at = input + column * stride * channels;
        MASK inside[WIDEST];
        const int is_edge = start < 0 || last > d->window.width || count < LANES;
        if (is_edge)
            for (int64_t x = start; x < last; x++)
                inside[x - start] = x >= 0 && x < d->window.width ? some : nothing;
#define WITH(places, is_edge) \
    NAME(depthwise_places)(places, across, stride, is_edge, d, at, d->window.width *channels, d->weight + channel, top, bottom, made + column * channels, bias, inside, some)
        switch (places * 2 + is_edge) {
        case OUTPUTS * 2 + 1: WITH(OUTPUTS, 1); break;
        case OUTPUTS * 2: WITH(OUTPUTS, 0); break;
        case 5: WITH(2, 1); break;
        case 4: WITH(2, 0); break;
        case 3: WITH(1, 1); break;
        default: WITH(1, 0);
        }
#undef WITH
        column += places;
    }
}

/* Lines [begin, end) of outputs of a picture, a vector of channels at a time: the lines that it reads are in the cache then. */
#define LINES(across, stride) \
    for (int64_t channel = 0; channel < d->window.channels; channel += LANES) \
        for (int64_t row = begin; row < end; row++) \
            NAME(depthwise_line)(across, stride, d, picture, row, channel);

static void NAME(depthwise)(const Depthwise *d, int64_t picture, int64_t begin, int64_t end) {
    switch (d->window.across_width * 8 + d->window.stride_width) {
    case 3 * 8 + 1: LINES(3, 1) break;
    case 3 * 8 + 2: LINES(3, 2) break;
    case 5 * 8 + 1: LINES(5, 1) break;
    case 5 * 8 + 2: LINES(5, 2) break;
    case 7 * 8 + 1: LINES(7, 1) break;
    }
    const int64_t line = d->window.made_width * d->window.channels;
    if (d->finish.kind >= HARD_SWISH)
        NAME(activate)(d->made + (picture * d->window.made_height + begin) * line, (end - begin) * line, d->finish.kind);
}
#undef LINES
#undef OUTPUTS
#undef WIDEST

/* ------------------------------------------------------------------ means */

/* The sums of `rows` rows of `channels` numbers, times `scale`. */
static void NAME(mean)(const float *input, int64_t rows, int64_t channels, float scale, float *made) {
    for (int64_t channel = 0; channel < channels; channel += LANES) {
        const MASK some = FIRST(least(LANES, channels - channel));
        VEC sums[4] = {ALL(0.0f), ALL(0.0f), ALL(0.0f), ALL(0.0f)};
        const float *at = input + channel;
        int64_t row = 0;
        for (; row + 4 <= rows; row += 4, at += 4 * channels)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                sums[i] = ADD(sums[i], SOME(at + i * channels, some));
        for (; row < rows; row++, at += channels)
            sums[0] = ADD(sums[0], SOME(at, some));
        STORE_SOME(made + channel, some, MUL(ADD(ADD(sums[0], sums[1]), ADD(sums[2], sums[3])), ALL(scale)));
    }
}

/* Rows times the same row of numbers. */
static void NAME(scale)(const float *input, const float *factors, int64_t rows, int64_t channels, float *made) {
    for (int64_t row = 0; row < rows; row++, input += channels, made += channels)
        for (int64_t channel = 0; channel < channels; channel += LANES) {
            const MASK some = FIRST(least(LANES, channels - channel));
            STORE_SOME(made + channel, some, MUL(SOME(input + channel, some), SOME(factors + channel, some)));
        }
}

/* ------------------------------------------------------------------ pools */

/* The greatest number of a window, or a NaN if there is one, for LANES channels. */
INLINE VEC NAME(greatest)(const float *at, int64_t lines, int64_t line_step, int64_t columns, int64_t channels, MASK some) {
    VEC found = ALL(-INFINITY);
    for (int64_t y = 0; y < lines; y++)
        for (int64_t x = 0; x < columns; x++) {
            const VEC v = SOME(at + y * line_step + x * channels, some);
            found = OR_NAN(v, MAX(v, found)); /* max gives its second argument if either is a NaN */
        }
    return found;
}

/* Lines [begin, end) of outputs of a picture: maxima over windows, of which the part inside counts. */
static void NAME(pool)(const Depthwise *d, int64_t picture, int64_t begin, int64_t end) {
    const Window *w = &d->window;
    const int64_t channels = w->channels, line = w->width * channels;
    for (int64_t row = begin; row < end; row++) {
        const int64_t first = row * w->stride_height - w->pad_height, top = first < 0 ? 0 : first, bottom = least(first + w->across_height, w->height);
        for (int64_t column = 0; column < w->made_width; column++) {
            const int64_t start = column * w->stride_width - w->pad_width, left = start < 0 ? 0 : start, right = least(start + w->across_width, w->width);
            const float *at = d->input + (picture * w->height + top) * line + left * channels;
            float *made = d->made + ((picture * w->made_height + row) * w->made_width + column) * channels;
            for (int64_t channel = 0; channel < channels; channel += LANES) {
                const MASK some = FIRST(least(LANES, channels - channel));
                STORE_SOME(made + channel, some, NAME(greatest)(at + channel, bottom - top, line, right - left, channels, some));
            }
        }
    }
}

/* ------------------------------------------------------------------ pixels from planes */

typedef float NAME(floats) __attribute__((vector_size(4 * LANES)));
typedef int32_t NAME(places) __attribute__((vector_size(4 * LANES)));

/* LANES pixels of three planes, side by side. */
INLINE void NAME(three)(const float *from, int64_t plane, float *to) {
    const NAME(floats) red = (NAME(floats))LOAD(from), green = (NAME(floats))LOAD(from + plane), blue = (NAME(floats))LOAD(from + 2 * plane);
#pragma GCC unroll 3
    for (int part = 0; part < 3; part++) {
        NAME(places) two, all;
#pragma GCC unroll 16
        for (int l = 0; l < LANES; l++) {
            const int number = part * LANES + l;
            two[l] = number % 3 == 1 ? LANES + number / 3 : number / 3;
            all[l] = number % 3 == 2 ? LANES + number / 3 : l;
        }
        STORE(to + part * LANES, (VEC)__builtin_shuffle(__builtin_shuffle(red, green, two), blue, all));
    }
}

/* One line of all pictures. */
static void NAME(lay)(const Lay *lay, int64_t line) {
    const int64_t channels = lay->channels, plane = lay->height * lay->width, y = line % lay->made_height - lay->top;
    float *to = lay->made + line * lay->made_width * channels;
    if (y < 0 || y >= lay->height) {
        NAME(clear)(lay->made_width * channels, to);
        return;
    }
    const float *from = lay->input + line / lay->made_height * channels * plane + y * lay->width;
    const int64_t width = least(lay->width, lay->made_width - lay->left), right = lay->made_width - lay->left - width;
    NAME(clear)(lay->left * channels, to);
    to += lay->left * channels;
    int64_t x = 0;
    if (channels == 3)
        for (; x + LANES <= width; x += LANES)
            NAME(three)(from + x, plane, to + x * 3);
    for (; x < width; x++)
        for (int64_t c = 0; c < channels; c++)
            to[x * channels + c] = from[c * plane + x];
    NAME(clear)(right * channels, to + width * channels);
}

#undef VEC
#undef MASK
#undef LOAD
#undef STORE
#undef ALL
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef FMA
#undef HALF_FMA
#undef MAX
#undef MIN
#undef ABS
#undef SOME
#undef STORE_SOME
#undef FIRST
#undef SIGN_OF
#undef WHOLE
#undef OR_NAN
#undef POWER
