/* bits.h: floats as their bits, and values at any address, for the loops of kernels.h. */
#ifndef PS_CODEC_BITS_H
#define PS_CODEC_BITS_H

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

#endif
