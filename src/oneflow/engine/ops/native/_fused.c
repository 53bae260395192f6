/* Batch norm of training with what stands around it, in one pass over memory where aten makes two or three: the sum with a residual and relu behind it, which may
 * have a ceiling (a NaN: none); in the backward pass the sum of two gradients and relu's mask before it.
 *
 * Tensors are float32 in channels_last memory, that is `rows` rows of `channels` numbers. Sums are taken over blocks of rows in float, of differences
 * from the first row, so that large means cost no digits, and over blocks in double. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"

#define ROWS 64
#define COLUMNS 256

typedef struct {
    const float *input, *residual, *weight, *bias;
    float *output;
    int64_t rows, channels;
    int relu;
    float ceiling;
} Forward;

typedef struct {
    const float *gradient, *other, *activation, *input, *weight, *mean, *invstd;
    float *masked, *made;
    int64_t rows, channels;
    float ceiling;
} Backward;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ------------------------------------------------------------------ forward */

FAST static void sum_input(const Forward *f, int64_t begin, int64_t end, double *restrict sum, double *restrict square) {
    const int64_t channels = f->channels;
    float sums[COLUMNS], squares[COLUMNS];
    for (int64_t row = begin; row < end; row += ROWS) {
        const int64_t last = least(row + ROWS, end);
        for (int64_t start = 0; start < channels; start += COLUMNS) {
            const int64_t width = least(COLUMNS, channels - start);
            const float *restrict first = f->input + start;
            memset(sums, 0, sizeof sums);
            memset(squares, 0, sizeof squares);
            for (int64_t r = row; r < last; r++) {
                const float *restrict x = f->input + r * channels + start;
                for (int64_t c = 0; c < width; c++) {
                    const float d = x[c] - first[c];
                    sums[c] += d;
                    squares[c] += d * d;
                }
            }
            for (int64_t c = 0; c < width; c++) {
                sum[start + c] += sums[c];
                square[start + c] += squares[c];
            }
        }
    }
}

FAST static void normalise(const Forward *f, int64_t begin, int64_t end, const float *restrict scale, const float *restrict offset) {
    const int64_t channels = f->channels;
    const float ceiling = f->ceiling;
    for (int64_t r = begin; r < end; r++) {
        const float *restrict x = f->input + r * channels;
        float *restrict y = f->output + r * channels;
        if (f->residual != NULL) {
            const float *restrict other = f->residual + r * channels;
            for (int64_t c = 0; c < channels; c++)
                y[c] = x[c] * scale[c] + offset[c] + other[c];
        } else {
            for (int64_t c = 0; c < channels; c++)
                y[c] = x[c] * scale[c] + offset[c];
        }
        if (f->relu)
            for (int64_t c = 0; c < channels; c++) {
                const float above = y[c] < 0.0f ? 0.0f : y[c]; /* a NaN stays one */
                y[c] = above > ceiling ? ceiling : above;
            }
    }
}

/* ------------------------------------------------------------------ backward */

/* What flows back through one place: the sum of the gradients where relu let something through. The flags are constants where this is inlined. */
INLINE float through(float g, float other, float y, float ceiling, const int two, const int active) {
    const float total = two ? g + other : g;
    return active && (y <= 0.0f || y >= ceiling) ? 0.0f : total;
}

INLINE void sum_block(
    const Backward *b, int64_t row, int64_t last, int64_t start, int64_t width, float *restrict sums, float *restrict dots, const int two, const int active,
    const int keeps
) {
    const float *restrict mean = b->mean + start;
    const float ceiling = b->ceiling;
    for (int64_t r = row; r < last; r++) {
        const int64_t at = r * b->channels + start;
        const float *restrict x = b->input + at, *restrict g = b->gradient + at;
        const float *restrict other = two ? b->other + at : g, *restrict y = active ? b->activation + at : g;
        float *restrict masked = keeps ? b->masked + at : sums;
        for (int64_t c = 0; c < width; c++) {
            const float flows = through(g[c], other[c], y[c], ceiling, two, active);
            if (keeps)
                masked[c] = flows;
            sums[c] += flows;
            dots[c] += flows * (x[c] - mean[c]);
        }
    }
}

FAST static void sum_gradient(const Backward *b, int64_t begin, int64_t end, double *restrict sum, double *restrict dot) {
    const int kind = (b->other != NULL) * 4 + (b->activation != NULL) * 2 + (b->masked != NULL);
    float sums[COLUMNS], dots[COLUMNS];
    for (int64_t row = begin; row < end; row += ROWS) {
        const int64_t last = least(row + ROWS, end);
        for (int64_t start = 0; start < b->channels; start += COLUMNS) {
            const int64_t width = least(COLUMNS, b->channels - start);
            memset(sums, 0, sizeof sums);
            memset(dots, 0, sizeof dots);
            switch (kind) {
            case 0: sum_block(b, row, last, start, width, sums, dots, 0, 0, 0); break;
            case 1: sum_block(b, row, last, start, width, sums, dots, 0, 0, 1); break;
            case 2: sum_block(b, row, last, start, width, sums, dots, 0, 1, 0); break;
            case 3: sum_block(b, row, last, start, width, sums, dots, 0, 1, 1); break;
            case 4: sum_block(b, row, last, start, width, sums, dots, 1, 0, 0); break;
            case 5: sum_block(b, row, last, start, width, sums, dots, 1, 0, 1); break;
            case 6: sum_block(b, row, last, start, width, sums, dots, 1, 1, 0); break;
            default: sum_block(b, row, last, start, width, sums, dots, 1, 1, 1);
            }
            for (int64_t c = 0; c < width; c++) {
                sum[start + c] += sums[c];
                dot[start + c] += dots[c];
            }
        }
    }
}

/* The gradient of the input: first * flows + second * (x - mean) + third, for each channel. */
INLINE void gradient_rows(
    const Backward *b, int64_t begin, int64_t end, const float *restrict first, const float *restrict second, const float *restrict third, const int two,
    const int active
) {
    const float *restrict mean = b->mean, *from = b->masked != NULL ? b->masked : b->gradient;
    const float ceiling = b->ceiling;
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r * b->channels;
        const float *restrict x = b->input + at, *restrict g = from + at;
        const float *restrict other = two ? b->other + at : g, *restrict y = active ? b->activation + at : g;
        float *restrict made = b->made + at;
        for (int64_t c = 0; c < b->channels; c++)
            made[c] = first[c] * through(g[c], other[c], y[c], ceiling, two, active) + second[c] * (x[c] - mean[c]) + third[c];
    }
}

FAST static void input_gradient(const Backward *b, int64_t begin, int64_t end, const float *first, const float *second, const float *third) {
    const int kind = b->masked != NULL ? 0 : (b->other != NULL) * 2 + (b->activation != NULL);
    switch (kind) {
    case 0: gradient_rows(b, begin, end, first, second, third, 0, 0); break;
    case 1: gradient_rows(b, begin, end, first, second, third, 0, 1); break;
    case 2: gradient_rows(b, begin, end, first, second, third, 1, 0); break;
    default: gradient_rows(b, begin, end, first, second, third, 1, 1);
    }
}

/* ------------------------------------------------------------------ threads */

/* The rows of one thread: begin and end of its share. */
static void share(int64_t rows, int threads, int thread, int64_t *begin, int64_t *end) {
    *begin = rows * thread / threads;
    *end = rows * (thread + 1) / threads;
}

static void add_up(double *sums, int threads, int64_t count) {
    for (int thread = 1; thread < threads; thread++)
        for (int64_t i = 0; i < count; i++)
            sums[i] += sums[thread * count + i];
}

static int run_forward(const Forward *f, float *mean, float *invstd, float *running_mean, float *running_var, double momentum, double epsilon, int threads) {
    const int64_t channels = f->channels;
    const double rows = (double)f->rows;
    double *sums = calloc((size_t)threads * 2 * channels, sizeof(double));
    float *scale = malloc(2 * channels * sizeof(float));
    if (sums == NULL || scale == NULL) {
        free(sums);
        free(scale);
        return -1;
    }
    float *offset = scale + channels;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        int64_t begin, end;
        share(f->rows, threads, thread, &begin, &end);
        double *own = sums + (int64_t)thread * 2 * channels;
        sum_input(f, begin, end, own, own + channels);
    }
    add_up(sums, threads, 2 * channels);
    for (int64_t c = 0; c < channels; c++) {
        const double away = sums[c] / rows;
        double variance = sums[channels + c] / rows - away * away;
        variance = variance < 0.0 ? 0.0 : variance;
        const double centre = (double)f->input[c] + away, inverse = 1.0 / sqrt(variance + epsilon);
        mean[c] = (float)centre;
        invstd[c] = (float)inverse;
        scale[c] = (float)(inverse * f->weight[c]);
        offset[c] = (float)(f->bias[c] - centre * inverse * f->weight[c]);
        if (running_mean != NULL)
            running_mean[c] = (float)(momentum * centre + (1.0 - momentum) * running_mean[c]);
        if (running_var != NULL)
            running_var[c] = (float)(momentum * variance * (rows / (rows - 1.0)) + (1.0 - momentum) * running_var[c]);
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        int64_t begin, end;
        share(f->rows, threads, thread, &begin, &end);
        normalise(f, begin, end, scale, offset);
    }
    free(sums);
    free(scale);
    return 0;
}

static int run_backward(const Backward *b, float *weight_gradient, float *bias_gradient, int threads) {
    const int64_t channels = b->channels;
    const double rows = (double)b->rows;
    double *sums = calloc((size_t)threads * 2 * channels, sizeof(double));
    float *first = malloc(3 * channels * sizeof(float));
    if (sums == NULL || first == NULL) {
        free(sums);
        free(first);
        return -1;
    }
    float *second = first + channels, *third = first + 2 * channels;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        int64_t begin, end;
        share(b->rows, threads, thread, &begin, &end);
        double *own = sums + (int64_t)thread * 2 * channels;
        sum_gradient(b, begin, end, own, own + channels);
    }
    add_up(sums, threads, 2 * channels);
    for (int64_t c = 0; c < channels; c++) {
        const double inverse = b->invstd[c], dot = sums[channels + c], scale = inverse * b->weight[c];
        weight_gradient[c] = (float)(dot * inverse);
        bias_gradient[c] = (float)sums[c];
        first[c] = (float)scale;
        second[c] = (float)(-scale * inverse * inverse * dot / rows);
        third[c] = (float)(-scale * sums[c] / rows);
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        int64_t begin, end;
        share(b->rows, threads, thread, &begin, &end);
        input_gradient(b, begin, end, first, second, third);
    }
    free(sums);
    free(first);
    return 0;
}

/* ------------------------------------------------------------------ Python: addresses of tensors, 0 where there is none */

#define AT(address) ((void *)(uintptr_t)(address))

static PyObject *batch_norm(PyObject *self, PyObject *args) {
    unsigned long long p[9];
    long long rows, channels;
    double momentum, epsilon, ceiling;
    int relu, threads, failed;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKLLddidi", &p[0], &p[1], &p[2], &p[3], &p[4], &p[5], &p[6], &p[7], &p[8], &rows, &channels, &momentum, &epsilon, &relu, &ceiling, &threads))
        return NULL;
    const Forward f = {AT(p[0]), AT(p[1]), AT(p[2]), AT(p[3]), AT(p[4]), rows, channels, relu, (float)ceiling};
    Py_BEGIN_ALLOW_THREADS
    failed = run_forward(&f, AT(p[5]), AT(p[6]), AT(p[7]), AT(p[8]), momentum, epsilon, threads);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *batch_norm_backward(PyObject *self, PyObject *args) {
    unsigned long long p[11];
    long long rows, channels;
    double ceiling;
    int threads, failed;
    if (!PyArg_ParseTuple(args, "KKKKKKKKKKKLLdi", &p[0], &p[1], &p[2], &p[3], &p[4], &p[5], &p[6], &p[7], &p[8], &p[9], &p[10], &rows, &channels, &ceiling, &threads))
        return NULL;
    const Backward b = {AT(p[0]), AT(p[1]), AT(p[2]), AT(p[3]), AT(p[4]), AT(p[5]), AT(p[6]), AT(p[7]), AT(p[8]), rows, channels, (float)ceiling};
    Py_BEGIN_ALLOW_THREADS
    failed = run_backward(&b, AT(p[9]), AT(p[10]), threads);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"batch_norm", batch_norm, METH_VARARGS, "input, residual, weight, bias, output, mean, invstd, running mean, running var, rows, channels, momentum, epsilon, relu, ceiling, threads"},
    {"batch_norm_backward", batch_norm_backward, METH_VARARGS,
     "gradient, other, activation, input, weight, mean, invstd, masked, made, weight gradient, bias gradient, rows, channels, ceiling, threads"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_fused", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fused(void) { return PyModule_Create(&module); }
