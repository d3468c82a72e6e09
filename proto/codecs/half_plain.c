/* IEEE 754 half precision in integer arithmetic, with the same bits as F16C, but saturating on overflow. */
#include "proto/codecs/bits.h"
#include "proto/codecs/kernels.h"

#define LARGEST    0x477fe000u /* 65504 */
#define LEAST      0x38800000u /* 2^-14, the smallest normal half */
#define REBIAS     0x38000000u /* (127 - 15) << 23 */
#define HALF_INF   0x7c00u
#define HALF_QUIET 0x0200u

/* Below 2^-14, adding 1/2 leaves the rounded bits of the result at the low end of the sum. */
static inline uint16_t half_of(float v)
{
    uint32_t bits = bits_of(v), a = bits & ~SIGN_BIT;
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t in_range = a < LARGEST ? a : LARGEST;
    uint32_t normal = (in_range - REBIAS + 0xfffu + (in_range >> 13 & 1)) >> 13;
    uint32_t small = bits_of(float_of(in_range) + 0.5f) - bits_of(0.5f);
    uint32_t finite = a < LEAST ? small : normal;
    uint32_t special = a > INF_BITS ? HALF_INF | HALF_QUIET | (a >> 13 & 0x3ffu) : HALF_INF;
    return (uint16_t)(sign | (a < INF_BITS ? finite : special));
}

static inline float float_of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu, fraction = h & 0x3ffu;
    uint32_t normal = (a << 13) + REBIAS;
    uint32_t small = bits_of((float)(int32_t)fraction * 0x1p-24f);
    uint32_t special = INF_BITS | fraction << 13 | (fraction != 0 ? 0x400000u : 0);
    uint32_t finite = a < 0x400u ? small : normal;
    return float_of(sign | (a >= HALF_INF ? special : finite));
}

static void encode(void *payload, const float *x, size_t n)
{
    anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        p[i] = half_of(x[i]);
}

static void decode(float *restrict x, const void *restrict payload, size_t n)
{
    const anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        x[i] = float_of_half(p[i]);
}

static void add(float *restrict x, const void *restrict payload, size_t n)
{
    const anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        x[i] += float_of_half(p[i]);
}

extern const struct ps_codec_loops PS_HALF_ROW;
const struct ps_codec_loops PS_HALF_ROW = {encode, decode, add};
