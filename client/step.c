/* What the method asks of a worker: the order inside psc_step (DESIGN 3), and exchanges by hand. */
#include <string.h>

#include "client/psc.h"

static bool is_draining(struct psc *c)
{
    pthread_mutex_lock(&c->shared.lock);
    bool draining = c->shared.draining;
    c->shared.clock = c->clock;
    pthread_mutex_unlock(&c->shared.lock);
    return draining;
}

static int check_finite(struct psc *c, const char *what, const float *v)
{
    size_t bad = c->vec->first_nonfinite(v, c->shard.n_floats);
    if (bad == c->shard.n_floats)
        return PSC_OK;
    for (size_t i = 0; i < c->manifest->n_tensors; i++) {
        const struct ps_tensor *t = &c->manifest->tensors[i];
        if (i + 1 == c->manifest->n_tensors || bad < c->manifest->tensors[i + 1].offset)
            return psc_fail(c, PSC_EVALUE, "%s[%zu], in tensor '%s', is not finite: nothing was sent", what,
                            bad, t->name);
    }
    return PSC_EVALUE;
}

/* x <- x - alpha (x - center): Zhang et al. 2015, eq. 2, with the alpha that the server applied. */
static void half_elastic(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    c->vec->elastic(x + r.begin, answer, rate, r.count);
}

/* x <- answer */
void psc_adopt(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    (void)c;
    (void)rate;
    memcpy(target + r.begin, answer, r.count * sizeof *target);
}

static int exchange(struct psc *c, const float *message, float *target, size_t n_samples,
                    void (*landed)(struct psc *, struct ps_range, const float *, float, float *))
{
    int rc = check_finite(c, message == target ? "x" : "the message", message);
    if (rc != PSC_OK)
        return rc;
    rc = psc_transfer_run(
        c, &(struct psc_transfer){.kind = PS_FRAME_EXCHANGE,
                                  .send = message,
                                  .samples = n_samples > UINT32_MAX ? UINT32_MAX : (uint32_t)n_samples,
                                  .clock = c->clock,
                                  .landed = landed,
                                  .target = target});
    c->exchanges += rc == PSC_OK;
    return rc;
}

/* The vector that is exchanged: x itself, which an optimizer that looks ahead keeps apart from the caller's
 * array. */
static float *own_x(struct psc *c, float *at)
{
    if (!c->optimizer->has_state)
        return at;
    if (c->fresh) {
        memcpy(c->x, at, c->shard.n_floats * sizeof *at);
        memset(c->v, 0, c->shard.n_floats * sizeof *at);
        c->fresh = false;
    }
    return c->x;
}

static void local_step(struct psc *c, float *x, const float *g)
{
    struct psc_point p = {.at = x, .x = c->x, .v = c->v, .g = g, .n = c->shard.n_floats};
    double begin = psc_now_s();
    double eta = ps_schedule_rate(&c->road.hyper.schedule, c->road.hyper.learning_rate, c->clock);
    c->optimizer->step(c->vec, &p, (float)eta, (float)c->road.hyper.momentum);
    c->update_s += psc_now_s() - begin;
}

/* Exchange first, with the x that g was taken at; then the own step. */
static int step_elastic(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = own_x(c, x);
    int rc = PSC_OK;
    if (c->clock % c->road.hyper.period == 0)
        rc = exchange(c, own, own, n_samples, half_elastic);
    if (rc == PSC_EVALUE)
        c->fresh = true; /* diverged: from wherever the caller goes on */
    if (rc != PSC_OK)
        return rc;
    local_step(c, x, g);
    c->clock++;
    return PSC_OK;
}

/* The own step first; then the message, at the rate of the step it belongs to. */
static int step_adopt(struct psc *c, float *x, const float *g, size_t n_samples)
{
    local_step(c, x, g);
    int rc = exchange(c, g, x, n_samples, psc_adopt);
    if (rc == PSC_OK)
        c->clock++;
    return rc;
}

static int (*const steps[])(struct psc *c, float *x, const float *g, size_t n_samples) = {
    [PS_HALF_ELASTIC] = step_elastic,
    [PS_HALF_ADOPT] = step_adopt,
};

static int check_worker(struct psc *c, const char *call, const void *a, const void *b)
{
    if (c->rule == NULL)
        return psc_fail(c, PSC_EINVAL, "%s: psc_begin comes first", call);
    if (c->opt.kind != PSC_WORKER)
        return psc_fail(c, PSC_EINVAL, "%s: an observer only pulls", call);
    if (a == NULL || b == NULL)
        return psc_fail(c, PSC_EINVAL, "%s: a vector is missing", call);
    return PSC_OK;
}

int psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = check_worker(c, "psc_step", x, g);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    rc = steps[c->rule->half](c, x, g, n_samples);
    return rc == PSC_OK && is_draining(c) ? PSC_DRAINED : rc;
}

int psc_exchange(struct psc *c, const float *message, float *answer, size_t n_samples)
{
    int rc = check_worker(c, "psc_exchange", message, answer);
    if (rc != PSC_OK)
        return rc;
    if (message < answer + c->shard.n_floats && answer < message + c->shard.n_floats)
        return psc_fail(c, PSC_EINVAL, "psc_exchange: message and answer overlap");
    c->error.text[0] = 0;
    rc = exchange(c, message, answer, n_samples, psc_adopt);
    return rc == PSC_OK && is_draining(c) ? PSC_DRAINED : rc;
}

int psc_pull(struct psc *c, float *x)
{
    if (c->rule == NULL || x == NULL)
        return psc_fail(c, PSC_EINVAL, "psc_pull: needs psc_begin before it, and a vector");
    c->error.text[0] = 0;
    int rc =
        psc_transfer_run(c, &(struct psc_transfer){.kind = PS_FRAME_PULL, .landed = psc_adopt, .target = x});
    return rc == PSC_OK && is_draining(c) ? PSC_DRAINED : rc;
}

int psc_push(struct psc *c, const float *x)
{
    int rc = check_worker(c, "psc_push", x, x);
    if (rc != PSC_OK || (rc = check_finite(c, "x", x)) != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    rc = psc_transfer_run(c, &(struct psc_transfer){.kind = PS_FRAME_PUSH, .send = x, .clock = c->clock});
    return rc == PSC_OK && is_draining(c) ? PSC_DRAINED : rc;
}
