/* codec.h: encodings of the floats of a chunk, or of a segment of a ring. One file and one row each, in
 * codecs/.
 *
 * A value that is not finite stays visible: if x contains one, the decoded payload contains one too (a codec
 * with a scale may make its whole block non-finite). Finite values beyond a codec's range become its largest
 * value. encode and decode cannot fail: any payload of the right length that `check` accepts decodes,
 * possibly to values that are not finite.
 *
 * A codec for moves loses so much that it is only for values whose error is fed back: gradients and moves, of
 * which the next message brings the rest. Absolute values (x, the center, buffers) and sums, which nothing
 * corrects, are never encoded in it (piece.h). */
#ifndef PS_CODECS_CODEC_H
#define PS_CODECS_CODEC_H

#include <stdbool.h>
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
    /* The payload may be at any address; a codec with blocks starts one at x[0]. */
    void (*encode)(const struct ps_codec *c, void *payload, const float *x, size_t n);
    void (*decode)(const struct ps_codec *c, float *x, const void *payload, size_t n);
    /* Call before a peer's payload is decoded. Returns NULL, or what is wrong with it. The pointer itself is
     * NULL if any bytes are valid. */
    const char *(*check)(const struct ps_codec *c, const void *payload, size_t n);
    /* x <- x + decoded: one hop of a ring. NULL for a codec for moves. */
    void (*add)(const struct ps_codec *c, float *x, const void *payload, size_t n);
};

/* The row. NULL: unknown. */
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
/* Lists the names of the latter in text, separated by commas. */
void ps_codec_list_for_values(char *text, size_t size);

/* The rows. */
extern const struct ps_codec ps_codec_raw, ps_codec_fp16, ps_codec_bf16, ps_codec_trunc16, ps_codec_int8,
    ps_codec_int4, ps_codec_topk;

#endif
