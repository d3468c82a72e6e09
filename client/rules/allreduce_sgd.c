/* The workers are one clique and step by the mean of their gradients (Li et al. 2018): at once (D-Sync), or,
 * in a pipeline of K, by that of K - 1 steps before, whose sum has travelled while later gradients were
 * computed (Pipe-SGD, Algorithm 1):
 *
 *     x_t+1 <- x_t - eta mean_i g_i(x_t - K + 1)
 *
 * The first K - 1 pipelined steps apply nothing, and the last means are applied when everything is waited
 * for. Buffers follow their mean over the members likewise. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

/* Steps that are in the pipeline at once. */
static uint64_t depth_of(const struct psc *c)
{
    bool warm =
        c->worker.clock >= c->worker.hyper.pipeline_warmup && c->worker.clock >= c->group.warmup_steps;
    return warm && c->worker.hyper.pipeline > 1 ? c->worker.hyper.pipeline : 1;
}

static int begin(struct psc *c, size_t n_samples)
{
    int rc = psc_warmup_learn(c, n_samples);
    return rc == PSC_OK ? psc_gather_begin(c, psc_pipeline_vector(&c->group), n_samples) : rc;
}

/* After a sum that is not finite no value changes; the caller may restart from another x, and gradients from
 * earlier points are useless. */
static void drop_all(struct psc *c)
{
    struct ps_error first = c->error;
    while (psc_sum_is_pending(&c->group))
        psc_sum_land(c);
    while (psc_sums(&c->group) > 0)
        psc_sum_drop(&c->group);
    c->error = first;
}

static int gather_all(struct psc *c, float *x)
{
    int rc = PSC_OK;
    (void)x;
    while (rc == PSC_OK && psc_sum_is_pending(&c->group))
        rc = psc_sum_land(c);
    if (rc == PSC_EVALUE)
        drop_all(c);
    return rc;
}

/* Waits for all sums in progress. */
static int gather(struct psc *c)
{
    return psc_losses_retry(c, c->worker.caller_x, gather_all);
}

/* Makes the step of the oldest mean. */
static int apply(struct psc *c, float *x)
{
    struct psc_group *p = &c->group;
    float *own = psc_own_x(c, x);
    int rc = p->sums_landed == p->sums_dropped ? psc_sum_land(c) : psc_sums_check(c);
    if (rc == PSC_EVALUE)
        drop_all(c);
    if (rc != PSC_OK)
        return rc;
    const float *mean = psc_sum_oldest(p)->vector;
    psc_own_step(c, x, mean);
    psc_gather_buffers(c, x, mean);
    if (own != x)
        psc_copy_buffers(c, own, x);
    psc_sum_drop(p);
    p->losses.applied++;
    return PSC_OK;
}

static int apply_down_to(struct psc *c, float *x, uint64_t left)
{
    int rc = PSC_OK;
    while (rc == PSC_OK && psc_sums(&c->group) > left)
        rc = apply(c, x);
    return rc;
}

/* g was put into the sum that `begin` began, with the weight decay of the point where it was taken. */
static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    (void)g;
    (void)n_samples;
    int rc = apply_down_to(c, x, depth_of(c) - 1);
    if (rc != PSC_OK)
        return rc;
    c->worker.clock++;
    c->group.losses.applied = 0;
    psc_publish(c, psc_own_x(c, x));
    return PSC_OK;
}

static int apply_last(struct psc *c, float *x)
{
    int rc = apply_down_to(c, x, 0);
    return rc == PSC_OK ? psc_losses_leave(c) : rc;
}

static int flush(struct psc *c, float *x)
{
    int rc = psc_losses_retry(c, x, apply_last);
    return rc == PSC_OK ? psc_publish_last(c, psc_own_x(c, x)) : rc;
}

static const float *center(struct psc *c, float *x)
{
    return psc_own_x(c, x);
}

const struct psc_rule psc_rule_clique = {
    .collective = true, .begin = begin, .step = step, .gather = gather, .flush = flush, .center = center};
