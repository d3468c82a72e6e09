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
    if (!c->group.pending)
        return PSC_OK;
    int rc = psc_gather_finish(c, c->worker.vectors[PSC_VECTOR_PREFETCHED]);
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

/* Weight decay uses the point where g was taken, before the step that is still to be made. */
static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = gather(c);
    if (rc != PSC_OK)
        return rc;
    psc_gradient_decay(c, x, g);
    apply(c, x);
    if ((rc = psc_gather_start(c, c->worker.vectors[PSC_VECTOR_PREFETCHED], x, g, n_samples)) != PSC_OK)
        return rc;
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
                                         .step = step,
                                         .gather = gather,
                                         .flush = flush,
                                         .center = center};
