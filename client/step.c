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

/* v holds the values of the tensor, or of the whole vector. */
static int check_finite(struct psc *c, const char *what, const struct ps_tensor *t, const float *v)
{
    struct ps_range r = t != NULL ? ps_tensor_range(t) : ps_shard_whole(&c->shard);
    size_t bad = c->vec->first_nonfinite(v, r.count), i = 0;
    if (bad == r.count)
        return PSC_OK;
    while (i + 1 < c->manifest->n_tensors && r.begin + bad >= c->manifest->tensors[i + 1].offset)
        i++;
    return psc_fail(c, PSC_EVALUE, "%s[%zu], in tensor '%s', is not finite: nothing was sent", what, bad,
                    c->manifest->tensors[i].name);
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
    int rc = check_finite(c, message == target ? "x" : "the message", NULL, message);
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

/* What a call by hand moves. */
struct hand {
    const char *call;
    uint8_t kind; /* enum ps_frame_kind */
    const char *tensor;
    const float *send; /* NULL: nothing */
    float *answer;     /* NULL: nothing */
    size_t n_samples;
};

static int check_hand(struct psc *c, const struct hand *h, const struct ps_tensor *t)
{
    size_t n = t != NULL ? ps_tensor_range(t).count : c->shard.n_floats;
    if (h->send != NULL && h->answer != NULL && h->send < h->answer + n && h->answer < h->send + n)
        return psc_fail(c, PSC_EINVAL, "%s: message and answer overlap", h->call);
    if (t != NULL && t->role == PS_ROLE_FROZEN && (h->kind == PS_FRAME_EXCHANGE || h->kind == PS_FRAME_PUSH))
        return psc_fail(c, PSC_EINVAL, "%s: tensor '%s' is frozen: no rule moves it", h->call, t->name);
    return h->send != NULL ? check_finite(c, h->kind == PS_FRAME_SET ? "x" : "the message", t, h->send)
                           : PSC_OK;
}

static int move_by_hand(struct psc *c, const struct hand *h)
{
    int64_t index = h->tensor != NULL ? ps_manifest_find(c->manifest, h->tensor) : -1;
    const struct ps_tensor *t = index >= 0 ? &c->manifest->tensors[index] : NULL;
    int rc;
    if (h->tensor != NULL && t == NULL)
        return psc_fail(c, PSC_EINVAL, "%s: no tensor of the manifest is named '%.127s'", h->call, h->tensor);
    if ((rc = check_hand(c, h, t)) != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    rc = psc_transfer_run(
        c, &(struct psc_transfer){.kind = h->kind,
                                  .tensor = t,
                                  .send = h->send,
                                  .samples = h->n_samples > UINT32_MAX ? UINT32_MAX : (uint32_t)h->n_samples,
                                  .clock = c->clock,
                                  .landed = h->answer != NULL ? psc_adopt : NULL,
                                  .target = h->answer});
    c->exchanges += rc == PSC_OK && (h->kind == PS_FRAME_EXCHANGE || h->kind == PS_FRAME_PUSH);
    return rc == PSC_OK && is_draining(c) ? PSC_DRAINED : rc;
}

int psc_exchange(struct psc *c, const float *message, float *answer, size_t n_samples)
{
    int rc = check_worker(c, "psc_exchange", message, answer);
    return rc != PSC_OK ? rc
                        : move_by_hand(c, &(struct hand){"psc_exchange", PS_FRAME_EXCHANGE, NULL, message,
                                                         answer, n_samples});
}

int psc_init(struct psc *c, const char *tensor, const float *x)
{
    int rc = check_worker(c, "psc_init", x, x);
    return rc != PSC_OK ? rc : move_by_hand(c, &(struct hand){"psc_init", PS_FRAME_SET, tensor, x, NULL, 0});
}

int psc_pull(struct psc *c, const char *tensor, float *x)
{
    if (c->rule == NULL || x == NULL)
        return psc_fail(c, PSC_EINVAL, "psc_pull: needs psc_begin before it, and a vector");
    return move_by_hand(c, &(struct hand){"psc_pull", PS_FRAME_PULL, tensor, NULL, x, 0});
}

int psc_push(struct psc *c, const char *tensor, const float *message, size_t n_samples)
{
    int rc = check_worker(c, "psc_push", message, message);
    return rc != PSC_OK
               ? rc
               : move_by_hand(c, &(struct hand){"psc_push", PS_FRAME_PUSH, tensor, message, NULL, n_samples});
}

int psc_pushpull(struct psc *c, const char *tensor, const float *message, float *answer, size_t n_samples)
{
    int rc = check_worker(c, "psc_pushpull", message, answer);
    return rc != PSC_OK ? rc
                        : move_by_hand(c, &(struct hand){"psc_pushpull", PS_FRAME_EXCHANGE, tensor, message,
                                                         answer, n_samples});
}
