/* IEEE 754 half precision, rounded to nearest, ties to even: 11 bits of precision from 2^-14 to 65504, steps
 * of 2^-24 below. */
#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"

static size_t payload_bytes(const struct ps_codec *c, size_t n)
{
    (void)c;
    return n * 2;
}

static void encode(const struct ps_codec *c, void *payload, const float *x, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->fp16->encode(payload, x, n);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->fp16->decode(x, payload, n);
}

static void add(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->fp16->add(x, payload, n);
}

const struct ps_codec ps_codec_fp16 = {
    .id = 1,
    .name = "fp16",
    .payload_bytes = payload_bytes,
    .error = {.relative = 0x1p-11, .absolute = 0x1p-25, .block = 1, .largest = 65504.0f},
    .encode = encode,
    .decode = decode,
    .add = add};
