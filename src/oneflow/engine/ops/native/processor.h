/* What the kernels for several kinds of processors share. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"

#define AT(address) ((void *)(uintptr_t)(address)) /* of a tensor, 0 where there is none */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* 2 with AVX-512, 1 with AVX2, 0 with neither; or less than it can if torch's own variable says so. */
static int kind_of_processor(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    const char *said = getenv("ATEN_CPU_CAPABILITY");
    const int up_to = said == NULL || strcmp(said, "avx512") == 0 ? 2 : strcmp(said, "avx2") == 0;
    __builtin_cpu_init();
    if (up_to == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return 2;
    return up_to >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}
