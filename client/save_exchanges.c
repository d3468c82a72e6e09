/* The exchanges that are under way when a worker's state is saved, and what becomes of them when it is
 * loaded. */
#include "client/save_exchanges.h"

#include <stdlib.h>

#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/model/fragment.h"

/* Whether its answer is there and lands in a later step. */
static bool waits_to_land(const struct psc_prefetch *a)
{
    return a->started ? a->outcome.rc == PSC_OK && !a->unwanted : a->landed;
}

/* The sum of a step that has failed with its clique: the state is that of the step before. */
static void drop_unmade(struct psc *c)
{
    struct psc_group *p = &c->group;
    while (psc_sums(p) > 0 && psc_sum_newest(p)->rc != PSC_OK &&
           psc_sum_newest(p)->clock == c->worker.clock) {
        p->sums_begun--;
        p->sums_landed--;
    }
}

int psc_exchanges_gather(struct psc *c)
{
    const uint64_t formed = c->group.losses.formed;
    int rc = PSC_OK;
    if (c->rule->gather == NULL)
        return PSC_OK;
    do
        rc = c->rule->gather(c); /* a vector that is not finite is not saved */
    while (rc != PSC_OK && psc_sum_is_pending(&c->group));
    /* Others may have the sums that are dropped here, and saved them. A file does not say exchange_made. */
    if (c->group.losses.formed != formed || c->group.losses.exchange_made)
        return ps_fail(&c->error, PSC_ECLIQUE,
                       "the clique has lost members while it waited for sums in progress, which are dropped: "
                       "the state would not be of the same point as those of the other members");
    if (rc == PSC_ECLIQUE && c->rule->begin == NULL)
        return rc;
    drop_unmade(c);
    c->error.text[0] = 0;
    return psc_sums_check(c);
}

bool psc_exchanges_wait(struct psc *c)
{
    bool any = false;
    if (c->rule->begin != NULL)
        return psc_sums(&c->group) > 0;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        const struct psc_prefetch *a = &c->worker.prefetch[i];
        if (a->started)
            psc_async_await(c, a->ticket);
        if (psc_prefetch_is_unsent(c, a))
            psc_take_back(c);
    }
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        any = any || waits_to_land(&c->worker.prefetch[i]);
    return any;
}

void psc_exchanges_describe(const struct psc *c, struct psc_state_head *h)
{
    const struct psc_prefetch *a = c->worker.prefetch;
    if (c->rule->again == NULL || c->worker.vectors[PSC_VECTOR_MESSAGE] == NULL ||
        (c->rule->lands_in_x && !a->deferred))
        return;
    h->flags |= PSC_STATE_MESSAGE;
    h->flags |= (h->flags & PSC_STATE_ERROR) != 0 && c->worker.vectors[PSC_VECTOR_SENT_ERROR] != NULL
                    ? PSC_STATE_SENT_ERROR
                    : 0;
    for (uint32_t i = 0; psc_pacing_fragments(c) > 1 && i < c->worker.n_prefetches; i++)
        h->n_under_way += waits_to_land(&a[i]);
    if (h->n_under_way > 0) {
        h->rate = 0;
        return;
    }
    h->first = a->first;
    h->answer_version = a->outcome.version;
    h->samples = a->samples;
    h->run = a->outcome.run;
}

static bool rounds_are_versions(const struct psc *c)
{
    const struct ps_admission_info *a = ps_admission_find(c->transfer_state.welcome.admission);
    return a != NULL && a->merges;
}

/* How many of the fragments from `begin` to `end` have values that move. Others are not exchanged. */
static uint32_t n_moving(const struct psc *c, uint32_t begin, uint32_t end)
{
    uint32_t n = psc_pacing_fragments(c), moving = 0;
    if (n == 1)
        return end - begin;
    for (uint32_t i = begin; i < end; i++)
        moving += !ps_manifest_is_frozen(c->manifest, ps_fragment(&c->shard, c->manifest, n, i));
    return moving;
}

/* The newest cycle of a worker whose next fragment is given: the first of its fragments have begun, at least
 * one that moves. */
struct cycle {
    uint32_t end;   /* behind the last that has begun */
    uint32_t begun; /* those that move */
    bool whole;     /* none that moves is left */
};

static struct cycle newest_cycle(const struct psc *c, uint32_t next)
{
    uint32_t n = psc_pacing_fragments(c), end = n_moving(c, 0, next) > 0 ? next : n;
    return (struct cycle){end, n_moving(c, 0, end), n_moving(c, end, n) == 0};
}

uint64_t psc_exchanges_center(const struct psc *c, uint64_t newest)
{
    struct cycle cycle = newest_cycle(c, c->worker.pacing.fragment);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        n += waits_to_land(&c->worker.prefetch[i]) && c->worker.prefetch[i].outcome.version == newest;
    if (newest == 0 || !rounds_are_versions(c) || n < cycle.begun)
        return newest;
    bool asked = c->worker.save_version > 0 && c->worker.save_version + 1 == newest;
    return !cycle.whole || asked ? newest - 1 : newest;
}

/* The place of fragment i's exchange in the order in which they began. */
static uint32_t place_of(const struct psc *c, uint32_t i)
{
    const struct psc_prefetch *a = c->worker.prefetch;
    uint32_t before = 0;
    for (uint32_t k = 0; k < c->worker.n_prefetches; k++)
        before += waits_to_land(&a[k]) && a[k].first < a[i].first;
    return before;
}

bool psc_exchanges_table(const struct psc *c, const struct psc_state_head *h, unsigned char **out)
{
    *out = NULL;
    if (h->n_under_way == 0)
        return true;
    if ((*out = calloc(h->n_under_way, psc_state_exchange_bytes(h))) == NULL)
        return false;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        const struct psc_prefetch *a = &c->worker.prefetch[i];
        if (waits_to_land(a))
            psc_state_pack_exchange(h,
                                    &(struct psc_state_exchange){.first = a->first,
                                                                 .answer_version = a->outcome.version,
                                                                 .samples = a->samples,
                                                                 .fragment = a->fragment,
                                                                 .rate = a->outcome.rate,
                                                                 .run = a->outcome.run},
                                    *out + place_of(c, i) * psc_state_exchange_bytes(h));
    }
    return true;
}

/* Exchange k of those that were under way, in the order in which they began. */
static struct psc_state_exchange exchange_of(const struct psc_state_head *h, const struct psc_state_parts *p,
                                             uint32_t k)
{
    uint32_t n = psc_state_fragments(h);
    struct psc_state_exchange e = {.first = (h->flags & PSC_STATE_MESSAGE) != 0 ? h->first : h->clock,
                                   .answer_version = h->answer_version,
                                   .samples = h->samples,
                                   .fragment = (h->fragment + n - 1) % n,
                                   .rate = h->rate,
                                   .run = h->run};
    if (h->n_under_way > 0) /* psc_state_decode has checked it */
        psc_state_parse_exchange(h, &e, p->under_way + k * psc_state_exchange_bytes(h), NULL);
    return e;
}

static uint32_t n_under_way(const struct psc *c, const struct psc_state_head *h)
{
    bool landed = c->rule->begin == NULL && (h->flags & PSC_STATE_LANDED) != 0;
    return h->n_under_way > 0 ? h->n_under_way : landed;
}

/* Whether the server's center is without the exchange whose message the file has. The center of the run that
 * answered has it; that of a later run has what it began with. Where a run is not known, as before format
 * version 9, the center's version now decides: it may be that of others' exchanges. */
static bool server_lacks(struct psc *c, const struct psc_state_head *h, const struct psc_state_exchange *e)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    bool told = e->run != 0 && s->welcome.run != 0, went_on = told && e->run == s->welcome.run;
    uint64_t since = told ? s->welcome.resumed_version : s->center_version;
    pthread_mutex_unlock(&s->lock);
    return (h->flags & PSC_STATE_MESSAGE) != 0 && !went_on && since < e->answer_version;
}

/* A member of a job with rounds joins like a new worker: its first exchange is of the first fragment. So it
 * is where the worker stopped if the newest cycle is whole, or the server lacks all that has begun of it. */
static bool begins_a_cycle(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p)
{
    struct cycle cycle = newest_cycle(c, h->fragment);
    uint32_t lacked = 0;
    for (uint32_t k = 0; k < n_under_way(c, h); k++) {
        struct psc_state_exchange e = exchange_of(h, p, k);
        if (!server_lacks(c, h, &e))
            continue;
        if (e.fragment >= cycle.end)
            return false;
        lacked++;
    }
    return lacked == cycle.begun || (cycle.whole && lacked == 0);
}

/* Restores the position in the period. Elsewhere than at the begin of a cycle a member begins with the first
 * fragment; the unsent part of the others is still in x - start. Returns whether it has the file's position.
 */
static bool take_tempo(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p)
{
    uint32_t n = psc_pacing_fragments(c);
    psc_pacing_restart(c);
    c->worker.pacing.period = /* the method may have a shorter one now */
        h->period < c->worker.hyper.period ? h->period : c->worker.hyper.period;
    if (psc_state_fragments(h) != n || (n > 1 && psc_among_members(c) && !begins_a_cycle(c, h, p)))
        return false;
    c->worker.pacing.since = h->version > PSC_STATE_OLDEST ? h->since : h->clock % c->worker.hyper.period;
    c->worker.pacing.fragment = h->fragment;
    return true;
}

/* An exchange that was under way. It lands in its step; a server that lacks it gets it first, unless it is
 * sent with later steps, as take_tempo says. */
static void restore_exchange(struct psc *c, const struct psc_state_head *h,
                             const struct psc_state_exchange *e, bool again)
{
    struct psc_prefetch *a = &c->worker.prefetch[e->fragment];
    bool has_message = (h->flags & PSC_STATE_MESSAGE) != 0;
    uint32_t n = psc_pacing_fragments(c);
    a->landed = true;
    a->outcome = (struct psc_outcome){.rate = e->rate, .version = e->answer_version, .run = e->run};
    a->deferred = has_message && (c->rule->lands_in_x || psc_overlap_defers(c));
    a->first = e->first;
    a->samples = e->samples;
    a->fragment = e->fragment;
    a->part = n > 1 ? ps_fragment(&c->shard, c->manifest, n, e->fragment) : ps_shard_whole(&c->shard);
    if (!server_lacks(c, h, e))
        return;
    a->landed = false;
    a->goes_again = again;
    if (!again)
        psc_prefetch_take_back(c, a);
}

/* The chunks of what is known of the center from answers that are moves (psc_wire.known). */
uint32_t psc_known_chunks(const struct psc *c)
{
    const struct ps_shard *shard = &c->transfer_state.shard;
    uint32_t n = 0;
    for (uint32_t i = 0; i < shard->n_lanes; i++)
        n += ps_shard_n_chunks(shard, i);
    return n;
}

static bool has_bit(const uint64_t *bits, uint32_t k)
{
    return (bits[k / 64] >> (k % 64) & 1) != 0;
}

bool psc_known_describe(const struct psc *c, unsigned char **out)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    size_t n = 0;
    if ((*out = malloc(psc_known_chunks(c))) == NULL)
        return false;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&ts->shard, i); k++)
            (*out)[n++] = (unsigned char)((has_bit(ts->progress[i].based, k) ? PSC_STATE_IS_KNOWN : 0) |
                                          (has_bit(ts->progress[i].says_based, k) ? PSC_STATE_WAS_KNOWN : 0));
    return true;
}

static void set_known(struct psc_transfer_state *ts, uint32_t lane, uint32_t k, bool known)
{
    const uint64_t bit = UINT64_C(1) << (k % 64);
    uint64_t *word = &ts->progress[lane].based[k / 64];
    *word = known ? *word | bit : *word & ~bit;
}

/* Whether the chunk's message is to be sent again: it is what it was before. */
static bool goes_again(const struct psc *c, struct ps_range chunk)
{
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        const struct psc_prefetch *a = &c->worker.prefetch[i];
        if (a->goes_again && ps_range_intersect(chunk, a->part).count > 0)
            return true;
    }
    return false;
}

static void restore_chunk(struct psc *c, const struct psc_state_parts *p, uint32_t lane, uint32_t k,
                          unsigned char bits)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct ps_range chunk = ps_shard_chunk(&ts->shard, lane, k);
    bool again = goes_again(c, chunk), known = (bits & PSC_STATE_IS_KNOWN) != 0;
    const unsigned char *from = p->known;
    if (again) {
        known = p->sent_known != NULL && (bits & PSC_STATE_WAS_KNOWN) != 0;
        from = p->sent_known;
    }
    if (known) /* else the server answers with the whole center */
        known = psc_vector_write(c, ts->wire.known + chunk.begin,
                                 (const void *)(from + chunk.begin * sizeof(float)), chunk.count) == PSC_OK;
    set_known(ts, lane, k, known);
}

/* A server that does not learn of it answers with the whole center, as to a worker that is new. */
static void tell_known(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_transfer t = {.kind = PS_FRAME_KNOWN, .send = ts->wire.known, .clock = c->worker.clock};
    if (ts->welcome.takes_known && psc_move(c, &t) == PSC_OK)
        return;
    c->error.text[0] = 0;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&ts->shard, i); k++)
            set_known(ts, i, k, false);
}

static void restore_known(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const unsigned char *bits = p->chunks;
    if (p->known == NULL || ts->wire.known == NULL || h->chunks != psc_known_chunks(c))
        return;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&ts->shard, i); k++)
            restore_chunk(c, p, i, k, *bits++);
    tell_known(c);
}

void psc_exchanges_restore(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p)
{
    bool again = take_tempo(c, h, p);
    for (uint32_t k = 0; k < n_under_way(c, h); k++) {
        struct psc_state_exchange e = exchange_of(h, p, k);
        restore_exchange(c, h, &e, again);
    }
    restore_known(c, h, p);
    for (uint32_t k = 0; k < n_under_way(c, h); k++) {
        struct psc_state_exchange e = exchange_of(h, p, k);
        struct psc_prefetch *a = &c->worker.prefetch[e.fragment];
        if (a->goes_again)
            psc_prefetch_again(c, a);
        a->goes_again = false;
    }
}
