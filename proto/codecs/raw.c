#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"

/* Little-endian float32, the format in memory at both ends, so nothing is converted. */
static size_t payload_bytes(const struct ps_codec *c, size_t n)
{
    (void)c;
    return n * sizeof(float);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the raw codec sends memory unchanged");

static void encode(const struct ps_codec *c, void *payload, const float *x, size_t n)
{
    (void)c;
    memcpy(payload, x, n * sizeof *x);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    memcpy(x, payload, n * sizeof *x);
}

static void add(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    (void)c;
    ps_codec_kernels_best()->add_raw(x, payload, n);
}

const struct ps_codec ps_codec_raw = {.id = 0,
                                      .name = "raw",
                                      .payload_bytes = payload_bytes,
                                      .in_place = 1,
                                      .error = {.block = 1, .largest = 0x1.fffffep127f},
                                      .encode = encode,
                                      .decode = decode,
                                      .add = add};
