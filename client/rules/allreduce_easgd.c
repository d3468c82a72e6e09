/* Sync EASGD where the workers are one clique (You et al. 2017, eq. 1-2): each member has an x of its own and
 * the same copy of the center, and one sum moves all of them:
 *
 *     d_i = x_i - center;  x_i <- x_i - alpha d_i;  center <- center + alpha sum_i d_i
 *
 * every `period` steps; the sum is the same bits at every member, and so is the center. The server only keeps
 * copies of it. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

static int exchange(struct psc *c, float *x, float *own, size_t n_samples)
{
    float *center = c->worker.vectors[PSC_VECTOR_START], *d = c->worker.vectors[PSC_VECTOR_MESSAGE];
    float alpha = (float)c->worker.hyper.alpha;
    if (own != x)
        psc_copy_buffers(c, own, x);
    c->vec->subtract(d, own, center, c->shard.n_floats);
    int rc = psc_sum_start(c, d, n_samples);
    if (rc == PSC_OK)
        rc = psc_sum_finish(c);
    if (rc != PSC_OK)
        return rc;
    c->vec->elastic(own, center, alpha, c->shard.n_floats);
    c->vec->axpy(center, d, alpha, c->shard.n_floats);
    if (own != x)
        psc_copy_buffers(c, x, own);
    psc_publish(c, center);
    return PSC_OK;
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x);
    int rc = PSC_OK;
    psc_gradient_decay(c, x, g);
    if (c->worker.clock % c->worker.hyper.period == 0)
        rc = exchange(c, x, own, n_samples);
    if (rc == PSC_EVALUE)
        c->worker.restart = true; /* diverged: restart from where the caller continues */
    if (rc != PSC_OK)
        return rc;
    psc_own_step(c, x, g);
    c->worker.clock++;
    return PSC_OK;
}

static int flush(struct psc *c, float *x)
{
    (void)x;
    return psc_publish_last(c, c->worker.vectors[PSC_VECTOR_START]);
}

static const float *center(struct psc *c, float *x)
{
    (void)x;
    return c->worker.vectors[PSC_VECTOR_START];
}

const struct psc_rule psc_rule_vectors = {.keeps = PSC_VECTOR_BIT(PSC_VECTOR_START) |
                                                   PSC_VECTOR_BIT(PSC_VECTOR_MESSAGE),
                                          .collective = true,
                                          .step = step,
                                          .flush = flush,
                                          .center = center};
