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

bool psc_exchanges_wait(struct psc *c)
{
    bool any = false;
    if (c->rule->gather != NULL)
        c->rule->gather(c); /* a vector that is not finite is not saved */
    if (c->rule->begin != NULL)
        return psc_sums(&c->group) > 0;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        const struct psc_prefetch *a = &c->worker.prefetch[i];
        if (a->started)
            psc_async_await(c, a->ticket);
        if (a->started && a->outcome.rc == PSC_ABORTED)
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
    if ((*out = calloc(h->n_under_way, PSC_STATE_EXCHANGE_BYTES)) == NULL)
        return false;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        const struct psc_prefetch *a = &c->worker.prefetch[i];
        if (waits_to_land(a))
            psc_state_pack_exchange(&(struct psc_state_exchange){.first = a->first,
                                                                 .answer_version = a->outcome.version,
                                                                 .samples = a->samples,
                                                                 .fragment = a->fragment,
                                                                 .rate = a->outcome.rate},
                                    *out + place_of(c, i) * (size_t)PSC_STATE_EXCHANGE_BYTES);
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
                                   .rate = h->rate};
    if (h->n_under_way > 0) /* psc_state_decode has checked it */
        psc_state_parse_exchange(h, &e, p->under_way + k * (size_t)PSC_STATE_EXCHANGE_BYTES, NULL);
    return e;
}

static uint32_t n_under_way(const struct psc *c, const struct psc_state_head *h)
{
    bool landed = c->rule->begin == NULL && (h->flags & PSC_STATE_LANDED) != 0;
    return h->n_under_way > 0 ? h->n_under_way : landed;
}

/* Whether the server's center is from before the exchange whose message the file has. */
static bool server_lacks(struct psc *c, const struct psc_state_head *h, const struct psc_state_exchange *e)
{
    pthread_mutex_lock(&c->session.shared.lock);
    bool lacks = (h->flags & PSC_STATE_MESSAGE) != 0 && c->session.shared.center_version < e->answer_version;
    pthread_mutex_unlock(&c->session.shared.lock);
    return lacks;
}

/* Restores the position in the period. A member of a job with rounds joins like a new worker and begins with
 * the first fragment; the unsent part of the others is still in x - start. Returns whether it has the file's
 * position. */
static bool take_tempo(struct psc *c, const struct psc_state_head *h)
{
    uint32_t n = psc_pacing_fragments(c);
    psc_pacing_restart(c);
    c->worker.pacing.period = h->period;
    if (psc_state_fragments(h) != n || (n > 1 && psc_among_members(c)))
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
    a->outcome = (struct psc_outcome){.rate = e->rate, .version = e->answer_version};
    a->deferred = has_message && (c->rule->lands_in_x || psc_overlap_defers(c));
    a->first = e->first;
    a->samples = e->samples;
    a->fragment = e->fragment;
    a->part = n > 1 ? ps_fragment(&c->shard, c->manifest, n, e->fragment) : ps_shard_whole(&c->shard);
    if (!server_lacks(c, h, e))
        return;
    a->landed = false;
    if (again)
        psc_prefetch_again(c, a);
    else
        c->rule->take_back(c, a);
}

void psc_exchanges_restore(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p)
{
    bool again = take_tempo(c, h);
    for (uint32_t k = 0; k < n_under_way(c, h); k++) {
        struct psc_state_exchange e = exchange_of(h, p, k);
        restore_exchange(c, h, &e, again);
    }
}
