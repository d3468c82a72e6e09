/* Blocks of 1,024 values with one scale each: steps of 1/127 of the block's largest value, rounded to
 * nearest. */

#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"

static size_t payload_bytes(const struct ps_codec *c, size_t n)
{
    (void)c;
    size_t blocks = n / PS_INT8_BLOCK, rest = n % PS_INT8_BLOCK;
    return n + blocks * sizeof(float) + (rest == 1 ? sizeof(float) - 1 : rest > 0 ? sizeof(float) : 0);
}

static void encode(const struct ps_codec *c, void *payload, const float *x, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->int8.encode(payload, x, n);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->int8.decode(x, payload, n);
}

static void add(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->int8.add(x, payload, n);
}

/* Half a step is 1/254; with the rounding of the scale and of its inverse the error stays below 1/253. */
const struct ps_codec ps_codec_int8 = {.id = 4,
                                       .name = "int8",
                                       .payload_bytes = payload_bytes,
                                       .error = {.relative = 1.0 / 253,
                                                 .absolute = PS_INT8_LEAST,
                                                 .block = PS_INT8_BLOCK,
                                                 .largest = 0x1.fffffep127f},
                                       .encode = encode,
                                       .decode = decode,
                                       .add = add};
