/* Loops that the compiler makes for several kinds of processors, the best of which is taken when the module is loaded; and functions that are part of such a loop. */
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

#define INLINE static inline __attribute__((always_inline))
