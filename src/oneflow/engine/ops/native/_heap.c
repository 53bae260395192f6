/* A heap for the memory of large tensors alone. torch's allocator of the CPU is asked for them as before; of what is smaller the one that was there takes care.
 *
 * Steps make and free the same large tensors again and again. In the C library's heap small objects settle in the holes between them, so a hole no longer takes
 * the next tensor of its very size, and the heap of a step grows to a third more than it holds. Here a freed block is whole again as soon as its neighbours are free:
 * a block is taken from the smallest hole that it fits into, else from the end.
 *
 * torch has a C++ interface for allocators and no other. Its layout (Itanium C++ ABI, the C++ library of GCC) is written out below, and what the allocator that is
 * there gives is compared with it before anything is changed. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE ((size_t)1 << 18) /* bytes of the smallest tensor that is taken care of here */
#define LINE ((size_t)64)       /* of the cache: tensors begin at one */
#define SPLIT ((size_t)1 << 12) /* bytes of the smallest hole that is worth a block */
#define HUGE ((size_t)2 << 20)

/* Stands in the line before the numbers of a tensor. */
typedef struct Block {
    struct Block *before, *behind; /* in memory; the last has none behind it */
    struct Block *previous, *next; /* of the holes, if it is one */
    size_t size;                   /* in bytes, with this */
    int is_hole;
} Block;

static struct {
    pthread_mutex_t lock;
    char *begin, *end, *limit, *highest; /* of blocks, of the reserved addresses, and where the end was at most */
    Block *last, *holes;
    size_t taken; /* bytes of blocks that are none */
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t round_up(size_t size, size_t to) { return (size + to - 1) / to * to; }

/* ------------------------------------------------------------------ blocks; under the lock */

static void add_hole(Block *b) {
    b->is_hole = 1;
    b->previous = NULL;
    b->next = heap.holes;
    if (heap.holes != NULL)
        heap.holes->previous = b;
    heap.holes = b;
}

static void remove_hole(Block *b) {
    b->is_hole = 0;
    if (b->previous != NULL)
        b->previous->next = b->next;
    else
        heap.holes = b->next;
    if (b->next != NULL)
        b->next->previous = b->previous;
}

static Block *smallest_hole(size_t size) {
    Block *best = NULL;
    for (Block *b = heap.holes; b != NULL; b = b->next)
        if (b->size >= size && (best == NULL || b->size < best->size || (b->size == best->size && b < best)))
            best = b;
    return best;
}

/* Cuts a block in two, the second of which is a hole. */
static void split(Block *b, size_t size) {
    Block *rest = (Block *)((char *)b + size);
    rest->size = b->size - size;
    rest->before = b;
    rest->behind = b->behind;
    if (rest->behind != NULL)
        rest->behind->before = rest;
    else
        heap.last = rest;
    b->behind = rest;
    b->size = size;
    add_hole(rest);
}

/* Makes one block of two neighbours. */
static void join(Block *b, Block *behind) {
    b->size += behind->size;
    b->behind = behind->behind;
    if (b->behind != NULL)
        b->behind->before = b;
    else
        heap.last = b;
}

static Block *at_the_end(size_t size) {
    if ((size_t)(heap.limit - heap.end) < size)
        return NULL;
    Block *b = (Block *)heap.end;
    *b = (Block){.before = heap.last, .size = size};
    if (heap.last != NULL)
        heap.last->behind = b;
    heap.last = b;
    heap.end += size;
    heap.highest = heap.end > heap.highest ? heap.end : heap.highest;
    return b;
}

static Block *take(size_t size) {
    Block *b = smallest_hole(size);
    if (b == NULL) {
        b = at_the_end(size);
    } else {
        remove_hole(b);
        if (b->size - size >= SPLIT)
            split(b, size);
    }
    heap.taken += b != NULL ? b->size : 0;
    return b;
}

static void leave(Block *b) {
    heap.taken -= b->size;
    if (b->behind != NULL && b->behind->is_hole) {
        remove_hole(b->behind);
        join(b, b->behind);
    }
    if (b->before != NULL && b->before->is_hole) {
        remove_hole(b->before);
        join(b->before, b);
        b = b->before;
    }
    if (b->behind != NULL) {
        add_hole(b);
        return;
    }
    heap.last = b->before; /* what is free at the end is no block */
    heap.end = (char *)b;
    if (heap.last != NULL)
        heap.last->behind = NULL;
}

/* Gives the whole pages between two addresses to the kernel. */
static void give(char *begin, char *end) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)round_up((uintptr_t)begin, page), *last = (char *)((uintptr_t)end / page * page);
    if (first < last)
        madvise(first, (size_t)(last - first), MADV_DONTNEED);
}

static void lock(void) { pthread_mutex_lock(&heap.lock); }
static void unlock(void) { pthread_mutex_unlock(&heap.lock); }

/* ------------------------------------------------------------------ torch's allocators */

typedef void (*Drop)(void *);

/* c10::DataPtr: the address, what is to be done with the context at its end, the context, and the device. */
typedef struct {
    void *data;
    Drop drop;
    void *context;
    int8_t device_type, device_index;
} DataPtr;

typedef struct {
    void **methods;
} Allocator;

enum { DESTRUCTORS = 2, ALLOCATE = 2, IS_SIMPLE, RAW_DELETER, COPY_DATA, METHODS }; /* of c10::Allocator, in order */
enum { BEFORE = 2 };                                                                /* words before the methods of a class */

typedef DataPtr (*Allocate)(Allocator *, size_t);
typedef Drop (*RawDeleter)(Allocator *);

static Allocator *usual, ours;
static Drop usual_drop;
static void *methods[BEFORE + METHODS];

/* Of torch's profiler, which is told of memory; NULL where there is none. */
static void *(*reporter)(void);
static void (*report_new)(void *, void *, size_t);
static void (*report_delete)(void *, void *);

static DataPtr usually(size_t size) { return ((Allocate)usual->methods[ALLOCATE])(usual, size); }

static void drop(void *data) {
    if ((char *)data < heap.begin || (char *)data >= heap.limit) {
        usual_drop(data);
        return;
    }
    if (reporter != NULL)
        report_delete(reporter(), data);
    lock();
    leave((Block *)((char *)data - LINE));
    unlock();
}

static DataPtr allocate(Allocator *self, size_t size) {
    (void)self;
    if (size >= LARGE && size < (size_t)(heap.limit - heap.begin)) {
        lock();
        Block *b = take(round_up(size, LINE) + LINE);
        unlock();
        if (b != NULL) {
            void *data = (char *)b + LINE;
            if (reporter != NULL)
                report_new(reporter(), data, size);
            return (DataPtr){data, drop, data, 0, -1};
        }
    }
    DataPtr made = usually(size); /* raises torch's own error where there is no memory */
    made.drop = drop;
    return made;
}

static Drop raw_deleter(Allocator *self) {
    (void)self;
    return drop;
}

/* Whether what the allocator that is there gives lies as is written out above. */
static int is_known(void) {
    usual_drop = ((RawDeleter)usual->methods[RAW_DELETER])(usual);
    if (usual_drop == NULL)
        return 0;
    const DataPtr made = usually(LINE);
    const int is = made.data != NULL && made.data == made.context && made.drop == usual_drop && made.device_type == 0 && made.device_index == -1;
    if (is)
        usual_drop(made.context);
    return is;
}

static void find_reporter(void *library) {
    report_new = dlsym(library, "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm");
    report_delete = dlsym(library, "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv");
    if (report_new != NULL && report_delete != NULL)
        reporter = dlsym(library, "_ZN3c1025profiledCPUMemoryReporterEv");
}

/* Reserves addresses for as much as the machine has; memory is taken when it is first written to. */
static int reserve(void) {
    const size_t size = round_up((size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), HUGE);
    char *begin = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED)
        return 0;
    heap.begin = heap.end = heap.highest = (char *)round_up((uintptr_t)begin, HUGE);
    heap.limit = heap.begin + size;
    return 1;
}

/* ------------------------------------------------------------------ Python */

static PyObject *install(PyObject *self, PyObject *none) {
    if (usual != NULL)
        Py_RETURN_TRUE;
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        Py_RETURN_FALSE;
    Allocator *(*get)(void) = dlsym(library, "_ZN3c1015GetCPUAllocatorEv");
    void (*set)(Allocator *, uint8_t) = dlsym(library, "_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh");
    usual = get != NULL && set != NULL ? get() : NULL;
    if (usual == NULL || !is_known() || !reserve()) {
        usual = NULL;
        Py_RETURN_FALSE;
    }
    find_reporter(library);
    memcpy(methods, usual->methods - BEFORE, sizeof methods);
    methods[BEFORE + ALLOCATE] = (void *)allocate;
    methods[BEFORE + RAW_DELETER] = (void *)raw_deleter;
    ours.methods = methods + BEFORE;
    pthread_atfork(lock, unlock, unlock);
    set(&ours, UINT8_MAX);
    Py_RETURN_TRUE;
}

static PyObject *give_back(PyObject *self, PyObject *none) {
    lock();
    for (Block *b = heap.holes; b != NULL; b = b->next)
        give((char *)b + LINE, (char *)b + b->size);
    give(heap.end, heap.highest);
    heap.highest = heap.end;
    unlock();
    Py_RETURN_NONE;
}

static PyObject *grow_in_huge_pages(PyObject *self, PyObject *size) {
    const size_t wanted = PyLong_AsSize_t(size);
    if (wanted == (size_t)-1 && PyErr_Occurred())
        return NULL;
    lock();
    char *first = (char *)round_up((uintptr_t)heap.end, HUGE);
    if (first < heap.limit)
        madvise(first, wanted < (size_t)(heap.limit - first) ? wanted : (size_t)(heap.limit - first), MADV_HUGEPAGE);
    unlock();
    Py_RETURN_NONE;
}

static PyObject *sizes(PyObject *self, PyObject *none) {
    lock();
    const size_t taken = heap.taken, extent = (size_t)(heap.highest - heap.begin);
    unlock();
    return Py_BuildValue("nn", (Py_ssize_t)taken, (Py_ssize_t)extent);
}

static PyMethodDef functions[] = {
    {"install", install, METH_NOARGS, "has torch take memory of large tensors from here; whether it does from now on"},
    {"grow_in_huge_pages", grow_in_huge_pages, METH_O, "asks for huge pages for so many bytes at the end of the heap, when they are first written to"},
    {"give_back", give_back, METH_NOARGS, "gives the memory of holes to the kernel"},
    {"sizes", sizes, METH_NOARGS, "bytes of tensors that are there, and how far the heap has reached since it was last given back"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_heap", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__heap(void) { return PyModule_Create(&module); }
