/* Four bits a value, for moves: blocks of 64 values with one scale each, steps of 1/7 of the block's largest
 * value, rounded to nearest. */
#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"

static size_t payload_bytes(const struct ps_codec *c, size_t n)
{
    (void)c;
    size_t rest = n % PS_INT4_BLOCK;
    return n / PS_INT4_BLOCK * PS_INT4_BLOCK_BYTES + (rest > 0 ? PS_INT4_SCALE_BYTES + (rest + 1) / 2 : 0);
}

static void encode(const struct ps_codec *c, void *payload, const float *x, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->int4->encode(payload, x, n);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->int4->decode(x, payload, n);
}

static const char *check(const struct ps_codec *c, const void *payload, size_t n)
{
    (void)c;
    const unsigned char *p = payload;
    for (size_t i = 0; i < n; i += PS_INT4_BLOCK, p += PS_INT4_BLOCK_BYTES)
        if ((p[0] | p[1] << 8) > PS_INT4_MOST)
            return "a block's scale is not a number from 0 to the largest float / 7";
    return NULL;
}

/* Half a step is 1/14; with the rounding of the inverse the error stays below 1/13.9. */
const struct ps_codec ps_codec_int4 = {.id = 5,
                                       .name = "int4",
                                       .for_moves = true,
                                       .payload_bytes = payload_bytes,
                                       .error = {.relative = 1.0 / 13.9,
                                                 .absolute = PS_INT4_LEAST,
                                                 .block = PS_INT4_BLOCK,
                                                 .largest = 0x1.fffffep127f},
                                       .encode = encode,
                                       .decode = decode,
                                       .check = check};
