#include "server/lane/partial_rounds.h"

#include <stdlib.h>
#include <string.h>

bool psd_lane_partial_init(struct psd_rounds *r, uint32_t n_slots)
{
    r->states = calloc(n_slots, sizeof *r->states);
    r->closed.ranks = calloc(n_slots, sizeof *r->closed.ranks);
    r->closed.seqs = calloc(n_slots, sizeof *r->closed.seqs);
    for (uint32_t i = 0; r->states != NULL && i < n_slots; i++)
        r->states[i].seen = UINT64_MAX;
    return r->states != NULL && r->closed.ranks != NULL && r->closed.seqs != NULL;
}

static bool has_partial_rounds(const struct psd_lane *lane)
{
    return lane->rounds != NULL && lane->rounds->states != NULL;
}

/* At most one event of each client is outstanding, so that the queues have room whatever a peer sends. */
static void announce(struct psd_lane *lane, uint32_t client)
{
    struct psd_exchange_state *st = &lane->rounds->states[client];
    const struct psd_lane_client *c = &lane->clients[client];
    if (st->open || st->began == st->noted)
        return;
    bool landed = c->seq == st->began && c->tracks[0].n_landed == lane->n_moving;
    st->noted = st->began;
    st->open = true;
    psd_queue_push(lane->out, &(struct psd_lane_message){.kind = landed ? PSD_LANE_LANDED : PSD_LANE_BEGUN,
                                                         .client = client,
                                                         .incarnation = c->incarnation,
                                                         .a = st->began,
                                                         .b = st->base});
}

/* The exchange is based on what the client was sent before it. */
void psd_lane_partial_begin(struct psd_lane *lane, const struct ps_frame *f)
{
    if (!has_partial_rounds(lane))
        return;
    struct psd_exchange_state *st = &lane->rounds->states[f->client];
    if (f->seq <= st->began)
        return;
    st->began = f->seq;
    st->base = st->seen;
    st->seen = UINT64_MAX;
    announce(lane, f->client);
}

void psd_lane_partial_saw(struct psd_lane *lane, const struct psd_arrival *a, uint64_t rounds)
{
    if (!has_partial_rounds(lane) || a->message.body_bytes == 0 || !psd_rounds_moves(lane, a->chunk))
        return;
    struct psd_exchange_state *st = &lane->rounds->states[a->frame.client];
    st->seen = rounds < st->seen ? rounds : st->seen;
}

/* A round's snapshot is of the center that such an answer contains. */
static uint16_t flags_of_late(const struct psd_rounds *r, uint32_t chunk)
{
    bool saved = r->save_at > r->begin && r->done[chunk] == r->save_at;
    return PS_FLAG_DROPPED | (saved ? PS_FLAG_SAVE : 0);
}

/* The rate is as if the exchange had been on time: under rule elastic its sender is still pulled towards the
 * center, so that a worker that is repeatedly late does not diverge from the others. */
static void answer_late(struct psd_lane *lane, uint32_t client, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    const struct psd_exchange_state *st = &r->states[client];
    struct psd_staged *s = psd_rounds_find(lane, client, chunk);
    if (s == NULL || s->arrival.frame.seq != st->late || r->done[chunk] < st->after)
        return;
    struct psd_move move = psd_lane_move_of(lane, &s->arrival);
    s->arrival.rate = lane->center->rule->rate(&move);
    s->flags = flags_of_late(r, chunk);
    if (psd_lane_has_begun(lane->shared, client, 0, s->arrival.frame.incarnation, s->arrival.frame.seq))
        psd_lane_land(
            lane,
            &s->arrival); /* it was taken out of a round that some chunks had completed: this completes it */
    if (s->arrival.frame.kind == PS_FRAME_EXCHANGE) {
        psd_rounds_answer_center(lane, s);
        return;
    }
    psd_lane_answer_nothing(lane, &s->arrival, s->arrival.rate, s->flags);
    psd_rounds_clear(lane, s);
}

void psd_lane_partial_arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    uint32_t client = a->frame.client, chunk = a->chunk;
    psd_count(&a->client->arrived, 1);
    psd_lane_partial_begin(lane, &a->frame);
    psd_rounds_arrive(lane, a);
    answer_late(lane, client, chunk);
}

/* False for an exchange that the client has abandoned since, and for a chunk that had landed before psd was
 * restarted. */
static bool may_arrive(const struct psd_lane *lane, uint32_t client, uint64_t seq, uint32_t chunk)
{
    const struct psd_lane_client *c = &lane->clients[client];
    return c->seq < seq || (c->seq == seq && (c->landed[chunk / 64] >> (chunk % 64) & 1) == 0);
}

/* Whether all messages of the partial round that can still arrive are here; they are then in
 * rounds->gathered, *n of them. */
static bool gather(struct psd_lane *lane, uint32_t chunk, uint32_t *n)
{
    const struct psd_members *closed = &lane->rounds->closed;
    *n = 0;
    for (uint32_t i = 0; i < closed->n; i++) {
        struct psd_staged *s = psd_rounds_find(lane, closed->ranks[i], chunk);
        if (s != NULL && s->arrival.frame.seq == closed->seqs[i])
            lane->rounds->gathered[(*n)++] = &s->arrival;
        else if (may_arrive(lane, closed->ranks[i], closed->seqs[i], chunk))
            return false;
    }
    return true;
}

bool psd_lane_partial_advance(struct psd_lane *lane, uint32_t chunk)
{
    uint32_t n;
    if (!gather(lane, chunk, &n))
        return false;
    if (n > 0)
        psd_merge_round(lane, chunk, n);
    else
        psd_rounds_finish(lane, chunk); /* all of its members were lost */
    for (uint32_t i = 0; i < lane->shared->n_slots; i++)
        if (lane->rounds->states[i].late != 0)
            answer_late(lane, i, chunk);
    return true;
}

static void report_over(struct psd_lane *lane, uint64_t round)
{
    psd_queue_push(lane->out, &(struct psd_lane_message){.kind = PSD_LANE_OVER, .a = round});
}

void psd_lane_partial_over(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    if (!r->has_closed)
        return;
    r->has_closed = false;
    report_over(lane, r->closed.from);
}

void psd_lane_partial_forget(struct psd_lane *lane, uint32_t client)
{
    if (!has_partial_rounds(lane))
        return;
    lane->rounds->states[client] = (struct psd_exchange_state){.seen = UINT64_MAX};
    psd_members_leave(&lane->rounds->closed, client);
}

/* The loop has decided about the exchange. */
static void settle_exchange(struct psd_lane *lane, uint32_t client, uint64_t seq)
{
    struct psd_exchange_state *st = &lane->rounds->states[client];
    st->open = st->open && st->noted != seq;
    announce(lane, client);
}

void psd_lane_partial_take(struct psd_lane *lane, const struct psd_members *closed)
{
    struct psd_rounds *r = lane->rounds;
    if (!has_partial_rounds(lane) || lane->n_moving == 0) {
        report_over(lane, closed->from);
        return;
    }
    r->closed.from = closed->from;
    r->closed.n = closed->n;
    memcpy(r->closed.ranks, closed->ranks, closed->n * sizeof *closed->ranks);
    memcpy(r->closed.seqs, closed->seqs, closed->n * sizeof *closed->seqs);
    r->has_closed = true;
    for (uint32_t i = 0; i < closed->n; i++)
        settle_exchange(lane, closed->ranks[i], closed->seqs[i]);
    psd_rounds_advance_all(lane);
}

static void remove_member(struct psd_lane *lane, uint32_t client, uint64_t seq)
{
    struct psd_members *closed = &lane->rounds->closed;
    for (uint32_t i = 0; i < closed->n && lane->rounds->has_closed; i++)
        if (closed->ranks[i] == client && closed->seqs[i] == seq) {
            psd_members_leave(closed, client);
            psd_rounds_advance_all(lane);
            return;
        }
}

void psd_lane_partial_late(struct psd_lane *lane, uint32_t client, uint64_t seq, uint64_t after)
{
    if (!has_partial_rounds(lane))
        return;
    struct psd_exchange_state *st = &lane->rounds->states[client];
    if (st->began == seq) {
        st->late = seq;
        st->after = after;
        for (uint32_t k = 0; k < lane->n_chunks; k++)
            answer_late(lane, client, k);
    }
    remove_member(lane, client, seq);
    settle_exchange(lane, client, seq);
}
