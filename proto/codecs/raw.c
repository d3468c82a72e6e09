#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"

/* Little-endian float32, the format in memory at both ends, so nothing is converted. */
static size_t payload_bytes(size_t n)
{
    return n * sizeof(float);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the raw codec sends memory unchanged");

static void encode(void *payload, const float *x, size_t n)
{
    memcpy(payload, x, n * sizeof *x);
}

static void decode(float *x, const void *payload, size_t n)
{
    memcpy(x, payload, n * sizeof *x);
}

static void add(float *x, const void *payload, size_t n)
{
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
