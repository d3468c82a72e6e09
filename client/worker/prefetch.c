/* The exchange that is under way while the caller computes: when it lands.
 *
 * With a fixed overlap it lands in the same step whatever its answer took, so that a run depends on seed and
 * ranks alone. One that has failed is told at once. */
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"

bool psc_overlap_defers(const struct psc *c)
{
    return c->worker.hyper.overlap > 1 && c->rule->defers;
}

bool psc_has_prefetch(const struct psc *c)
{
    return c->worker.prefetch.started && c->rule->lands_in_x && !c->worker.prefetch.deferred;
}

/* For psc_prefetch_again. Transfers that the caller started before may still change the error feedback. */
static void keep_error(struct psc *c)
{
    const float *error = c->worker.vectors[PSC_VECTOR_ERROR];
    float *sent = c->worker.vectors[PSC_VECTOR_SENT_ERROR];
    if (error == NULL || sent == NULL)
        return;
    psc_async_await(c, c->async.issued);
    memcpy(sent, error, c->shard.n_floats * sizeof *sent);
}

static void start(struct psc *c, const struct psc_transfer *t)
{
    struct psc_prefetch *a = &c->worker.prefetch;
    atomic_store_explicit(&c->transfer_state.awaited, false, memory_order_relaxed);
    a->ticket = psc_async_put(c, t, &a->outcome);
    a->started = true;
    a->landed = false;
}

void psc_prefetch_exchange(struct psc *c, const struct psc_transfer *t, uint64_t first, bool deferred)
{
    struct psc_prefetch *a = &c->worker.prefetch;
    keep_error(c);
    a->deferred = deferred;
    a->first = first;
    a->samples = t->samples;
    start(c, t);
}

void psc_prefetch_again(struct psc *c)
{
    struct psc_transfer t = c->rule->again(c);
    float *error = c->worker.vectors[PSC_VECTOR_ERROR];
    const float *sent = c->worker.vectors[PSC_VECTOR_SENT_ERROR];
    if (error != NULL && sent != NULL)
        memcpy(error, sent, c->shard.n_floats * sizeof *error);
    start(c, &t);
}

/* Whether the transfer has ended; *failed: badly. */
static bool is_over(struct psc *c, bool *failed)
{
    const struct psc_prefetch *a = &c->worker.prefetch;
    *failed = false;
    if (!a->started)
        return a->landed;
    pthread_mutex_lock(&c->async.lock);
    bool over = c->async.finished >= a->ticket;
    *failed = over && a->outcome.rc != PSC_OK;
    pthread_mutex_unlock(&c->async.lock);
    return over;
}

static bool is_last_step_for_it(const struct psc *c)
{
    const struct psc_prefetch *a = &c->worker.prefetch;
    uint32_t n = c->worker.hyper.overlap;
    bool fixed = n != PS_OVERLAP_AUTO;
    return !a->deferred || (fixed && c->worker.clock + 1 >= a->first + n) || c->rule->begins_next(c);
}

bool psc_prefetch_is_due(struct psc *c)
{
    const struct psc_prefetch *a = &c->worker.prefetch;
    bool failed, over;
    if (!a->started && !a->landed)
        return false;
    if (is_last_step_for_it(c))
        return true;
    over = is_over(c, &failed);
    return failed || (over && c->worker.hyper.overlap == PS_OVERLAP_AUTO);
}

bool psc_prefetch_lands(struct psc *c)
{
    return c->worker.prefetch.landed && psc_prefetch_is_due(c);
}
