/* One row of the codecs' loops. They are plain, so that the compiler vectorises each with the same order of
 * operations. PS_CODEC_ROW is the symbol; PS_HALF_ROW, PS_INT4_ROW and PS_TOPK_ROW are the rows that belong
 * to it. */
#include "proto/codecs/kernels.h"

#include "proto/codecs/bits.h"

static void add_raw(float *restrict x, const void *restrict payload, size_t n)
{
    const anywhere32 *p = payload;
    for (size_t i = 0; i < n; i++)
        x[i] += p[i];
}

/* The upper half of a float32, rounded to nearest, ties to even. */
static inline uint16_t brain_of(float v)
{
    uint32_t bits = bits_of(v), a = bits & ~SIGN_BIT;
    uint32_t rounded = (a + 0x7fffu + (a >> 16 & 1)) >> 16;
    uint32_t finite = rounded < 0x7f7fu ? rounded : 0x7f7fu;
    uint32_t special = a > INF_BITS ? a >> 16 | 0x40u : 0x7f80u;
    return (uint16_t)((bits >> 16 & 0x8000u) | (a < INF_BITS ? finite : special));
}

/* The upper half, truncated. A NaN whose payload is only in the lower half remains a NaN. */
static inline uint16_t upper_of(float v)
{
    uint32_t bits = bits_of(v);
    return (uint16_t)(bits >> 16 | ((bits & ~SIGN_BIT) > INF_BITS ? 0x40u : 0));
}

static void encode_bf16(void *restrict payload, const float *restrict x, size_t n)
{
    anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        p[i] = brain_of(x[i]);
}

static void encode_trunc16(void *restrict payload, const float *restrict x, size_t n)
{
    anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        p[i] = upper_of(x[i]);
}

static void decode_upper(float *restrict x, const void *restrict payload, size_t n)
{
    const anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        x[i] = float_of((uint32_t)p[i] << 16);
}

static void add_upper(float *restrict x, const void *restrict payload, size_t n)
{
    const anywhere16 *p = payload;
    for (size_t i = 0; i < n; i++)
        x[i] += float_of((uint32_t)p[i] << 16);
}

static inline void quantize(int8_t *restrict q, const float *restrict x, float inverse, size_t n)
{
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)(uint8_t)nearest_bits(x[i] * inverse);
}

/* scale = max |x| / 127 with the lowest 8 bits cleared: 127 scale is then exact, cannot overflow, and encodes
 * to itself again. x / scale is below 127.5. */
static inline void encode_block(unsigned char *p, const float *x, size_t n)
{
    uint32_t largest = largest_bits(x, n);
    float scale = float_of(bits_of(float_of(largest) / 127.0f) & ~0xffu), inverse = 1.0f / scale;
    if (largest >= INF_BITS)
        scale = float_of(QUIET_NAN);
    else if (largest < bits_of(PS_INT8_LEAST))
        scale = 0;
    memcpy(p, &scale, sizeof scale);
    if (largest >= INF_BITS || scale == 0)
        memset(p + sizeof scale, 0, n);
    else
        quantize((int8_t *)p + sizeof scale, x, inverse, n);
}

static void encode_int8(void *payload, const float *x, size_t n)
{
    unsigned char *p = payload;
    size_t i = 0;
    for (; i + PS_INT8_BLOCK <= n; i += PS_INT8_BLOCK, p += PS_INT8_BLOCK + sizeof(float))
        encode_block(p, x + i, PS_INT8_BLOCK);
    if (n - i == 1)
        memcpy(p, x + i, sizeof *x);
    else if (i < n)
        encode_block(p, x + i, n - i);
}

static inline void decode_block(float *restrict x, const unsigned char *restrict p, size_t n)
{
    const int8_t *q = (const int8_t *)p + sizeof(float);
    float scale;
    memcpy(&scale, p, sizeof scale);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)q[i] * scale;
}

static inline void add_block(float *restrict x, const unsigned char *restrict p, size_t n)
{
    const int8_t *q = (const int8_t *)p + sizeof(float);
    float scale;
    memcpy(&scale, p, sizeof scale);
    for (size_t i = 0; i < n; i++)
        x[i] += (float)q[i] * scale;
}

static void decode_int8(float *x, const void *payload, size_t n)
{
    const unsigned char *p = payload;
    size_t i = 0;
    for (; i + PS_INT8_BLOCK <= n; i += PS_INT8_BLOCK, p += PS_INT8_BLOCK + sizeof(float))
        decode_block(x + i, p, PS_INT8_BLOCK);
    if (n - i == 1)
        memcpy(x + i, p, sizeof *x);
    else if (i < n)
        decode_block(x + i, p, n - i);
}

static void add_int8(float *x, const void *payload, size_t n)
{
    const unsigned char *p = payload;
    size_t i = 0;
    float one;
    for (; i + PS_INT8_BLOCK <= n; i += PS_INT8_BLOCK, p += PS_INT8_BLOCK + sizeof(float))
        add_block(x + i, p, PS_INT8_BLOCK);
    if (n - i == 1) {
        memcpy(&one, p, sizeof one);
        x[i] += one;
    } else if (i < n)
        add_block(x + i, p, n - i);
}

extern const struct ps_codec_loops PS_HALF_ROW, PS_INT4_ROW;
extern const struct ps_codec_topk_loops PS_TOPK_ROW;
extern const struct ps_codec_kernels PS_CODEC_ROW;
const struct ps_codec_kernels PS_CODEC_ROW = {
    .name = PS_CODEC_NAME,
    .add_raw = add_raw,
    .fp16 = &PS_HALF_ROW,
    .int4 = &PS_INT4_ROW,
    .topk = &PS_TOPK_ROW,
    .bf16 = {encode_bf16, decode_upper, add_upper},
    .trunc16 = {encode_trunc16, decode_upper, add_upper},
    .int8 = {encode_int8, decode_int8, add_int8},
};
