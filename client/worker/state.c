/* The vectors that the library keeps for a worker, and what every rule does to them in a step. */
#include "client/internal.h"
#include "client/worker/worker.h"

#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

/* Lives until the handle is closed, because hubs have registered it. */
static float *own_x(struct psc *c)
{
    struct ps_buffer *b = &c->buffers[PSC_BUFFER_OWN];
    size_t bytes = c->shard.n_floats * sizeof(float);
    if (b->base == NULL && ps_buffer_alloc(bytes, b, &c->error) < 0)
        return NULL;
    return memset(b->base, 0, bytes);
}

bool psc_vector_make(struct psc *c, enum psc_vector k)
{
    c->worker.vectors[k] =
        k == PSC_VECTOR_X ? own_x(c) : calloc(c->shard.n_floats, sizeof *c->worker.vectors[k]);
    return c->worker.vectors[k] != NULL;
}

void psc_vectors_drop_but(struct psc *c, unsigned keeps)
{
    for (int k = 0; k < PSC_N_VECTORS; k++) {
        if ((keeps & PSC_VECTOR_BIT(k)) != 0)
            continue;
        if (k != PSC_VECTOR_X) /* in its buffer */
            free(c->worker.vectors[k]);
        c->worker.vectors[k] = NULL;
    }
}

unsigned psc_optimizer_vectors_of(const struct psc *c)
{
    return (c->optimizer->keeps_x ? PSC_VECTOR_BIT(PSC_VECTOR_X) : 0) |
           (c->optimizer->keeps_v ? PSC_VECTOR_BIT(PSC_VECTOR_V) : 0);
}

unsigned psc_vectors_of(const struct psc *c)
{
    unsigned keeps =
        psc_optimizer_vectors_of(c) | (c->group.follows && !c->rule->collective ? 0 : c->rule->keeps);
    bool exchanges = c->rule->overlaps && !c->group.follows, defers = exchanges && psc_overlap_defers(c);
    bool lands_in_x = c->rule->lands_in_x && !defers && (keeps & PSC_VECTOR_BIT(PSC_VECTOR_X)) != 0;
    if (psc_gradient_needs_room(c))
        keeps |= PSC_VECTOR_BIT(PSC_VECTOR_GRADIENT);
    if (c->worker.hyper.overlap > 0 && exchanges && !lands_in_x)
        keeps |= PSC_VECTOR_BIT(PSC_VECTOR_PREFETCHED);
    if (defers)
        keeps |= PSC_VECTOR_BIT(PSC_VECTOR_MESSAGE);
    if (c->feeds_back && c->worker.hyper.overlap > 0 && exchanges && c->rule->again != NULL &&
        (defers || !c->rule->lands_in_x))
        keeps |= PSC_VECTOR_BIT(PSC_VECTOR_SENT_ERROR);
    if (c->feeds_back)
        keeps |= PSC_VECTOR_BIT(PSC_VECTOR_ERROR);
    if (c->averaging != NULL && c->averaging->rate != NULL)
        keeps |= PSC_VECTOR_BIT(PSC_VECTOR_Z);
    return keeps;
}

bool psc_vectors_are_there(const struct psc *c)
{
    unsigned keeps = psc_vectors_of(c);
    for (int k = 0; k < PSC_N_VECTORS; k++)
        if ((keeps & PSC_VECTOR_BIT(k)) != 0 && c->worker.vectors[k] == NULL)
            return false;
    return true;
}

void psc_start_over(struct psc *c)
{
    c->worker.restart = true;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        struct psc_prefetch *a = &c->worker.prefetch[i];
        a->unwanted = a->started;
        if (c->rule->collective) /* the other members apply a clique's sum, too */
            continue;
        a->landed = false;
        a->first = PSC_NO_STEP;
    }
}

int psc_check_worker(struct psc *c, const char *call, const void *a, const void *b)
{
    int rc = psc_check_use(&c->session, call, &c->error);
    if (rc == PSC_OK)
        rc = psc_check_no_open_step(c, call);
    if (rc != PSC_OK)
        return rc;
    if (!c->begun)
        return ps_fail(&c->error, PSC_EINVAL, "%s: call psc_begin first", call);
    if (c->opt.kind != PSC_WORKER)
        return ps_fail(&c->error, PSC_EINVAL, "%s: an observer can only pull", call);
    if (a == NULL || b == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "%s: a vector is missing", call);
    return PSC_OK;
}

/* x <- answer */
void psc_land_all(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    (void)c;
    (void)rate;
    memcpy(target + r.begin, answer, r.count * sizeof *target);
}

/* x <- answer, but for frozen values */
void psc_land_moved(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    uint64_t scope = c->transfer_state.scope.begin;
    struct ps_range at = {scope + r.begin, r.count};
    (void)rate;
    for (struct ps_role_run p = ps_role_run_first(c->manifest, at); p.range.count > 0;
         p = ps_role_run_next(p, at))
        if (p.segment->role != PS_ROLE_FROZEN)
            memcpy(target + (p.range.begin - scope), answer + (p.range.begin - at.begin),
                   p.range.count * sizeof *target);
}

void psc_copy_buffers(const struct psc *c, float *to, const float *from)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (s->role == PS_ROLE_BUFFER)
            c->vec->copy(to + s->range.begin, from + s->range.begin, s->range.count);
    }
}

struct copy {
    const struct psc *c;
    float *to;
    const float *from;
};

static void copy_moved(void *arg, uint64_t begin, uint64_t count)
{
    const struct copy *k = arg;
    struct ps_range r = {begin, count};
    for (struct ps_role_run p = ps_role_run_first(k->c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (p.segment->role != PS_ROLE_FROZEN)
            k->c->vec->copy(k->to + p.range.begin, k->from + p.range.begin, p.range.count);
}

void psc_copy_moved(const struct psc *c, float *to, const float *from)
{
    struct copy k = {c, to, from};
    psc_team_run(c->team, c->shard.n_floats, copy_moved, &k);
}

float *psc_own_x(struct psc *c, float *at)
{
    float *x = c->worker.vectors[PSC_VECTOR_X], *v = c->worker.vectors[PSC_VECTOR_V];
    if (c->worker.restart && x != NULL)
        memcpy(x, at, c->shard.n_floats * sizeof *at);
    if (c->worker.restart && v != NULL)
        memset(v, 0, c->shard.n_floats * sizeof *at);
    c->worker.restart = false;
    return x != NULL ? x : at;
}

static struct psc_optimizer_vectors point_of(struct psc *c, struct ps_range r, float *at)
{
    float *x = c->worker.vectors[PSC_VECTOR_X], *v = c->worker.vectors[PSC_VECTOR_V];
    uint64_t begin = r.begin;
    return (struct psc_optimizer_vectors){
        .at = at + begin, .x = x != NULL ? x + begin : NULL, .v = v != NULL ? v + begin : NULL, .n = r.count};
}

double psc_rate(const struct psc *c)
{
    return ps_schedule_rate(&c->worker.hyper.schedule, c->worker.hyper.learning_rate, c->worker.clock);
}

/* One pass of the optimizer over the vector. */
struct own_pass {
    struct psc *c;
    float *at;
    const float *g;
    float eta;
    uint64_t begin; /* of the pass's range */
};

static void step_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct own_pass *w = arg;
    struct psc *c = w->c;
    struct ps_range r = {begin, count};
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        struct psc_optimizer_vectors point = point_of(c, p.range, w->at);
        point.g = psc_gradient_to_step(c, p.segment, w->g) + p.range.begin;
        if (p.segment->role == PS_ROLE_PARAM)
            c->optimizer->step(c->vec, &point, psc_eta_of(p.segment, w->eta),
                               (float)c->worker.hyper.momentum);
    }
}

void psc_own_step(struct psc *c, float *at, const float *g)
{
    double begin = ps_now_s();
    struct own_pass w = {.c = c, .at = at, .g = g, .eta = (float)psc_rate(c)};
    if (c->optimizer->step == NULL)
        c->opt.own_step(c->opt.own_step_arg, at, g, psc_rate(c));
    else
        psc_team_run(c->team, c->shard.n_floats, step_piece, &w);
    c->worker.update_s += ps_now_s() - begin;
}

static void look_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct own_pass *w = arg;
    struct psc *c = w->c;
    const float *own = c->worker.vectors[PSC_VECTOR_X];
    struct ps_range r = {w->begin + begin, count};
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        struct psc_optimizer_vectors point = point_of(c, p.range, w->at);
        if (p.segment->role == PS_ROLE_PARAM)
            c->optimizer->lookahead(c->vec, &point, (float)c->worker.hyper.momentum);
        else if (p.segment->role == PS_ROLE_BUFFER)
            c->vec->copy(w->at + p.range.begin, own + p.range.begin, p.range.count);
    }
}

void psc_own_lookahead(struct psc *c, float *at, struct ps_range r)
{
    if (c->worker.vectors[PSC_VECTOR_X] == NULL)
        return;
    double begin = ps_now_s();
    struct own_pass w = {.c = c, .at = at, .begin = r.begin};
    psc_team_run(c->team, r.count, look_piece, &w);
    c->worker.update_s += ps_now_s() - begin;
}

struct psc_transfer psc_exchange_of(const struct psc *c, const float *message, float *target,
                                    size_t n_samples)
{
    return (struct psc_transfer){.kind = PS_FRAME_EXCHANGE,
                                 .send = message,
                                 .name = message == target ? "x" : "the message",
                                 .samples = n_samples > UINT32_MAX ? UINT32_MAX : (uint32_t)n_samples,
                                 .clock = c->worker.clock,
                                 .generation = c->generation,
                                 .target = target};
}
