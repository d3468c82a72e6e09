/* bfloat16: the upper 16 bits of a float32, rounded to nearest, ties to even: 8 bits of precision over the
 * whole range. */
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
    ps_codec_kernels_best()->bf16.encode(payload, x, n);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->bf16.decode(x, payload, n);
}

static void add(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->bf16.add(x, payload, n);
}

const struct ps_codec ps_codec_bf16 = {
    .id = 2,
    .name = "bf16",
    .payload_bytes = payload_bytes,
    .error = {.relative = 0x1p-8, .absolute = 0x1p-134, .block = 1, .largest = 0x1.fep127f},
    .encode = encode,
    .decode = decode,
    .add = add};
