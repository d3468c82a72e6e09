/* codec.h: how the floats of a chunk, or of a segment of a ring, travel. One file and one row each, in
 * codecs/.
 *
 * Values that are not finite never hide: where x holds one, what decode makes of the payload holds one too (a
 * codec with a scale may make its whole block so). Finite values beyond a codec's range become its largest.
 * encode and decode cannot fail: any payload of the right length decodes, to values that may not be finite.
 */
#ifndef PS_CODECS_CODEC_H
#define PS_CODECS_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* What a codec costs. A finite value x decodes to y with |y - x| <= max(relative M, absolute) as long as |x|
 * is at most `largest`, M being the largest |x| of its block (block 1: of itself); beyond, y is +-largest.
 *
 * A sum over p members in a ring is encoded at each of its h <= p hops: with M_i that of member i's value, it
 * is off by at most ((1 + relative)^h - 1) sum M_i + h absolute, beside float32's own rounding of p - 1 adds,
 * as long as sum M_i stays within `largest`. To first order: p times the error of one message of that size.
 */
struct ps_codec_error {
    double relative, absolute;
    size_t block; /* floats */
    float largest;
};

struct ps_codec {
    uint8_t id; /* on the wire */
    const char *name;
    /* Bytes of a payload of n floats: a frame of any other length is refused. At most n * 4, and never less
     * for more floats. */
    size_t (*payload_bytes)(size_t n);
    /* The payload is the floats themselves: if it is aligned, a rule may work in place. */
    int in_place;
    struct ps_codec_error error;
    /* The payload may be at any address; a codec that works in blocks begins one at x[0]. */
    void (*encode)(void *payload, const float *x, size_t n);
    void (*decode)(float *x, const void *payload, size_t n);
    /* x <- x + decoded: one hop of a ring. */
    void (*add)(float *x, const void *payload, size_t n);
};

/* NULL: no such codec. */
const struct ps_codec *ps_codec_find(uint8_t id);
const struct ps_codec *ps_codec_named(const char *name);
/* All rows, raw first; *n of them. */
const struct ps_codec *const *ps_codec_rows(size_t *n);

/* The rows. */
extern const struct ps_codec ps_codec_raw, ps_codec_fp16, ps_codec_bf16, ps_codec_trunc16, ps_codec_int8;

#endif
