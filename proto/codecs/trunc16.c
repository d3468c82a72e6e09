/* The upper 16 bits of a float32, truncated towards zero, as in Pipe-SGD (Li et al. 2018). */
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
    ps_codec_kernels_best()->trunc16.encode(payload, x, n);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->trunc16.decode(x, payload, n);
}

static void add(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->trunc16.add(x, payload, n);
}

const struct ps_codec ps_codec_trunc16 = {
    .id = 3,
    .name = "trunc16",
    .payload_bytes = payload_bytes,
    .error = {.relative = 0x1p-7, .absolute = 0x1p-133, .block = 1, .largest = 0x1.fffffep127f},
    .encode = encode,
    .decode = decode,
    .add = add};
