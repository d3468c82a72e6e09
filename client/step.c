/* psc_step: the order of the worker's own step and of exchanges. */
#include <inttypes.h>

#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/clock.h"
#include "proto/model/fragment.h"

/* NULL: no tensor has a rate of its own */
static const struct ps_tensor *first_with_rate(const struct ps_manifest *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].rate_ppm != 0)
            return &m->tensors[i];
    return NULL;
}

/* Sums at once: after a reload there may be more than the pipeline now takes. */
static uint64_t pipeline_of(const struct psc *c)
{
    uint64_t there = psc_sums(&c->group) + 1, wanted = c->worker.hyper.pipeline;
    return there > wanted ? there : wanted;
}

/* Values that are not part of a message, such as frozen ones, stay 0. */
int psc_step_prepare(struct psc *c)
{
    unsigned keeps = psc_vectors_of(c);
    if (c->optimizer->step == NULL && c->opt.own_step == NULL)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "the job's optimizer is %s: every worker needs its own step (options.own_step), "
                       "and this one has none",
                       c->optimizer->name);
    const struct ps_tensor *own_rate = c->optimizer->step == NULL ? first_with_rate(c->manifest) : NULL;
    if (own_rate != NULL)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "the job's optimizer is %s: tensor '%.60s' has %g of the learning rate, but the "
                       "program makes the step itself; allowed: 1",
                       c->optimizer->name, own_rate->name, ps_rate_of(own_rate->rate_ppm));
    if (c->optimizer->step == NULL && c->clique_shrinks && psc_sums_gradients(c))
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "clique.on_loss: found shrink, but the optimizer is %s: a member that takes the x of "
                       "another after a loss cannot take the state of its program's optimizer; allowed: end",
                       c->optimizer->name);
    if (c->worker.hyper.pipeline_warmup_epochs > 0 && c->opt.samples_per_epoch == 0 && c->rule->begin != NULL)
        return ps_fail(
            &c->error, PSC_EUNSUPPORTED,
            "the job's pipeline_warmup_epochs is %g: every worker must set options.samples_per_epoch, the "
            "samples in an epoch; found 0",
            c->worker.hyper.pipeline_warmup_epochs);
    if (c->worker.hyper.overlap && !c->rule->overlaps)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "rule %s cannot exchange while the worker computes; allowed: overlap: false",
                       c->rule_name);
    if (c->worker.hyper.overlap > 1 && !c->rule->defers)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "rule %s takes its answer at the next step; allowed: overlap: true and false",
                       c->rule_name);
    if (psc_pacing_fragments(c) > 1 && psc_pacing_fragments(c) > ps_fragments_most(&c->shard))
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "the job has %u fragments, but the vector has only %llu chunks",
                       psc_pacing_fragments(c), (unsigned long long)ps_fragments_most(&c->shard));
    if (c->worker.pacing.fragment >= psc_pacing_fragments(c))
        psc_pacing_restart(c);
    int rc = c->rule->begin != NULL ? psc_pipeline_prepare(c, pipeline_of(c)) : PSC_OK;
    if (rc != PSC_OK)
        return rc;
    if (!psc_prefetch_make(c, psc_pacing_fragments(c)))
        return ps_fail(&c->error, PSC_ENOMEM, "no memory for the exchanges of %u fragments",
                       psc_pacing_fragments(c));
    for (int k = 0; k < PSC_N_VECTORS; k++)
        if ((keeps & PSC_VECTOR_BIT(k)) != 0 && c->worker.vectors[k] == NULL) {
            c->worker.restart = c->worker.restart || k == PSC_VECTOR_X || k == PSC_VECTOR_V;
            if (!psc_vector_make(c, (enum psc_vector)k))
                return ps_fail(&c->error, PSC_ENOMEM, "no memory for the method's vectors of %llu floats",
                               (unsigned long long)c->shard.n_floats);
        }
    return c->worker.hyper.overlap && !c->group.follows ? psc_async_start(c) : PSC_OK;
}

static void take_back(struct psc *c, struct psc_prefetch *a)
{
    if (!a->unwanted)
        psc_prefetch_take_back(c, a);
    a->started = a->landed = a->unwanted = false; /* nothing has landed */
    a->first = PSC_NO_STEP;
}

/* Fragments behind the one that was aborted were not sent. */
void psc_take_back(struct psc *c)
{
    psc_pacing_restart(c);
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        struct psc_prefetch *a = &c->worker.prefetch[i];
        if (!a->started)
            continue;
        psc_async_await(c, a->ticket);
        if (psc_prefetch_is_unsent(c, a))
            take_back(c, a);
    }
    psc_async_take_fragments(c);
}

/* A vector that was not finite was not sent: the exchange is still due, and will report it. */
static int finish(struct psc *c, struct psc_prefetch *a)
{
    if (!a->started)
        return PSC_OK;
    psc_async_await(c, a->ticket);
    if (a->outcome.rc == PSC_ABORTED) {
        psc_take_back(c);
        return PSC_OK;
    }
    a->started = false;
    a->landed = a->outcome.rc == PSC_OK && !a->unwanted;
    a->lost = a->outcome.rc == PSC_METHOD_CHANGED && !a->unwanted;
    a->unwanted = false;
    if (!a->landed)
        a->first = PSC_NO_STEP;
    return a->outcome.rc == PSC_EVALUE ? PSC_OK : a->outcome.rc;
}

/* The first failure. */
static int finish_some(struct psc *c, bool only_due)
{
    int first = PSC_OK;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        struct psc_prefetch *a = &c->worker.prefetch[i];
        int rc = only_due && !psc_prefetch_is_due(c, a) ? PSC_OK : finish(c, a);
        if (rc == PSC_OK || first != PSC_OK)
            continue;
        first = rc;
        c->error = a->outcome.error;
    }
    return first;
}

int psc_finish_overlapped(struct psc *c)
{
    return finish_some(c, false);
}

/* Those behind one that has failed have failed, too. */
static int finish_due(struct psc *c)
{
    int rc = finish_some(c, true);
    if (rc == PSC_OK)
        return rc;
    struct ps_error why = c->error;
    psc_finish_overlapped(c);
    c->error = why;
    return rc;
}

/* A draining server waits for exchanges in progress: none may remain. One that a change of the method has
 * refused is sent as the change does it. */
static int finish_drained(struct psc *c, float *x)
{
    int rc = psc_finish_overlapped(c);
    if (rc == PSC_METHOD_CHANGED)
        rc = psc_change_method(c, x);
    for (uint32_t i = 0; rc == PSC_OK && i < c->worker.n_prefetches; i++) {
        struct psc_prefetch *a = &c->worker.prefetch[i];
        if (a->landed && (c->rule->finishes || a->deferred))
            c->rule->take_over(c, x, a);
    }
    return rc == PSC_OK ? PSC_DRAINED : rc;
}

static int put_all(struct psc *c, const float *x, const float *g)
{
    return psc_gather_put(c, x, g, ps_shard_whole(&c->shard), 0);
}

/* The caller applies what the rule answers. */
static int check_half(struct psc *c)
{
    return c->rule_info == NULL || c->rule_info->half != PS_HALF_CALLER
               ? PSC_OK
               : ps_fail(
                     &c->error, PSC_EUNSUPPORTED,
                     "psc_step: rule %s answers the sum of a round, with which the caller makes the step; "
                     "allowed are the calls of keys and psc_exchange",
                     c->rule_name);
}

/* The method may have changed since the step began. */
static int step_once(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = check_half(c);
    rc = rc == PSC_OK ? psc_step_prepare(c) : rc;
    if (rc == PSC_OK && c->rule->begin != NULL && !c->worker.open.gathers) {
        c->worker.open.gathers = true;
        if ((rc = c->rule->begin(c, n_samples)) == PSC_OK)
            rc = put_all(c, x, g);
    }
    return rc == PSC_OK ? c->rule->step(c, x, g, n_samples) : rc;
}

/* Where all workers are one clique only the leader hears of a psd that came back with another method. */
static int refuse_method(struct psc *c)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    int rc = ps_fail(&c->error, PSC_EUNSUPPORTED,
                     "the server came back with another method or other parameters (method '%s', generation "
                     "%u): all members of a clique begin with them; restart the clique",
                     s->welcome.method, s->welcome.generation);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* The method may change before the step, or during it, if the exchange has not landed. Then the step is made
 * again under the new method from the same x and g. If the worker's own step was made already, x includes it,
 * and only sending remains. */
static int step_and_follow(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = finish_due(c);
    if (rc == PSC_OK && !c->worker.open.early.begun && psc_method_has_changed(c))
        rc = c->rule->collective && c->group.size > 1 ? refuse_method(c) : PSC_METHOD_CHANGED;
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
    if (draining)
        return finish_drained(c, x);
    return c->group.stops ? PSC_DRAINED : PSC_OK;
}

/* The leader makes the step for all members. */
static bool is_led(const struct psc *c)
{
    return c->group.size > 1 && !c->rule->collective;
}

bool psc_sums_gradients(const struct psc *c)
{
    return c->group.size > 1 && (is_led(c) || c->rule->begin != NULL);
}

bool psc_leaves_early(const struct psc *c)
{
    return psc_sums_gradients(c) || psc_early_is_possible(c);
}

/* Where gradients are summed over a clique the sum begins now. Under other rules an exchange is known before
 * the gradient, or waits for all of it. */
static int begin_sum(struct psc *c)
{
    struct psc_open_step *s = &c->worker.open;
    int rc = PSC_OK;
    if (is_led(c)) {
        rc = psc_gather_begin(c, c->group.sum, s->n_samples);
    } else if (c->rule->begin != NULL) {
        rc = psc_step_prepare(c);
        rc = rc == PSC_OK ? c->rule->begin(c, s->n_samples) : rc;
    } else {
        return PSC_OK;
    }
    s->gathers = rc == PSC_OK;
    return rc;
}

static int begin_step(struct psc *c, const char *call, float *x, const float *g, size_t n_samples)
{
    struct psc_open_step *s = &c->worker.open;
    int rc = psc_check_vectors(c, call, x, g);
    if (rc != PSC_OK)
        return rc;
    if (n_samples == 0 && c->group.size > 1)
        return ps_fail(&c->error, PSC_EINVAL,
                       "%s: n_samples is 0; allowed in a clique are 1 and more: its mean is weighted by them",
                       call);
    if ((rc = psc_key_round_check(c, call, NULL, false)) != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    float *before = c->worker.caller_x;
    c->worker.caller_x = x;
    s->gathers = false;
    s->clock = c->worker.clock;
    s->x = x;
    s->g = g;
    s->n_samples = n_samples;
    if (!c->worker.stepped && (rc = psc_group_agree_on_clock(c)) == PSC_EINVAL) {
        c->worker.caller_x = before; /* the caller may let go of x */
        return rc;
    }
    c->worker.stepped = true;
    rc = rc == PSC_OK ? begin_sum(c) : rc;
    s->lost = psc_losses_may_go_on(&c->group, rc);
    return s->lost ? PSC_OK : rc;
}

static int make_step(struct psc *c)
{
    struct psc_open_step *s = &c->worker.open;
    return is_led(c) ? psc_group_step(c, s->x) : psc_step_alone(c, s->x, s->g, s->n_samples);
}

/* Of a step that another member, or the leader, has made. */
static int result_of_others(const struct psc *c)
{
    if (!c->rule->collective)
        return c->group.losses.step_rc;
    return c->group.drains ? PSC_DRAINED : PSC_OK;
}

/* What is left of a clique makes the step, from the same x and g. */
static int step_after_loss(struct psc *c, int rc)
{
    struct psc_open_step *s = &c->worker.open;
    while (psc_losses_may_go_on(&c->group, rc)) {
        s->gathers = false;
        if ((rc = psc_losses_go_on(c, s->x)) != PSC_OK)
            return rc;
        if (c->worker.clock > s->clock)
            return result_of_others(c);
        rc = begin_sum(c);
        if (rc == PSC_OK && s->gathers)
            rc = put_all(c, s->x, s->g);
        if (rc == PSC_OK)
            rc = make_step(c);
    }
    return rc;
}

static int end_step(struct psc *c)
{
    struct psc_open_step *s = &c->worker.open;
    int rc = step_after_loss(c, s->lost ? PSC_ECLIQUE : make_step(c));
    s->gathers = s->lost = false;
    if (rc >= 0 && c->group.losses.shrinks)
        psc_losses_note_step(c);
    return psc_work_end(c, rc);
}

/* Where a worker sends its own gradient, its chunks leave as they become ready. */
static int begin_early(struct psc *c)
{
    if (c->worker.open.gathers || !psc_early_is_possible(c) || psc_method_has_changed(c))
        return PSC_OK;
    int rc = check_half(c);
    rc = rc == PSC_OK ? psc_step_prepare(c) : rc;
    return rc == PSC_OK ? psc_early_begin(c) : rc;
}

int psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples)
{
    struct psc_open_step *s = &c->worker.open;
    int rc = psc_check_vectors(c, "psc_step_begin", x, g);
    if (rc != PSC_OK)
        return rc;
    if (s->ready.at == NULL && !psc_ranges_make(&s->ready, c->manifest->n_tensors + 1))
        return ps_fail(&c->error, PSC_ENOMEM, "psc_step_begin: no memory for the reported parts");
    psc_ranges_clear(&s->ready);
    rc = begin_step(c, "psc_step_begin", x, g, n_samples);
    rc = rc == PSC_OK ? begin_early(c) : rc;
    s->begun = rc == PSC_OK;
    return rc;
}

static int check_open(struct psc *c, const char *call)
{
    int rc = psc_check_use(&c->session, call, &c->error);
    if (rc == PSC_OK && !c->worker.open.begun)
        rc = ps_fail(&c->error, PSC_EINVAL, "%s: call psc_step_begin first", call);
    return rc;
}

/* Adds r to what was reported. */
static int report(struct psc *c, struct ps_range r)
{
    struct psc_ranges *ready = &c->worker.open.ready;
    struct ps_range other;
    uint64_t n = c->shard.n_floats;
    if (r.begin > n || r.count > n - r.begin)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_ready: %" PRIu64 " floats from %" PRIu64 " on; the vector has %" PRIu64, r.count,
                       r.begin, n);
    switch (psc_ranges_add(ready, r, &other)) {
    case PSC_RANGES_OVERLAP:
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_ready: %" PRIu64 " floats from %" PRIu64 " on; of these %" PRIu64 " from %" PRIu64
                       " on were reported before",
                       r.count, r.begin, ps_range_intersect(r, other).count,
                       ps_range_intersect(r, other).begin);
    case PSC_RANGES_FULL:
        return ps_fail(&c->error, PSC_EINVAL, "psc_ready: more than %zu separate parts; report whole tensors",
                       ready->room);
    case PSC_RANGES_ADDED:
    default:
        return PSC_OK;
    }
}

int psc_ready(struct psc *c, uint64_t first, uint64_t count)
{
    struct psc_open_step *s = &c->worker.open;
    struct ps_range r = {first, count};
    int rc = check_open(c, "psc_ready");
    if (rc != PSC_OK || count == 0 || (rc = report(c, r)) != PSC_OK)
        return rc;
    if (s->early.begun)
        psc_early_put(c, r);
    if (!s->gathers || s->lost)
        return PSC_OK;
    rc = psc_gather_put(c, s->x, s->g, r, psc_ranges_tail(&s->ready, c->shard.n_floats));
    s->lost = psc_losses_may_go_on(&c->group, rc);
    if (rc == PSC_OK || s->lost)
        return PSC_OK;
    s->begun = s->gathers = false;
    return psc_work_end(c, rc);
}

int psc_step_end(struct psc *c)
{
    int rc = check_open(c, "psc_step_end");
    if (rc != PSC_OK)
        return rc;
    struct ps_range hole = psc_ranges_hole(&c->worker.open.ready, c->shard.n_floats);
    if (hole.count > 0)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_step_end: %" PRIu64 " floats from %" PRIu64
                       " on, of tensor '%s', were not reported by psc_ready",
                       hole.count, hole.begin, ps_manifest_tensor(c->manifest, hole.begin)->name);
    c->worker.open.begun = false;
    return end_step(c);
}

int psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = begin_step(c, "psc_step", x, g, n_samples);
    if (rc != PSC_OK)
        return rc;
    if (c->worker.open.gathers && (rc = put_all(c, x, g)) != PSC_OK) {
        if (!psc_losses_may_go_on(&c->group, rc))
            return rc;
        c->worker.open.lost = true;
    }
    return end_step(c);
}

/* How long a member that could leave alone waits for all others to wish the same. */
#define STOP_TOGETHER_S 2.0

int psc_stop(struct psc *c)
{
    struct psc_group *p = &c->group;
    int rc = psc_check_worker(c, "psc_stop", c, c);
    if (rc != PSC_OK)
        return rc;
    if (p->size == 1)
        return PSC_DRAINED;
    if (!p->stop.is_there)
        p->stop = (struct psc_wish){true, ps_now_s(), p->sums_begun};
    bool all_know = p->sums_landed > p->stop.first_sum, late = ps_now_s() - p->stop.since_s > STOP_TOGETHER_S;
    return p->losses.shrinks && all_know && late ? PSC_DRAINED : PSC_OK;
}

int psc_point(struct psc *c, float *x)
{
    int rc = psc_check_vectors(c, "psc_point", x, x);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    const float *own = c->worker.vectors[PSC_VECTOR_X];
    if (x != c->worker.caller_x)
        psc_copy(&c->work, x, c->worker.caller_x, c->shard.n_floats);
    if (own == NULL || c->worker.restart)
        return psc_work_end(c, PSC_OK);
    if (psc_has_prefetch(c))
        psc_async_await(c, c->worker.prefetch->ticket);
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (s->role == PS_ROLE_PARAM)
            psc_copy(&c->work, x + s->range.begin, own + s->range.begin, s->range.count);
    }
    psc_passes_end(&c->work);
    return psc_work_end(c, PSC_OK);
}
