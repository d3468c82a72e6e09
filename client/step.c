/* psc_step: the order of the worker's own step and of exchanges. */
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/model/fragment.h"

/* NULL: no tensor has a rate of its own */
static const struct ps_tensor *first_with_rate(const struct ps_manifest *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].rate_ppm != 0)
            return &m->tensors[i];
    return NULL;
}

/* Values that are not part of a message, such as frozen ones, stay 0. */
int psc_step_prepare(struct psc *c)
{
    unsigned keeps = psc_vectors_of(c);
    if (c->optimizer->step == NULL && c->opt.own_step == NULL)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "the job's optimizer is %s: every worker brings a step of its own (options.own_step), "
                       "and this one has none",
                       c->optimizer->name);
    const struct ps_tensor *own_rate = c->optimizer->step == NULL ? first_with_rate(c->manifest) : NULL;
    if (own_rate != NULL)
        return ps_fail(
            &c->error, PSC_EUNSUPPORTED,
            "the job's optimizer is %s: tensor '%.60s' is to be stepped at %g of the learning rate, and the "
            "step is the program's own; allowed: 1",
            c->optimizer->name, own_rate->name, ps_rate_of(own_rate->rate_ppm));
    if (c->worker.hyper.overlap && !c->rule->overlaps)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "rule %s cannot exchange while the worker computes; allowed: overlap: false",
                       c->rule_name);
    if (psc_pacing_fragments(c) > 1 && psc_pacing_fragments(c) > ps_fragments_most(&c->shard))
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "the server wants %u fragments; the vector has %llu chunks", psc_pacing_fragments(c),
                       (unsigned long long)ps_fragments_most(&c->shard));
    if (c->worker.pacing.fragment >= psc_pacing_fragments(c))
        psc_pacing_restart(c);
    for (int k = 0; k < PSC_N_VECTORS; k++)
        if ((keeps & PSC_VECTOR_BIT(k)) != 0 && c->worker.vectors[k] == NULL) {
            c->worker.restart = c->worker.restart || k == PSC_VECTOR_X || k == PSC_VECTOR_V;
            if (!psc_vector_make(c, (enum psc_vector)k))
                return ps_fail(&c->error, PSC_ENOMEM, "no memory for the method's vectors of %llu floats",
                               (unsigned long long)c->shard.n_floats);
        }
    return c->worker.hyper.overlap && !c->group.follows ? psc_async_start(c) : PSC_OK;
}

void psc_take_back(struct psc *c)
{
    psc_pacing_restart(c);
    if (!c->worker.prefetch.unwanted && c->rule->take_back != NULL)
        c->rule->take_back(c);
    c->worker.prefetch.outcome.rc = PSC_OK;
    c->worker.prefetch.unwanted = true; /* nothing has landed */
}

/* A vector that was not finite was not sent: the exchange is still due, and will report it. */
int psc_finish_overlapped(struct psc *c)
{
    struct psc_prefetch *a = &c->worker.prefetch;
    if (!a->started)
        return PSC_OK;
    psc_async_await(c, a->ticket);
    a->started = false;
    if (a->outcome.rc == PSC_ABORTED)
        psc_take_back(c);
    a->landed = a->outcome.rc == PSC_OK && !a->unwanted;
    a->lost = a->outcome.rc == PSC_METHOD_CHANGED && !a->unwanted;
    a->unwanted = false;
    if (a->outcome.rc == PSC_OK || a->outcome.rc == PSC_EVALUE)
        return PSC_OK;
    c->error = a->outcome.error;
    return a->outcome.rc;
}

/* A draining server waits for exchanges in progress: none may remain. */
static int finish_drained(struct psc *c, float *x)
{
    int rc = psc_finish_overlapped(c);
    if (rc == PSC_OK && c->worker.prefetch.landed && c->rule->finishes)
        c->rule->take_over(c, x);
    return rc == PSC_OK ? PSC_DRAINED : rc;
}

static int step_once(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = psc_step_prepare(c);
    return rc == PSC_OK ? c->rule->step(c, x, g, n_samples) : rc;
}

/* The method may change before the step, or during it, if the exchange has not landed. Then the step is made
 * again under the new method from the same x and g. If the worker's own step was made already, x includes it,
 * and only sending remains. */
static int step_and_follow(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = psc_finish_overlapped(c);
    if (rc == PSC_OK && psc_method_has_changed(c))
        rc = PSC_METHOD_CHANGED;
    if (rc == PSC_METHOD_CHANGED)
        rc = psc_change_method(c, x);
    if (rc == PSC_OK)
        rc = step_once(c, x, g, n_samples);
    while (rc == PSC_METHOD_CHANGED) {
        bool stepped = c->rule->steps_first;
        if ((rc = psc_change_method(c, x)) != PSC_OK)
            return rc;
        c->worker.clock += stepped;
        if (!stepped)
            rc = step_once(c, x, g, n_samples);
    }
    return rc;
}

int psc_step_alone(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = step_and_follow(c, x, g, n_samples);
    if (rc != PSC_OK)
        return rc;
    psc_pacing_measure(c);
    uint64_t save_version = c->worker.save_version;
    bool draining = psc_refresh(c);
    if (psc_has_prefetch(c))
        c->worker.save_version = save_version; /* a prefetched exchange may already have told */
    if (c->rule->collective)                   /* all members stop after the same step */
        return c->group.drains ? PSC_DRAINED : PSC_OK;
    return draining ? finish_drained(c, x) : PSC_OK;
}

int psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = psc_check_worker(c, "psc_step", x, g);
    if (rc != PSC_OK)
        return rc;
    if (n_samples == 0 && c->group.size > 1)
        return ps_fail(
            &c->error, PSC_EINVAL,
            "psc_step: n_samples is 0; allowed in a clique are 1 and more: its mean is weighted by "
            "them");
    c->error.text[0] = 0;
    c->worker.caller_x = x;
    c->worker.stepped = true;
    bool together = c->group.size > 1 && !c->rule->collective;
    return together ? psc_group_step(c, x, g, n_samples) : psc_step_alone(c, x, g, n_samples);
}

int psc_point(struct psc *c, float *x)
{
    int rc = psc_check_worker(c, "psc_point", x, x);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    const float *own = c->worker.vectors[PSC_VECTOR_X];
    if (x != c->worker.caller_x)
        memcpy(x, c->worker.caller_x, c->shard.n_floats * sizeof *x);
    if (own == NULL || c->worker.restart)
        return PSC_OK;
    if (c->worker.prefetch.started)
        psc_async_await(c, c->worker.prefetch.ticket);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (s->role == PS_ROLE_PARAM)
            c->vec->copy(x + s->range.begin, own + s->range.begin, s->range.count);
    }
    return PSC_OK;
}
