/* Sync EASGD where the workers are one clique (You et al. 2017, eq. 1-2): each member has an x of its own and
 * the same copy of the center, and one sum moves all of them:
 *
 *     d_i = x_i - center;  x_i <- x_i - alpha d_i;  center <- center + alpha sum_i d_i
 *
 * every `period` steps; the sum is the same bits at every member, and so is the center. The server only keeps
 * copies of it.
 *
 * With overlap the sum of a step starts at the end of the step before, and travels while the gradient is
 * computed (their Sync EASGD3): x is the same then, so the result is the same, bit for bit. Buffers, which
 * the caller changes meanwhile, are summed as they were before. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

static bool exchange_is_due(const struct psc *c)
{
    return c->worker.clock % c->worker.hyper.period == 0;
}

/* d is 0 at frozen values, and stays so. */
static void subtract(const struct psc *c, float *d, const float *own)
{
    const float *center = c->worker.vectors[PSC_VECTOR_START];
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role == PS_ROLE_FROZEN)
            psc_zero(&c->work, d + at, s->range.count);
        else
            psc_subtract(&c->work, d + at, own + at, center + at, s->range.count);
    }
    psc_passes_end(&c->work);
}

static int start(struct psc *c, float *x, float *own, size_t n_samples)
{
    float *d = c->worker.vectors[PSC_VECTOR_PREFETCHED];
    if (own != x)
        psc_copy_buffers(c, own, x);
    subtract(c, d, own);
    return psc_sum_start(c, d, n_samples);
}

/* Waits for the sum, which the next step applies. */
static int gather_sum(struct psc *c, float *x)
{
    (void)x;
    if (!psc_sum_is_pending(&c->group))
        return PSC_OK;
    int rc = psc_sum_finish(c);
    c->worker.prefetch->landed = rc == PSC_OK;
    return rc;
}

static int gather(struct psc *c)
{
    return psc_losses_retry(c, c->worker.caller_x, gather_sum);
}

/* What is not frozen of y <- f(y, by, alpha). */
static void move(const struct psc *c, float *y, const float *by,
                 void (*f)(const struct psc_work *w, float *y, const float *by, float a, size_t n))
{
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role != PS_ROLE_FROZEN)
            f(&c->work, y + at, by + at, (float)c->worker.hyper.alpha, s->range.count);
    }
    psc_passes_end(&c->work);
}

static void apply(struct psc *c, float *x, float *own)
{
    float *center = c->worker.vectors[PSC_VECTOR_START];
    c->worker.prefetch->landed = false;
    c->group.losses.exchanged++;
    if (own != x)
        psc_copy_buffers(c, own, x);
    move(c, own, center, psc_elastic);
    move(c, center, c->worker.vectors[PSC_VECTOR_PREFETCHED], psc_axpy);
    if (own != x)
        psc_copy_buffers(c, x, own);
    psc_publish(c, center);
}

/* The sum that is due, whether it has started, has ended, or neither. */
static int exchange(struct psc *c, float *x, float *own, size_t n_samples)
{
    int rc = PSC_OK;
    if (c->group.losses.exchange_made) {
        c->group.losses.exchange_made = false;
        return PSC_OK;
    }
    if (!psc_sum_is_pending(&c->group) && !c->worker.prefetch->landed)
        rc = start(c, x, own, n_samples);
    if (rc == PSC_OK)
        rc = gather_sum(c, x);
    if (rc == PSC_OK)
        apply(c, x, own);
    return rc;
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x);
    int rc = PSC_OK;
    psc_gradient_decay(c, x, g);
    if (exchange_is_due(c))
        rc = exchange(c, x, own, n_samples);
    if (rc == PSC_EVALUE)
        c->worker.restart = true; /* diverged: restart from where the caller continues */
    if (rc != PSC_OK)
        return rc;
    psc_own_step(c, x, g);
    c->worker.clock++;
    /* If the server drains, no step follows that would use it. */
    if (c->worker.hyper.overlap > 0 && exchange_is_due(c) && !c->group.drains)
        rc = start(c, x, own, n_samples);
    return rc;
}

static int gather_last(struct psc *c, float *x)
{
    int rc = gather_sum(c, x);
    return rc == PSC_OK ? psc_losses_leave(c) : rc;
}

static int flush(struct psc *c, float *x)
{
    int rc = psc_losses_retry(c, x, gather_last);
    return rc == PSC_OK || rc == PSC_EVALUE ? psc_publish_last(c, c->worker.vectors[PSC_VECTOR_START]) : rc;
}

static const float *center(struct psc *c, float *x)
{
    (void)x;
    return c->worker.vectors[PSC_VECTOR_START];
}

const struct psc_rule psc_rule_vectors = {.keeps = PSC_VECTOR_BIT(PSC_VECTOR_START) |
                                                   PSC_VECTOR_BIT(PSC_VECTOR_PREFETCHED),
                                          .overlaps = true,
                                          .collective = true,
                                          .step = step,
                                          .gather = gather,
                                          .flush = flush,
                                          .center = center};
