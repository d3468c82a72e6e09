/* Changes the method in the middle of the job: the client's side of server/job/method_change.c.
 *
 * The service thread receives a Welcome with another generation. A transfer in progress that has not landed
 * ends with PSC_METHOD_CHANGED (client/transfer/transfer.c); the step then changes to the new method and is
 * made again. The worker's own steps since the last answer are not lost: they are added to the center first,
 * as the rule before would have without its momentum, whatever the new rule sends.
 *
 * The worker's clock continues, and its velocity does if the optimizer stays the same. The multipliers of
 * admm begin at 0, with x at the center. */
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
 * change over; added whole, their steps would move the center p times as far as a round. */
static void weigh_unsent(struct psc *c, float *unsent)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    uint32_t p = takes_mean(c) && s->workers > 1 ? s->workers : 1;
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

/* Adds the worker's unsent steps to the center; its own x becomes the center then. */
static int flush_unsent(struct psc *c, float *x)
{
    bool may_have_unsent = c->worker.stepped && c->rule->unsent != NULL && psc_vectors_are_there(c);
    float *unsent = may_have_unsent ? c->rule->unsent(c, x) : NULL;
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        c->worker.prefetch[i].lost = false;
    if (unsent == NULL)
        return PSC_OK;
    weigh_unsent(c, unsent);
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

/* For a rule under which all workers must begin at the center. */
static int begin_at_center(struct psc *c, float *x)
{
    struct psc_transfer t = {.kind = PS_FRAME_PULL, .landed = psc_land_all, .target = x};
    return psc_move(c, &t);
}

/* Allocates and initialises the vectors of the new method. */
static int start_vectors(struct psc *c, float *x, bool same_rule)
{
    if (c->async.runs) /* transfers started by the caller may use the error feedback */
        psc_async_await(c, c->async.issued);
    if (!same_rule)
        psc_vectors_drop_but(c, PSC_VECTOR_BIT(PSC_VECTOR_X) | PSC_VECTOR_BIT(PSC_VECTOR_V));
    psc_vectors_drop_but(c, psc_vectors_of(c));
    int rc = psc_step_prepare(c);
    if (rc == PSC_OK && !same_rule && c->worker.vectors[PSC_VECTOR_LAMBDA] != NULL)
        rc = begin_at_center(c, x);
    if (rc == PSC_OK && c->worker.vectors[PSC_VECTOR_START] != NULL)
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

int psc_change_method(struct psc *c, float *x)
{
    struct psc_welcome welcome;
    int flushed, rc = psc_finish_overlapped(c);
    if (rc != PSC_OK && rc != PSC_METHOD_CHANGED)
        return rc;
    take_answers(c, x);
    c->pulled = true; /* the members of a clique take x after a change */
    flushed = flush_unsent(c, x);
    if (flushed != PSC_OK && flushed != PSC_EVALUE)
        return flushed;
    pthread_mutex_lock(&c->session.shared.lock);
    welcome = c->session.shared.welcome;
    c->session.shared.hyper = welcome.hyper;
    pthread_mutex_unlock(&c->session.shared.lock);
    /* What a rule with a fixed number of workers remembers is of that many. */
    bool same_rule = strcmp(welcome.rule, c->rule_name) == 0 &&
                     (!c->rule_info->fixed_workers || welcome.hyper.workers == c->worker.hyper.workers);
    if (strcmp(welcome.optimizer, c->optimizer->name) != 0 || flushed == PSC_EVALUE)
        return_to_own_x(c, x);
    psc_take_method(c, &welcome);
    psc_pacing_restart(c);
    c->worker.pacing.period = 0;
    rc = start_vectors(c, x, same_rule);
    if (rc == PSC_OK)
        return flushed;
    c->generation = welcome.generation - 1; /* the change failed: the next step tries it again */
    c->rule_name[0] = 0;
    return rc;
}
