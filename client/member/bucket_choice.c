/* clique.bucket_floats: auto. The best size of a bucket depends on the link and on backward, so it is
 * measured while the job runs, and chosen by the equations of proto/model/buckets.h. Before the first sum of
 * gradients the members time a sum of one float (latency and synchronisation) and one of many (bytes, codec
 * and additions). During the next sums member 0 notes when the parts of its gradient are ready. Then it
 * chooses, and tells the others, before the same sum at all members.
 *
 * The choice depends on times, so it is made only where the bits of a sum do not depend on it. */
#include <math.h>
#include <stdlib.h>

#include "client/cliques/clique.h"
#include "client/internal.h"
#include "proto/clock.h"

/* The first step is slower than others: memory is touched and kernels are made. Of the next ones the shortest
 * counts, since other work on the machine only makes a step longer. */
enum { FIRST_NOTED = 1, CHOICE_AT = 4 };
/* Long sums fill buffers of links that are paced, and short ones do not. */
enum { PROBES = 2, PROBE_FLOATS = 1 << 21 };

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

static bool is_due(const struct psc *c)
{
    const struct psc_group *p = &c->group;
    return p->size > 1 && c->bucket_floats == 0 && psc_clique_keeps_bits(p->q, c->clique_codec) &&
           psc_sum_span(c).count > psc_clique_stripe(p->q);
}

/* The shortest time of a few sums that all members begin together. */
static int time_sum(struct psc *c, float *x, size_t n, double *shortest_s)
{
    struct psc_group *p = &c->group;
    *shortest_s = INFINITY;
    for (int k = 0; k < PROBES; k++) {
        int rc = psc_barrier(p->q);
        double begin = ps_now_s();
        if (rc == PSC_OK)
            rc = psc_group_sums_to_leader(c) ? psc_reduce(p->q, x, n, 0, c->clique_codec)
                                             : psc_allreduce(p->q, x, n, c->clique_codec);
        if (rc != PSC_OK)
            return fail(c, rc);
        *shortest_s = fmin(*shortest_s, ps_now_s() - begin);
    }
    return PSC_OK;
}

static int time_sums(struct psc *c)
{
    struct psc_bucket_choice *b = &c->group.bucket_choice;
    size_t n = psc_sum_span(c).count;
    n = n < PROBE_FLOATS ? n : PROBE_FLOATS;
    float *x = calloc(n, sizeof *x);
    double long_s;
    if (x == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory to measure the clique's sums");
    int rc = time_sum(c, x, 1, &b->once_s);
    if (rc == PSC_OK)
        rc = time_sum(c, x, n, &long_s);
    free(x);
    if (rc == PSC_OK)
        b->float_s = fmax(long_s - b->once_s, 0) / (double)n;
    return rc;
}

static uint32_t best_number(const struct psc *c)
{
    const struct psc_group *p = &c->group;
    const struct psc_bucket_choice *b = &p->bucket_choice;
    uint64_t n = psc_sum_span(c).count;
    double members = p->size;
    const struct ps_iteration it = {.update_s = (c->worker.update_s - b->update_s) / CHOICE_AT,
                                    .n_bytes = (double)n * sizeof(float),
                                    .beta_s = b->float_s / sizeof(float) * members / (members - 1) / 2,
                                    .sync_s = b->once_s,
                                    .members = (uint32_t)p->size};
    const struct ps_profile profile = {b->shortest.points, b->shortest.n, n};
    return ps_best_profiled(&it, &profile, c->worker.hyper.pipeline > 1, psc_clique_stripe(p->q),
                            PSC_MAX_BUCKETS);
}

static int choose(struct psc *c)
{
    struct psc_group *p = &c->group;
    uint32_t number = p->rank == 0 && p->bucket_choice.shortest.n > 0 ? best_number(c) : 1;
    int rc = psc_broadcast(p->q, &number, sizeof number, 0);
    if (rc != PSC_OK)
        return fail(c, rc);
    if (number < 1 || number > PSC_MAX_BUCKETS)
        return ps_fail(&c->error, PSC_ECLIQUE, "rank 0 of the clique chose %u buckets; allowed are 1 to %d",
                       number, PSC_MAX_BUCKETS);
    p->bucket_choice.floats = ps_bucket_floats(psc_sum_span(c).count, number, psc_clique_stripe(p->q));
    return PSC_OK;
}

/* The gradient of the sum before was complete at its last point. */
static void keep_shortest(struct psc_bucket_choice *b)
{
    struct psc_profile *now = &b->now, *best = &b->shortest;
    bool whole = now->n > 0 && now->points[now->n - 1].begin == 0;
    if (whole && b->sums > FIRST_NOTED &&
        (best->n == 0 || now->points[now->n - 1].at_s < best->points[best->n - 1].at_s))
        *best = *now;
    now->n = 0;
}

int psc_bucket_choice_go_on(struct psc *c)
{
    struct psc_bucket_choice *b = &c->group.bucket_choice;
    int rc = PSC_OK;
    if (b->sums > CHOICE_AT || !is_due(c))
        return PSC_OK;
    keep_shortest(b);
    if (b->sums == 0) {
        b->update_s = c->worker.update_s;
        rc = time_sums(c);
    } else if (b->sums == CHOICE_AT) {
        rc = choose(c);
    }
    b->sums++;
    b->begun_s = ps_now_s();
    return rc;
}

/* Places are counted from the first float that is summed. Of many small parts those count that come after
 * another 64th of what is summed. */
void psc_bucket_choice_note(struct psc *c, uint64_t tail)
{
    struct psc_bucket_choice *b = &c->group.bucket_choice;
    struct psc_profile *now = &b->now;
    struct ps_range span = psc_sum_span(c);
    uint64_t n = span.count, last = now->n > 0 ? now->points[now->n - 1].begin : n;
    tail = tail > span.begin ? tail - span.begin : 0;
    if (b->sums == 0 || b->sums > CHOICE_AT || c->group.rank > 0 || tail >= last ||
        (tail > 0 && last - tail < n / PSC_PROFILE_POINTS))
        return;
    if (now->n == PSC_PROFILE_POINTS)
        now->n--;
    now->points[now->n++] = (struct ps_ready_point){tail, ps_now_s() - b->begun_s};
}
