/* Convolutions and matrix products of prediction: filters are laid out once, and what follows (bias, the sum with a residual, an activation) is done while the
 * sums are in registers or in the nearest cache.
 *
 * Tensors are float32 in channels_last memory, so a convolution is a product of rows, one for each place of the output, with a matrix of filters. A row of a
 * 1 x 1 filter is a pixel as it lies; other rows are gathered, a block at a time that stays in the cache. The matrix lies in panels: PANEL columns of each
 * depth side by side, the last one filled up with zeros.
 *
 * Sums do not depend on the number of threads: no depth is ever split between them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

#include "processor.h"

#define PANEL 32
#define DEPTH 384        /* at most so much of the depth at a time: the rows of a tile then stay in the first cache */
#define BLOCK (96 << 10) /* floats of the left operand at a time: they stay in the second */
#define APART 16         /* floats between gathered rows beyond their length, lest they fall into the same sets of the cache */

enum { NONE, CLIP, HARD_SWISH, HARD_SIGMOID, SILU, SIGMOID, GELU, GELU_TANH };

typedef struct {
    const float *bias; /* of as many numbers as the panels have columns; or NULL */
    float low, high;   /* values are clipped to these; infinite where they are not */
    int kind;
} Finish;

typedef struct {
    const float *input, *panels, *residual;
    float *made;
    Finish finish;
    int64_t rows, depth, columns; /* of the product */
    int64_t height, width, channels, made_height, made_width;
    int64_t across_height, across_width, stride_height, stride_width, pad_height, pad_width, apart_height, apart_width;
    int gathers; /* whether rows are put together from several pixels, or moved apart */
} Product;

typedef struct {
    const float *input, *weight; /* weight[tap][channel] */
    float *made;
    Finish finish;
    int64_t pictures, height, width, channels, made_height, made_width;
    int64_t across_height, across_width, stride_height, stride_width, pad_height, pad_width;
} Depthwise;

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")
#define LANES 16
#define MR 14
#define NAME(x) x##_v4
#include "conv_kernels.h"
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
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options

typedef void (*Gather)(const Product *, int64_t, int64_t, int64_t, int64_t, float *, int64_t);
typedef void (*Panel)(const Product *, const float *, int64_t, const float *, int64_t, int64_t, int64_t, int64_t, int64_t, int, int);
typedef void (*Lines)(const Depthwise *, int64_t, int64_t, int64_t);
typedef void (*Mean)(const float *, int64_t, int64_t, float, float *);

typedef struct {
    Gather gather;
    Panel panel;
    Lines lines;
    Mean mean;
} Kernels;

static Kernels kernels; /* chosen once, when the module is loaded */

static Kernels kernels_of(int kind) {
    return kind == 2 ? (Kernels){gather_v4, panel_v4, depthwise_v4, mean_v4} : (Kernels){gather_v3, panel_v3, depthwise_v3, mean_v3};
}

/* ------------------------------------------------------------------ products */

/* The part of a product in rows [row, last_row) and in panels [panel, last_panel). */
static void multiply_part(const Product *p, int64_t row, int64_t last_row, int64_t panel, int64_t last_panel, float *buffer) {
    const int64_t pieces = (p->depth + DEPTH - 1) / DEPTH, piece = (p->depth + pieces - 1) / pieces;
    int64_t at_once = BLOCK / (piece + APART);
    if (p->depth * p->columns <= BLOCK / 2) /* the panels are in the cache, so the rows that are made may be few enough to be there too */
        at_once = least(at_once, 4 * 14);
    for (int64_t rows; row < last_row; row += rows) {
        rows = least(at_once, last_row - row);
        for (int64_t begin = 0; begin < p->depth; begin += piece) {
            const int64_t end = least(begin + piece, p->depth), step = p->gathers ? piece + APART : p->depth;
            const float *left = p->gathers ? buffer : p->input + row * p->depth + begin;
            if (p->gathers)
                kernels.gather(p, row, rows, begin, end, buffer, step);
            for (int64_t one = panel; one < last_panel; one++) {
                const float *right = p->panels + (one * p->depth + begin) * PANEL;
                kernels.panel(p, left, step, right, end - begin, row, rows, one * PANEL, least(PANEL, p->columns - one * PANEL), begin == 0, end == p->depth);
            }
        }
    }
}

static int run_product(const Product *p, int threads) {
    const int64_t panels = (p->columns + PANEL - 1) / PANEL;
    const int by_columns = p->rows < p->columns && (panels % threads == 0 || panels >= 8 * threads);
    if (p->rows * p->columns * p->depth < 1 << 17)
        threads = 1;
    const int64_t size = p->gathers ? BLOCK : 0;
    float *buffers = size ? malloc(threads * size * sizeof(float)) : NULL;
    if (size && buffers == NULL)
        return -1;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int thread = 0; thread < threads; thread++) {
        float *buffer = buffers + thread * size;
        if (by_columns)
            multiply_part(p, 0, p->rows, panels * thread / threads, panels * (thread + 1) / threads, buffer);
        else
            multiply_part(p, p->rows * thread / threads, p->rows * (thread + 1) / threads, 0, panels, buffer);
    }
    free(buffers);
    return 0;
}

static void run_depthwise(const Depthwise *d, int threads) {
    const int64_t fit = BLOCK / (d->width * d->channels * d->stride_height) + 1, shared = (d->made_height * d->pictures + threads - 1) / threads;
    const int64_t lines = least(fit, shared > d->made_height ? d->made_height : shared), parts = (d->made_height + lines - 1) / lines;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t part = 0; part < d->pictures * parts; part++) {
        const int64_t one = part % parts;
        kernels.lines(d, part / parts, d->made_height * one / parts, d->made_height * (one + 1) / parts);
    }
}

/* filters[column][depth] in panels, filled up with zeros. */
static void run_pack(const float *filters, int64_t columns, int64_t depth, float *panels) {
    for (int64_t column = 0; column < columns; column += PANEL) {
        const int64_t width = least(PANEL, columns - column);
        for (int64_t d = 0; d < depth; d++, panels += PANEL) {
            for (int64_t c = 0; c < width; c++)
                panels[c] = filters[(column + c) * depth + d];
            for (int64_t c = width; c < PANEL; c++)
                panels[c] = 0.0f;
        }
    }
}

/* ------------------------------------------------------------------ Python: addresses of tensors, 0 where there is none */

static Finish finish_of(unsigned long long bias, int kind, double low, double high) {
    return (Finish){AT(bias), kind == CLIP ? (float)low : -INFINITY, kind == CLIP ? (float)high : INFINITY, kind};
}


/* Whole numbers from the arguments of a call. */
static int numbers_of(PyObject *const *args, Py_ssize_t given, Py_ssize_t count, long long *to) {
    if (given < count) {
        PyErr_Format(PyExc_TypeError, "takes %zd numbers, got %zd", count, given);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        to[i] = PyLong_AsLongLong(args[i]);
        if (to[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

#define CONVOLUTION_NUMBERS 22

static PyObject *convolution(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    long long n[CONVOLUTION_NUMBERS];
    if (numbers_of(args, count - 2, CONVOLUTION_NUMBERS, n))
        return NULL;
    const double low = PyFloat_AsDouble(args[CONVOLUTION_NUMBERS]), high = PyFloat_AsDouble(args[CONVOLUTION_NUMBERS + 1]);
    if (PyErr_Occurred())
        return NULL;
    const int is_pixel = n[12] == 1 && n[13] == 1 && n[14] == 1 && n[15] == 1 && n[16] == 0 && n[17] == 0 && n[10] == n[6] && n[11] == n[7];
    Product p = {.input = AT(n[0]), .panels = AT(n[1]), .residual = AT(n[3]), .made = AT(n[4]), .finish = finish_of(n[2], (int)n[20], low, high)};
    p.height = n[6], p.width = n[7], p.channels = n[8], p.made_height = n[10], p.made_width = n[11];
    p.across_height = n[12], p.across_width = n[13], p.stride_height = n[14], p.stride_width = n[15];
    p.pad_height = n[16], p.pad_width = n[17], p.apart_height = n[18], p.apart_width = n[19];
    p.rows = n[5] * n[10] * n[11], p.depth = n[12] * n[13] * n[8], p.columns = n[9];
    p.gathers = !is_pixel || (p.depth % 512 == 0 && p.columns > 64); /* rows that lie multiples of 2 KiB apart fall into the same sets of the cache */
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_product(&p, (int)n[21]);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

#define DEPTHWISE_NUMBERS 18

static PyObject *depthwise(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    long long n[DEPTHWISE_NUMBERS];
    if (numbers_of(args, count - 2, DEPTHWISE_NUMBERS, n))
        return NULL;
    const double low = PyFloat_AsDouble(args[DEPTHWISE_NUMBERS]), high = PyFloat_AsDouble(args[DEPTHWISE_NUMBERS + 1]);
    if (PyErr_Occurred())
        return NULL;
    Depthwise d = {.input = AT(n[0]), .weight = AT(n[1]), .made = AT(n[3]), .finish = finish_of(n[2], (int)n[16], low, high)};
    d.pictures = n[4], d.height = n[5], d.width = n[6], d.channels = n[7], d.made_height = n[8], d.made_width = n[9];
    d.across_height = n[10], d.across_width = n[11], d.stride_height = n[12], d.stride_width = n[13], d.pad_height = n[14], d.pad_width = n[15];
    Py_BEGIN_ALLOW_THREADS
    run_depthwise(&d, (int)n[17]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *pack(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    long long n[4];
    if (numbers_of(args, count, 4, n))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_pack(AT(n[0]), n[1], n[2], AT(n[3]));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *mean(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    long long n[6];
    if (numbers_of(args, count, 6, n))
        return NULL;
    const int64_t size = n[3] * n[4];
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads((int)n[5]) schedule(static) if (n[5] > 1 && n[2] > 1)
    for (int64_t picture = 0; picture < n[2]; picture++)
        kernels.mean((const float *)AT(n[0]) + picture * size, n[3], n[4], 1.0f / (float)n[3], (float *)AT(n[1]) + picture * n[4]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* A number that follows from some words of each piece of memory: those that lie at eight even steps, and the last one. */
static PyObject *sampled(PyObject *self, PyObject *pieces) {
    Py_buffer view; /* pairs of an address and a count of words */
    if (PyObject_GetBuffer(pieces, &view, PyBUF_SIMPLE))
        return NULL;
    const int64_t *pair = view.buf, *end = pair + view.len / (Py_ssize_t)sizeof(int64_t);
    uint64_t found = 14695981039346656037u;
    for (; pair + 1 < end; pair += 2) {
        const uint32_t *words = AT(pair[0]);
        const int64_t count = pair[1], step = count < 8 ? 1 : count / 8;
        for (int64_t at = 0; at < count; at += step)
            found = (found ^ words[at]) * 1099511628211u;
        if (count)
            found = (found ^ words[count - 1]) * 1099511628211u;
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(found);
}

static PyMethodDef methods[] = {
    {"convolution", (PyCFunction)(void (*)(void))convolution, METH_FASTCALL,
     "input, panels, bias, residual, made, pictures, height, width, channels, made channels, height, width, filter's height, width, stride, stride, padding above, "
     "left, dilation, dilation, activation, threads, low, high"},
    {"depthwise", (PyCFunction)(void (*)(void))depthwise, METH_FASTCALL,
     "input, weight, bias, made, pictures, height, width, channels, made height, width, filter's height, width, stride, stride, padding above, left, activation, "
     "threads, low, high"},
    {"mean", (PyCFunction)(void (*)(void))mean, METH_FASTCALL, "input, made, pictures, places, channels, threads"},
    {"sampled", sampled, METH_O, "pairs of an address and a count of words"},
    {"pack", (PyCFunction)(void (*)(void))pack, METH_FASTCALL, "filters, columns, depth, panels"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_conv", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__conv(void) {
    const int kind = kind_of_processor();
    if (kind == 0) {
        PyErr_SetString(PyExc_ImportError, "no AVX2 on this processor, or ATEN_CPU_CAPABILITY forbids it");
        return NULL;
    }
    kernels = kernels_of(kind);
    return PyModule_Create(&module);
}
#else
#error "written for x86-64"
#endif
