/* A JPEG straight into its place in a batch: decodes only the rows and columns that are needed, and resizes, mirrors and
 * normalises them row by row while they are still in the cache.
 *
 *   header(data) -> (width, height), or None for colours that this module does not convert (CMYK)
 *   load(data, out, window, size, cut, mirror, color, method, factor, offset)
 *
 * Pixels are those of a full decode: one more pixel than needed is decoded on every side, because libjpeg interpolates
 * colour between neighbours. A warning of libjpeg is an error here. The interpreter lock is free while load() works.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#if !defined(__GNUC__)
#error "this module uses the vector types of GCC and Clang"
#endif
#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 1005000
#error "this module needs libjpeg-turbo 1.5 or later, for jpeg_crop_scanline and jpeg_skip_scanlines"
#endif

enum { RGB, BGR, GRAY };                                  /* as in the tuple COLORS of decode.py */
enum { ANTIALIAS, LINEAR, AREA, NEAREST };                /* as in the tuple METHODS of resize.py */

/* One pixel: red, green, blue and nothing, or grey and nothing. The packed type may stand at any address of a float. */
typedef float pixel __attribute__((vector_size(16)));
typedef float packed_pixel __attribute__((vector_size(16), aligned(4), may_alias));

typedef struct { int x, y, w, h; } window_t;

/* ---------------------------------------------------------------- one axis of the filter */

/* Result i is the sum of weights[i * width + k] * source[first[i] + k] for k < width. first[] never falls (mirrored: never rises). */
typedef struct {
  int count, width;
  int *first;
  float *weights;
} taps_t;

typedef struct { int first, count; } span_t;

/* The share of every source pixel in result number i, unnormalised, into weights. */
static span_t antialias_weights(int old, int new, int i, double *weights) {
  double scale = (double)old / new;
  double support = scale > 1 ? scale : 1, center = (i + 0.5) * scale;
  int low = (int)(center - support + 0.5), high = (int)(center + support + 0.5);
  if (center - support + 0.5 < 0) low = 0;
  if (high > old) high = old;
  for (int k = low; k < high; k++) {
    double share = 1 - fabs(k + 0.5 - center) / support;
    weights[k - low] = share > 0 ? share : 0;
  }
  return (span_t){low, high - low};
}

static span_t two_neighbours(int old, int first, double share, double *weights) {
  weights[0] = 1 - share;
  weights[1] = share;
  return (span_t){first, first + 1 < old && share > 0 ? 2 : 1};
}

static span_t linear_weights(int old, int new, int i, double *weights) {
  double at = (i + 0.5) * ((double)old / new) - 0.5;
  if (at < 0) at = 0;
  if (at > old - 1) at = old - 1;
  return two_neighbours(old, (int)at, at - floor(at), weights);
}

/* The pixel of result i by OpenCV's rule, rounded as it rounds: where a pixel ends, the last bit decides which one is taken. */
static int pixel_below(int old, int new, int i) {
  int first = (int)(i * (1 / ((double)new / old)));
  return first < old ? first : old - 1;
}

/* OpenCV's INTER_AREA where a side grows. */
static span_t enlarging_weights(int old, int new, int i, double *weights) {
  int first = pixel_below(old, new, i);
  float share = (float)(i + 1 - (first + 1) * ((double)new / old));
  return two_neighbours(old, first, share <= 0 ? 0 : share - floorf(share), weights);
}

static span_t area_weights(int old, int new, int i, double *weights) {
  double scale = (double)old / new;
  double low = i * scale, high = (i + 1) * scale;
  int first = (int)low, end = (int)ceil(high);
  if (end > old) end = old;
  for (int k = first; k < end; k++) {
    double covered = fmin(k + 1, high) - fmax(k, low);
    weights[k - first] = covered < 1e-3 ? 0 : covered;
  }
  return (span_t){first, end - first};
}

static span_t nearest_weights(int old, int new, int i, double *weights) {
  weights[0] = 1;
  return (span_t){pixel_below(old, new, i), 1};
}

typedef span_t (*weigh_t)(int old, int new, int i, double *weights);

static weigh_t filter_of(int method, int shrinking) {
  switch (method) {
    case LINEAR: return linear_weights;
    case AREA: return shrinking ? area_weights : enlarging_weights;
    case NEAREST: return nearest_weights;
    default: return antialias_weights;
  }
}

static void free_taps(taps_t *taps) {
  free(taps->first);
  free(taps->weights);
}

/* Taps of the results from..from+count of an axis that goes from old to new pixels; source indices start at origin. 0: no memory. */
static int make_taps(taps_t *taps, weigh_t weigh, int old, int new, int origin, int from, int count, int mirror) {
  double scale = (double)old / new;
  int most = 2 * ((int)ceil(scale > 1 ? scale : 1) + 1);
  double *all = calloc((size_t)count * most, sizeof(double));
  span_t *spans = malloc(count * sizeof(span_t));
  int done = 0;
  taps->count = count;
  taps->width = 1;
  taps->first = malloc(count * sizeof(int));
  taps->weights = NULL;
  if (!all || !spans || !taps->first) goto end;
  for (int i = 0; i < count; i++) {
    double *weights = all + (size_t)i * most;
    span_t span = weigh(old, new, from + (mirror ? count - 1 - i : i), weights);
    while (span.count > 1 && weights[span.count - 1] == 0) span.count--;
    spans[i] = span;
    if (span.count > taps->width) taps->width = span.count;
  }
  taps->weights = calloc((size_t)count * taps->width, sizeof(float));
  if (!taps->weights) goto end;
  for (int i = 0; i < count; i++) {
    const double *weights = all + (size_t)i * most;
    double sum = 0;
    for (int k = 0; k < spans[i].count; k++) sum += weights[k];
    for (int k = 0; k < spans[i].count; k++) taps->weights[(size_t)i * taps->width + k] = (float)(weights[k] / sum);
    taps->first[i] = origin + spans[i].first;
  }
  done = 1;
end:
  free(all);
  free(spans);
  return done;
}

/* The source pixels that the taps touch. Trailing weights may be 0 beyond the source's end, so the caller clips. */
static span_t touched(const taps_t *taps) {
  int a = taps->first[0], b = taps->first[taps->count - 1];
  int low = a < b ? a : b, high = (a < b ? b : a) + taps->width;
  return (span_t){low, high - low};
}

/* ---------------------------------------------------------------- the inner loops */

/* A row that was resized across is kept as three planes of `room` floats each, so that what follows runs along whole vectors. */
typedef struct {
  void (*widen)(const unsigned char *restrict bytes, float *restrict values, int count);
  void (*across)(const float *restrict row, const taps_t *taps, float *restrict planes, int room);
  void (*down)(float *const *rows, const float *weights, int taps, float factor, float offset, int count, float *restrict result);
} kernels_t;

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int lanes __attribute__((vector_size(16)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

INLINE void widen(const unsigned char *restrict bytes, float *restrict values, int count) {
  for (int i = 0; i < count; i++) values[i] = bytes[i];
}

INLINE pixel weighted(const float *row, const taps_t *taps, int i, const int width) {
  const float *source = row + 4 * (size_t)taps->first[i], *weights = taps->weights + (size_t)i * width;
  pixel sum = weights[0] * *(const packed_pixel *)source;
  for (int k = 1; k < width; k++) sum += weights[k] * *(const packed_pixel *)(source + 4 * k);
  return sum;
}

INLINE void across_width(const float *restrict row, const taps_t *taps, const int width, float *restrict planes, int room) {
  int i = 0;
  for (; i + 4 <= taps->count; i += 4) {
    pixel a = weighted(row, taps, i, width), b = weighted(row, taps, i + 1, width);
    pixel c = weighted(row, taps, i + 2, width), d = weighted(row, taps, i + 3, width);
    pixel ab = SHUFFLE(a, b, 0, 4, 1, 5), cd = SHUFFLE(c, d, 0, 4, 1, 5);
    *(packed_pixel *)(planes + i) = SHUFFLE(ab, cd, 0, 1, 4, 5);
    *(packed_pixel *)(planes + room + i) = SHUFFLE(ab, cd, 2, 3, 6, 7);
    ab = SHUFFLE(a, b, 2, 6, 2, 6);
    cd = SHUFFLE(c, d, 2, 6, 2, 6);
    *(packed_pixel *)(planes + 2 * room + i) = SHUFFLE(ab, cd, 0, 1, 4, 5);
  }
  for (; i < taps->count; i++) {
    pixel a = weighted(row, taps, i, width);
    for (int c = 0; c < 3; c++) planes[c * room + i] = a[c];
  }
}

/* The usual widths are constants, so that their loops are unrolled. */
INLINE void across(const float *restrict row, const taps_t *taps, float *restrict planes, int room) {
  switch (taps->width) {
    case 1: across_width(row, taps, 1, planes, room); break;
    case 2: across_width(row, taps, 2, planes, room); break;
    case 3: across_width(row, taps, 3, planes, room); break;
    case 4: across_width(row, taps, 4, planes, room); break;
    case 5: across_width(row, taps, 5, planes, room); break;
    default: across_width(row, taps, taps->width, planes, room);
  }
}

INLINE void down(float *const *rows, const float *weights, int taps, float factor, float offset, int count, float *restrict result) {
  int k = 0;
  if (taps >= 3) {
    const float *a = rows[0], *b = rows[1], *c = rows[2];
    float u = weights[0] * factor, v = weights[1] * factor, w = weights[2] * factor;
    for (int i = 0; i < count; i++) result[i] = a[i] * u + b[i] * v + c[i] * w + offset;
    k = 3;
  } else if (taps == 2) {
    const float *a = rows[0], *b = rows[1];
    float u = weights[0] * factor, v = weights[1] * factor;
    for (int i = 0; i < count; i++) result[i] = a[i] * u + b[i] * v + offset;
    k = 2;
  } else {
    for (int i = 0; i < count; i++) result[i] = offset;
  }
  for (; k < taps; k++) {
    const float *row = rows[k];
    float weight = weights[k] * factor;
    for (int i = 0; i < count; i++) result[i] += weight * row[i];
  }
}

#define KERNELS(suffix, attribute)                                                                                              \
  attribute static void widen_##suffix(const unsigned char *restrict b, float *restrict v, int n) { widen(b, v, n); }           \
  attribute static void across_##suffix(const float *restrict r, const taps_t *t, float *restrict p, int n) { across(r, t, p, n); } \
  attribute static void down_##suffix(float *const *r, const float *w, int t, float f, float o, int n, float *restrict p) {     \
    down(r, w, t, f, o, n, p);                                                                                                  \
  }                                                                                                                             \
  static const kernels_t kernels_##suffix = {widen_##suffix, across_##suffix, down_##suffix};

KERNELS(plain, )
#if defined(__x86_64__)
KERNELS(avx2, __attribute__((target("avx2,fma"))))
#endif

static const kernels_t *best_kernels(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &kernels_avx2;
#endif
  return &kernels_plain;
}

/* ---------------------------------------------------------------- libjpeg with errors that come back */

typedef struct {
  struct jpeg_error_mgr manager;
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
} failure_t;

static void fail(j_common_ptr info) {
  failure_t *failure = (failure_t *)info->err;
  info->err->format_message(info, failure->message);
  longjmp(failure->back, 1);
}

static void fail_on_warning(j_common_ptr info, int level) {
  if (level < 0) fail(info);
}

static void open_jpeg(struct jpeg_decompress_struct *info, const Py_buffer *data) {
  jpeg_mem_src(info, data->buf, data->len);
  jpeg_read_header(info, TRUE);
}

static void catch_failures(struct jpeg_decompress_struct *info, failure_t *failure) {
  memset(info, 0, sizeof *info); /* so that it may be destroyed even if it could not be made */
  info->err = jpeg_std_error(&failure->manager);
  failure->manager.error_exit = fail;
  failure->manager.emit_message = fail_on_warning;
}

/* ---------------------------------------------------------------- load */

typedef struct {
  Py_buffer data, out;
  window_t window, cut;
  int width, height; /* of the resized window */
  int mirror, color, method;
  float factor[3], offset[3];
  taps_t columns, rows;
  unsigned char *bytes; /* a decoded row, four bytes a pixel (grey: one) */
  float *row;           /* the same as pixels */
  float *ring;          /* the last rows.width rows, resized across, in planes */
  int room;             /* floats of such a plane */
  float *line;          /* a finished row of one channel, where the result has gaps */
  float **recent;       /* the ring's rows in the order of the taps */
  failure_t failure;
} load_t;

static const char *const NO_MEMORY = "not enough memory";

static int plan(load_t *job) {
  int shrinking = job->width <= job->window.w && job->height <= job->window.h;
  weigh_t weigh = filter_of(job->method, shrinking);
  return make_taps(&job->columns, weigh, job->window.w, job->width, job->window.x, job->cut.x, job->cut.w, job->mirror) &&
         make_taps(&job->rows, weigh, job->window.h, job->height, job->window.y, job->cut.y, job->cut.h, 0);
}

/* To an aligned row libjpeg-turbo writes past the cache, and reading it back would cost as much as all of the resizing. */
enum { MISALIGNED = 4 };

static int reserve(load_t *job, int width) {
  job->room = (job->columns.count + 15) / 16 * 16;
  job->bytes = malloc(4 * (size_t)width + MISALIGNED);
  job->row = calloc(4 * ((size_t)width + job->columns.width), sizeof(float)); /* zeros behind the last pixel, which weights of 0 meet */
  job->recent = malloc(job->rows.width * sizeof(float *));
  job->ring = aligned_alloc(64, (size_t)3 * job->room * job->rows.width * sizeof(float));
  job->line = aligned_alloc(64, job->room * sizeof(float));
  return job->bytes && job->row && job->recent && job->ring && job->line;
}

static void release(load_t *job) {
  free_taps(&job->columns);
  free_taps(&job->rows);
  free(job->bytes);
  free(job->row);
  free(job->recent);
  free(job->ring);
  free(job->line);
}

static float *slot(const load_t *job, int row) { return job->ring + (size_t)3 * job->room * (row % job->rows.width); }

/* Result row y, of the source rows first[y] to end. */
static void write_row(const load_t *job, const kernels_t *kernels, int y, int end) {
  int first = job->rows.first[y], count = job->columns.count, channels = job->color == GRAY ? 1 : 3;
  const float *weights = job->rows.weights + (size_t)y * job->rows.width;
  Py_ssize_t step = job->out.strides[2];
  for (int c = 0; c < channels; c++) {
    char *target = (char *)job->out.buf + c * job->out.strides[0] + y * job->out.strides[1];
    float *result = step == sizeof(float) ? (float *)target : job->line;
    for (int row = first; row < end; row++) job->recent[row - first] = slot(job, row) + (size_t)c * job->room;
    kernels->down(job->recent, weights, end - first, job->factor[c], job->offset[c], count, result);
    if (result == job->line)
      for (int x = 0; x < count; x++) *(float *)(target + x * step) = job->line[x];
  }
}

static void spread_grey(const unsigned char *bytes, float *values, int count) {
  for (int i = 0; i < count; i++) values[4 * i] = bytes[i];
}

/* Reads the next row and leaves it, resized across, in its slot of the ring. */
static void read_row(load_t *job, const kernels_t *kernels, struct jpeg_decompress_struct *info) {
  float *planes = slot(job, info->output_scanline);
  JSAMPROW bytes = job->bytes + MISALIGNED;
  jpeg_read_scanlines(info, &bytes, 1);
  if (job->color == GRAY)
    spread_grey(bytes, job->row, info->output_width);
  else
    kernels->widen(bytes, job->row, 4 * info->output_width);
  kernels->across(job->row, &job->columns, planes, job->room);
}

/* Of a strip with fewer columns of colour than it interpolates between, libjpeg repeats colours instead. */
enum { LEAST_COLUMNS = 16 };

/* Moves the decoder to the part that the taps touch, with a margin of one pixel. */
static int enter_window(load_t *job, struct jpeg_decompress_struct *info) {
  span_t across = touched(&job->columns), down = touched(&job->rows);
  int left = across.first > 0 ? across.first - 1 : 0, right = across.first + across.count + 1;
  if (right < left + LEAST_COLUMNS) right = left + LEAST_COLUMNS;
  if (right > (int)info->output_width) right = info->output_width;
  if (left > right - LEAST_COLUMNS) left = right > LEAST_COLUMNS ? right - LEAST_COLUMNS : 0;
  JDIMENSION x = left, width = right - left;
  jpeg_crop_scanline(info, &x, &width);
  for (int i = 0; i < job->columns.count; i++) job->columns.first[i] -= x;
  if (!reserve(job, width)) return 0;
  if (down.first > 1) jpeg_skip_scanlines(info, down.first - 1);
  return 1;
}

/* What was not decoded must at least be there: a file that was cut short has no end marker behind the place we stopped at. */
static int has_end(struct jpeg_decompress_struct *info) {
  if (info->unread_marker == JPEG_EOI || jpeg_input_complete(info)) return 1;
  const JOCTET *start = info->src->next_input_byte;
  for (size_t n = info->src->bytes_in_buffer; n >= 2; n--)
    if (start[n - 1] == 0xD9 && start[n - 2] == 0xFF) return 1;
  return 0;
}

static const char *leave(struct jpeg_decompress_struct *info) {
  if (info->output_scanline >= info->output_height) {
    jpeg_finish_decompress(info);
    return NULL;
  }
  return has_end(info) ? NULL : "the end marker is missing, the file was cut short";
}

static const char *resize_rows(load_t *job, struct jpeg_decompress_struct *info) {
  const kernels_t *kernels = best_kernels();
  const taps_t *rows = &job->rows;
  int last = (int)info->output_height;
  for (int y = 0; y < rows->count; y++) {
    int end = rows->first[y] + rows->width;
    if (end > last) end = last;
    while ((int)info->output_scanline < end) read_row(job, kernels, info);
    write_row(job, kernels, y, end);
  }
  return leave(info);
}

static const char *decode(load_t *job, struct jpeg_decompress_struct *info) {
  static const J_COLOR_SPACE spaces[] = {JCS_EXT_RGBX, JCS_EXT_BGRX, JCS_GRAYSCALE};
  open_jpeg(info, &job->data);
  info->out_color_space = spaces[job->color];
  if (job->window.x + job->window.w > (int)info->image_width || job->window.y + job->window.h > (int)info->image_height)
    return "the window reaches out of the picture";
  jpeg_start_decompress(info);
  if (!enter_window(job, info)) return NO_MEMORY;
  return resize_rows(job, info);
}

/* NULL, or what is wrong. */
static const char *run(load_t *job) {
  struct jpeg_decompress_struct info;
  const char *wrong = NO_MEMORY;
  if (plan(job)) {
    catch_failures(&info, &job->failure);
    if (setjmp(job->failure.back)) {
      wrong = job->failure.message;
    } else {
      jpeg_create_decompress(&info);
      wrong = decode(job, &info);
    }
    jpeg_destroy_decompress(&info);
  }
  release(job);
  return wrong;
}

/* ---------------------------------------------------------------- Python */

static int is_whole(const window_t *w, int width, int height) {
  return w->w > 0 && w->h > 0 && w->x >= 0 && w->y >= 0 && w->x <= width - w->w && w->y <= height - w->h;
}

static int check(const load_t *job) {
  int channels = job->color == GRAY ? 1 : 3;
  const Py_buffer *out = &job->out;
  if (job->color < RGB || job->color > GRAY || job->method < ANTIALIAS || job->method > NEAREST || job->width < 1 || job->height < 1 ||
      !is_whole(&job->window, 65535, 65535) || !is_whole(&job->cut, job->width, job->height) || out->ndim != 3 ||
      out->itemsize != sizeof(float) || out->shape[0] != channels || out->shape[1] != job->cut.h || out->shape[2] != job->cut.w) {
    PyErr_SetString(PyExc_TypeError, "load(): arguments that do not fit together");
    return 0;
  }
  return 1;
}

static PyObject *load(PyObject *module, PyObject *args) {
  load_t job;
  PyObject *target;
  memset(&job, 0, offsetof(load_t, failure));
  float *f = job.factor, *o = job.offset;
  if (!PyArg_ParseTuple(args, "y*O(iiii)(ii)(iiii)pii(fff)(fff)", &job.data, &target, &job.window.x, &job.window.y, &job.window.w,
                        &job.window.h, &job.width, &job.height, &job.cut.x, &job.cut.y, &job.cut.w, &job.cut.h, &job.mirror, &job.color,
                        &job.method, f, f + 1, f + 2, o, o + 1, o + 2))
    return NULL;
  PyObject *result = NULL;
  if (PyObject_GetBuffer(target, &job.out, PyBUF_STRIDED | PyBUF_WRITABLE) == 0) {
    if (check(&job)) {
      const char *wrong;
      Py_BEGIN_ALLOW_THREADS
      wrong = run(&job);
      Py_END_ALLOW_THREADS
      if (wrong == NULL)
        result = Py_NewRef(Py_None);
      else if (wrong == NO_MEMORY)
        PyErr_NoMemory();
      else
        PyErr_SetString(PyExc_ValueError, wrong);
    }
    PyBuffer_Release(&job.out);
  }
  PyBuffer_Release(&job.data);
  return result;
}

static PyObject *read_header(struct jpeg_decompress_struct *info, const Py_buffer *data) {
  open_jpeg(info, data);
  J_COLOR_SPACE space = info->jpeg_color_space;
  if (space != JCS_GRAYSCALE && space != JCS_YCbCr && space != JCS_RGB) Py_RETURN_NONE;
  return Py_BuildValue("(II)", info->image_width, info->image_height);
}

static PyObject *header(PyObject *module, PyObject *object) {
  struct jpeg_decompress_struct info;
  failure_t failure;
  Py_buffer data;
  PyObject *volatile result = NULL;
  if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) return NULL;
  catch_failures(&info, &failure);
  if (setjmp(failure.back)) {
    PyErr_SetString(PyExc_ValueError, failure.message);
  } else {
    jpeg_create_decompress(&info);
    result = read_header(&info, &data);
  }
  jpeg_destroy_decompress(&info);
  PyBuffer_Release(&data);
  return result;
}

static PyMethodDef methods[] = {
    {"header", header, METH_O, "header(data) -> (width, height), or None for colours that load() does not convert"},
    {"load", load, METH_VARARGS,
     "load(data, out, window, size, cut, mirror, color, method, factor, offset): writes level * factor + offset into out,\n"
     "float32 (channels, height, width) in any strides, of the part cut of the picture's window resized to size"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_jpeg", "JPEG straight into a batch", 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__jpeg(void) { return PyModule_Create(&module); }
