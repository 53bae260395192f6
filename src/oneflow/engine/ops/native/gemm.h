/* The inner part of a matrix product, MR rows by NR columns of sums that stay in registers. Included once per kind of processor, with
 *   LANES    floats of a vector register,
 *   MR       rows of a tile (NR = 2 * LANES columns),
 *   NAME(x)  x with an ending of that kind.
 *
 * Left operands lie in blocks of DEPTHS numbers, so that all steps between their numbers are constants: rows of a block side by side for a product over
 * channels (row step DEPTHS, depth step 1), or its transpose for a product over places (row step 1, depth step DEPTHS). Right operands lie in panels: NR columns
 * of each depth side by side. */

#define NR (2 * LANES)

typedef float NAME(vec) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* sums[row][column] += the sum over depth of left(row, depth) * right(depth, column) */
INLINE void NAME(add_products)(
    NAME(vec) sums[MR][2], const float *restrict left, const int row_step, const int depth_step, const float *restrict right, int64_t depth
) {
    for (int64_t d = 0; d < depth; d++) {
        const NAME(vec) first = *(const NAME(vec) *)(right + d * NR), second = *(const NAME(vec) *)(right + d * NR + LANES);
#pragma GCC unroll 16
        for (int row = 0; row < MR; row++) {
            const float one = left[row * row_step + d * depth_step];
            sums[row][0] += one * first;
            sums[row][1] += one * second;
        }
    }
}
