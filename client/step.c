/* What the method asks of a worker: the order inside psc_step (DESIGN 3). */
#include <stdlib.h>
#include <string.h>

#include "client/halves/halves.h"

bool psc_look(struct psc *c)
{
    pthread_mutex_lock(&c->shared.lock);
    bool draining = c->shared.draining;
    c->shared.clock = c->clock;
    c->hyper = c->shared.hyper;
    c->save_version = c->shared.save_version;
    pthread_mutex_unlock(&c->shared.lock);
    return draining;
}

int psc_check_worker(struct psc *c, const char *call, const void *a, const void *b)
{
    if (!c->begun)
        return psc_fail(c, PSC_EINVAL, "%s: psc_begin comes first", call);
    if (c->opt.kind != PSC_WORKER)
        return psc_fail(c, PSC_EINVAL, "%s: an observer only pulls", call);
    if (a == NULL || b == NULL)
        return psc_fail(c, PSC_EINVAL, "%s: a vector is missing", call);
    return PSC_OK;
}

unsigned psc_kept_of(const struct psc *c)
{
    unsigned keeps = c->optimizer->keeps | c->half->keeps;
    bool lands_in_x = c->half->lands_in_x && (keeps & PSC_KEPT(PSC_KEPT_X)) != 0;
    if (psc_gradient_needs_room(c))
        keeps |= PSC_KEPT(PSC_KEPT_GRADIENT);
    if (c->hyper.overlap && c->half->overlaps && !lands_in_x)
        keeps |= PSC_KEPT(PSC_KEPT_AHEAD);
    if (c->averaging != NULL && c->averaging->rate != NULL)
        keeps |= PSC_KEPT(PSC_KEPT_Z);
    return keeps;
}

/* What is not in a message, such as frozen values, stays 0. */
int psc_step_prepare(struct psc *c)
{
    unsigned keeps = psc_kept_of(c);
    if (c->hyper.overlap && !c->half->overlaps)
        return psc_fail(c, PSC_EUNSUPPORTED,
                        "rule %s cannot exchange while the worker computes; allowed: overlap: false",
                        c->carriage.road.rule);
    for (int k = 0; k < PSC_N_KEPT; k++)
        if ((keeps & PSC_KEPT(k)) != 0 && c->kept[k] == NULL) {
            c->kept[k] = calloc(c->shard.n_floats, sizeof *c->kept[k]);
            c->fresh = c->fresh || k == PSC_KEPT_X || k == PSC_KEPT_V;
            if (c->kept[k] == NULL)
                return psc_fail(c, PSC_ENOMEM, "no memory for the method's vectors of %llu floats",
                                (unsigned long long)c->shard.n_floats);
        }
    return c->hyper.overlap ? psc_mover_start(c) : PSC_OK;
}

void psc_start_over(struct psc *c)
{
    c->fresh = true;
    c->ahead.unwanted = c->ahead.started;
    c->ahead.landed = false;
}

/* Waits for what the step before started. A vector that was not finite was not sent: the exchange is then
 * still due, and says so itself. */
static int settle(struct psc *c)
{
    struct psc_ahead *a = &c->ahead;
    if (!a->started)
        return PSC_OK;
    psc_mover_await(c, a->ticket);
    a->started = false;
    a->landed = a->outcome.rc == PSC_OK && !a->unwanted;
    a->unwanted = false;
    if (a->outcome.rc == PSC_OK || a->outcome.rc == PSC_EVALUE)
        return PSC_OK;
    c->error = a->outcome.error;
    return a->outcome.rc;
}

/* A draining server waits for what is open: nothing stays behind. */
static int finish_drained(struct psc *c, float *x)
{
    int rc = settle(c);
    if (rc == PSC_OK && c->ahead.landed && c->half->finish != NULL)
        c->half->finish(c, x);
    return rc == PSC_OK ? PSC_DRAINED : rc;
}

int psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = psc_check_worker(c, "psc_step", x, g);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    c->caller_x = x;
    c->stepped = true;
    if ((rc = settle(c)) != PSC_OK || (rc = psc_step_prepare(c)) != PSC_OK ||
        (rc = c->half->step(c, x, g, n_samples)) != PSC_OK)
        return rc;
    return psc_look(c) ? finish_drained(c, x) : PSC_OK;
}

int psc_point(struct psc *c, float *x)
{
    int rc = psc_check_worker(c, "psc_point", x, x);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    const float *own = c->kept[PSC_KEPT_X];
    if (x != c->caller_x)
        memcpy(x, c->caller_x, c->shard.n_floats * sizeof *x);
    if (own == NULL || c->fresh)
        return PSC_OK;
    if (c->ahead.started)
        psc_mover_await(c, c->ahead.ticket);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (s->role == PS_ROLE_PARAM)
            c->vec->copy(x + s->range.begin, own + s->range.begin, s->range.count);
    }
    return PSC_OK;
}
