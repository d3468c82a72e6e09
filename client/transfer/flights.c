/* The transfers in progress: which may be under way beside each other, and what becomes of them when the
 * method changes.
 *
 * Exchanges of fragments follow each other on the wire without waiting for answers, one on each track. A lane
 * gets their chunks in the order in which they began, within one window, so it has all chunks of an exchange
 * that it is sent before those of the next. They end in that order too. */
#include <string.h>

#include "client/internal.h"
#include "client/transfer/internal.h"

static uint32_t track_of(const struct psc_transfer_state *ts, const struct psc_transfer *t)
{
    return t->is_fragment ? t->fragment % ts->tracks : 0;
}

struct psc_flight *psc_flight_oldest(struct psc_transfer_state *ts)
{
    for (uint32_t i = 0; i < ts->n_flights; i++)
        if (!ts->flights[i].over)
            return &ts->flights[i];
    return NULL;
}

struct psc_flight *psc_flight_find(struct psc_transfer_state *ts, uint64_t seq)
{
    for (uint32_t i = 0; i < ts->n_flights; i++)
        if (ts->flights[i].seq == seq && !ts->flights[i].over && !ts->flights[i].unmarked)
            return &ts->flights[i];
    return NULL;
}

/* Pulls land nowhere, and have numbers of their own: psd and this library compare the numbers of what lands
 * within 32 bits, so those stay close to each other however much a worker reads. */
#define FIRST_PULL (UINT64_C(1) << 63)

/* A psd that was killed may come back with another method, and its checkpoint may have a part of the exchange
 * that was on its way. What the worker adds then, which includes the exchange, has the exchange's number, so
 * that the part does not land again. */
static uint64_t seq_of(struct psc_transfer_state *ts, const struct psc_transfer *t)
{
    uint64_t again = t->kind == PS_FRAME_ADD ? ts->again_seq : 0;
    if (t->kind == PS_FRAME_PULL)
        return FIRST_PULL + ts->n_pulls++;
    if (psc_transfer_moves(t) || t->kind == PS_FRAME_ADD || t->kind == PS_FRAME_SET)
        ts->again_seq = 0; /* lanes accept no older one any more */
    if (again == 0)
        ts->seq += (uint32_t)ts->seq == UINT32_MAX ? 2 : 1; /* landed_seq is never 0 */
    return again != 0 ? again : ts->seq;
}

void psc_flight_begin(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_flight *f = &ts->flights[ts->n_flights++];
    f->t = *t;
    f->seq = seq_of(ts, t);
    f->over = false;
    f->rc = PSC_OK;
    f->version = f->run = 0;
    f->rate = ts->counts.rate;
    f->error.text[0] = 0;
    memset(f->lanes, 0, sizeof f->lanes);
    psc_pieces_start(c, f);
}

bool psc_flight_has_ended(const struct psc *c, const struct psc_flight *f)
{
    return f->over || psc_pieces_are_answered(c, f);
}

/* Whether the transfer may be under way beside others. The stage of a device has room for one message. */
static bool may_share(const struct psc *c, const struct psc_transfer *t)
{
    return t->kind == PS_FRAME_EXCHANGE && t->is_fragment && t->in_background && t->name == NULL &&
           t->gate == NULL && !t->keeps_turn && !t->may_be_in_place && !t->restarts &&
           c->memory.device == NULL;
}

/* Whether it may begin now. In rounds the first fragment of a cycle waits for those of the cycle before, so
 * that chunks are at most one round apart. */
static bool fits(const struct psc *c, const struct psc_transfer *t)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_flight *last = &ts->flights[ts->n_flights - 1];
    if (!may_share(c, t) || t->generation != ts->welcome.generation ||
        (psc_among_members(c) && t->fragment <= last->t.fragment))
        return false;
    for (uint32_t i = 0; i < ts->n_flights; i++)
        if (ts->flights[i].over || track_of(ts, &ts->flights[i].t) == track_of(ts, t))
            return false;
    return true;
}

void psc_flights_join(struct psc *c, const struct psc_followers *followers)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_transfer *t;
    bool may = followers != NULL && ts->n_flights > 0 && !ts->one_by_one && !ts->swapped &&
               !ts->links.leaving && may_share(c, &ts->flights[0].t);
    while (may && ts->n_flights < ts->tracks && (t = followers->next(c)) != NULL && fits(c, t))
        psc_flight_begin(c, t);
}

/* Publishes the transfers' counters for psc_info. */
static void publish(struct psc *c)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    s->counts = c->transfer_state.counts;
    if (c->transfer_state.again_seq == 0 && c->transfer_state.flights[0].seq < FIRST_PULL)
        s->ended = c->transfer_state.flights[0].seq; /* they end in their order */
    for (uint32_t i = 0; i < c->transfer_state.shard.n_parts; i++)
        if (c->transfer_state.part_versions[i] != 0)
            s->versions[i] = c->transfer_state.part_versions[i];
    if (s->counts.center_version > s->center_version)
        s->center_version = s->counts.center_version;
    if (c->transfer_state.save_version != 0)
        s->save_version = c->transfer_state.save_version;
    c->transfer_state.save_version = 0;
    pthread_mutex_unlock(&s->lock);
}

static void settle_oldest(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (ts->flights[0].rc == PSC_OK && ts->flights[0].t.lands_at_end)
        psc_pieces_land(c, &ts->flights[0]);
    ts->counts.exchanges += ts->flights[0].rc == PSC_OK && psc_transfer_moves(&ts->flights[0].t);
    publish(c);
}

void psc_flights_retire(struct psc *c, const struct psc_followers *followers, int rc)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    while (true) {
        struct psc_flight *f = &ts->flights[0];
        if (!f->over && f->unmarked && rc == PSC_OK)
            psc_pieces_start(c, f);
        if (!psc_flight_has_ended(c, f)) {
            if (rc == PSC_OK)
                return;
            f->rc = rc;
            f->error = ts->error;
        }
        if (ts->n_flights == 1)
            return;
        settle_oldest(c);
        followers->ended(c, f);
        memmove(ts->flights, ts->flights + 1, --ts->n_flights * sizeof *ts->flights);
    }
}

void psc_flights_end(struct psc *c, const struct psc_followers *followers)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    settle_oldest(c);
    struct psc_flight last = ts->flights[0];
    ts->n_flights = 0;
    atomic_store_explicit(&c->session.shared.under_way, ts->lost_piece, memory_order_release);
    if (followers != NULL)
        followers->ended(c, &last);
}

int psc_flights_prepare(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    bool same_map = ts->shard.n_lanes == ts->welcome.n_lanes;
    if (!same_map)
        psc_links_close(c); /* of the old lanes */
    int rc = same_map ? psc_wire_prepare(c, &ts->error) : psc_lanes_prepare(c, &ts->error);
    ts->swapped = rc != PSC_OK;
    ts->tracks = ts->welcome.tracks;
    ts->refused = false;
    return rc;
}

/* All chunks of an exchange belong to one method, so it has landed either whole or not at all. */
bool psc_flight_has_landed(const struct psc_transfer_state *ts, const struct psc_flight *f)
{
    uint64_t newest = ts->landed_seq[track_of(ts, &f->t)];
    uint32_t behind = (uint32_t)f->seq - (uint32_t)newest; /* of 32 bits */
    return f->t.kind != PS_FRAME_PULL && newest != 0 && (int32_t)behind <= 0;
}

/* The rest of an exchange that has landed is pulled. One that was made for the new method already, and
 * transfers that no rule applies, start again. With another lane map the pieces are other ones, which several
 * flights may share: each is marked when those before it are over. */
static void adapt(struct psc *c, struct psc_flight *f, bool landed, bool same_map)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (!landed && psc_transfer_moves(&f->t)) {
        if (f->t.generation == ts->welcome.generation) /* else psc_flights_check ends it */
            psc_pieces_start(c, f);
        return;
    }
    if (landed) {
        f->t.kind = PS_FRAME_PULL;
        f->t.send = NULL;
        f->cover = psc_cover_of(c, &f->t);
    }
    f->unmarked = !landed || !same_map;
    if (f->unmarked && psc_flight_oldest(ts) == f)
        psc_pieces_start(c, f);
    for (uint32_t i = 0; i < ts->welcome.n_lanes && landed && f->t.landed == NULL; i++)
        f->lanes[i].n_left = 0; /* it asked for no answer */
}

/* Whether a checkpoint may have a part of the exchange, which the next ADD includes. With another lane map
 * psd has forgotten it. */
static bool may_be_cut(const struct psc_transfer_state *ts, const struct psc_flight *f)
{
    return ts->cut && !f->over && f->t.is_owed && !f->t.is_fragment &&
           f->t.generation != ts->welcome.generation;
}

int psc_flights_take_swap(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    bool same_map = ts->shard.n_lanes == ts->welcome.n_lanes, landed[PS_MAX_TRACKS] = {false};
    for (uint32_t i = 0; i < ts->n_flights; i++) {
        struct psc_flight *f = &ts->flights[i];
        landed[i] = !f->over && psc_flight_has_landed(ts, f);
        if (landed[i] && psc_transfer_moves(&f->t))
            psc_wire_landed_whole(c, f);
        if (!landed[i] && same_map && may_be_cut(ts, f))
            ts->again_seq = f->seq;
    }
    int rc = psc_flights_prepare(c);
    ts->one_by_one = true;
    for (uint32_t i = 0; i < ts->n_flights && rc == PSC_OK; i++)
        if (!ts->flights[i].over)
            adapt(c, &ts->flights[i], landed[i], same_map);
    return rc;
}

int psc_flights_check(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->n_flights; i++) {
        struct psc_flight *f = &ts->flights[i];
        if (f->over || !psc_transfer_moves(&f->t) || f->t.generation == ts->welcome.generation)
            continue;
        f->over = true;
        f->rc = ps_fail(&ts->error, PSC_METHOD_CHANGED,
                        "the method has changed to '%s': nothing of this transfer has landed",
                        ts->welcome.method);
        f->error = ts->error;
    }
    return psc_flight_oldest(ts) != NULL ? PSC_OK : PSC_METHOD_CHANGED;
}
