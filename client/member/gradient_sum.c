/* The mean of the members' gradients. Each adds n_samples times its own, so that the mean is weighted by
 * samples as a round's is; of a clique of one it is the gradient itself, bit for bit.
 *
 * What travels is not larger than twice the mean, since codecs of few bits saturate: samples are counted in a
 * unit 2^k, the largest that is not above what all members had together in any step so far. A power of two
 * changes no bit of the mean. Before the first sum all tell their samples. In a step with more samples than
 * ever before the sum is larger than the mean by as much, once.
 *
 * Sums travel while the caller computes, when they are not waited for at once: words before the vector, so
 * that they are never behind it. */
#include <math.h>
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

static void put(struct psc *c, const struct ps_segment *s, float *sum, const float *x, const float *g)
{
    uint64_t at = s->range.begin, n = s->range.count;
    if (s->role == PS_ROLE_FROZEN)
        memset(sum + at, 0, n * sizeof *sum);
    else if (s->role == PS_ROLE_BUFFER)
        c->vec->copy(sum + at, x + at, n);
    else
        c->vec->copy(sum + at, (c->rule->collective ? psc_gradient_to_step(c, s, g) : g) + at, n);
}

/* Adds what the leader has heard from the server since the last sum. */
static void fill_words(struct psc *c, size_t n_samples)
{
    struct psc_group *p = &c->group;
    struct psc_shared *s = &c->session.shared;
    memset(p->words, 0, sizeof p->words);
    p->words[PSC_WORD_SAMPLES] = (float)n_samples;
    if (p->rank > 0)
        return;
    pthread_mutex_lock(&s->lock);
    p->words[PSC_WORD_DRAIN] = s->draining;
    p->words[PSC_WORD_SAVE] = s->save_version != p->told_version;
    p->told_version = s->save_version;
    pthread_mutex_unlock(&s->lock);
    p->words[PSC_WORD_FAILED] = p->lost;
}

int psc_sum_start(struct psc *c, float *sum, size_t n_samples)
{
    struct psc_group *p = &c->group;
    fill_words(c, n_samples);
    p->pending = true;
    if (p->size == 1)
        return PSC_OK;
    int rc = psc_allreduce_start(p->q, p->words, PSC_N_WORDS, NULL, NULL);
    if (rc == PSC_OK && psc_group_sums_to_leader(c))
        rc = psc_reduce_start(p->q, sum, c->shard.n_floats, 0, c->clique_codec, &p->ticket);
    else if (rc == PSC_OK)
        rc = psc_allreduce_start(p->q, sum, c->shard.n_floats, c->clique_codec, &p->ticket);
    p->pending = rc == PSC_OK;
    return rc == PSC_OK ? PSC_OK : ps_fail(&c->error, rc, "%s", psc_clique_error(p->q));
}

static void take_unit(struct psc_group *p, float samples)
{
    int e = 0;
    frexpf(samples, &e); /* samples is 2^(e - 1) and more */
    float unit = ldexpf(1, 1 - e);
    if (samples >= 1 && (p->unit == 0 || unit < p->unit))
        p->unit = unit;
}

static int learn_unit(struct psc *c, size_t n_samples)
{
    struct psc_group *p = &c->group;
    float samples = (float)n_samples;
    int rc = psc_allreduce(p->q, &samples, 1, NULL);
    take_unit(p, samples);
    return rc == PSC_OK ? PSC_OK : ps_fail(&c->error, rc, "%s", psc_clique_error(p->q));
}

static int take_words(struct psc *c)
{
    struct psc_group *p = &c->group;
    p->n_samples = (size_t)p->words[PSC_WORD_SAMPLES];
    take_unit(p, p->words[PSC_WORD_SAMPLES]);
    p->drains = p->words[PSC_WORD_DRAIN] > 0;
    p->save_version += p->words[PSC_WORD_SAVE] > 0;
    if (!(p->words[PSC_WORD_FAILED] > 0))
        return PSC_OK;
    if (p->rank > 0)
        return ps_fail(&c->error, PSC_EGONE, "rank 0 of the clique has lost the server");
    return ps_fail(&c->error, p->published.rc, "%s", p->published.error.text);
}

int psc_sum_finish(struct psc *c, float *sum)
{
    struct psc_group *p = &c->group;
    double begin = ps_now_s();
    int rc = p->size > 1 ? psc_clique_wait(p->q, PSC_ALL) : PSC_OK;
    p->pending = false;
    c->worker.exchange_s += ps_now_s() - begin;
    if (rc != PSC_OK)
        return ps_fail(&c->error, rc, "%s", psc_clique_error(p->q));
    if ((rc = take_words(c)) != PSC_OK || (p->rank > 0 && psc_group_sums_to_leader(c)))
        return rc;
    size_t bad = c->vec->first_nonfinite(sum, c->shard.n_floats);
    return bad == c->shard.n_floats
               ? PSC_OK
               : ps_fail(&c->error, PSC_EVALUE,
                         "the members' sum is not finite, in tensor '%s': nothing has moved",
                         ps_manifest_tensor(c->manifest, bad)->name);
}

int psc_gather_start(struct psc *c, float *sum, const float *x, const float *g, size_t n_samples)
{
    struct psc_group *p = &c->group;
    int rc;
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        put(c, &c->manifest->segments[i], sum, x, g);
    if (p->size == 1)
        return psc_sum_start(c, sum, n_samples);
    if (p->unit == 0 && (rc = learn_unit(c, n_samples)) != PSC_OK)
        return rc;
    p->sum_unit = p->unit;
    c->vec->scale(sum, (float)n_samples * p->unit, c->shard.n_floats);
    return psc_sum_start(c, sum, n_samples);
}

int psc_gather_finish(struct psc *c, float *sum)
{
    struct psc_group *p = &c->group;
    int rc = psc_sum_finish(c, sum);
    if (rc == PSC_OK && p->size > 1)
        c->vec->scale(sum, 1 / (float)p->n_samples / p->sum_unit, c->shard.n_floats);
    return rc;
}

void psc_gather_buffers(struct psc *c, float *x, const float *sum)
{
    if (c->group.size > 1 && !psc_group_sums_to_leader(c))
        psc_copy_buffers(c, x, sum);
}
