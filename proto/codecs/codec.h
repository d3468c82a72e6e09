/* codec.h: encodings of the floats of a chunk, or of a segment of a ring. One file and one row each, in
 * codecs/.
 *
 * A value that is not finite stays visible: if x contains one, the decoded payload contains one too (a codec
 * with a scale may make its whole block non-finite). Finite values beyond a codec's range become its largest
 * value. encode and decode cannot fail: any payload of the right length decodes, possibly to values that are
 * not finite. */
#ifndef PS_CODECS_CODEC_H
#define PS_CODECS_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* Error bounds of a codec. A finite value x decodes to y with |y - x| <= max(relative M, absolute) if |x| is
 * at most `largest`, where M is the largest |x| of its block (block 1: |x| itself); beyond that, y is
 * +-largest.
 *
 * A sum over p members in a ring is encoded at each of its h <= p hops. With M_i for member i's value, its
 * error is at most ((1 + relative)^h - 1) sum M_i + h absolute, in addition to float32's rounding of p - 1
 * additions, if sum M_i is at most `largest`. To first order this is p times the error of one message of that
 * size. */
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
    /* The payload may be at any address; a codec with blocks starts one at x[0]. */
    void (*encode)(void *payload, const float *x, size_t n);
    void (*decode)(float *x, const void *payload, size_t n);
    /* x <- x + decoded: one hop of a ring. */
    void (*add)(float *x, const void *payload, size_t n);
};

/* NULL: unknown. */
const struct ps_codec *ps_codec_find(uint8_t id);
const struct ps_codec *ps_codec_named(const char *name);
/* All rows, raw first; *n of them. */
const struct ps_codec *const *ps_codec_rows(size_t *n);

/* The rows. */
extern const struct ps_codec ps_codec_raw, ps_codec_fp16, ps_codec_bf16, ps_codec_trunc16, ps_codec_int8;

#endif
