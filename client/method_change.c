/* Changes the method in the middle of the job: the client's side of server/job/method_change.c.
 *
 * The service thread receives a Welcome with another generation. A transfer in progress that has not landed
 * ends with PSC_METHOD_CHANGED (client/transfer/transfer.c); the step then changes to the new method and is
 * made again. The worker's own steps since the last answer are not lost: they are added to the center first,
 * as the rule before would have without its momentum, whatever the new rule sends.
 *
 * The worker's clock continues, and its velocity does if the optimizer stays the same. Under admm all workers
 * must begin at one center, which is the mean of their x - lambda: it would not be the same for those that
 * read it before another has added to it. So they add nothing. What a worker has not sent is its multipliers
 * then, and x the center and that, so that x - lambda is the center; its first exchange moves the center by
 * its share of it. */
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

bool psc_method_has_changed(struct psc *c)
{
    pthread_mutex_lock(&c->session.shared.lock);
    bool swapped = c->session.shared.welcome.generation != c->generation;
    pthread_mutex_unlock(&c->session.shared.lock);
    return swapped;
}

void psc_take_method(struct psc *c, const struct psc_welcome *welcome)
{
    c->taken = *welcome;
    c->rule_info = ps_rule_find(welcome->rule); /* NULL: a worker without a server */
    c->worker.next_key = 0;
    c->rule = psc_rule_of(c->rule_info, welcome->clique_mode);
    c->optimizer = psc_optimizer_find(welcome->optimizer);
    c->admission = c->local ? NULL : ps_admission_find(welcome->admission);
    c->worker.hyper = welcome->hyper;
    c->generation = welcome->generation;
    c->feeds_back = welcome->error_feedback && !welcome->message.in_place && !c->local;
    c->shard = (struct ps_shard){c->manifest->n_floats, welcome->n_lanes, welcome->chunk_floats, 0, {0}};
    ps_manifest_cut(c->manifest, welcome->n_parts, &c->shard, NULL); /* psc_lanes_prepare reports an error */
    snprintf(c->method_name, sizeof c->method_name, "%s", welcome->method);
    snprintf(c->rule_name, sizeof c->rule_name, "%s", welcome->rule);
    snprintf(c->clique_codec, sizeof c->clique_codec, "%s", welcome->clique_codec);
    snprintf(c->clique_algorithm, sizeof c->clique_algorithm, "%s", welcome->clique_algorithm);
    c->clique_shrinks = welcome->clique_shrinks;
    c->publish = welcome->publish;
    c->bucket_floats = welcome->bucket_floats;
}

/* Whether a round applies the mean of its messages. */
static bool takes_mean(const struct psc *c)
{
    return c->admission != NULL && c->admission->merges && (c->rule_info->drops & PS_USES_MERGE) == 0;
}

/* The rule would have added the unsent steps at its rate, in rounds as one of p workers'. All p of them
 * change over; added whole, their steps would move the center p times as far as a round. What the worker
 * keeps moves the center as one of p workers' anyway. */
static void weigh_unsent(struct psc *c, float *unsent, bool keeps)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    uint32_t p = takes_mean(c) && !keeps && s->workers > 1 ? s->workers : 1;
    pthread_mutex_unlock(&s->lock);
    float share = (float)(c->taken.unsent_rate / p);
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments && share != 1; i++) {
        const struct ps_segment *segment = &c->manifest->segments[i];
        if (segment->role == PS_ROLE_PARAM)
            psc_scale(&c->work, unsent + segment->range.begin, share, segment->range.count);
    }
    psc_passes_end(&c->work);
}

/* The vector that they are in becomes the multipliers. The rule before has none. */
static void keep_as_multipliers(struct psc *c, const float *unsent)
{
    float **vectors = c->worker.vectors;
    int k = 0;
    while (vectors[k] != unsent)
        k++;
    vectors[PSC_VECTOR_LAMBDA] = vectors[k];
    vectors[k] = NULL;
}

/* Adds the worker's unsent steps to the center; its own x becomes the center then. keeps: the worker keeps
 * them instead; returns whether there are any in *kept. */
static int flush_unsent(struct psc *c, float *x, bool keeps, bool *kept)
{
    bool may_have_unsent = c->worker.stepped && c->rule->unsent != NULL && psc_vectors_are_there(c);
    float *unsent = may_have_unsent ? c->rule->unsent(c, x) : NULL;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        c->worker.prefetch[i].lost = false;
    if (unsent == NULL)
        return PSC_OK;
    weigh_unsent(c, unsent, keeps);
    if (keeps) {
        keep_as_multipliers(c, unsent);
        *kept = true;
        return PSC_OK;
    }
    struct psc_transfer t = psc_exchange_of(c, unsent, psc_own_x(c, x), 0);
    t.kind = PS_FRAME_ADD;
    t.landed = psc_land_moved;
    int rc = psc_move(c, &t);
    if (rc == PSC_OK)
        psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
    return rc;
}

/* Makes the caller's array hold the worker's own x instead of the lookahead point. */
static void return_to_own_x(struct psc *c, float *x)
{
    const float *own = psc_own_x(c, x);
    if (own != x)
        psc_copy_moved(c, x, own);
    c->worker.restart = true;
}

/* For a rule under which all workers must begin at the center: x <- center + lambda. */
static int begin_at_center(struct psc *c, float *x)
{
    struct psc_transfer t = {.kind = PS_FRAME_PULL, .landed = psc_land_all, .target = x};
    int rc = psc_move(c, &t);
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments && rc == PSC_OK; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (s->role == PS_ROLE_PARAM)
            psc_axpy(&c->work, x + s->range.begin, c->worker.vectors[PSC_VECTOR_LAMBDA] + s->range.begin, 1,
                     s->range.count);
    }
    psc_passes_end(&c->work);
    return rc;
}

/* Allocates and initialises the vectors of the new method. kept: the multipliers are there already. */
static int start_vectors(struct psc *c, float *x, bool same_rule, bool kept)
{
    const unsigned lambda = kept ? PSC_VECTOR_BIT(PSC_VECTOR_LAMBDA) : 0;
    if (c->async.runs) /* transfers started by the caller may use the error feedback */
        psc_async_await(c, c->async.issued);
    if (!same_rule)
        psc_vectors_drop_but(c, PSC_VECTOR_BIT(PSC_VECTOR_X) | PSC_VECTOR_BIT(PSC_VECTOR_V) | lambda);
    psc_vectors_drop_but(c, psc_vectors_of(c));
    int rc = psc_step_prepare(c);
    if (rc == PSC_OK && !same_rule && c->worker.vectors[PSC_VECTOR_LAMBDA] != NULL)
        rc = begin_at_center(c, x);
    if (c->worker.vectors[PSC_VECTOR_START] != NULL) /* also if it failed: what was unsent is sent */
        psc_copy(&c->work, c->worker.vectors[PSC_VECTOR_START], psc_own_x(c, x), c->shard.n_floats);
    return rc;
}

/* Applies the answers that have arrived. Under rules whose exchange belongs before the step (lands_in_x) that
 * of the current step was made then: `first`, which says so, stays. */
static void take_answers(struct psc *c, float *x)
{
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        struct psc_prefetch *a = &c->worker.prefetch[i];
        bool is_made = a->landed && c->rule->lands_in_x;
        if (a->landed && c->rule->take_over != NULL)
            c->rule->take_over(c, x, a);
        a->landed = false;
        if (!is_made)
            a->first = PSC_NO_STEP;
    }
}

/* The newest method that the server has told. */
static void take_newest(struct psc *c, struct psc_welcome *out)
{
    pthread_mutex_lock(&c->session.shared.lock);
    *out = c->session.shared.welcome;
    c->session.shared.hyper = out->hyper;
    pthread_mutex_unlock(&c->session.shared.lock);
}

/* Whether what the worker has of its rule is of the next method, too. What a rule with a fixed number of
 * workers remembers is of that many, and of the center that their parts are in: other methods may have moved
 * it meanwhile, of which this worker has not heard. */
static bool is_same_rule(const struct psc *c, const struct psc_welcome *next)
{
    return strcmp(next->rule, c->rule_name) == 0 &&
           (!c->rule_info->fixed_workers ||
            (next->hyper.workers == c->worker.hyper.workers && next->shares_since <= c->generation));
}

static bool begins_at_center(const struct psc *c, const struct psc_welcome *next)
{
    const struct ps_rule_info *rule = ps_rule_find(next->rule);
    return rule != NULL && rule->fixed_workers && !is_same_rule(c, next);
}

bool psc_change_has_failed(const struct psc *c)
{
    return !c->local && c->rule_name[0] == 0;
}

int psc_change_method(struct psc *c, float *x)
{
    struct psc_welcome welcome;
    bool kept = false;
    int flushed, rc = psc_finish_overlapped(c);
    if (rc != PSC_OK && rc != PSC_METHOD_CHANGED)
        return rc;
    c->error.text[0] = 0; /* of the exchange that the change has refused: it is made again */
    take_answers(c, x);
    c->pulled = true; /* the members of a clique take x after a change */
    take_newest(c, &welcome);
    flushed = flush_unsent(c, x, begins_at_center(c, &welcome), &kept);
    if (flushed != PSC_OK && flushed != PSC_EVALUE)
        return flushed;
    if (!kept) /* else it is made for that one; a still newer one is a change of its own */
        take_newest(c, &welcome);
    bool same_rule = is_same_rule(c, &welcome);
    if (strcmp(welcome.optimizer, c->optimizer->name) != 0 || flushed == PSC_EVALUE)
        return_to_own_x(c, x);
    psc_take_method(c, &welcome);
    psc_pacing_restart(c);
    c->worker.pacing.period = 0;
    rc = start_vectors(c, x, same_rule, kept);
    if (rc == PSC_OK)
        return flushed;
    c->generation = welcome.generation - 1; /* the change failed: the next step tries it again */
    c->rule_name[0] = 0;
    return rc;
}
