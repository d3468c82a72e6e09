#include "server/lane/partial_rounds.h"

#include <stdlib.h>
#include <string.h>

bool psd_lane_partial_init(struct psd_rounds *r, uint32_t n_slots)
{
    r->standing = calloc(n_slots, sizeof *r->standing);
    r->cut.ranks = calloc(n_slots, sizeof *r->cut.ranks);
    r->cut.seqs = calloc(n_slots, sizeof *r->cut.seqs);
    for (uint32_t i = 0; r->standing != NULL && i < n_slots; i++)
        r->standing[i].seen = UINT64_MAX;
    return r->standing != NULL && r->cut.ranks != NULL && r->cut.seqs != NULL;
}

static bool has_partial_rounds(const struct psd_lane *lane)
{
    return lane->rounds != NULL && lane->rounds->standing != NULL;
}

/* One at a time of each client, so that queues have room for them whatever a peer sends. */
static void announce(struct psd_lane *lane, uint32_t client)
{
    struct psd_standing *st = &lane->rounds->standing[client];
    const struct psd_lane_client *c = &lane->clients[client];
    if (st->open || st->began == st->noted)
        return;
    bool landed = c->seq == st->began && c->n_landed == lane->n_moving;
    st->noted = st->began;
    st->open = true;
    psd_queue_push(lane->out, &(struct psd_lane_message){.kind = landed ? PSD_LANE_LANDED : PSD_LANE_BEGUN,
                                                         .client = client,
                                                         .incarnation = c->incarnation,
                                                         .a = st->began,
                                                         .b = st->base});
}

/* What it was sent before is what this one was made of. */
void psd_lane_partial_begin(struct psd_lane *lane, const struct ps_frame *f)
{
    if (!has_partial_rounds(lane))
        return;
    struct psd_standing *st = &lane->rounds->standing[f->client];
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
    struct psd_standing *st = &lane->rounds->standing[a->frame.client];
    st->seen = rounds < st->seen ? rounds : st->seen;
}

/* A round's snapshot is of the center that such an answer has. */
static uint16_t flags_of_late(const struct psd_rounds *r, uint32_t chunk)
{
    bool saved = r->save_at > r->begin && r->done[chunk] == r->save_at;
    return PS_FLAG_DROPPED | (saved ? PS_FLAG_SAVE : 0);
}

/* The rate is what it would have been: under rule elastic its sender is still drawn to the center, so that
 * one who is late time and again does not part from the others. */
static void answer_late(struct psd_lane *lane, uint32_t client, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    const struct psd_standing *st = &r->standing[client];
    struct psd_staged *s = psd_rounds_find(lane, client, chunk);
    if (s == NULL || s->arrival.frame.seq != st->late || r->done[chunk] < st->after)
        return;
    struct psd_move move = psd_lane_move_of(lane, &s->arrival);
    float rate = lane->center->rule->rate(&move);
    s->flags = flags_of_late(r, chunk);
    if (psd_lane_has_begun(lane->shared, client, s->arrival.frame.incarnation, s->arrival.frame.seq))
        psd_lane_land(lane, &s->arrival); /* its sender was left behind in the middle: this ends it too */
    if (s->arrival.frame.kind == PS_FRAME_EXCHANGE) {
        psd_rounds_answer_center(lane, s, rate);
        return;
    }
    psd_lane_answer_nothing(lane, &s->arrival, rate, s->flags);
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

/* Not what it gave up since, nor a chunk that had landed before psd was restarted. */
static bool may_come(const struct psd_lane *lane, uint32_t client, uint64_t seq, uint32_t chunk)
{
    const struct psd_lane_client *c = &lane->clients[client];
    return c->seq < seq || (c->seq == seq && (c->landed[chunk / 64] >> (chunk % 64) & 1) == 0);
}

/* Whether all of the cut that may still come are there; then they are in rounds->party, *n of them. */
static bool gather(struct psd_lane *lane, uint32_t chunk, uint32_t *n)
{
    const struct psd_members *cut = &lane->rounds->cut;
    *n = 0;
    for (uint32_t i = 0; i < cut->n; i++) {
        struct psd_staged *s = psd_rounds_find(lane, cut->ranks[i], chunk);
        if (s != NULL && s->arrival.frame.seq == cut->seqs[i])
            lane->rounds->party[(*n)++] = &s->arrival;
        else if (may_come(lane, cut->ranks[i], cut->seqs[i], chunk))
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
        psd_rounds_finish(lane, chunk); /* everybody in it was lost */
    for (uint32_t i = 0; i < lane->shared->n_slots; i++)
        if (lane->rounds->standing[i].late != 0)
            answer_late(lane, i, chunk);
    return true;
}

static void say_over(struct psd_lane *lane, uint64_t round)
{
    psd_queue_push(lane->out, &(struct psd_lane_message){.kind = PSD_LANE_OVER, .a = round});
}

void psd_lane_partial_over(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    if (!r->has_cut)
        return;
    r->has_cut = false;
    say_over(lane, r->cut.from);
}

void psd_lane_partial_forget(struct psd_lane *lane, uint32_t client)
{
    if (!has_partial_rounds(lane))
        return;
    lane->rounds->standing[client] = (struct psd_standing){.seen = UINT64_MAX};
    psd_members_leave(&lane->rounds->cut, client);
}

/* The loop has said what becomes of it. */
static void close_standing(struct psd_lane *lane, uint32_t client, uint64_t seq)
{
    struct psd_standing *st = &lane->rounds->standing[client];
    st->open = st->open && st->noted != seq;
    announce(lane, client);
}

void psd_lane_partial_take(struct psd_lane *lane, const struct psd_members *cut)
{
    struct psd_rounds *r = lane->rounds;
    if (!has_partial_rounds(lane) || lane->n_moving == 0) {
        say_over(lane, cut->from);
        return;
    }
    r->cut.from = cut->from;
    r->cut.n = cut->n;
    memcpy(r->cut.ranks, cut->ranks, cut->n * sizeof *cut->ranks);
    memcpy(r->cut.seqs, cut->seqs, cut->n * sizeof *cut->seqs);
    r->has_cut = true;
    for (uint32_t i = 0; i < cut->n; i++)
        close_standing(lane, cut->ranks[i], cut->seqs[i]);
    psd_rounds_advance_all(lane);
}

static void take_out(struct psd_lane *lane, uint32_t client, uint64_t seq)
{
    struct psd_members *cut = &lane->rounds->cut;
    for (uint32_t i = 0; i < cut->n && lane->rounds->has_cut; i++)
        if (cut->ranks[i] == client && cut->seqs[i] == seq) {
            psd_members_leave(cut, client);
            psd_rounds_advance_all(lane);
            return;
        }
}

void psd_lane_partial_late(struct psd_lane *lane, uint32_t client, uint64_t seq, uint64_t after)
{
    if (!has_partial_rounds(lane))
        return;
    struct psd_standing *st = &lane->rounds->standing[client];
    if (st->began == seq) {
        st->late = seq;
        st->after = after;
        for (uint32_t k = 0; k < lane->n_chunks; k++)
            answer_late(lane, client, k);
    }
    take_out(lane, client, seq);
    close_standing(lane, client, seq);
}
