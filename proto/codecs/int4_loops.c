/* int4's loops, plain as those of kernels.c. PS_INT4_ROW names the symbol. */
#include "proto/codecs/bits.h"
#include "proto/codecs/kernels.h"

/* Of n values the first half, rounded up, are the low nibbles. */
static inline void quantize(unsigned char *restrict q, const float *restrict x, float inverse, size_t n)
{
    const size_t low = (n + 1) / 2, high = n / 2;
    for (size_t i = 0; i < high; i++)
        q[i] =
            (unsigned char)((nearest_bits(x[i] * inverse) & 0xfu) | nearest_bits(x[low + i] * inverse) << 4);
    if (low > high)
        q[high] = nearest_bits(x[high] * inverse) & 0xfu;
}

/* scale = max |x| / 7, cut to its upper half: 7 scale is then exact, cannot overflow, and encodes to itself
 * again. x / scale is below 7.06. */
static inline void encode_block(unsigned char *p, const float *x, size_t n)
{
    uint32_t largest = largest_bits(x, n);
    uint32_t scale = bits_of(float_of(largest) / 7.0f) >> 16;
    if (largest >= INF_BITS)
        scale = QUIET_NAN >> 16;
    else if (largest < bits_of(PS_INT4_LEAST))
        scale = 0;
    p[0] = (unsigned char)scale;
    p[1] = (unsigned char)(scale >> 8);
    if (largest >= INF_BITS || scale == 0)
        memset(p + PS_INT4_SCALE_BYTES, 0, (n + 1) / 2);
    else
        quantize(p + PS_INT4_SCALE_BYTES, x, 1.0f / float_of(scale << 16), n);
}

static void encode(void *payload, const float *x, size_t n)
{
    unsigned char *p = payload;
    size_t i = 0;
    for (; i + PS_INT4_BLOCK <= n; i += PS_INT4_BLOCK, p += PS_INT4_BLOCK_BYTES)
        encode_block(p, x + i, PS_INT4_BLOCK);
    if (i < n)
        encode_block(p, x + i, n - i);
}

/* A nibble's value, its sign at the top of the byte. */
static inline float value_of(unsigned char top)
{
    return (float)((int8_t)top >> 4);
}

static inline void decode_block(float *restrict x, const unsigned char *restrict p, size_t n)
{
    const size_t low = (n + 1) / 2, high = n / 2;
    const unsigned char *q = p + PS_INT4_SCALE_BYTES;
    const float scale = float_of((uint32_t)(p[0] | p[1] << 8) << 16);
    for (size_t i = 0; i < low; i++)
        x[i] = value_of((unsigned char)(q[i] << 4)) * scale;
    for (size_t i = 0; i < high; i++)
        x[low + i] = value_of(q[i]) * scale;
}

static void decode(float *x, const void *payload, size_t n)
{
    const unsigned char *p = payload;
    size_t i = 0;
    for (; i + PS_INT4_BLOCK <= n; i += PS_INT4_BLOCK, p += PS_INT4_BLOCK_BYTES)
        decode_block(x + i, p, PS_INT4_BLOCK);
    if (i < n)
        decode_block(x + i, p, n - i);
}

extern const struct ps_codec_loops PS_INT4_ROW;
const struct ps_codec_loops PS_INT4_ROW = {.encode = encode, .decode = decode};
