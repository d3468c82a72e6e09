/* frame.h: the header of a data message: 64 bytes, little-endian, in front of the payload. No other file
 * packs or parses it.
 *
 *   0 magic   4 version  6 kind  7 codec   8 client  12 incarnation
 *   16 seq    24 begin   32 count   36 generation 40 clock  48 center_version
 *   56 code   58 flags   60 samples (requests) or rate (answers, IEEE bits)
 *
 * A request names a piece [begin, begin + count) of the vector: the intersection of a chunk with the
 * transfer's scope, which is the whole vector or, with PS_FLAG_TENSOR or PS_FLAG_FRAGMENT, one tensor or
 * fragment. Its answer has the same name. (client, incarnation, seq) identifies the exchange. */
#ifndef PS_WIRE_FRAME_H
#define PS_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define PS_FRAME_BYTES      64
#define PS_FRAME_MAGIC      0x31445350u /* "PSD1" */
#define PS_PROTOCOL_VERSION 1
#define PS_MAX_SENTENCE     400 /* payload of an error frame */

enum ps_frame_kind {
    PS_FRAME_EXCHANGE = 1, /* payload: the rule's message; answered with the rule's answer */
    PS_FRAME_PULL = 2,     /* no payload; answered with the center */
    PS_FRAME_SET = 3,      /* payload: new values of the center; answered without payload */
    PS_FRAME_OFFER = 4,    /* as SET, from the worker whose offer psd accepted, before the job has begun */
    PS_FRAME_PUSH = 5,     /* payload: the rule's message; answered without payload */
    PS_FRAME_ADD = 6,      /* payload: x - start, whatever the rule; answered with the center after */
    PS_FRAME_KEEP = 7,     /* payload: the evaluated vector, from an observer; answered without payload */
    PS_FRAME_KNOWN = 8, /* payload: a chunk as the worker's last answers have told it, which is what its next
                           answer may add to; answered without payload */
    PS_FRAME_ANSWER = 16,
    PS_FRAME_ERROR = 17, /* payload: a sentence; has a code */
};

#define PS_FLAG_REPLAYED 1u /* answer: the chunk had landed before; this is the current center */
#define PS_FLAG_TENSOR   2u /* the transfer covers one tensor: `code` is its index in the manifest */
#define PS_FLAG_AVERAGE  4u /* pull: z, the average that follows the center */
#define PS_FLAG_SAVE     8u /* answer: the round is a checkpoint's; save your own part after this step */
#define PS_FLAG_FRAGMENT                                                                                     \
    16u /* the transfer covers one fragment: `code` is its number (proto/model/fragment.h) */
#define PS_FLAG_DROPPED                                                                                      \
    32u /* answer: the message came too late for its round and moved nothing; this is the current center */
#define PS_FLAG_IN_PLACE                                                                                     \
    64u /* exchange: the body is the worker's x, in its own memory: the worker's half is done there, too,    \
           and the answer, which says so likewise, has no payload */
/* Exchange: the worker has taken the answer to its last exchange of this chunk, so that this one may be what
 * has changed since, in a codec for moves. Where psd does not know that it has, the answer is in codec 0, the
 * floats.
 */
#define PS_FLAG_BASED 128u

/* Exchanges of fragments: a client has one under way on each track, that of fragment i on track i % tracks
 * (Welcome.tracks). All other exchanges are on track 0, and alone. */
#define PS_MAX_TRACKS 8
/* Exchange or push of a fragment: how many exchanges before it may be under way still, times this. Older ones
 * are over. */
#define PS_FLAG_BEHIND 256u
#define PS_MOST_BEHIND 15u
static inline uint64_t ps_flags_behind(uint16_t flags)
{
    return flags / PS_FLAG_BEHIND & PS_MOST_BEHIND;
}

struct ps_frame {
    uint8_t kind;
    uint8_t codec;
    uint16_t code; /* of an error: PsCode in ps.proto; with PS_FLAG_TENSOR or PS_FLAG_FRAGMENT: the index of
                      the tensor or fragment */
    uint16_t flags;
    uint32_t client;
    uint32_t incarnation;
    uint32_t generation;
    uint64_t seq;            /* clients number pulls apart, from 2^63 on */
    uint64_t begin;          /* floats */
    uint32_t count;          /* floats */
    uint32_t samples;        /* request: the samples behind a gradient */
    float rate;              /* answer: the alpha or eta that was applied */
    uint64_t clock;          /* the worker's t */
    uint64_t center_version; /* request: the version of this lane that the client last saw; answer: the lane's
                                present one */
};

/* head: PS_FRAME_BYTES bytes, at any alignment. */
void ps_frame_pack(const struct ps_frame *f, void *head);
/* -EPROTO with a sentence for a wrong length, magic, version or kind, or a count of 0; -EPROTONOSUPPORT for
 * another protocol version. The lane checks ranges and names. */
int ps_frame_parse(struct ps_frame *f, const void *head, size_t len_bytes, struct ps_error *err);

#endif
