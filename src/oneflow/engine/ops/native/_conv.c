/* Convolutions, matrix products and what stands between them in prediction, as a sequence of steps that one call runs: filters are laid out once, what follows a
 * product (bias, the sum with a residual, an activation) is done while its sums are in registers or in the nearest cache, and between two steps threads wait for what is not done.
 *
 * Tensors are float32 in channels_last memory, so a convolution is a product of rows, one for each place of the output, with a matrix of filters. A row of a
 * 1 x 1 filter is a pixel as it lies; other rows are gathered, a block at a time that stays in the cache. The matrix lies in panels: PANEL columns of each
 * depth side by side, the last one filled up with zeros. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <omp.h>

#include "steps.h"

/* ------------------------------------------------------------------ steps from numbers */

/* A step as it was planned: where its tensors are (which of the addresses of a call, or -1; and how many bytes behind it), sizes, limits of what is clipped. */
enum { INPUT, WEIGHT, BIAS, RESIDUAL, MADE, SECOND_WEIGHT, SECOND_BIAS, TENSORS };
#define NUMBERS 29
#define LIMITS 4

typedef struct {
    int64_t kind, tensors[TENSORS][2], numbers[NUMBERS];
    double limits[LIMITS];
} Row;

static Finish finish_of(const float *bias, int64_t kind, const double *limits) {
    return (Finish){bias, kind == CLIP ? (float)limits[0] : -INFINITY, kind == CLIP ? (float)limits[1] : INFINITY, (int)kind};
}

/* pictures, height, width, channels, made channels, height, width, filter's height, width, strides, zeros above and left, dilations, activation */
static Product product_of(const int64_t *n, const float *bias, const double *limits) {
    Product p = {.finish = finish_of(bias, n[15], limits), .apart_height = n[13], .apart_width = n[14]};
    const Window w = {n[0], n[1], n[2], n[3], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12]};
    const int is_pixel = n[7] == 1 && n[8] == 1 && n[9] == 1 && n[10] == 1 && n[11] == 0 && n[12] == 0 && n[5] == n[1] && n[6] == n[2];
    const int is_inside = n[11] == 0 && n[12] == 0 && (n[5] - 1) * n[9] + n[7] <= n[1] && (n[6] - 1) * n[10] + n[8] <= n[2];
    p.window = w;
    p.rows = n[0] * n[5] * n[6], p.depth = n[7] * n[8] * n[3], p.columns = n[4];
    p.by_lines = !is_pixel && is_inside && n[13] == 1 && n[14] == 1 && p.depth <= DEPTH && n[6] >= WIDE;
    p.gathers = !p.by_lines && (!is_pixel || (p.depth % 512 == 0 && p.columns > 64)); /* rows that lie multiples of 2 KiB apart fall into the same sets of the cache */
    return p;
}

/* pictures, height, width, channels, made height, width, filter's height, width, strides, zeros above and left, activation */
static Depthwise depthwise_of(const int64_t *n, const float *bias, const double *limits) {
    return (Depthwise){.finish = finish_of(bias, n[12], limits), .window = {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11]}};
}

/* pictures, height, width, channels, made channels, height, width, zeros above and left, activation */
static Winograd winograd_of(const int64_t *n, const float *bias, const float *residual, const double *limits) {
    const Finish finish = finish_of(bias, n[9], limits);
    const Shape shape = {n[0], n[1], n[2], n[3], n[5], n[6], n[4], n[7], n[8], (n[5] + 1) / 2, (n[6] + 1) / 2, 1};
    return (Winograd){.shape = shape, .ending = {bias, residual, finish.low, finish.high}};
}

static Step step_of(const Row *row, const unsigned long long *addresses) {
    Step step = {.kind = (int)row->kind};
    const int64_t *n = row->numbers;
    void *at[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        at[i] = row->tensors[i][0] < 0 ? NULL : AT(addresses[row->tensors[i][0]] + row->tensors[i][1]);
    switch (step.kind) {
    case CONVOLUTION:
        step.of.product = product_of(n, at[BIAS], row->limits);
        step.of.product.input = at[INPUT], step.of.product.panels = at[WEIGHT], step.of.product.residual = at[RESIDUAL], step.of.product.made = at[MADE];
        break;
    case DEPTHWISE:
    case POOL:
        step.of.depthwise = depthwise_of(n, at[BIAS], row->limits);
        step.of.depthwise.input = at[INPUT], step.of.depthwise.weight = at[WEIGHT], step.of.depthwise.made = at[MADE];
        break;
    case WINOGRAD:
        step.of.winograd = winograd_of(n, at[BIAS], at[RESIDUAL], row->limits);
        step.of.winograd.input = at[INPUT], step.of.winograd.filters = at[WEIGHT], step.of.winograd.made = at[MADE];
        break;
    case MEAN:
    case SCALE: step.of.rows = (Rows){at[INPUT], at[WEIGHT], at[MADE], n[0], n[1], n[2]}; break;
    case LAY: step.of.lay = (Lay){at[INPUT], at[MADE], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]}; break;
    case PAIR:
        step.of.pair.product = product_of(n, at[BIAS], row->limits);
        step.of.pair.product.input = at[INPUT], step.of.pair.product.panels = at[WEIGHT];
        step.of.pair.product.gathers = 0;
        step.of.pair.depthwise = depthwise_of(n + 16, at[SECOND_BIAS], row->limits + 2);
        step.of.pair.depthwise.weight = at[SECOND_WEIGHT], step.of.pair.depthwise.made = at[MADE];
        break;
    }
    return step;
}

/* ------------------------------------------------------------------ Python: addresses of tensors */

/* The steps of a sequence, at its tensors' addresses; NULL if there is no memory for them. */
static Step *steps_of(const Py_buffer *rows, const Py_buffer *addresses) {
    const Py_ssize_t count = rows->len / (Py_ssize_t)sizeof(Row);
    Step *steps = malloc((count + 1) * sizeof(Step));
    for (Py_ssize_t i = 0; steps != NULL && i < count; i++)
        steps[i] = step_of((const Row *)rows->buf + i, addresses->buf);
    return steps;
}

/* run(rows, addresses, threads): the steps of a sequence; `rows` as laid out by ``row``. */
static PyObject *run(PyObject *self, PyObject *args) {
    Py_buffer rows, addresses;
    int threads, failed = 1;
    if (!PyArg_ParseTuple(args, "y*y*i", &rows, &addresses, &threads))
        return NULL;
    Step *steps = steps_of(&rows, &addresses);
    if (steps != NULL) {
        Py_BEGIN_ALLOW_THREADS
        failed = run_steps(steps, rows.len / (Py_ssize_t)sizeof(Row), threads);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&rows);
    PyBuffer_Release(&addresses);
    free(steps);
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* are(known, places, given): whether the objects `known` are the ones at these places of `given`. They are not touched: hundreds of filters are in no cache. */
static PyObject *are(PyObject *self, PyObject *args) {
    PyObject *known, *given;
    Py_buffer places;
    if (!PyArg_ParseTuple(args, "O!y*O!", &PyTuple_Type, &known, &places, &PyTuple_Type, &given))
        return NULL;
    const int64_t *place = places.buf;
    const Py_ssize_t count = places.len / (Py_ssize_t)sizeof *place;
    int same = count == PyTuple_GET_SIZE(known);
    for (Py_ssize_t i = 0; same && i < count; i++)
        same = place[i] < PyTuple_GET_SIZE(given) && PyTuple_GET_ITEM(known, i) == PyTuple_GET_ITEM(given, place[i]);
    PyBuffer_Release(&places);
    return PyBool_FromLong(same);
}

/* row(kind, tensors, numbers, limits): a step as `run` takes it. */
static PyObject *row(PyObject *self, PyObject *args) {
    long long kind;
    PyObject *tensors, *numbers, *limits;
    if (!PyArg_ParseTuple(args, "LO!O!O!", &kind, &PyTuple_Type, &tensors, &PyTuple_Type, &numbers, &PyTuple_Type, &limits))
        return NULL;
    if (PyTuple_GET_SIZE(tensors) > 2 * TENSORS || PyTuple_GET_SIZE(numbers) > NUMBERS || PyTuple_GET_SIZE(limits) > LIMITS) {
        PyErr_SetString(PyExc_ValueError, "a step has too many tensors, numbers or limits");
        return NULL;
    }
    Row made = {.kind = kind};
    for (int i = 0; i < 2 * TENSORS; i++)
        made.tensors[i / 2][i % 2] = i < PyTuple_GET_SIZE(tensors) ? PyLong_AsLongLong(PyTuple_GET_ITEM(tensors, i)) : -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++)
        made.numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(limits); i++)
        made.limits[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(limits, i));
    return PyErr_Occurred() ? NULL : PyBytes_FromStringAndSize((const char *)&made, sizeof made);
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

static PyObject *pack(PyObject *self, PyObject *args) {
    unsigned long long filters, panels;
    long long columns, depth;
    if (!PyArg_ParseTuple(args, "KLLK", &filters, &columns, &depth, &panels))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_pack(AT(filters), columns, depth, AT(panels));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *prepared_size(PyObject *self, PyObject *args) {
    long long depth, columns;
    if (!PyArg_ParseTuple(args, "LL", &depth, &columns))
        return NULL;
    return PyLong_FromLongLong(PLACES * kernels.prepared_plane(depth, columns));
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
    kernels.prepare(AT(weight), &f, depth, columns, AT(filters));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, "the steps of a sequence: rows, addresses, threads"},
    {"are", are, METH_VARARGS, "whether objects are those at some places: known, places, given"},
    {"row", row, METH_VARARGS, "a step for run: kind, pairs of an address's number and bytes behind it for each tensor, numbers, limits"},
    {"pack", pack, METH_VARARGS, "filters, columns, depth, panels"},
    {"prepared_size", prepared_size, METH_VARARGS, "how many numbers the filters of winograd have: channels, made channels"},
    {"prepare", prepare, METH_VARARGS, "the filters of winograd: weight, made, filters, channels, steps of filters (4)"},
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
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddIntMacro(made, WIDE) || PyModule_AddIntMacro(made, DEPTH)))
        Py_CLEAR(made);
    return made;
}
