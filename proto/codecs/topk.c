/* The k = ceil(F n) values of the largest magnitude out of n, for moves; of equal ones those that come first.
 * All others decode to 0. The payload:
 *
 *   scale, float32 | of each 255 values how many travel, a byte | their places within these, a byte each,
 * ascending | the values, int8, in steps of the scale
 *
 * Where that would not be shorter than the floats, these are the payload. */
#include <string.h>

#include "proto/codecs/bits.h"
#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"

size_t ps_topk_kept(const struct ps_codec *c, size_t n)
{
    return (size_t)(((uint64_t)n * c->fraction_ppm + 999999) / 1000000);
}

static size_t list_bytes(size_t n, size_t k)
{
    return sizeof(float) + (n + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK + 2 * k;
}

static bool is_list(const struct ps_codec *c, size_t n)
{
    return list_bytes(n, ps_topk_kept(c, n)) < n * sizeof(float);
}

static size_t payload_bytes(const struct ps_codec *c, size_t n)
{
    return is_list(c, n) ? list_bytes(n, ps_topk_kept(c, n)) : n * sizeof(float);
}

static void encode(const struct ps_codec *c, void *payload, const float *x, size_t n)
{
    if (is_list(c, n))
        ps_codec_kernels_best()->topk->encode(payload, x, n, ps_topk_kept(c, n));
    else
        memcpy(payload, x, n * sizeof *x);
}

static void decode(const struct ps_codec *c, float *x, const void *payload, size_t n)
{
    if (is_list(c, n))
        ps_codec_kernels_best()->topk->decode(x, payload, n, ps_topk_kept(c, n));
    else
        memcpy(x, payload, n * sizeof *x);
}

/* The places ascend, and lie within the block. */
static bool ascends(const unsigned char *places, size_t n, size_t block)
{
    for (size_t i = 0; i < n; i++)
        if (places[i] >= block || (i > 0 && places[i] <= places[i - 1]))
            return false;
    return true;
}

static const char *check(const struct ps_codec *c, const void *payload, size_t n)
{
    const unsigned char *counts = (const unsigned char *)payload + sizeof(float), *places;
    const size_t n_blocks = (n + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK;
    size_t listed = 0;
    uint32_t scale;
    if (!is_list(c, n))
        return NULL;
    memcpy(&scale, payload, sizeof scale);
    if (scale > bits_of(PS_TOPK_MOST))
        return "the scale is not a number from 0 to the largest float / 127";
    for (size_t b = 0; b < n_blocks; b++)
        listed += counts[b];
    if (listed != ps_topk_kept(c, n))
        return "the counts of its blocks do not add up to the values that travel";
    places = counts + n_blocks;
    for (size_t b = 0; b < n_blocks; places += counts[b++]) {
        size_t left = n - b * PS_TOPK_BLOCK;
        if (!ascends(places, counts[b], left < PS_TOPK_BLOCK ? left : PS_TOPK_BLOCK))
            return "the places within a block do not ascend, or lie beyond its end";
    }
    return NULL;
}

/* A value that does not travel is off by itself. */
const struct ps_codec ps_codec_topk = {
    .id = 6,
    .name = "topk",
    .fraction_ppm = 10000,
    .for_moves = true,
    .payload_bytes = payload_bytes,
    .error = {.relative = 1, .absolute = PS_INT8_LEAST, .block = SIZE_MAX, .largest = 0x1.fffffep127f},
    .encode = encode,
    .decode = decode,
    .check = check};
