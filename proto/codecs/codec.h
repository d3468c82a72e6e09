/* codec.h: how the floats of a chunk, or of a segment of a ring, travel. One file and one row each, in
 * codecs/.
 *
 * Values that are not finite never hide: where x holds one, what decode makes of the payload holds one too (a
 * codec with a scale may make its whole block so). Finite values beyond a codec's range become its largest.
 * encode and decode cannot fail: any payload of the right length that `check` lets pass decodes, to values
 * that may not be finite.
 *
 * A codec for moves loses so much that it is for what an error can be fed back to: a gradient or a move, of
 * which the next message brings the rest. Values that stand for themselves (x, the center, buffers) and sums,
 * which nobody corrects, do not travel in it (piece.h).
 */
#ifndef PS_CODECS_CODEC_H
#define PS_CODECS_CODEC_H

#include <stdbool.h>
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
    /* Of a codec with a parameter: the part of the values that travels, in millionths, 1 to 1,000,000; 0: it
     * has none. A row holds an example; ps_codec_of has the one that is named. */
    uint32_t fraction_ppm;
    bool for_moves;
    /* Bytes of a payload of n floats: a frame of any other length is refused. At most n * 4, and never less
     * for more floats. */
    size_t (*payload_bytes)(const struct ps_codec *c, size_t n);
    /* The payload is the floats themselves: if it is aligned, a rule may work in place. */
    int in_place;
    struct ps_codec_error error;
    /* The payload may be at any address; a codec that works in blocks begins one at x[0]. */
    void (*encode)(const struct ps_codec *c, void *payload, const float *x, size_t n);
    void (*decode)(const struct ps_codec *c, float *x, const void *payload, size_t n);
    /* Before a payload that a peer sent is decoded: NULL, or what is wrong with it. NULL itself: any bytes
     * will do. */
    const char *(*check)(const struct ps_codec *c, const void *payload, size_t n);
    /* x <- x + decoded: one hop of a ring. NULL: it is for moves. */
    void (*add)(const struct ps_codec *c, float *x, const void *payload, size_t n);
};

/* The row. NULL: no such codec. */
const struct ps_codec *ps_codec_find(uint8_t id);
const struct ps_codec *ps_codec_named(const char *name);
/* The row, where it is not for moves. */
const struct ps_codec *ps_codec_named_for_values(const char *name);
/* What a job says: a row's name, or where the row has a parameter NAME:F with F a decimal fraction of at most
 * six digits, 0 < F <= 1. NULL; else what is wrong with it, and *out is as it was. */
const char *ps_codec_of(const char *name, struct ps_codec *out);
/* Whether the name, with a parameter or without one, is that of the row. */
bool ps_codec_is(const char *name, const char *row);
bool ps_codec_same(const struct ps_codec *a, const struct ps_codec *b);
/* The name with its parameter, in `text`. */
#define PS_CODEC_TEXT 24
const char *ps_codec_text(const struct ps_codec *c, char text[PS_CODEC_TEXT]);
/* All rows, raw first; *n of them. And of these the first that are not for moves. */
const struct ps_codec *const *ps_codec_rows(size_t *n);
const struct ps_codec *const *ps_codec_value_rows(size_t *n);

/* The rows. */
extern const struct ps_codec ps_codec_raw, ps_codec_fp16, ps_codec_bf16, ps_codec_trunc16, ps_codec_int8,
    ps_codec_int4, ps_codec_topk;

#endif
