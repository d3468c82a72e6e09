/* Encodes and decodes the floats in message bodies with the job's codecs. */
#include "server/lane/internal.h"

#include <errno.h>
#include <string.h>

const struct ps_codec *psd_lane_request_codec(const struct psd_lane *lane, const struct ps_frame *f)
{
    bool by_rule = f->kind == PS_FRAME_EXCHANGE || f->kind == PS_FRAME_PUSH;
    return by_rule ? lane->center->message_codec : ps_codec_find(0);
}

const struct ps_codec *psd_lane_answer_codec(const struct psd_lane *lane, const struct ps_frame *f)
{
    return f->kind == PS_FRAME_EXCHANGE ? lane->center->answer_codec : ps_codec_find(0);
}

static bool holds_floats(const struct psd_arrival *a, const struct ps_codec *codec)
{
    return codec->in_place && (uintptr_t)a->message.body % sizeof(float) == 0;
}

float *psd_lane_room_of(struct psd_lane *lane, const struct psd_arrival *a)
{
    if (a->room != NULL)
        return a->room;
    bool in_place = holds_floats(a, psd_lane_request_codec(lane, &a->frame)) &&
                    psd_lane_answer_codec(lane, &a->frame)->in_place;
    return in_place ? (float *)(void *)a->message.body : lane->scratch;
}

float *psd_lane_floats_of(struct psd_lane *lane, const struct psd_arrival *a)
{
    float *room = psd_lane_room_of(lane, a);
    if (room == lane->scratch)
        psd_lane_request_codec(lane, &a->frame)->decode(room, a->message.body, a->frame.count);
    return room;
}

/* Resizes the body to the answer; its content is lost if the size changes. Returns false without memory. */
static bool size_body(struct psd_lane *lane, struct psd_arrival *a)
{
    size_t want = psd_lane_answer_codec(lane, &a->frame)->payload_bytes(a->frame.count);
    return a->message.body_bytes == want || a->port->transport->message_body(&a->message, want) == 0;
}

float *psd_lane_answer_room(struct psd_lane *lane, struct psd_arrival *a)
{
    if (!size_body(lane, a))
        return NULL;
    bool in_place = holds_floats(a, psd_lane_answer_codec(lane, &a->frame));
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

int psd_lane_fill_body(struct psd_lane *lane, struct psd_arrival *a, float *floats)
{
    const struct ps_codec *codec = psd_lane_answer_codec(lane, &a->frame);
    const struct ps_range piece = {a->frame.begin, a->frame.count};
    if ((const void *)floats == a->message.body)
        return 0;
    if (!size_body(lane, a))
        return -ENOMEM;
    if (!codec->in_place)
        blank_frozen(lane, a, floats);
    codec->encode(a->message.body, floats, a->frame.count);
    if (codec->in_place || a->frame.client >= lane->center->n_seen)
        return 0;
    codec->decode(floats, a->message.body, a->frame.count);
    psd_lane_see(lane, a->frame.client, piece,
                 floats); /* the values after encoding, which the client really sees */
    return 0;
}
