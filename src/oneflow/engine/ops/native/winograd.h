/* Convolutions of 3 x 3 and 5 x 5 filters at stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3): 16 products give 4 outputs where the sum itself takes 36.
 *
 * A picture is cut into tiles of 2 x 2 outputs, which overlapping patches of 4 x 4 inputs give. With B, G and A of Lavin and Gray (2015),
 *   output tile = A' [ (G filter G') * (B' patch B) ] A
 * where * is taken place by place: for each of the 16 places a matrix product over channels. The gradient of the input is the same with the filter turned
 * round; that of the filter is G' [ (B' patch B) * (A gradient A') ] G, a product over tiles.
 *
 * A filter of 5 x 5 is taken as four of 3 x 3 at a distance of 3, with zeros where it ends: their places are summed before the output is made, so this is a
 * product over four times the channels, with 64 multiplications where the sum takes 100.
 *
 * Tensors are float32 in channels_last memory; channels are multiples of 16. Sums do not depend on the number of threads. */

#include "processor.h"

#define PLACES 16
#define DEPTHS 64 /* of a group that lies together */
#define APART 16 /* floats between the 16 planes of a buffer beyond their size, lest all fall into the same sets of the cache */

typedef struct {
    int64_t pictures, height, width, channels; /* of what is read */
    int64_t made_height, made_width, made_channels;
    int64_t pad_height, pad_width;
    int64_t tile_rows, tile_columns; /* of one picture */
    int64_t parts;                   /* of a filter in each direction: 1 for 3 x 3, 2 for 5 x 5 */
} Shape;

/* How filters lie in memory, in floats: tap[part][i] is where number i of a part is, and negative where the filter has ended. */
typedef struct {
    int64_t depth_step, column_step, tap[4][9];
} Filters;

/* What prediction does with an output: bias and residual are added where they are there, and it is clipped. */
typedef struct {
    const float *bias, *residual;
    float low, high;
} Ending;

/* A convolution of prediction, and how its work is cut: into blocks of at most `rows` tiles, and shares of the columns, of at most `widest`. */
typedef struct {
    Shape shape;
    const float *input, *filters;
    float *made;
    Ending ending;
    int64_t blocks, shares, rows, widest, patch_plane, sum_plane;
} Winograd;

static int64_t round_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }
static int64_t tiles_of(const Shape *s) { return s->pictures * s->tile_rows * s->tile_columns; }

/* A run of tiles of one row of tiles: which picture, where it begins, how many. */
typedef struct {
    int64_t picture, row, column, count;
} Run;

static Run run_at(const Shape *s, int64_t tile, int64_t end) {
    const int64_t row = tile / s->tile_columns, column = tile % s->tile_columns;
    return (Run){row / s->tile_rows, row % s->tile_rows, column, least(s->tile_columns - column, end - tile)};
}

/* Memory for floats that begins at a line of the cache. */
static float *room(int64_t count) {
    float *made = NULL;
    return posix_memalign((void **)&made, 64, count * sizeof(float)) == 0 ? made : NULL;
}

/* How many tiles a thread takes at once: patches and sums (`width` numbers of each place) stay in its cache, and filters are read seldom. */
static int64_t rows_of_block(int64_t tiles, int64_t width, int64_t step, int threads) {
    int64_t rows = (1 << 19) / (PLACES * 4 * width);
    rows = rows < 32 ? 32 : rows > 256 ? 256 : rows;
    return round_up(least(rows, (tiles + threads - 1) / threads), step);
}
