/* The worker of consensus ADMM, Zhang et al. 2015 eq. 9-11 with the gradient taken at x, in one exchange.
 * They are
 *
 *     lambda' = lambda - (x - center)
 *     x'      = (x - eta g + eta rho (lambda' + center)) / (1 + eta rho)
 *     center' = center + ((x' - lambda') - (x - lambda)) / p
 *
 * and with m = (x - eta g + eta rho (lambda - x)) / (1 + eta rho), which is known before the exchange, the
 * bracket of the last line is m + kappa center, kappa = (eta rho - 1) / (eta rho + 1). So m is the message,
 * and the center before is the answer. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

/* With the tensor's own learning rate. */
static struct psc_admm at_rate(const struct psc *c, const struct ps_segment *s)
{
    struct psc_admm own = c->admm;
    if (s->rate_ppm != 0) {
        double eta = psc_rate(c) * ps_rate_of(s->rate_ppm), pull = eta * c->worker.hyper.rho;
        own.eta = (float)eta;
        own.pull = (float)pull;
        own.scale = (float)(1 / (1 + pull));
    }
    return own;
}

/* Buffers are sent as values. Frozen values are not sent. */
static void make_message(struct psc *c, const float *x)
{
    const struct psc_admm *a = &c->admm;
    float *message = c->worker.vectors[PSC_VECTOR_MESSAGE], *lambda = c->worker.vectors[PSC_VECTOR_LAMBDA];
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        const float *g = psc_gradient_to_step(c, s, a->g) + at;
        const struct psc_admm own = at_rate(c, s);
        if (s->role == PS_ROLE_PARAM)
            psc_admm_message(&c->work, message + at, x + at, lambda + at, g, own.eta, own.pull, own.scale,
                             s->range.count);
        else if (s->role == PS_ROLE_BUFFER)
            psc_copy(&c->work, message + at, x + at, s->range.count);
    }
    psc_passes_end(&c->work);
}

static void land(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    const struct psc_admm *a = &c->admm;
    float *lambda = c->worker.vectors[PSC_VECTOR_LAMBDA];
    (void)rate;
    psc_passes_begin(&c->transfer_state.work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        uint64_t at = p.range.begin;
        const float *center = answer + (at - r.begin), *g = psc_gradient_to_step(c, p.segment, a->g) + at;
        const struct psc_admm own = at_rate(c, p.segment);
        if (p.segment->role == PS_ROLE_PARAM)
            psc_admm_land(&c->transfer_state.work, x + at, lambda + at, center, g, own.eta, own.pull,
                          own.scale, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->transfer_state.work, x + at, center, p.range.count);
    }
    psc_passes_end(&c->transfer_state.work);
}

/* The center is the mean of all workers' x - lambda. A worker that restarts from the center keeps x - lambda,
 * its own share, as it was: otherwise the center would stay off by the difference. */
static void land_restart(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    float *lambda = c->worker.vectors[PSC_VECTOR_LAMBDA] + r.begin;
    (void)rate;
    psc_admm_restart(&c->transfer_state.work, x + r.begin, lambda, answer, r.count);
}

static unsigned keeps_moved(const struct psc *c)
{
    (void)c;
    return PSC_VECTOR_BIT(PSC_VECTOR_KEPT_X) | PSC_VECTOR_BIT(PSC_VECTOR_KEPT_LAMBDA);
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    double begin = ps_now_s(), eta = psc_rate(c), pull = eta * c->worker.hyper.rho;
    psc_gradient_decay(c, x, g);
    c->admm = (struct psc_admm){g, (float)eta, (float)pull, (float)(1 / (1 + pull))};
    bool watched = psc_watch(c, c->worker.vectors[PSC_VECTOR_MESSAGE], ps_shard_whole(&c->shard));
    make_message(c, x);
    c->worker.update_s += ps_now_s() - begin;
    struct psc_transfer t = psc_exchange_of(c, c->worker.vectors[PSC_VECTOR_MESSAGE], x, n_samples);
    t.watched = watched;
    t.landed = land;
    t.moved[0] = (struct psc_moved){x, c->worker.vectors[PSC_VECTOR_KEPT_X]};
    t.moved[1] =
        (struct psc_moved){c->worker.vectors[PSC_VECTOR_LAMBDA], c->worker.vectors[PSC_VECTOR_KEPT_LAMBDA]};
    int rc = psc_move(c, &t);
    if (rc == PSC_OK)
        c->worker.clock++;
    return rc;
}

const struct psc_rule psc_rule_admm = {.keeps = PSC_VECTOR_BIT(PSC_VECTOR_LAMBDA) |
                                                PSC_VECTOR_BIT(PSC_VECTOR_MESSAGE),
                                       .keeps_moved = keeps_moved,
                                       .step = step,
                                       .land_restart = land_restart};
