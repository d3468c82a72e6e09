/* Rules that take gradients: the worker sends g at every step and continues from the center in the answer.
 * With overlap the next step applies the answer: the next gradient is taken at a point that does not include
 * it. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

static void take_over(struct psc *c, float *x, struct psc_prefetch *a)
{
    psc_copy_moved(c, psc_own_x(c, x), c->worker.vectors[PSC_VECTOR_PREFETCHED]);
    a->landed = false;
    c->pulled = true;
    psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
}

/* The same step where the gradient has left as it became ready: the answer waits in a vector of its own. */
static int end_early(struct psc *c, float *x, const float *g)
{
    float *own = psc_own_x(c, x);
    psc_own_step(c, x, g);
    int rc = psc_early_finish(c);
    if (rc != PSC_OK)
        return rc;
    psc_copy_moved(c, own, c->worker.vectors[PSC_VECTOR_ANSWER]);
    psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
    c->worker.clock++;
    return PSC_OK;
}

/* The worker's own step first, then the message, at the rate of the step that it belongs to. */
static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    if (c->worker.open.early.begun)
        return end_early(c, x, g);
    int rc;
    float *own = psc_own_x(c, x);
    bool watched = psc_gradient_needs_room(c) &&
                   psc_watch(c, c->worker.vectors[PSC_VECTOR_GRADIENT], ps_shard_whole(&c->shard));
    const float *message = psc_gradient_to_send(c, x, g);
    psc_own_step(c, x, g);
    if (c->worker.prefetch->landed)
        take_over(c, x, c->worker.prefetch);
    struct psc_transfer t = psc_exchange_of(
        c, message, c->worker.hyper.overlap > 0 ? c->worker.vectors[PSC_VECTOR_PREFETCHED] : own, n_samples);
    t.landed = psc_land_moved;
    t.watched = watched;
    if (c->worker.hyper.overlap == 0) {
        if ((rc = psc_move(c, &t)) == PSC_OK)
            psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
    } else if ((rc = psc_transfer_check(c, &t, &c->error)) == PSC_OK) {
        t.name = NULL;
        t.watched = false;
        t.is_owed = true;
        psc_prefetch_exchange(c, &t, c->worker.clock + 1, false);
    }
    if (rc == PSC_OK)
        c->worker.clock++;
    return rc;
}

/* The gradient that was in flight, as the addition that plain sgd would have made of it. */
static float *unsent(struct psc *c, float *x)
{
    float *message = c->worker.vectors[PSC_VECTOR_GRADIENT];
    float eta = (float)ps_schedule_rate(&c->worker.hyper.schedule, c->worker.hyper.learning_rate,
                                        c->worker.clock - 1);
    (void)x;
    if (!c->worker.prefetch->lost)
        return NULL;
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        if (c->manifest->segments[i].role == PS_ROLE_PARAM)
            psc_scale(&c->work, message + c->manifest->segments[i].range.begin,
                      -psc_eta_of(&c->manifest->segments[i], eta), c->manifest->segments[i].range.count);
    psc_passes_end(&c->work);
    return message;
}

const struct psc_rule psc_rule_gradient = {.sends_gradient = true,
                                           .overlaps = true,
                                           .staler = true,
                                           .finishes = true,
                                           .step = step,
                                           .take_over = take_over,
                                           .unsent = unsent};
