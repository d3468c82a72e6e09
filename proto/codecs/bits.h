/* bits.h: floats as their bits, and values at any address, for the loops of kernels.h. */
#ifndef PS_CODEC_BITS_H
#define PS_CODEC_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIGN_BIT  0x80000000u
#define INF_BITS  0x7f800000u
#define QUIET_NAN 0x7fc00000u

/* Reads a value at any address. */
typedef uint16_t anywhere16 __attribute__((aligned(1), may_alias));
typedef float anywhere32 __attribute__((aligned(1), may_alias));

static inline uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The largest of |x|, as bits: they order as the values do, and NaN and Inf come last. */
static inline uint32_t largest_bits(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t a = bits_of(x[i]) & ~SIGN_BIT;
        largest = a > largest ? a : largest;
    }
    return largest;
}

/* Adding 1.5 * 2^23 leaves the nearest integer, ties to even, at the bottom of the sum. */
static inline uint32_t nearest_bits(float v)
{
    return bits_of(v + 0x1.8p23f);
}

#endif
