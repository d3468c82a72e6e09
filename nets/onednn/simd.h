/* simd.h: vectors of one register, because GCC and clang keep wider ones in memory, and the numbers of
 * activations. Private to kernel files. */
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

/* A number of an activation or of its gradient. Every sum is of float32. */
#ifdef CNN_VALUES_BF16
#include <immintrin.h>

typedef uint16_t value; /* the upper half of a float32, rounded to nearest, ties to even; a NaN stays one */

static inline float get(const value *p)
{
    uint32_t bits = (uint32_t)*p << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline void put(value *p, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    *p = (value)(v != v ? bits >> 16 | 0x40 : rounded);
}

static inline floats load_value(const value *p)
{
    __m256i half;
    memcpy(&half, p, sizeof half);
    return (floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

static inline void store_value(value *p, floats v)
{
    __m256bh half = _mm512_cvtneps_pbh((__m512)v);
    memcpy(p, &half, sizeof half);
}
#else
typedef float value;

static inline float get(const value *p)
{
    return *p;
}

static inline void put(value *p, float v)
{
    *p = v;
}

static inline floats load_value(const value *p)
{
    return load(p);
}

static inline void store_value(value *p, floats v)
{
    store(p, v);
}
#endif

#endif
