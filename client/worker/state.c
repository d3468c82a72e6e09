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
    if (b->base == NULL && psc_buffer_make(c, PSC_BUFFER_OWN, bytes, &c->error) < 0)
        return NULL;
    return memset(b->base, 0, bytes);
}

static float *of_device(struct psc *c)
{
    void *at = NULL;
    return c->memory.kind->alloc(c->memory.device, c->shard.n_floats * sizeof(float), &at, &c->error) == 0
               ? at
               : NULL;
}

bool psc_vector_make(struct psc *c, enum psc_vector k)
{
    c->worker.vectors[k] = c->memory.device != NULL ? of_device(c)
                           : k == PSC_VECTOR_X      ? own_x(c)
                                                    : calloc(c->shard.n_floats, sizeof *c->worker.vectors[k]);
    return c->worker.vectors[k] != NULL;
}

static void drop(struct psc *c, int k)
{
    if (c->worker.vectors[k] == NULL)
        return;
    if (c->memory.device != NULL)
        c->memory.kind->free(c->memory.device, c->worker.vectors[k]);
    else if (k != PSC_VECTOR_X) /* in its buffer */
        free(c->worker.vectors[k]);
    c->worker.vectors[k] = NULL;
}

void psc_vectors_drop_but(struct psc *c, unsigned keeps)
{
    for (int k = 0; k < PSC_N_VECTORS; k++)
        if ((keeps & PSC_VECTOR_BIT(k)) == 0)
            drop(c, k);
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
    if (c->rule->keeps_moved != NULL && !c->group.follows && c->admission != NULL && c->admission->members)
        keeps |= c->rule->keeps_moved(c);
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

int psc_check_memory(struct psc *c, const char *call, const void *p)
{
    if (c->memory.device == NULL || c->memory.kind->owns(c->memory.device, p))
        return PSC_OK;
    return ps_fail(
        &c->error, PSC_EINVAL,
        "%s: a vector is not memory of the device; allowed with memory '%s' are vectors of psc_alloc "
        "and cudaMalloc",
        call, c->memory.kind->name);
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

int psc_check_vectors(struct psc *c, const char *call, const float *a, const float *b)
{
    int rc = psc_check_worker(c, call, a, b);
    if (rc == PSC_OK)
        rc = psc_check_memory(c, call, a);
    return rc == PSC_OK && b != a ? psc_check_memory(c, call, b) : rc;
}

/* x <- answer */
void psc_land_all(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    (void)rate;
    psc_copy(&c->transfer_state.work, target + r.begin, answer, r.count);
}

/* x <- answer, but for frozen values */
void psc_land_moved(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    uint64_t scope = c->transfer_state.scope.begin;
    struct ps_range at = {scope + r.begin, r.count};
    (void)rate;
    psc_passes_begin(&c->transfer_state.work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, at); p.range.count > 0;
         p = ps_role_run_next(p, at))
        if (p.segment->role != PS_ROLE_FROZEN)
            psc_copy(&c->transfer_state.work, target + (p.range.begin - scope),
                     answer + (p.range.begin - at.begin), p.range.count);
    psc_passes_end(&c->transfer_state.work);
}

void psc_copy_buffers(const struct psc *c, float *to, const float *from)
{
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (s->role == PS_ROLE_BUFFER)
            psc_copy(&c->work, to + s->range.begin, from + s->range.begin, s->range.count);
    }
    psc_passes_end(&c->work);
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
    psc_passes_begin(&k->c->work);
    for (struct ps_role_run p = ps_role_run_first(k->c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (p.segment->role != PS_ROLE_FROZEN)
            psc_copy(&k->c->work, k->to + p.range.begin, k->from + p.range.begin, p.range.count);
    psc_passes_end(&k->c->work);
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
        psc_copy(&c->work, x, at, c->shard.n_floats);
    if (c->worker.restart && v != NULL)
        psc_zero(&c->work, v, c->shard.n_floats);
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
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        struct psc_optimizer_vectors point = point_of(c, p.range, w->at);
        point.g = psc_gradient_to_step(c, p.segment, w->g) + p.range.begin;
        if (p.segment->role == PS_ROLE_PARAM)
            c->optimizer->step(&c->work, &point, psc_eta_of(p.segment, w->eta),
                               (float)c->worker.hyper.momentum);
    }
    psc_passes_end(&c->work);
}

void psc_external_step(struct psc *c, float *at, const float *g, double rate)
{
    double begin = ps_now_s();
    if (c->memory.own_stream)
        psc_work_end(c, PSC_OK); /* the caller sees x as it is now; the step's end tells a failure */
    c->opt.own_step(c->opt.own_step_arg, at, g, rate);
    c->worker.update_s += ps_now_s() - begin;
}

void psc_own_step(struct psc *c, float *at, const float *g)
{
    if (c->optimizer->step == NULL) {
        struct psc_own_step *own = &c->group.own_step;
        own->is_due = true;
        own->rate = psc_rate(c);
        if (c->pulled && c->group.size > 1 && !c->rule->collective)
            c->group.own_step_begins(c, at);
        psc_external_step(c, at, g, own->rate);
        return;
    }
    double begin = ps_now_s();
    struct own_pass w = {.c = c, .at = at, .g = g, .eta = (float)psc_rate(c)};
    psc_team_run(c->team, c->shard.n_floats, step_piece, &w);
    c->worker.update_s += ps_now_s() - begin;
}

static void look_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct own_pass *w = arg;
    struct psc *c = w->c;
    const float *own = c->worker.vectors[PSC_VECTOR_X];
    struct ps_range r = {w->begin + begin, count};
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        struct psc_optimizer_vectors point = point_of(c, p.range, w->at);
        if (p.segment->role == PS_ROLE_PARAM)
            c->optimizer->lookahead(&c->work, &point, (float)c->worker.hyper.momentum);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->work, w->at + p.range.begin, own + p.range.begin, p.range.count);
    }
    psc_passes_end(&c->work);
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
