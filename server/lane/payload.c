/* Encodes and decodes the floats in message bodies with the job's codecs. */
#include "server/lane/internal.h"

#include <errno.h>
#include <string.h>

#include "proto/codecs/piece.h"

const struct ps_codec *psd_lane_request_codec(const struct psd_lane *lane, const struct ps_frame *f)
{
    bool by_rule = f->kind == PS_FRAME_EXCHANGE || f->kind == PS_FRAME_PUSH;
    return by_rule ? &lane->center->message_codec : ps_codec_find(0);
}

const struct ps_codec *psd_lane_answer_codec(const struct psd_lane *lane, const struct psd_arrival *a)
{
    const struct ps_codec *codec = &lane->center->answer_codec;
    return a->frame.kind == PS_FRAME_EXCHANGE && (a->answers_moves || !codec->for_moves) ? codec
                                                                                         : ps_codec_find(0);
}

/* Whether what the client has of the chunk is kept: of whole ones. */
static bool may_be_kept(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return a->client->based != NULL && a->frame.client < lane->center->n_seen &&
           a->frame.count == ps_shard_chunk(&lane->center->shard, lane->row, a->chunk).count;
}

/* Whether what the answer leaves it with is. */
static bool is_kept(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return a->frame.kind == PS_FRAME_EXCHANGE && may_be_kept(lane, a);
}

bool psd_lane_is_based(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return (a->frame.flags & PS_FLAG_BASED) != 0 && is_kept(lane, a) &&
           (a->client->based[a->chunk / 64] >> (a->chunk % 64) & 1) != 0;
}

void psd_lane_forget_base(struct psd_arrival *a)
{
    a->answers_moves = false;
    if (a->client->based != NULL)
        a->client->based[a->chunk / 64] &= ~(UINT64_C(1) << (a->chunk % 64));
}

/* The client will have these floats. */
static void keep_base(struct psd_lane *lane, const struct psd_arrival *a, const float *floats)
{
    if (!is_kept(lane, a))
        return;
    lane->vec->copy(lane->center->seen[a->frame.client] + a->frame.begin, floats, a->frame.count);
    *psd_lane_base_of(lane, a) = lane->whole_base > 0 ? lane->whole_base : ++lane->last_base;
    a->client->based[a->chunk / 64] |= UINT64_C(1) << (a->chunk % 64);
}

/* The base of a client that has the same; a new one if there is none. */
static uint64_t base_of_alike(struct psd_lane *lane, const struct psd_arrival *a, const float *floats)
{
    const struct psd_center *c = lane->center;
    for (uint32_t i = 0; i < c->n_seen; i++) {
        bool based = (lane->clients[i].based[a->chunk / 64] >> (a->chunk % 64) & 1) != 0;
        if (based && i != a->frame.client &&
            memcmp(c->seen[i] + a->frame.begin, floats, a->frame.count * sizeof *floats) == 0)
            return lane->bases[(size_t)i * lane->n_chunks + a->chunk];
    }
    return ++lane->last_base;
}

size_t psd_lane_take_known(struct psd_lane *lane, struct psd_arrival *a)
{
    const float *floats = psd_lane_floats_of(lane, a);
    if (!may_be_kept(lane, a))
        return lane->vec->first_nonfinite(floats, a->frame.count) < a->frame.count;
    float *known = lane->center->seen[a->frame.client] + a->frame.begin;
    size_t n_bad = lane->vec->copy_finite(known, floats, a->frame.count);
    psd_lane_forget_base(a);
    if (n_bad > 0)
        return n_bad;
    *psd_lane_base_of(lane, a) = base_of_alike(lane, a, known); /* the client may still write to its floats */
    a->client->based[a->chunk / 64] |= UINT64_C(1) << (a->chunk % 64);
    return 0;
}

/* What the answer decodes to brings the client to what is kept of it: what this one leaves out the next one
 * has. */
static void encode_moves(struct psd_lane *lane, struct psd_arrival *a, float *floats, void *payload)
{
    const struct ps_codec *codec = &lane->center->answer_codec;
    const struct ps_manifest *m = lane->center->manifest;
    const struct ps_range piece = {a->frame.begin, a->frame.count};
    float *known = lane->center->seen[a->frame.client] + piece.begin;
    ps_piece_leave(codec, m, piece, floats, known);
    ps_piece_encode(codec, m, piece, payload, floats);
    ps_piece_decode(codec, m, piece, floats, payload);
    ps_piece_take(codec, m, piece, known, floats);
    *psd_lane_base_of(lane, a) = ++lane->last_base;
}

static bool holds_floats(const struct psd_arrival *a, const struct ps_codec *codec)
{
    return codec->in_place && (uintptr_t)a->message.body % sizeof(float) == 0;
}

float *psd_lane_room_of(struct psd_lane *lane, const struct psd_arrival *a)
{
    if (a->room != NULL)
        return a->room;
    bool in_place =
        holds_floats(a, psd_lane_request_codec(lane, &a->frame)) && psd_lane_answer_codec(lane, a)->in_place;
    return in_place ? (float *)(void *)a->message.body : lane->scratch;
}

void psd_lane_decode(const struct psd_lane *lane, const struct psd_arrival *a, float *room)
{
    ps_piece_decode(psd_lane_request_codec(lane, &a->frame), lane->center->manifest,
                    (struct ps_range){a->frame.begin, a->frame.count}, room, a->message.body);
}

float *psd_lane_floats_of(struct psd_lane *lane, const struct psd_arrival *a)
{
    float *room = psd_lane_room_of(lane, a);
    if (room == lane->scratch)
        psd_lane_decode(lane, a, room);
    return room;
}

/* Resizes the body to the answer; its content is lost if the size changes. Returns false without memory. */
static bool size_body(struct psd_lane *lane, struct psd_arrival *a)
{
    const struct ps_codec *codec = psd_lane_answer_codec(lane, a);
    size_t want =
        ps_piece_bytes(codec, lane->center->manifest, (struct ps_range){a->frame.begin, a->frame.count});
    return a->message.body_bytes == want || a->port->transport->message_body(&a->message, want) == 0;
}

float *psd_lane_answer_room(struct psd_lane *lane, struct psd_arrival *a)
{
    if (!size_body(lane, a))
        return NULL;
    bool in_place = holds_floats(a, psd_lane_answer_codec(lane, a));
    return in_place ? (float *)(void *)a->message.body : lane->scratch;
}

/* An exchange ignores frozen values; they must not affect the scale of their neighbours in a block. */
static void blank_frozen(const struct psd_lane *lane, const struct psd_arrival *a, float *floats)
{
    struct ps_range piece = {a->frame.begin, a->frame.count};
    for (struct psd_role_run r = psd_lane_first_run(lane, piece, floats); r.n > 0;
         r = psd_lane_next_run(lane, piece, r))
        if (r.role == PS_ROLE_FROZEN)
            memset(r.m, 0, r.n * sizeof *r.m);
}

void *psd_lane_payload_of(const struct psd_lane *lane, const struct psd_arrival *a, const float *floats)
{
    bool apart = a->message.ownership != PS_BODY_PRIVATE && floats != lane->scratch &&
                 !psd_lane_answer_codec(lane, a)->in_place;
    return apart ? lane->scratch : (void *)a->message.body;
}

static void encode_answer(struct psd_lane *lane, struct psd_arrival *a, float *floats, void *payload)
{
    const struct ps_codec *codec = psd_lane_answer_codec(lane, a);
    const struct ps_range piece = {a->frame.begin, a->frame.count};
    if (a->answers_moves) {
        encode_moves(lane, a, floats, payload);
        return;
    }
    if (!codec->in_place)
        blank_frozen(lane, a, floats);
    codec->encode(codec, payload, floats, a->frame.count);
    if (codec->in_place || !lane->center->rule->takes_seen || a->frame.client >= lane->center->n_seen)
        return;
    codec->decode(codec, floats, payload, a->frame.count);
    psd_lane_see(lane, a->frame.client, piece,
                 floats); /* the values after encoding, which the client really sees */
}

int psd_lane_fill_body(struct psd_lane *lane, struct psd_arrival *a, float *floats)
{
    if (!a->answers_moves)
        keep_base(lane, a, floats);
    if ((const void *)floats == a->message.body)
        return 0;
    if (!size_body(lane, a))
        return -ENOMEM;
    void *payload = psd_lane_payload_of(lane, a, floats);
    encode_answer(lane, a, floats, payload);
    if (payload != a->message.body)
        memcpy(a->message.body, payload, a->message.body_bytes);
    return 0;
}
