#include "server/lane_rounds.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void free_all(struct psd_rounds *r)
{
    free(r->staged);
    free(r->now.ranks);
    free(r->next.ranks);
    free(r->done);
    free(r->turn);
    free(r->party);
    free(r->bodies);
    free(r->pace);
    free(r);
}

static bool moves(const struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_center *c = lane->center;
    struct ps_range whole = ps_shard_whole(&c->shard);
    return !ps_manifest_is_frozen(c->manifest, ps_shard_piece(&c->shard, lane->row, whole, chunk));
}

struct psd_rounds *psd_rounds_create(const struct psd_lane *lane, uint64_t begin)
{
    uint32_t n_slots = lane->shared->n_slots, n = lane->n_chunks;
    struct psd_rounds *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->window = lane->center->window_chunks;
    r->staged = calloc((size_t)n_slots * r->window, sizeof *r->staged);
    r->now.ranks = calloc(n_slots, sizeof *r->now.ranks);
    r->next.ranks = calloc(n_slots, sizeof *r->next.ranks);
    r->done = calloc(n, sizeof *r->done);
    r->turn = calloc(n, sizeof *r->turn);
    r->party = calloc(n_slots, sizeof *r->party);
    r->bodies = calloc(n_slots, sizeof *r->bodies);
    if (!lane->center->admission->rounds)
        r->pace = calloc(n_slots, sizeof *r->pace);
    if (!r->staged || !r->now.ranks || !r->next.ranks || !r->done || !r->turn || !r->party || !r->bodies ||
        (!lane->center->admission->rounds && !r->pace)) {
        free_all(r);
        return NULL;
    }
    r->begin = r->round = begin;
    for (uint32_t k = 0; k < n; k++) {
        r->done[k] = begin;
        if (moves(lane, k))
            r->last = k;
    }
    return r;
}

void psd_rounds_revive(struct psd_lane *lane, uint32_t client)
{
    if (lane->rounds != NULL && lane->rounds->pace != NULL && lane->center->resumed != NULL)
        lane->rounds->pace[client] = (struct psd_pace){.free = true};
}

static struct psd_staged *staged_of(const struct psd_rounds *r, uint32_t client)
{
    return r->staged + (size_t)client * r->window;
}

static void count_waiting(struct psd_lane *lane, uint32_t client)
{
    const struct psd_rounds *r = lane->rounds;
    struct psd_lane_client *c = &lane->clients[client];
    const struct psd_staged *s = staged_of(r, client);
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->window; i++)
        n += s[i].used;
    atomic_store_explicit(&c->waiting_seq, c->seq, memory_order_relaxed);
    atomic_store_explicit(&c->waiting_chunks, n, memory_order_relaxed);
}

static void drop_all(struct psd_lane *lane, uint32_t client)
{
    struct psd_staged *s = staged_of(lane->rounds, client);
    for (uint32_t i = 0; i < lane->rounds->window; i++)
        if (s[i].used) {
            lane->transport->message_drop(&s[i].arrival.message);
            s[i].used = false;
        }
    count_waiting(lane, client);
}

void psd_rounds_destroy(struct psd_lane *lane)
{
    if (lane->rounds == NULL)
        return;
    for (uint32_t i = 0; i < lane->shared->n_slots; i++)
        drop_all(lane, i);
    free_all(lane->rounds);
    lane->rounds = NULL;
}

const struct psd_members *psd_rounds_members(const struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_rounds *r = lane->rounds;
    return r->has_next && r->done[chunk] >= r->next.from ? &r->next : &r->now;
}

struct psd_staged *psd_rounds_find(const struct psd_lane *lane, uint32_t client, uint32_t chunk)
{
    struct psd_staged *s = staged_of(lane->rounds, client);
    for (uint32_t i = 0; i < lane->rounds->window; i++)
        if (s[i].used && s[i].arrival.chunk == chunk)
            return &s[i];
    return NULL;
}

uint16_t psd_rounds_flags(const struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_rounds *r = lane->rounds;
    return r->saving && r->done[chunk] + 1 == r->save_at ? PS_FLAG_SAVE : 0;
}

void psd_rounds_clear(struct psd_lane *lane, struct psd_staged *s)
{
    s->used = false;
    count_waiting(lane, s->arrival.frame.client);
}

void psd_rounds_answer(struct psd_lane *lane, struct psd_staged *s, float rate)
{
    psd_lane_answer_moved(lane, &s->arrival, rate, s->flags);
    psd_rounds_clear(lane, s);
}

void psd_rounds_answer_center(struct psd_lane *lane, struct psd_staged *s, float rate)
{
    psd_lane_answer_center(lane, &s->arrival, rate, s->flags);
    psd_rounds_clear(lane, s);
}

/* The lowest round of any chunk that moves; how many have been through one more. */
static void count_round(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    uint64_t lowest = UINT64_MAX;
    r->n_done = 0;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        if (moves(lane, k) && r->done[k] < lowest)
            lowest = r->done[k];
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        r->n_done += moves(lane, k) && r->done[k] > lowest;
    r->round = lowest;
}

/* The set that began with a round which every chunk has reached is the only one. */
static void settle_members(struct psd_rounds *r)
{
    if (!r->has_next || r->round < r->next.from)
        return;
    struct psd_members was = r->now;
    r->now = r->next;
    r->next = was;
    r->has_next = false;
}

static void copy_if_due(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    if (!r->saving || r->round < r->save_at)
        return;
    r->saving = false;
    r->wake = true;
    psd_lane_snapshot(lane, r->snapshot);
}

/* Every chunk has been through the round. */
static void round_over(struct psd_lane *lane)
{
    struct psd_shared *shared = lane->shared;
    count_round(lane);
    settle_members(lane->rounds);
    lane->rounds->wake = true;
    if (lane->center->admission->merges) {
        psd_count(&lane->stats.clock, 1);
        uint64_t n = atomic_fetch_add_explicit(&shared->rounds, 1, memory_order_relaxed) + 1;
        if (n % lane->center->lanes_moving == 0)
            atomic_fetch_add_explicit(&shared->version, 1, memory_order_relaxed);
    }
    copy_if_due(lane);
}

void psd_rounds_finish(struct psd_lane *lane, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    r->turn[chunk] = 0;
    if (++r->done[chunk] == r->round + 1 && ++r->n_done == lane->n_moving)
        round_over(lane);
}

/* Whether the chunk may go on with its round. One whose members have all left goes over to the next set. */
static bool may_advance(struct psd_lane *lane, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    if (r->held || (r->saving && r->done[chunk] >= r->save_at) || !moves(lane, chunk))
        return false;
    if (psd_rounds_members(lane, chunk)->n > 0)
        return true;
    if (!r->has_next || r->done[chunk] >= r->next.from)
        return false;
    r->done[chunk] = r->next.from;
    r->turn[chunk] = 0;
    count_round(lane);
    return r->next.n > 0;
}

static void advance(struct psd_lane *lane, uint32_t chunk)
{
    while (may_advance(lane, chunk) && lane->center->admission->advance(lane, chunk))
        ;
}

static void advance_all(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    do {
        r->wake = false;
        for (uint32_t k = 0; k < lane->n_chunks; k++)
            advance(lane, k);
        settle_members(r);
    } while (r->wake);
}

/* Messages are staged, so one with a value that is not finite is refused whole. */
static bool is_finite(struct psd_lane *lane, struct psd_arrival *a)
{
    struct ps_range piece = {a->frame.begin, a->frame.count};
    float *m = psd_lane_floats_of(lane, a);
    for (struct psd_run r = psd_lane_first_run(lane, piece, m); r.n > 0;
         r = psd_lane_next_run(lane, piece, r)) {
        size_t bad = r.role == PS_ROLE_FROZEN ? r.n : lane->vec->first_nonfinite(r.m, r.n);
        if (bad < r.n) {
            psd_lane_refuse_values(lane, a, 1, r.at + bad);
            return false;
        }
    }
    return true;
}

/* A body whose floats cannot be worked on where they lie gets one where they can. */
static bool align(struct psd_lane *lane, struct psd_arrival *a)
{
    size_t len_bytes = a->frame.count * sizeof(float);
    if (psd_lane_room_of(lane, a) != lane->scratch)
        return true;
    psd_lane_floats_of(lane, a);
    if (lane->transport->message_body(&a->message, len_bytes) < 0) {
        psd_lane_refuse(lane, a, PS__CODE__LIMIT, "no memory for a message of %zu bytes", len_bytes);
        return false;
    }
    memcpy(a->message.body, lane->scratch, len_bytes);
    return true;
}

/* Room for one more message of this client: the one that it sends again takes the place of the old, and of an
 * exchange that it gave up nothing is left. */
static struct psd_staged *room_for(struct psd_lane *lane, const struct psd_arrival *a)
{
    struct psd_staged *s = staged_of(lane->rounds, a->frame.client), *room = NULL;
    for (uint32_t i = 0; i < lane->rounds->window; i++) {
        const struct ps_frame *f = &s[i].arrival.frame;
        if (s[i].used && (f->seq != a->frame.seq || s[i].arrival.chunk == a->chunk)) {
            lane->transport->message_drop(&s[i].arrival.message);
            s[i].used = false;
        }
        if (!s[i].used && room == NULL)
            room = &s[i];
    }
    return room;
}

void psd_rounds_arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_rounds *r = lane->rounds;
    if (!is_finite(lane, a) || !align(lane, a))
        return;
    struct psd_staged *s = room_for(lane, a);
    if (s == NULL) {
        psd_lane_refuse(lane, a, PS__CODE__LIMIT, "more than %u chunks in flight (window_chunks)", r->window);
        return;
    }
    s->arrival = (struct psd_arrival){.client = a->client,
                                      .frame = a->frame,
                                      .chunk = a->chunk,
                                      .n_pieces = a->n_pieces,
                                      .n_lanes = a->n_lanes};
    lane->transport->message_move(&s->arrival.message, &a->message);
    s->used = true;
    s->moved = false;
    count_waiting(lane, s->arrival.frame.client);
    advance(lane, s->arrival.chunk);
    if (r->wake)
        advance_all(lane);
}

/* No round will end any more. */
static bool has_nobody(const struct psd_rounds *r)
{
    return r->now.n == 0 && (!r->has_next || r->next.n == 0);
}

static int64_t index_of(const struct psd_members *m, uint32_t rank)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->ranks[i] == rank)
            return i;
    return -1;
}

static void leave(struct psd_lane *lane, struct psd_members *m, uint32_t rank)
{
    struct psd_rounds *r = lane->rounds;
    int64_t i = index_of(m, rank);
    if (i < 0)
        return;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        r->turn[k] -= psd_rounds_members(lane, k) == m && r->turn[k] > (uint32_t)i;
    m->n--;
    memmove(m->ranks + i, m->ranks + i + 1, (m->n - (uint32_t)i) * sizeof *m->ranks);
}

void psd_rounds_forget(struct psd_lane *lane, uint32_t client)
{
    struct psd_rounds *r = lane->rounds;
    if (r == NULL)
        return;
    leave(lane, &r->now, client);
    leave(lane, &r->next, client);
    if (r->pace != NULL)
        r->pace[client] = (struct psd_pace){0};
    drop_all(lane, client);
    advance_all(lane);
    if (r->saving && has_nobody(r))
        psd_rounds_snapshot(lane, r->snapshot, r->save_at);
}

static uint64_t first_round(const struct psd_lane *lane)
{
    const struct psd_rounds *r = lane->rounds;
    uint64_t first = 0;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        if (moves(lane, k) && r->done[k] + (r->turn[k] > 0) > first)
            first = r->done[k] + (r->turn[k] > 0);
    return first;
}

void psd_rounds_hold(struct psd_lane *lane)
{
    struct psd_note held = {.kind = PSD_NOTE_HELD};
    if (lane->rounds != NULL) {
        lane->rounds->held = true;
        held.a = lane->center->admission->rounds ? first_round(lane) : lane->center->admission->slowest(lane);
    }
    psd_ring_push(lane->out, &held);
}

/* Without rounds: those who are new start with the clock that was published. */
static void take_clocks(struct psd_rounds *r, const struct psd_members *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (index_of(&r->now, m->ranks[i]) < 0)
            r->pace[m->ranks[i]].offset = m->from;
}

static void copy_members(struct psd_members *to, const struct psd_members *m)
{
    to->from = m->from;
    to->n = m->n;
    memcpy(to->ranks, m->ranks, m->n * sizeof *m->ranks);
}

void psd_rounds_take_members(struct psd_lane *lane, const struct psd_members *m)
{
    struct psd_rounds *r = lane->rounds;
    if (r == NULL)
        return;
    if (!lane->center->admission->rounds) {
        take_clocks(r, m);
        copy_members(&r->now, m);
        return;
    }
    copy_members(&r->next, m);
    r->has_next = true;
    settle_members(r);
}

void psd_rounds_go(struct psd_lane *lane)
{
    if (lane->rounds == NULL)
        return;
    lane->rounds->held = false;
    advance_all(lane);
}

void psd_rounds_snapshot(struct psd_lane *lane, struct psd_snapshot *s, uint64_t after)
{
    struct psd_rounds *r = lane->rounds;
    if (r == NULL || lane->n_moving == 0 || !lane->center->admission->rounds) {
        psd_lane_snapshot(lane, s);
        return;
    }
    r->saving = true;
    r->save_at = after;
    r->snapshot = s;
    if (has_nobody(r))
        r->save_at = r->round;
    copy_if_due(lane);
}
