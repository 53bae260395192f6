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

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <omp.h>

#include "processor.h"

#define PLACES 16
#define BLOCK 64
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
} Finish;

static int64_t round_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }
static int64_t depth_of(const Shape *s) { return s->parts * s->parts * s->channels; }
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

/* How many tiles are summed at once for the gradient of filters: few where the totals stay in the cache, else many. */
static int64_t rows_of_sum(int64_t tiles, int64_t channels, int64_t made_channels) {
    const int64_t bytes = channels * made_channels * PLACES * 4 > (1 << 19) ? 1 << 22 : 1 << 19, rows = bytes / (PLACES * 4 * (channels + made_channels));
    return least(rows < 64 ? 64 : rows, tiles);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")
#define LANES 16
#define MR 8
#define NAME(x) x##_v4
#include "winograd_kernels.h"
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define MR 4
#define NAME(x) x##_v3
#include "winograd_kernels.h"
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options
#endif

typedef int (*Convolve)(const Shape *, const float *, const float *, const Filters *, float *, int);

typedef struct {
    Convolve convolve, convolve_filters;
    int64_t (*prepared_plane)(int64_t, int64_t);
    void (*prepare)(const float *, const Filters *, int64_t, int64_t, float *);
    int (*predict)(const Shape *, const float *, const float *, const Finish *, float *, int);
} Variant;

/* The kernels for this processor; NULL if there are none. */
static const Variant *variant(void) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    static const Variant v4 = {convolve_v4, convolve_filters_v4, prepared_plane_v4, prepare_v4, predict_v4};
    static const Variant v3 = {convolve_v3, convolve_filters_v3, prepared_plane_v3, prepare_v3, predict_v3};
    switch (kind_of_processor()) {
    case 2: return &v4;
    case 1: return &v3;
    }
#endif
    return NULL;
}

/* ------------------------------------------------------------------ Python: addresses of tensors */

static const Variant *kernels; /* chosen once, when the module is loaded */

typedef struct {
    unsigned long long input, other, made;
    Shape shape;
    Filters filters;
    int threads;
} Call;

/* What both functions take; steps are those of the filters' memory, and `turned` says that taps are read from the last to the first. */
static int parse(PyObject *args, Call *call) {
    long long size[9], step[4], taps;
    int turned;
    if (!PyArg_ParseTuple(
            args, "KKKLLLLLLLLLLLLLLii", &call->input, &call->other, &call->made, &size[0], &size[1], &size[2], &size[3], &size[4], &size[5], &size[6], &size[7], &size[8],
            &taps, &step[0], &step[1], &step[2], &step[3], &turned, &call->threads
        ))
        return 0;
    call->shape =
        (Shape){size[0], size[1], size[2], size[3], size[4], size[5], size[6], size[7], size[8], (size[4] + 1) / 2, (size[5] + 1) / 2, (taps + 2) / 3};
    call->filters.column_step = step[0];
    call->filters.depth_step = step[1];
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < 9; i++) {
            const int y = part / call->shape.parts * 3 + i / 3, x = part % call->shape.parts * 3 + i % 3;
            const int from_y = turned ? (int)taps - 1 - y : y, from_x = turned ? (int)taps - 1 - x : x;
            call->filters.tap[part][i] = y < taps && x < taps ? from_y * step[2] + from_x * step[3] : -1;
        }
    return 1;
}

#define TAKES "read, filters or gradient, made, pictures, height, width, channels, made height, made width, made channels, padding (2), size and steps of filters (1 + 4), turned, threads"

static PyObject *run(PyObject *args, Convolve kernel) {
    Call c;
    int failed;
    if (!parse(args, &c))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = kernel(&c.shape, AT(c.input), AT(c.other), &c.filters, AT(c.made), c.threads);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *convolve(PyObject *self, PyObject *args) { return run(args, kernels->convolve); }

static PyObject *convolve_filters(PyObject *self, PyObject *args) { return run(args, kernels->convolve_filters); }

static PyObject *prepared_size(PyObject *self, PyObject *args) {
    long long depth, columns;
    if (!PyArg_ParseTuple(args, "LL", &depth, &columns))
        return NULL;
    return PyLong_FromLongLong(PLACES * kernels->prepared_plane(depth, columns));
}

static PyObject *prepare(PyObject *self, PyObject *args) {
    unsigned long long weight, filters;
    long long depth, columns, step[4];
    if (!PyArg_ParseTuple(args, "KKLLLLLL", &weight, &filters, &columns, &depth, &step[0], &step[1], &step[2], &step[3]))
        return NULL;
    Filters f = {.depth_step = step[1], .column_step = step[0]};
    for (int i = 0; i < 9; i++)
        f.tap[0][i] = i / 3 * step[2] + i % 3 * step[3];
    Py_BEGIN_ALLOW_THREADS
    kernels->prepare(AT(weight), &f, depth, columns, AT(filters));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *predict(PyObject *self, PyObject *args) {
    unsigned long long input, filters, bias, residual, made;
    long long size[9];
    float low, high;
    int threads, failed;
    if (!PyArg_ParseTuple(
            args, "KKKKKLLLLLLLLLiff", &input, &filters, &bias, &residual, &made, &size[0], &size[1], &size[2], &size[3], &size[6], &size[4], &size[5], &size[7], &size[8],
            &threads, &low, &high
        ))
        return NULL;
    const Shape shape = {size[0], size[1], size[2], size[3], size[4], size[5], size[6], size[7], size[8], (size[4] + 1) / 2, (size[5] + 1) / 2, 1};
    const Finish finish = {AT(bias), AT(residual), low, high};
    Py_BEGIN_ALLOW_THREADS
    failed = kernels->predict(&shape, AT(input), AT(filters), &finish, AT(made), threads);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"convolve", convolve, METH_VARARGS, "the convolution of pictures: " TAKES},
    {"convolve_filters", convolve_filters, METH_VARARGS, "the gradient of filters: " TAKES},
    {"prepared_size", prepared_size, METH_VARARGS, "how many numbers prepared filters have: channels, made channels"},
    {"prepare", prepare, METH_VARARGS, "the filters of prediction: weight, made, filters, channels, steps of filters (4)"},
    {"predict", predict, METH_VARARGS,
     "a convolution with prepared filters: read, filters, bias, residual, made, pictures, height, width, channels, made channels, height, width, padding (2), threads, "
     "low, high"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_winograd", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__winograd(void) {
    kernels = variant();
    if (kernels == NULL) {
        PyErr_SetString(PyExc_ImportError, "no AVX2 on this processor, or ATEN_CPU_CAPABILITY forbids it");
        return NULL;
    }
    return PyModule_Create(&module);
}
