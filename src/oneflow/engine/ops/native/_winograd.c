/* Convolutions of training by Winograd's minimal filtering, which winograd.h tells of: forward, the gradient of the input, and that of the filters. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <omp.h>

#include "winograd.h"

static int64_t depth_of(const Shape *s) { return s->parts * s->parts * s->channels; }

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
#include "winograd_training.h"
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define MR 4
#define NAME(x) x##_v3
#include "winograd_training.h"
#undef LANES
#undef MR
#undef NAME
#pragma GCC pop_options
#endif

typedef int (*Convolve)(const Shape *, const float *, const float *, const Filters *, float *, int);

typedef struct {
    Convolve convolve, convolve_filters;
} Variant;

/* The kernels for this processor; NULL if there are none. */
static const Variant *variant(void) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    static const Variant v4 = {convolve_v4, convolve_filters_v4};
    static const Variant v3 = {convolve_v3, convolve_filters_v3};
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

static PyMethodDef methods[] = {
    {"convolve", convolve, METH_VARARGS, "the convolution of pictures: " TAKES},
    {"convolve_filters", convolve_filters, METH_VARARGS, "the gradient of filters: " TAKES},
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
