/* The exchanges that are under way while the caller computes: when they land.
 *
 * With a fixed overlap one lands in the same step whatever its answer took, so that a run depends on seed and
 * ranks alone. One that has failed is told at once. */
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "client/team/team.h"
#include "client/worker/worker.h"

bool psc_overlap_defers(const struct psc *c)
{
    return c->worker.hyper.overlap > 1 && c->rule->defers;
}

bool psc_has_prefetch(const struct psc *c)
{
    return c->worker.prefetch->started && c->rule->lands_in_x && !c->worker.prefetch->deferred;
}

bool psc_prefetch_make(struct psc *c, uint32_t n)
{
    struct psc_worker *w = &c->worker;
    if (n <= w->n_prefetches)
        return true;
    if (c->async.runs) /* transfers write to their outcomes */
        psc_async_await(c, c->async.issued);
    struct psc_prefetch *more = realloc(w->prefetch, n * sizeof *more);
    if (more == NULL)
        return false;
    w->prefetch = more;
    while (w->n_prefetches < n)
        more[w->n_prefetches++] = (struct psc_prefetch){.first = PSC_NO_STEP};
    return true;
}

void psc_prefetch_forgive(struct psc *c)
{
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        if (c->worker.prefetch[i].started)
            return;
    psc_async_take_fragments(c);
}

struct part_copy {
    const struct psc *c;
    float *to;
    const float *from;
};

static void copy_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct part_copy *k = arg;
    psc_copy(&k->c->work, k->to + begin, k->from + begin, count);
}

static void copy_part(const struct psc *c, float *to, const float *from, struct ps_range part)
{
    struct part_copy k = {c, to + part.begin, from + part.begin};
    psc_team_run(c->team, part.count, copy_piece, &k);
}

/* For psc_prefetch_again. Transfers that the caller started before may still change the error feedback;
 * exchanges that are under way are of other values. */
static void keep_error(struct psc *c, struct ps_range part)
{
    const float *error = c->worker.vectors[PSC_VECTOR_ERROR];
    float *sent = c->worker.vectors[PSC_VECTOR_SENT_ERROR];
    if (error == NULL || sent == NULL)
        return;
    psc_async_await(c, c->worker.last_of_caller);
    copy_part(c, sent, error, part);
}

static void start(struct psc *c, struct psc_prefetch *a, const struct psc_transfer *t)
{
    atomic_store_explicit(&c->transfer_state.awaited, false, memory_order_relaxed);
    a->ticket = c->worker.last_prefetch = psc_async_put(c, t, &a->outcome);
    a->started = true;
    a->landed = false;
}

void psc_prefetch_exchange(struct psc *c, const struct psc_transfer *t, uint64_t first, bool deferred)
{
    uint32_t fragment = t->is_fragment ? t->fragment : 0;
    struct psc_prefetch *a = &c->worker.prefetch[fragment];
    if (c->async.issued != c->worker.last_prefetch)
        c->worker.last_of_caller = c->async.issued;
    a->fragment = fragment;
    a->part = t->is_fragment ? t->part : ps_shard_whole(&c->shard);
    keep_error(c, a->part);
    psc_prefetch_forgive(c);
    a->deferred = deferred;
    a->first = first;
    a->samples = t->samples;
    start(c, a, t);
}

/* The error feedback is again as it was when the message began. */
static void restore_error(struct psc *c, const struct psc_prefetch *a)
{
    float *error = c->worker.vectors[PSC_VECTOR_ERROR];
    const float *sent = c->worker.vectors[PSC_VECTOR_SENT_ERROR];
    if (error != NULL && sent != NULL)
        copy_part(c, error, sent, a->part);
}

void psc_prefetch_again(struct psc *c, struct psc_prefetch *a)
{
    struct psc_transfer t = c->rule->again(c, a);
    restore_error(c, a);
    start(c, a, &t);
}

bool psc_prefetch_is_unsent(const struct psc *c, const struct psc_prefetch *a)
{
    bool refused = a->outcome.rc == PSC_METHOD_CHANGED && c->rule->take_back != NULL;
    return a->started && (a->outcome.rc == PSC_ABORTED || refused);
}

/* What encoding has lost of the message is unsent with it. */
void psc_prefetch_take_back(struct psc *c, const struct psc_prefetch *a)
{
    if (c->rule->take_back == NULL)
        return;
    restore_error(c, a);
    c->rule->take_back(c, a);
}

/* Whether the transfer has ended; *failed: badly. */
static bool is_over(struct psc *c, const struct psc_prefetch *a, bool *failed)
{
    *failed = false;
    if (!a->started)
        return a->landed;
    pthread_mutex_lock(&c->async.lock);
    bool over = c->async.finished >= a->ticket;
    *failed = over && a->outcome.rc != PSC_OK;
    pthread_mutex_unlock(&c->async.lock);
    return over;
}

static bool is_last_step_for_it(const struct psc *c, const struct psc_prefetch *a)
{
    uint32_t n = c->worker.hyper.overlap;
    bool fixed = n != PS_OVERLAP_AUTO;
    return !a->deferred || (fixed && c->worker.clock + 1 >= a->first + n) || c->rule->begins_next(c, a->part);
}

bool psc_prefetch_is_due(struct psc *c, struct psc_prefetch *a)
{
    bool failed, over;
    if (!a->started && !a->landed)
        return false;
    if (is_last_step_for_it(c, a))
        return true;
    over = is_over(c, a, &failed);
    return failed || (over && c->worker.hyper.overlap == PS_OVERLAP_AUTO);
}

bool psc_prefetch_lands(struct psc *c, struct psc_prefetch *a)
{
    return a->landed && psc_prefetch_is_due(c, a);
}
