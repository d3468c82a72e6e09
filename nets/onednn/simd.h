/* simd.h: vectors of one register, because GCC and clang keep wider ones in memory. Private to kernel
 * files. */
#ifndef CNN_ONEDNN_SIMD_H
#define CNN_ONEDNN_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

/* Loads and stores need no alignment. */
static inline floats load(const float *p)
{
    floats v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, floats v)
{
    memcpy(p, &v, sizeof v);
}

#endif
