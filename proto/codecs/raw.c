#include <string.h>

#include "proto/codecs/codecs.h"

/* Little-endian float32, as both ends hold them: nothing to do. */
static size_t payload_bytes(uint32_t n)
{
    return (size_t)n * sizeof(float);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the raw codec sends memory as it is");

static void encode(void *payload, const float *x, uint32_t n)
{
    memcpy(payload, x, n * sizeof *x);
}

static void decode(float *x, const void *payload, uint32_t n)
{
    memcpy(x, payload, n * sizeof *x);
}

const struct ps_codec ps_codec_raw = {.id = 0,
                                      .name = "raw",
                                      .payload_bytes = payload_bytes,
                                      .in_place = 1,
                                      .encode = encode,
                                      .decode = decode};
