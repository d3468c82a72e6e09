/* The workers are one clique and step by the mean of their gradients (Li et al. 2018): at once (D-Sync), or,
 * in a pipeline of two, by that of the step before, whose sum has travelled while this step's gradient was
 * computed (Pipe-SGD, Algorithm 1):
 *
 *     x_t+1 <- x_t - eta mean_i g_i(x_t - K + 1)
 *
 * The first pipelined step applies nothing, and the last mean is applied when everything is waited for.
 * Buffers follow their mean over the members likewise: in a pipeline, that of a step before. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

/* Takes over the finished sum, as other rules take over a prefetched answer. */
static int gather(struct psc *c)
{
    if (!psc_sum_is_pending(&c->group))
        return PSC_OK;
    int rc = psc_gather_finish(c);
    c->worker.prefetch.landed = rc == PSC_OK;
    return rc;
}

static void apply(struct psc *c, float *x)
{
    const float *mean = c->worker.vectors[PSC_VECTOR_PREFETCHED];
    float *own = psc_own_x(c, x);
    if (!c->worker.prefetch.landed)
        return;
    c->worker.prefetch.landed = false;
    psc_own_step(c, x, mean);
    psc_gather_buffers(c, x, mean);
    if (own != x)
        psc_copy_buffers(c, own, x);
}

static bool is_pipelined(const struct psc *c)
{
    return c->worker.hyper.pipeline > 1 && c->worker.clock >= c->worker.hyper.pipeline_warmup;
}

/* The sum of this step, while that of the step before is in progress or its mean waits to be applied. */
static int begin(struct psc *c, size_t n_samples)
{
    bool is_free = !psc_sum_is_pending(&c->group) && !c->worker.prefetch.landed;
    enum psc_vector into = is_free ? PSC_VECTOR_PREFETCHED : PSC_VECTOR_GATHERED;
    return psc_gather_begin(c, c->worker.vectors[into], n_samples);
}

/* Ends the sum of the step before, which is the only one if this step's own has gone into its vector. */
static int gather_before(struct psc *c)
{
    float **v = c->worker.vectors, *own = psc_sum_newest(&c->group)->vector;
    if (own == v[PSC_VECTOR_PREFETCHED])
        return PSC_OK;
    bool two = c->group.sums_begun - c->group.sums_ended > 1;
    int rc = two ? gather(c) : PSC_OK;
    if (rc == PSC_EVALUE)
        psc_sum_finish(c);
    return rc;
}

/* The sum of this step takes the place of the one that was applied. */
static void pass_on(struct psc *c)
{
    float **v = c->worker.vectors, *own = psc_sum_newest(&c->group)->vector;
    if (own == v[PSC_VECTOR_PREFETCHED])
        return;
    v[PSC_VECTOR_GATHERED] = v[PSC_VECTOR_PREFETCHED];
    v[PSC_VECTOR_PREFETCHED] = own;
}

/* g was put into the sum that `begin` began, with the weight decay of the point where it was taken. */
static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    (void)g;
    (void)n_samples;
    int rc = gather_before(c);
    if (rc != PSC_OK)
        return rc;
    apply(c, x);
    pass_on(c);
    if (!is_pipelined(c)) {
        if ((rc = gather(c)) != PSC_OK)
            return rc;
        apply(c, x);
    }
    c->worker.clock++;
    psc_publish(c, psc_own_x(c, x));
    return PSC_OK;
}

static int flush(struct psc *c, float *x)
{
    int rc = gather(c);
    if (rc == PSC_OK)
        apply(c, x);
    return rc == PSC_OK ? psc_publish_last(c, psc_own_x(c, x)) : rc;
}

static const float *center(struct psc *c, float *x)
{
    return psc_own_x(c, x);
}

const struct psc_rule psc_rule_clique = {.keeps = PSC_VECTOR_BIT(PSC_VECTOR_PREFETCHED),
                                         .collective = true,
                                         .begin = begin,
                                         .step = step,
                                         .gather = gather,
                                         .flush = flush,
                                         .center = center};
