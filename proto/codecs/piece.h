/* piece.h: how the floats of a message, one piece of the vector, travel in a codec. Both ends know manifest
 * and piece.
 *
 * In a codec for moves buffers are 0 among what is encoded, and follow its payload as float32, in order: they
 * are not moves, and nobody feeds their error back. Where that is no shorter than the floats, the floats
 * travel. In any other codec all floats are encoded. */
#ifndef PS_CODECS_PIECE_H
#define PS_CODECS_PIECE_H

#include "proto/codecs/codec.h"
#include "proto/model/manifest.h"

/* At most 4 r.count, and of a part of r no more than of r. */
size_t ps_piece_bytes(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r);
/* Whether the piece holds values that do not travel in the codec. */
bool ps_piece_has_buffers(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r);
/* Whether the payload begins with that of the codec; else it is the floats. */
bool ps_piece_is_coded(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r);
/* x[r.count] is spent: its buffers are 0 afterwards. */
void ps_piece_encode(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, void *payload,
                     float *x);
/* The payload has the piece's length and was checked. */
void ps_piece_decode(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, float *x,
                     const void *payload);
/* Answers in a codec for moves: what a center has become since an end knew it. x[r.count], the center,
 * becomes what is to be encoded: moves, and buffers as they are; frozen values are 0. */
void ps_piece_leave(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, float *x,
                    const float *known);
/* known[r.count] takes what such a piece decodes to. */
void ps_piece_take(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, float *known,
                   const float *decoded);
/* NULL, or what is wrong with a payload of the piece's length. Nothing is written. */
const char *ps_piece_check(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r,
                           const void *payload);

#endif
