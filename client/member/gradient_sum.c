/* The mean of the members' gradients. Each adds n_samples times its own, so that the mean is weighted by
 * samples as a round's is; of a clique of one it is the gradient itself, bit for bit.
 *
 * The values sent are at most twice the mean, because codecs of few bits saturate: samples are counted in a
 * unit 2^k, the largest that does not exceed the samples of all members together in any step so far. A power
 * of two changes no bit of the mean. Before the first sum the members exchange their numbers of samples. If a
 * step has more samples than all before it, its sum exceeds the mean by that factor, once. */
#include <inttypes.h>
#include <math.h>

#include "client/cliques/clique.h"
#include "client/internal.h"
#include "client/worker/worker.h"

/* Floats of a bucket, as long as nothing is measured: a clique is as fast as in one call. */
enum { UNMEASURED_BUCKET = 1 << 18 };

void psc_unit_take(struct psc_group *p, float samples)
{
    int e = 0;
    frexpf(samples, &e); /* samples >= 2^(e - 1) */
    float unit = ldexpf(1, 1 - e);
    if (samples >= 1 && (p->unit == 0 || unit < p->unit))
        p->unit = unit;
}

static int learn_unit(struct psc *c, size_t n_samples)
{
    struct psc_group *p = &c->group;
    float samples = (float)n_samples;
    int rc = psc_allreduce(p->q, &samples, 1, NULL);
    psc_unit_take(p, samples);
    return rc == PSC_OK ? PSC_OK : ps_fail(&c->error, rc, "%s", psc_clique_error(p->q));
}

/* Steps have as many samples as the first one. */
static uint64_t warmup_steps(const struct psc *c, double samples)
{
    double steps = ceil(c->worker.hyper.pipeline_warmup_epochs * (double)c->opt.samples_per_epoch / samples);
    return steps < 0x1p62 ? (uint64_t)steps : UINT64_C(1) << 62;
}

int psc_warmup_learn(struct psc *c, size_t n_samples)
{
    struct psc_group *p = &c->group;
    float samples = (float)n_samples;
    if (p->knows_warmup || !(c->worker.hyper.pipeline_warmup_epochs > 0))
        return PSC_OK;
    int rc = p->size > 1 ? psc_allreduce(p->q, &samples, 1, NULL) : PSC_OK;
    if (rc == PSC_OK)
        p->warmup_steps = warmup_steps(c, samples > 1 ? (double)samples : 1);
    if (rc == PSC_OK && p->size > 1)
        rc = psc_broadcast(p->q, &p->warmup_steps, sizeof p->warmup_steps, 0);
    p->knows_warmup = rc == PSC_OK;
    return rc == PSC_OK ? PSC_OK : ps_fail(&c->error, rc, "%s", psc_clique_error(p->q));
}

uint64_t psc_gather_bucket(const struct psc *c)
{
    uint64_t n = psc_sum_span(c).count, stripe = c->group.size > 1 ? psc_clique_stripe(c->group.q) : 1;
    uint64_t chosen = c->group.bucket_choice.floats;
    uint64_t wanted = c->bucket_floats != 0 ? c->bucket_floats : chosen != 0 ? chosen : UNMEASURED_BUCKET;
    uint64_t least = ps_bucket_floats(n, PSC_MAX_BUCKETS, stripe);
    wanted = ps_bucket_floats(wanted, 1, stripe);
    return wanted > least ? wanted : least;
}

int psc_gather_begin(struct psc *c, float *sum, size_t n_samples)
{
    struct psc_group *p = &c->group;
    int rc = p->size > 1 && p->unit == 0 ? learn_unit(c, n_samples) : PSC_OK;
    rc = rc == PSC_OK ? psc_bucket_choice_go_on(c) : rc;
    if (rc == PSC_OK && (rc = psc_sum_begin(c, sum, n_samples, psc_gather_bucket(c))) == PSC_OK) {
        psc_sum_newest(p)->scale = (float)n_samples * p->unit;
        psc_sum_newest(p)->averages = true;
    }
    return rc;
}

/* One pass over the gradient. */
struct put {
    struct psc *c;
    const float *x, *g;
    uint64_t begin;
};

static void put_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct put *w = arg;
    struct psc *c = w->c;
    const struct psc_sum *s = psc_sum_newest(&c->group);
    float *sum = s->vector;
    struct ps_range r = {w->begin + begin, count};
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        uint64_t at = p.range.begin, n = p.range.count;
        if (p.segment->role == PS_ROLE_FROZEN)
            psc_zero(&c->work, sum + at, n);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->work, sum + at, w->x + at, n);
        else if (c->rule->collective && psc_gradient_decays(c, p.segment))
            psc_decay(&c->work, sum + at, w->g + at, w->x + at, (float)c->worker.hyper.weight_decay, n);
        else
            psc_copy(&c->work, sum + at, w->g + at, n);
    }
    psc_passes_end(&c->work);
    if (c->group.size > 1)
        psc_scale(&c->work, sum + r.begin, s->scale, count);
}

int psc_gather_put(struct psc *c, const float *x, const float *g, struct ps_range r, uint64_t tail)
{
    struct put w = {c, x, g, r.begin};
    psc_team_run(c->team, r.count, put_piece, &w);
    psc_bucket_choice_note(c, tail);
    return psc_sum_go_on(c, tail);
}

int psc_pipeline_prepare(struct psc *c, uint64_t n)
{
    float **v = c->group.pipeline;
    for (uint64_t i = 0; i < n; i++)
        if (v[i] == NULL && (v[i] = psc_group_alloc(c)) == NULL)
            return ps_fail(&c->error, PSC_ENOMEM, "no memory for %" PRIu64 " sums of %" PRIu64 " floats", n,
                           c->shard.n_floats);
    return PSC_OK;
}

static bool is_in_use(const struct psc_group *p, const float *vector)
{
    for (uint64_t k = p->sums_dropped; k < p->sums_begun; k++)
        if (p->sums[k % PSC_MAX_SUMS].vector == vector)
            return true;
    return false;
}

float *psc_pipeline_vector(struct psc_group *p)
{
    int i = 0;
    while (is_in_use(p, p->pipeline[i]))
        i++;
    return p->pipeline[i];
}

int psc_pipeline_restore(struct psc *c, const float *mean)
{
    struct psc_group *p = &c->group;
    float *vector = psc_pipeline_vector(p);
    int rc = psc_vector_write(c, vector, mean, c->shard.n_floats);
    if (rc != PSC_OK)
        return rc;
    p->sums[p->sums_begun++ % PSC_MAX_SUMS] = (struct psc_sum){.vector = vector};
    p->sums_landed++;
    return PSC_OK;
}

void psc_gather_buffers(struct psc *c, float *x, const float *sum)
{
    if (c->group.size > 1 && !psc_group_sums_to_leader(c))
        psc_copy_buffers(c, x, sum);
}
