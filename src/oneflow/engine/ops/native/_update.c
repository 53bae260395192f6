/* Updates of variables in one pass over memory, where torch's ops on lists make a pass each: the sweeps of sweeps.py by their names.
 *
 * Tensors are float32 and dense; all of one variable lie in the same order. A sweep goes through pieces of them, which threads share out; sums are taken in float over blocks,
 * in double over pieces, and pieces are added up in their order: the same numbers for any number of threads. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"

#define PIECE ((int64_t)1 << 14)
#define LANES 16
#define TENSORS 5
#define NUMBERS 11

/* Some elements of one variable: its tensors there, and the numbers of its sweep. */
typedef struct {
    float *tensors[TENSORS];
    float numbers[NUMBERS];
    int64_t size;
    double sums[2];
} Piece;

typedef void (*Run)(Piece *);

INLINE float sign(float x) { return (float)((x > 0.0f) - (x < 0.0f)); }

#define DIRECTION(i) (n[0] * g[i] + n[1] * w[i] + n[2] * sign(w[i]))
#define TENSOR(name, place) float *restrict name = p->tensors[place];
#define BEGIN(name) \
    FAST static void name(Piece *p) { \
        const float *restrict n = p->numbers; \
        const int64_t size = p->size;
#define END }
#define EACH \
    _Pragma("GCC ivdep") /* tensors do not overlap: else the compiler looks, and gives up where there are many */ \
    for (int64_t i = 0; i < size; i++)

/* Sums of squares, of as many blocks of LANES as there are and of a rest. */
#define SUMS(first, second) \
    float one[LANES] = {0}, other[LANES] = {0}; \
    const int64_t whole = size / LANES * LANES; \
    for (int64_t start = 0; start < whole; start += LANES) \
        for (int64_t lane = 0; lane < LANES; lane++) { \
            const int64_t i = start + lane; \
            const float x = first, y = second; \
            one[lane] += x * x; \
            other[lane] += y * y; \
        } \
    double of_first = 0.0, of_second = 0.0; \
    for (int64_t i = whole; i < size; i++) { \
        const float x = first, y = second; \
        of_first += (double)x * x; \
        of_second += (double)y * y; \
    } \
    for (int64_t lane = 0; lane < LANES; lane++) { \
        of_first += one[lane]; \
        of_second += other[lane]; \
    } \
    p->sums[0] = of_first; \
    p->sums[1] = of_second;

/* ------------------------------------------------------------------ sweeps */

BEGIN(squares)
    TENSOR(w, 0) TENSOR(g, 1)
    SUMS(w[i], DIRECTION(i))
END

BEGIN(descent)
    TENSOR(w, 0) TENSOR(g, 1)
    EACH w[i] -= n[3] * DIRECTION(i);
END

BEGIN(momentum)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(v, 2)
    EACH {
        const float d = DIRECTION(i);
        v[i] = n[3] * v[i] + n[4] * d;
        w[i] = n[5] * w[i] + n[6] * v[i] + n[7] * d;
    }
END

#define MOMENTS \
    const float d = DIRECTION(i); \
    m[i] = n[3] * m[i] + n[4] * d; \
    v[i] = n[5] * v[i] + n[6] * d * d;

BEGIN(adam)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(m, 2) TENSOR(v, 3)
    EACH {
        MOMENTS
        w[i] = n[7] * w[i] - n[8] * m[i] / (sqrtf(v[i]) * n[9] + n[10]);
    }
END

BEGIN(amsgrad)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(m, 2) TENSOR(v, 3) TENSOR(largest, 4)
    EACH {
        MOMENTS
        largest[i] = v[i] > largest[i] || v[i] != v[i] ? v[i] : largest[i];
        w[i] = n[7] * w[i] - n[8] * m[i] / (sqrtf(largest[i]) * n[9] + n[10]);
    }
END

BEGIN(adagrad)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2)
    EACH {
        const float d = DIRECTION(i);
        s[i] += d * d;
        w[i] -= n[3] * d / (sqrtf(s[i]) + n[4]);
    }
END

BEGIN(adadelta)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2) TENSOR(u, 3)
    EACH {
        const float d = DIRECTION(i);
        s[i] = n[3] * s[i] + n[4] * d * d;
        const float change = sqrtf(u[i] + n[5]) / sqrtf(s[i] + n[5]) * d;
        u[i] = n[3] * u[i] + n[4] * change * change;
        w[i] -= n[6] * change;
    }
END

BEGIN(rmsprop)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2)
    EACH {
        const float d = DIRECTION(i);
        s[i] = n[3] * s[i] + n[4] * d * d;
        w[i] -= n[6] * d / sqrtf(s[i] + n[5]);
    }
END

BEGIN(rmsprop_momentum)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2) TENSOR(v, 3)
    EACH {
        const float d = DIRECTION(i);
        s[i] = n[3] * s[i] + n[4] * d * d;
        v[i] = n[7] * v[i] + n[6] * d / sqrtf(s[i] + n[5]);
        w[i] -= v[i];
    }
END

#define CENTERED \
    const float d = DIRECTION(i); \
    s[i] = n[3] * s[i] + n[4] * d * d; \
    mean[i] = n[3] * mean[i] + n[4] * d; \
    const float change = n[6] * d / sqrtf(s[i] - mean[i] * mean[i] + n[5]);

BEGIN(rmsprop_centered)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2) TENSOR(mean, 3)
    EACH {
        CENTERED
        w[i] -= change;
    }
END

BEGIN(rmsprop_centered_momentum)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2) TENSOR(mean, 3) TENSOR(v, 4)
    EACH {
        CENTERED
        v[i] = n[7] * v[i] + change;
        w[i] -= v[i];
    }
END

BEGIN(lamb_moments)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(m, 2) TENSOR(v, 3)
    EACH {
        MOMENTS
    }
    SUMS(w[i], n[7] * m[i] / (sqrtf(v[i]) * n[8] + n[9]))
END

BEGIN(lamb_step)
    TENSOR(w, 0) TENSOR(m, 1) TENSOR(v, 2)
    EACH w[i] -= n[0] * (n[2] * m[i] / (sqrtf(v[i]) * n[3] + n[4]) + n[1] * w[i]);
END

BEGIN(ftrl_root)
    TENSOR(w, 0) TENSOR(g, 1) TENSOR(s, 2) TENSOR(z, 3)
    EACH {
        const float d = DIRECTION(i), before = sqrtf(s[i]);
        s[i] += d * d;
        const float after = sqrtf(s[i]);
        z[i] += d - (after - before) / n[3] * w[i];
        const float far = (sign(z[i]) * n[4] - z[i]) / (after / n[3] + 2.0f * n[5]);
        w[i] = fabsf(z[i]) <= n[4] ? 0.0f : far;
    }
END

static const struct {
    const char *name;
    Run run;
    int tensors, numbers;
} sweeps[] = {
    {"squares", squares, 2, 3},
    {"descent", descent, 2, 4},
    {"momentum", momentum, 3, 8},
    {"adam", adam, 4, 11},
    {"amsgrad", amsgrad, 5, 11},
    {"adagrad", adagrad, 3, 5},
    {"adadelta", adadelta, 4, 7},
    {"rmsprop", rmsprop, 3, 7},
    {"rmsprop_momentum", rmsprop_momentum, 4, 8},
    {"rmsprop_centered", rmsprop_centered, 4, 7},
    {"rmsprop_centered_momentum", rmsprop_centered_momentum, 5, 8},
    {"lamb_moments", lamb_moments, 4, 10},
    {"lamb_step", lamb_step, 3, 5},
    {"ftrl_root", ftrl_root, 4, 6},
};
#define COUNT ((int)(sizeof sweeps / sizeof *sweeps))

/* ------------------------------------------------------------------ variables in pieces */

/* A list of the given length, or any length for -1, borrowed; NULL with an error. */
static PyObject *list_of(PyObject *given, Py_ssize_t length) {
    if (!PyList_Check(given) || (length >= 0 && PyList_GET_SIZE(given) != length)) {
        PyErr_SetString(PyExc_TypeError, "a list of another kind or length was expected");
        return NULL;
    }
    return given;
}

static int read_numbers(PyObject *row, int count, float *to) {
    if (list_of(row, count) == NULL)
        return -1;
    for (int i = 0; i < count; i++)
        to[i] = (float)PyFloat_AsDouble(PyList_GET_ITEM(row, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* Writes the pieces of one variable; gives how many, or -1 with an error. */
static int64_t cut(int sweep, PyObject *columns, PyObject *row, Py_ssize_t variable, int64_t size, Piece *to) {
    Piece first;
    memset(&first, 0, sizeof first);
    if (read_numbers(row, sweeps[sweep].numbers, first.numbers) < 0)
        return -1;
    for (int i = 0; i < sweeps[sweep].tensors; i++)
        first.tensors[i] = (float *)PyLong_AsVoidPtr(PyList_GET_ITEM(PyList_GET_ITEM(columns, i), variable));
    if (PyErr_Occurred())
        return -1;
    int64_t count = 0;
    for (int64_t start = 0; start < size; start += PIECE, count++) {
        to[count] = first;
        to[count].size = size - start < PIECE ? size - start : PIECE;
        for (int i = 0; i < sweeps[sweep].tensors; i++)
            to[count].tensors[i] += start;
    }
    return count;
}

/* The sums of each variable, or None for a sweep without. */
static PyObject *sums_of(const Piece *pieces, const int64_t *sizes, Py_ssize_t variables) {
    PyObject *made = PyList_New(variables);
    for (Py_ssize_t v = 0; made != NULL && v < variables; v++) {
        double sums[2] = {0.0, 0.0};
        for (int64_t start = 0; start < sizes[v]; start += PIECE, pieces++) {
            sums[0] += pieces->sums[0];
            sums[1] += pieces->sums[1];
        }
        PyObject *pair = Py_BuildValue("(dd)", sums[0], sums[1]);
        if (pair == NULL)
            Py_CLEAR(made);
        else
            PyList_SET_ITEM(made, v, pair);
    }
    return made;
}

static PyObject *swept(int sweep, PyObject *columns, PyObject *numbers, const int64_t *sizes, Py_ssize_t variables, Piece *pieces, int threads) {
    int64_t count = 0;
    for (Py_ssize_t v = 0; v < variables; v++) {
        const int64_t more = cut(sweep, columns, PyList_GET_ITEM(numbers, PyList_GET_SIZE(numbers) == 1 ? 0 : v), v, sizes[v], pieces + count);
        if (more < 0)
            return NULL;
        count += more;
    }
    const Run run = sweeps[sweep].run;
    Py_BEGIN_ALLOW_THREADS
    if (threads == 1) {
        for (int64_t i = 0; i < count; i++)
            run(pieces + i);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < count; i++)
            run(pieces + i);
    }
    Py_END_ALLOW_THREADS
    return sums_of(pieces, sizes, variables);
}

/* ------------------------------------------------------------------ Python: addresses of tensors */

static PyObject *sweep(PyObject *self, PyObject *args) {
    const char *name;
    PyObject *columns, *sizes, *numbers, *made = NULL;
    int threads, number = 0;
    if (!PyArg_ParseTuple(args, "sOOOi", &name, &columns, &sizes, &numbers, &threads))
        return NULL;
    while (number < COUNT && strcmp(sweeps[number].name, name) != 0)
        number++;
    if (number == COUNT)
        return PyErr_Format(PyExc_ValueError, "there is no sweep %s", name);
    if (list_of(columns, sweeps[number].tensors) == NULL || list_of(sizes, -1) == NULL || list_of(numbers, -1) == NULL)
        return NULL;
    const Py_ssize_t variables = PyList_GET_SIZE(sizes);
    if (PyList_GET_SIZE(numbers) != 1 && list_of(numbers, variables) == NULL)
        return NULL;
    for (int i = 0; i < sweeps[number].tensors; i++)
        if (list_of(PyList_GET_ITEM(columns, i), variables) == NULL)
            return NULL;
    int64_t *lengths = malloc((size_t)(variables + 1) * sizeof *lengths), pieces = 0;
    for (Py_ssize_t v = 0; lengths != NULL && v < variables; v++) {
        lengths[v] = PyLong_AsLongLong(PyList_GET_ITEM(sizes, v));
        pieces += (lengths[v] + PIECE - 1) / PIECE;
    }
    Piece *cuts = malloc((size_t)(pieces + 1) * sizeof *cuts);
    if (lengths == NULL || cuts == NULL)
        PyErr_NoMemory();
    else if (!PyErr_Occurred())
        made = swept(number, columns, numbers, lengths, variables, cuts, threads);
    free(lengths);
    free(cuts);
    return made;
}

static PyObject *names(PyObject *self, PyObject *args) {
    PyObject *made = PyList_New(0);
    for (int i = 0; made != NULL && i < COUNT; i++) {
        PyObject *name = PyUnicode_FromString(sweeps[i].name);
        if (name == NULL || PyList_Append(made, name) < 0)
            Py_CLEAR(made);
        Py_XDECREF(name);
    }
    return made;
}

static PyMethodDef methods[] = {
    {"sweep", sweep, METH_VARARGS, "name, addresses of the variables' tensors by column, sizes, numbers of all variables or of each, threads; gives two sums of each variable"},
    {"names", names, METH_NOARGS, "those of all sweeps"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_update", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__update(void) { return PyModule_Create(&module); }
