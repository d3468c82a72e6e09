#include "server/lane/partial_rounds.h"

#include <stdlib.h>
#include <string.h>

static void free_all(struct psd_rounds *r, uint32_t n_slots)
{
    for (size_t i = 0; r->staged != NULL && i < (size_t)n_slots * r->window; i++)
        free(r->staged[i].room);
    free(r->staged);
    free(r->now.ranks);
    free(r->next.ranks);
    free(r->done);
    free(r->moving);
    free(r->turn);
    free(r->at);
    free(r->keys);
    free(r->gathered);
    free(r->bodies);
    free(r->scales);
    free(r->pulls);
    free(r->clocks);
    free(r->states);
    free(r->closed.ranks);
    free(r->closed.seqs);
    free(r);
}

bool psd_rounds_moves(const struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_center *c = lane->center;
    struct ps_range whole = ps_shard_whole(&c->shard);
    return !ps_manifest_is_frozen(c->manifest, ps_shard_piece(&c->shard, lane->row, whole, chunk));
}

static uint64_t count_params(const struct ps_manifest *m)
{
    uint64_t n = 0;
    for (size_t i = 0; i < m->n_segments; i++)
        n += m->segments[i].role == PS_ROLE_PARAM ? m->segments[i].range.count : 0;
    return n;
}

/* What this server has. */
static struct ps_range own_part(const struct psd_lane *lane)
{
    const struct ps_shard *s = &lane->center->shard;
    return s->n_parts > 1 ? ps_shard_part(s, lane->row / (s->n_lanes / s->n_parts)) : ps_shard_whole(s);
}

struct psd_rounds *psd_rounds_create(const struct psd_lane *lane, uint64_t begin)
{
    uint32_t n_slots = lane->shared->n_slots, n = lane->n_chunks;
    struct psd_rounds *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->window = lane->center->most_in_flight;
    r->staged = calloc((size_t)n_slots * r->window, sizeof *r->staged);
    r->now.ranks = calloc(n_slots, sizeof *r->now.ranks);
    r->next.ranks = calloc(n_slots, sizeof *r->next.ranks);
    r->done = calloc(n, sizeof *r->done);
    r->turn = calloc(n, sizeof *r->turn);
    r->moving = calloc(n, sizeof *r->moving);
    r->at = calloc(n, sizeof *r->at);
    r->keys = calloc(n, sizeof *r->keys);
    r->gathered = calloc(n_slots, sizeof *r->gathered);
    r->bodies = calloc(n_slots, sizeof *r->bodies);
    r->scales = calloc(n_slots, sizeof *r->scales);
    r->pulls = calloc(n_slots, sizeof *r->pulls);
    if (!lane->center->admission->rounds)
        r->clocks = calloc(n_slots, sizeof *r->clocks);
    if (!r->staged || !r->now.ranks || !r->next.ranks || !r->done || !r->turn || !r->moving || !r->at ||
        !r->keys || !r->gathered || !r->bodies || !r->scales || !r->pulls ||
        (!lane->center->admission->rounds && !r->clocks) ||
        (lane->center->admission->needs != NULL && !psd_lane_partial_init(r, n_slots))) {
        free_all(r, n_slots);
        return NULL;
    }
    r->begin = r->round = begin;
    r->closing = psd_lane_closing(lane);
    r->n_params = count_params(lane->center->manifest);
    r->last_key = psd_rounds_last_key(lane->center->manifest, ps_shard_whole(&lane->center->shard));
    r->last_key_here = psd_rounds_last_key(lane->center->manifest, own_part(lane));
    uint32_t n_moving = 0;
    for (uint32_t k = 0; k < n; k++) {
        r->done[k] = begin;
        r->moving[k] = n_moving;
        if (!psd_rounds_moves(lane, k))
            continue;
        r->last = k;
        n_moving++;
    }
    return r;
}

void psd_rounds_revive(struct psd_lane *lane, uint32_t client)
{
    if (lane->rounds != NULL && lane->rounds->clocks != NULL && lane->center->resumed != NULL)
        lane->rounds->clocks[client] = (struct psd_member_clock){.free = true};
}

static struct psd_staged *staged_of(const struct psd_rounds *r, uint32_t client)
{
    return r->staged + (size_t)client * r->window;
}

/* Whether some of the chunks before the message's have not landed. Messages of a fragment begin anywhere,
 * those of a key have no chunks before its first, and late ones of partial rounds do not land; none of them
 * arrives while it is computed. */
static bool lacks_before(const struct psd_lane *lane, const struct psd_lane_client *c,
                         const struct psd_arrival *a)
{
    uint32_t n = 0, k = a->chunk;
    if (lane->n_fragments > 0 || lane->center->admission->needs != NULL ||
        psd_key_of(&a->frame) != PSD_WHOLE_VECTOR)
        return false;
    for (uint32_t w = 0; w * 64 < k; w++) {
        uint64_t below = k - w * 64 < 64 ? (UINT64_C(1) << (k % 64)) - 1 : UINT64_MAX;
        n += (uint32_t)__builtin_popcountll(c->landed[w] & below);
    }
    return n < lane->rounds->moving[k];
}

static void count_waiting(struct psd_lane *lane, uint32_t client)
{
    const struct psd_rounds *r = lane->rounds;
    struct psd_lane_client *c = &lane->clients[client];
    const struct psd_staged *s = staged_of(r, client);
    const struct psd_arrival *first = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->window; i++) {
        n += s[i].used;
        if (s[i].used && (first == NULL || s[i].arrival.chunk < first->chunk))
            first = &s[i].arrival;
    }
    atomic_store_explicit(&c->waiting_seq, c->seq, memory_order_relaxed);
    atomic_store_explicit(&c->waiting_chunks, n, memory_order_relaxed);
    atomic_store_explicit(&c->computes, first != NULL && lacks_before(lane, c, first), memory_order_relaxed);
}

static void drop_all(struct psd_lane *lane, uint32_t client)
{
    struct psd_staged *s = staged_of(lane->rounds, client);
    for (uint32_t i = 0; i < lane->rounds->window; i++)
        if (s[i].used) {
            s[i].arrival.port->transport->message_drop(&s[i].arrival.message);
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
    free_all(lane->rounds, lane->shared->n_slots);
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

uint16_t psd_rounds_flags(const struct psd_lane *lane, const struct psd_arrival *a)
{
    const struct psd_rounds *r = lane->rounds;
    uint32_t chunk = a->chunk;
    bool closes = ps_shard_chunk(&lane->center->shard, lane->row, chunk).begin >= r->closing &&
                  psd_rounds_ends(r, &a->frame);
    return r->saving && r->done[chunk] + 1 == r->save_at && closes ? PS_FLAG_SAVE : 0;
}

void psd_rounds_clear(struct psd_lane *lane, struct psd_staged *s)
{
    s->used = false;
    count_waiting(lane, s->arrival.frame.client);
}

void psd_rounds_answer(struct psd_lane *lane, struct psd_staged *s)
{
    psd_lane_answer_moved(lane, &s->arrival, s->flags);
    psd_rounds_clear(lane, s);
}

void psd_rounds_answer_center(struct psd_lane *lane, struct psd_staged *s)
{
    psd_lane_answer_center(lane, &s->arrival, s->arrival.rate, s->flags);
    psd_rounds_clear(lane, s);
}

/* Updates the round that every chunk has completed, and how many chunks are one round ahead. */
static void count_round(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    uint64_t lowest = UINT64_MAX;
    r->n_done = 0;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        if (psd_rounds_moves(lane, k) && r->done[k] < lowest)
            lowest = r->done[k];
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        r->n_done += psd_rounds_moves(lane, k) && r->done[k] > lowest;
    r->round = lowest;
}

/* The first round that no chunk has begun. */
static uint64_t first_round(const struct psd_lane *lane)
{
    const struct psd_rounds *r = lane->rounds;
    uint64_t first = 0;
    for (uint32_t k = 0; k < lane->n_chunks; k++) {
        uint64_t here = r->done[k] + (r->turn[k] > 0 || r->at[k] > 0);
        if (psd_rounds_moves(lane, k) && here > first)
            first = here;
    }
    return first;
}

static void hold(struct psd_lane *lane)
{
    struct psd_lane_message held = {.kind = PSD_LANE_HELD};
    if (lane->rounds != NULL) {
        lane->rounds->held = true;
        lane->rounds->hold_due = false;
        held.a = lane->center->admission->rounds ? first_round(lane) : lane->center->admission->slowest(lane);
    }
    psd_queue_push(lane->out, &held);
}

/* Once every chunk has reached the first round of the next set, drops the previous set. */
static void drop_old_members(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    if (!r->has_next || r->round < r->next.from)
        return;
    struct psd_members was = r->now;
    r->now = r->next;
    r->next = was;
    r->has_next = false;
    if (r->hold_due)
        hold(lane);
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

/* Every chunk has completed the round. */
static void round_over(struct psd_lane *lane)
{
    struct psd_shared *shared = lane->shared;
    count_round(lane);
    drop_old_members(lane);
    lane->rounds->wake = true;
    if (lane->center->admission->merges) {
        psd_count(&lane->stats.clock, 1);
        uint64_t n = atomic_fetch_add_explicit(&shared->rounds, 1, memory_order_relaxed) + 1;
        if (n % lane->center->own_moving == 0)
            atomic_fetch_add_explicit(&shared->version, 1, memory_order_relaxed);
    }
    if (lane->center->admission->needs != NULL)
        psd_lane_partial_over(lane);
    copy_if_due(lane);
}

void psd_rounds_finish(struct psd_lane *lane, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    r->turn[chunk] = 0;
    r->at[chunk] = 0;
    if (++r->done[chunk] == r->round + 1 && ++r->n_done == lane->n_moving)
        round_over(lane);
}

/* Whether a set follows the one of the chunk's round. */
static bool has_later_members(const struct psd_rounds *r, uint32_t chunk)
{
    return r->has_next && r->done[chunk] < r->next.from;
}

/* Whether the chunk may begin its round: not before a snapshot has its values. */
static bool may_advance(const struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_rounds *r = lane->rounds;
    if (r->held || (r->saving && r->done[chunk] >= r->save_at) || !psd_rounds_moves(lane, chunk))
        return false;
    if (lane->center->admission->needs != NULL)
        return r->has_closed && r->closed.from == r->done[chunk];
    return psd_rounds_members(lane, chunk)->n > 0 || has_later_members(r, chunk);
}

/* A round whose members have all left is over, and counts like any other, so that all lanes number rounds
 * alike. */
static bool advance_once(struct psd_lane *lane, uint32_t chunk)
{
    if (lane->center->admission->needs == NULL && psd_rounds_members(lane, chunk)->n == 0) {
        psd_rounds_finish(lane, chunk);
        return true;
    }
    return lane->center->admission->advance(lane, chunk);
}

static void advance(struct psd_lane *lane, uint32_t chunk)
{
    while (may_advance(lane, chunk) && advance_once(lane, chunk))
        ;
}

void psd_rounds_advance_all(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    do {
        r->wake = false;
        for (uint32_t k = 0; k < lane->n_chunks; k++)
            advance(lane, k);
        drop_old_members(lane);
    } while (r->wake);
}

/* The message is staged, so one with a value that is not finite is refused completely. */
static bool is_finite(struct psd_lane *lane, struct psd_arrival *a)
{
    struct ps_range piece = {a->frame.begin, a->frame.count};
    float *m = psd_lane_floats_of(lane, a);
    for (struct psd_role_run r = psd_lane_first_run(lane, piece, m); r.n > 0;
         r = psd_lane_next_run(lane, piece, r)) {
        size_t bad = r.role == PS_ROLE_FROZEN ? r.n : lane->vec->first_nonfinite(r.m, r.n);
        if (bad < r.n) {
            psd_lane_refuse_values(lane, a, 1, r.at + bad);
            return false;
        }
    }
    return true;
}

/* Whether the message's floats can stay in its body: they are raw, and in private memory if other members'
 * answers are computed from them. */
static bool may_stay(struct psd_lane *lane, const struct psd_arrival *a)
{
    return psd_lane_room_of(lane, a) != lane->scratch &&
           (psd_lane_is_private(a) || !lane->center->admission->merges);
}

/* Floats that cannot stay in the body are decoded into the staging slot's buffer, which is kept for later
 * messages. They are checked there and not earlier. */
static bool decode_if_needed(struct psd_lane *lane, struct psd_staged *s, struct psd_arrival *a)
{
    if (may_stay(lane, a))
        return true;
    if (s->room == NULL &&
        (s->room = aligned_alloc(64, lane->center->shard.chunk_floats * sizeof *s->room)) == NULL)
        return false;
    psd_lane_decode(lane, a, s->room);
    a->room = s->room;
    return true;
}

static uint32_t window_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return ps_transport_window(a->port->transport, lane->center->window_chunks);
}

/* Whether another staged message of the client is not to be used any more, now that this one is here. */
static bool replaces(const struct psd_lane *lane, const struct psd_arrival *a, const struct psd_arrival *old)
{
    bool same_track = psd_lane_track_of(lane, &a->frame) == psd_lane_track_of(lane, &old->frame);
    return old->chunk == a->chunk || old->frame.seq < a->client->floor ||
           (same_track && old->frame.seq != a->frame.seq);
}

/* Finds a slot for one more message of this client. A message that is sent again replaces the old one, and
 * messages of abandoned exchanges are dropped. NULL: the window of its transport is full. Messages from a
 * transport with a larger window, which the client had to leave, do not count as an error. */
static struct psd_staged *room_for(struct psd_lane *lane, const struct psd_arrival *a)
{
    struct psd_staged *s = staged_of(lane->rounds, a->frame.client), *room = NULL;
    uint32_t n_used = 0;
    bool dropped = false;
    for (uint32_t i = 0; i < lane->rounds->window; i++) {
        if (s[i].used && replaces(lane, a, &s[i].arrival)) {
            s[i].arrival.port->transport->message_drop(&s[i].arrival.message);
            s[i].used = false;
            dropped = true;
        }
        n_used += s[i].used && s[i].arrival.port == a->port;
        if (!s[i].used && room == NULL)
            room = &s[i];
    }
    if (dropped) /* also if nothing replaces it */
        count_waiting(lane, a->frame.client);
    return n_used < window_of(lane, a) ? room : NULL;
}

void psd_rounds_arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_rounds *r = lane->rounds;
    struct psd_staged *s = room_for(lane, a);
    if (s == NULL) {
        psd_lane_refuse(lane, a, PS__CODE__LIMIT, "more than %u chunks in flight (window_chunks)",
                        window_of(lane, a));
        return;
    }
    if (!decode_if_needed(lane, s, a)) {
        psd_lane_refuse(lane, a, PS__CODE__LIMIT, "no memory for a message of %u floats", a->frame.count);
        return;
    }
    if (!is_finite(lane, a))
        return;
    s->arrival = (struct psd_arrival){.port = a->port,
                                      .client = a->client,
                                      .room = a->room,
                                      .frame = a->frame,
                                      .chunk = a->chunk,
                                      .answers_moves = a->answers_moves,
                                      .n_pieces = a->n_pieces,
                                      .n_lanes = a->n_lanes};
    a->port->transport->message_move(&s->arrival.message, &a->message);
    s->used = true;
    s->moved = false;
    count_waiting(lane, s->arrival.frame.client);
    advance(lane, s->arrival.chunk);
    if (r->wake)
        psd_rounds_advance_all(lane);
}

/* No round can complete any more. */
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

void psd_members_leave(struct psd_members *m, uint32_t client)
{
    int64_t i = index_of(m, client);
    if (i < 0)
        return;
    m->n--;
    memmove(m->ranks + i, m->ranks + i + 1, (m->n - (uint32_t)i) * sizeof *m->ranks);
    if (m->seqs != NULL)
        memmove(m->seqs + i, m->seqs + i + 1, (m->n - (uint32_t)i) * sizeof *m->seqs);
}

static void leave(struct psd_lane *lane, struct psd_members *m, uint32_t rank)
{
    struct psd_rounds *r = lane->rounds;
    int64_t i = index_of(m, rank);
    if (i < 0)
        return;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        r->turn[k] -= psd_rounds_members(lane, k) == m && r->turn[k] > (uint32_t)i;
    psd_members_leave(m, rank);
}

void psd_rounds_forget(struct psd_lane *lane, uint32_t client)
{
    struct psd_rounds *r = lane->rounds;
    if (r == NULL)
        return;
    leave(lane, &r->now, client);
    leave(lane, &r->next, client);
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        r->keys[k].known = r->keys[k].known && r->keys[k].client != client;
    if (r->clocks != NULL)
        r->clocks[client] = (struct psd_member_clock){0};
    psd_lane_partial_forget(lane, client);
    drop_all(lane, client);
    psd_rounds_advance_all(lane);
    if (r->saving && has_nobody(r))
        psd_rounds_snapshot(lane, r->snapshot, r->save_at);
}

/* There is room for one set that not all chunks have come to. Where messages are merged, a round of a chunk
 * begins and is over at once when all chunks have completed the one before, so that the following set is
 * valid from the same round. In turns it may be valid from a later one, so nobody may send it before all
 * chunks have come to the set that is there, which takes a round at most. */
void psd_rounds_hold(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    if (r != NULL && r->has_next && lane->n_moving > 0 && !lane->center->admission->merges)
        r->hold_due = true;
    else
        hold(lane);
}

void psd_rounds_halt(struct psd_lane *lane)
{
    if (lane->rounds != NULL)
        lane->rounds->held = true;
}

void psd_rounds_span(const struct psd_lane *lane, uint64_t *least, uint64_t *most)
{
    const struct psd_rounds *r = lane->rounds;
    bool counts = r != NULL && r->clocks == NULL && lane->n_fragments == 0;
    *least = UINT64_MAX;
    *most = 0;
    for (uint32_t k = 0; counts && k < lane->n_chunks; k++) {
        uint64_t at = r->done[k] * (lane->shared->n_slots + 1) + r->turn[k], further = at + (r->at[k] > 0);
        if (!psd_rounds_moves(lane, k))
            continue;
        *least = at < *least ? at : *least;
        *most = further > *most ? further : *most;
    }
}

/* Without rounds, new members start with the published clock. */
static void take_clocks(struct psd_rounds *r, const struct psd_members *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (index_of(&r->now, m->ranks[i]) < 0)
            r->clocks[m->ranks[i]].offset = m->from;
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
    if (r->clocks != NULL)
        take_clocks(r, m);
    if (r->clocks != NULL || r->states != NULL) {
        copy_members(&r->now, m);
        return;
    }
    copy_members(&r->next, m);
    r->has_next = true;
    drop_old_members(lane);
}

void psd_rounds_go(struct psd_lane *lane)
{
    if (lane->rounds == NULL)
        return;
    lane->rounds->held = false;
    psd_rounds_advance_all(lane);
}

void psd_rounds_close(struct psd_lane *lane)
{
    struct psd_rounds *r = lane->rounds;
    for (uint32_t i = 0; r != NULL && i < lane->shared->n_slots * r->window; i++) {
        struct psd_staged *s = &r->staged[i];
        const struct ps_frame *f = &s->arrival.frame;
        if (!s->used)
            continue;
        if (s->moved) { /* the answer waited for the member's next turn */
            psd_rounds_answer(lane, s);
            continue;
        }
        if (psd_lane_has_begun(lane->shared, f->client, psd_lane_track_of(lane, f), f->incarnation, f->seq))
            continue;
        psd_lane_refuse(lane, &s->arrival, PS__CODE__GENERATION,
                        "the method changes: of generation %u only exchanges that have begun are taken",
                        f->generation);
        psd_rounds_clear(lane, s);
    }
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
