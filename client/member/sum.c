/* Sums over the members. The words that members add beside the vector are sent before it, so that they never
 * arrive after it. The vector is sent in buckets, each a collective of its own, from its end to its
 * beginning: gradients become final in that order. All members must make the same collectives in the same
 * order; so a bucket waits for those behind it. Every bucket but the last begins at a stripe of the clique.
 * So the member whose value is added first, and with it the last bit of a sum, does not depend on the
 * buckets. */
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

/* Adds what the leader has heard from the server since the last sum. */
static void fill_words(struct psc *c, float *words, size_t n_samples)
{
    struct psc_group *p = &c->group;
    struct psc_shared *s = &c->session.shared;
    memset(words, 0, PSC_N_WORDS * sizeof *words);
    words[PSC_WORD_SAMPLES] = (float)n_samples;
    if (p->rank > 0)
        return;
    pthread_mutex_lock(&s->lock);
    words[PSC_WORD_DRAIN] = s->draining;
    words[PSC_WORD_SAVE] = s->save_version != p->told_version;
    p->told_version = s->save_version;
    pthread_mutex_unlock(&s->lock);
    words[PSC_WORD_FAILED] = p->lost;
}

int psc_sum_begin(struct psc *c, float *vector, size_t n_samples, uint64_t bucket_floats)
{
    struct psc_group *p = &c->group;
    struct psc_sum *s = &p->sums[p->sums_begun % PSC_MAX_SUMS];
    *s = (struct psc_sum){
        .vector = vector, .left = c->shard.n_floats, .bucket_floats = bucket_floats, .unit = p->unit};
    fill_words(c, s->words, n_samples);
    int rc = p->size == 1 ? PSC_OK : psc_allreduce_start(p->q, s->words, PSC_N_WORDS, NULL, &s->ticket);
    p->sums_begun += rc == PSC_OK;
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

static int start_bucket(struct psc *c, struct psc_sum *s, uint64_t begin)
{
    struct psc_group *p = &c->group;
    size_t n = s->left - begin;
    int rc = psc_group_sums_to_leader(c)
                 ? psc_reduce_start(p->q, s->vector + begin, n, 0, c->clique_codec, &s->ticket)
                 : psc_allreduce_start(p->q, s->vector + begin, n, c->clique_codec, &s->ticket);
    s->left = begin;
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

int psc_sum_go_on(struct psc *c, uint64_t begin)
{
    struct psc_sum *s = psc_sum_newest(&c->group);
    int rc = PSC_OK;
    while (rc == PSC_OK && c->group.size > 1 && s->left > 0) {
        uint64_t at = (s->left - 1) / s->bucket_floats * s->bucket_floats;
        if (at < begin)
            break;
        rc = start_bucket(c, s, at);
    }
    return rc;
}

int psc_sum_start(struct psc *c, float *vector, size_t n_samples)
{
    int rc = psc_sum_begin(c, vector, n_samples, c->shard.n_floats);
    return rc == PSC_OK ? psc_sum_go_on(c, 0) : rc;
}

static int take_words(struct psc *c, const float *words)
{
    struct psc_group *p = &c->group;
    p->n_samples = (size_t)words[PSC_WORD_SAMPLES];
    psc_unit_take(p, words[PSC_WORD_SAMPLES]);
    p->drains = words[PSC_WORD_DRAIN] > 0;
    p->save_version += words[PSC_WORD_SAVE] > 0;
    if (!(words[PSC_WORD_FAILED] > 0))
        return PSC_OK;
    if (p->rank > 0)
        return ps_fail(&c->error, PSC_EGONE, "rank 0 of the clique has lost the server");
    return ps_fail(&c->error, p->published.rc, "%s", p->published.error.text);
}

int psc_sum_land(struct psc *c)
{
    struct psc_group *p = &c->group;
    struct psc_sum *s = &p->sums[p->sums_landed++ % PSC_MAX_SUMS];
    double begin = ps_now_s();
    int rc = p->size > 1 ? psc_clique_wait(p->q, s->ticket) : PSC_OK;
    c->worker.exchange_s += ps_now_s() - begin;
    if (rc != PSC_OK)
        return fail(c, rc);
    if ((rc = take_words(c, s->words)) != PSC_OK || (p->rank > 0 && psc_group_sums_to_leader(c)))
        return rc;
    size_t bad = c->vec->first_nonfinite(s->vector, c->shard.n_floats);
    return bad == c->shard.n_floats
               ? PSC_OK
               : ps_fail(&c->error, PSC_EVALUE,
                         "the members' sum is not finite, in tensor '%s': nothing has moved",
                         ps_manifest_tensor(c->manifest, bad)->name);
}

int psc_sum_finish(struct psc *c)
{
    int rc = psc_sum_land(c);
    psc_sum_drop(&c->group);
    return rc;
}
