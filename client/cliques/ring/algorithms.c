/* Chooses the algorithm of a collective: the ring or the tree. The ring moves 2 (p - 1)/p of the vector
 * in 2 (p - 1) messages one after the other, the tree 2 L times the vector in 2 L of them, L = log2 p rounded
 * up. With a latency of alpha seconds a message and beta seconds a byte, the tree is the faster one up to
 *
 *     alpha (p - 1 - L) / (beta (L - (p - 1)/p)) bytes
 *
 * in theory. Calls with parts take half as much in the ring, and in the tree the same, since they go through
 * its top:
 *
 *     alpha (p - 1 - 2 L) / (beta (2 L - (p - 1)/p)) bytes
 *
 * In practice members also wait for each other's processes, in the ring at every hop: where they share cores
 * the tree is faster for longer vectors, and for two members, too. So `auto` times both with sums of several
 * sizes (choice.c), once, at setup; member 0 decides what to time, and tells the others that and the limits.
 * The equations serve beyond the longest one.
 *
 * A call that only compares goes by the tree if any does: members whose calls differ in size must not choose
 * differently. */
#include <math.h>
#include <stdlib.h>

#include "client/cliques/ring/choice.h"
#include "client/cliques/ring/tree.h"
#include "proto/clock.h"

enum { BARRIERS = 5 };

static const double least_beta = 1e-11; /* seconds a byte: no memory is faster than 100 GB/s */

static const struct psc_algorithm *const rows[PSC_N_ALGORITHMS] = {
    [PSC_ALGORITHM_RING] = &psc_algorithm_ring, [PSC_ALGORITHM_TREE] = &psc_algorithm_tree};

const struct psc_algorithm *psc_ring_choose(const struct psc_ring *r)
{
    if (r->algorithm != PSC_ALGORITHM_AUTO)
        return rows[r->algorithm];
    bool parts = !r->op->compares && psc_call_has_parts(r->op->kind);
    uint64_t limit = parts ? r->limits.parts_bytes : r->limits.bytes;
    return rows[psc_payload_bytes(r, r->n) < limit ? PSC_ALGORITHM_TREE : PSC_ALGORITHM_RING];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const struct psc_collective barrier = {.kind = PSC_BARRIER, .is_waited_for = true};

/* The values of member 0 at all members. */
static int tell(struct psc_ring *r, void *data, size_t bytes, struct ps_error *err)
{
    const struct psc_collective op = {.kind = PSC_BROADCAST, .data = data, .n = bytes, .type = PSC_BYTES};
    return psc_ring_run(r, &op, err);
}

/* Seconds of a call, until all members have ended the last one: member 0 may be the first. All members begin
 * together. */
static int time_calls(struct psc_ring *r, uint8_t algorithm, const struct psc_collective *op, uint32_t calls,
                      double *took_s, struct ps_error *err)
{
    int rc = PSC_OK;
    double begin = ps_now_s();
    r->algorithm = algorithm;
    for (uint32_t k = 0; k < calls && rc == PSC_OK; k++)
        rc = psc_ring_run(r, op, err);
    r->algorithm = PSC_ALGORITHM_RING;
    rc = rc == PSC_OK ? psc_ring_run(r, &barrier, err) : rc;
    *took_s = (ps_now_s() - begin) / calls;
    return rc;
}

static int time_pair(struct psc_ring *r, float *x, const struct psc_probe *p, double *ring_s, double *tree_s,
                     struct ps_error *err)
{
    const struct psc_collective sum = {.kind = PSC_ALLREDUCE,
                                       .data = x,
                                       .n = psc_probe_bytes[p->index] / sizeof *x,
                                       .codec = ps_codec_named("raw"),
                                       .is_waited_for = true};
    int rc = psc_ring_run(r, &barrier, err);
    for (uint32_t k = 0; k < 2 && rc == PSC_OK; k++) {
        bool tree = (k == 0) == (p->tree_first == 1);
        rc = time_calls(r, tree ? PSC_ALGORITHM_TREE : PSC_ALGORITHM_RING, &sum, p->calls,
                        tree ? tree_s : ring_s, err);
    }
    return rc;
}

/* The median, at member 0. */
static int time_barrier(struct psc_ring *r, double *took_s, struct ps_error *err)
{
    double took[BARRIERS];
    int rc = psc_ring_run(r, &barrier, err); /* the first use of the connections */
    for (int k = 0; k < BARRIERS && rc == PSC_OK; k++) {
        double begin = ps_now_s();
        rc = psc_ring_run(r, &barrier, err);
        took[k] = ps_now_s() - begin;
    }
    if (rc != PSC_OK)
        return rc;
    qsort(took, BARRIERS, sizeof *took, by_value);
    *took_s = took[BARRIERS / 2];
    return PSC_OK;
}

/* ways: how often a message passes the height of the tree, for each time that it goes round the ring. */
static uint64_t limit(double p, double ways, double alpha, double beta)
{
    double hops = ways * ceil(log2(p));
    double bytes = alpha * (p - 1 - hops) / (fmax(beta, least_beta) * (hops - (p - 1) / p));
    return bytes > 0 && bytes < 0x1p62 ? (uint64_t)bytes : 0;
}

uint64_t psc_tree_bytes(uint32_t members, double alpha, double beta)
{
    return limit(members, 1, alpha, beta);
}

/* psc_tree_bytes of calls with parts: the bytes of all parts. */
static uint64_t parts_bytes(uint32_t members, double alpha, double beta)
{
    return limit(members, 2, alpha, beta);
}

/* What member 0 tells the others: a pair of measures, or the limits. */
struct word {
    struct psc_probe probe;
    uint32_t ends; /* 1: the limits, 0: the pair */
    struct psc_tree_limits limits;
};

static bool is_valid(const struct word *w)
{
    return w->ends == 1 || (w->ends == 0 && w->probe.index < PSC_N_PROBES && w->probe.calls > 0 &&
                            w->probe.calls <= PSC_PROBE_CALLS && w->probe.tree_first <= 1);
}

/* A barrier is p - 1 messages one after the other; a sum takes 2 (p - 1) alpha + 2 (p - 1)/p bytes beta. */
static struct psc_tree_limits conclude(uint32_t members, const struct psc_choice *c, double barrier_s)
{
    double p = members, bytes, ring_s;
    psc_choice_longest(c, &bytes, &ring_s);
    double alpha = barrier_s / (p - 1), beta = (ring_s - 2 * barrier_s) / (2 * (p - 1) / p * bytes);
    return (struct psc_tree_limits){.bytes = psc_choice_limit(c, 1, psc_tree_bytes(members, alpha, beta)),
                                    .parts_bytes =
                                        psc_choice_limit(c, 0.5, parts_bytes(members, alpha, beta))};
}

static int measure(struct psc_ring *r, float *x, struct psc_choice *c, struct ps_error *err)
{
    double barrier_s, ring_s, tree_s;
    int rc = time_barrier(r, &barrier_s, err);
    while (rc == PSC_OK) {
        struct word w = {.ends = 0};
        w.ends = r->rank == 0 && !psc_choice_next(c, &w.probe);
        if (w.ends == 1)
            w.limits = conclude(r->members, c, barrier_s);
        if ((rc = tell(r, &w, sizeof w, err)) != PSC_OK)
            return rc;
        if (!is_valid(&w)) {
            r->op = &barrier; /* the call that the error names */
            return psc_ring_fail(r, "rank 0 wants to time sums that do not exist");
        }
        if (w.ends == 1) {
            r->limits = w.limits;
            return PSC_OK;
        }
        if ((rc = time_pair(r, x, &w.probe, &ring_s, &tree_s, err)) == PSC_OK && r->rank == 0)
            psc_choice_note(c, &w.probe, ring_s, tree_s);
    }
    return rc;
}

static int take_measures(struct psc_ring *r, struct ps_error *err)
{
    float *x = calloc(1, psc_probe_bytes[PSC_N_PROBES - 1]);
    struct psc_choice *c = calloc(1, sizeof *c);
    int rc = x != NULL && c != NULL ? measure(r, x, c, err)
                                    : ps_fail(err, PSC_ENOMEM, "no memory to measure connections");
    free(x);
    free(c);
    return rc;
}

int psc_ring_use(struct psc_ring *r, uint8_t algorithm, struct ps_error *err)
{
    int rc = PSC_OK;
    r->err = err;
    r->algorithm = PSC_ALGORITHM_RING; /* for the calls below */
    if (algorithm != PSC_ALGORITHM_RING && r->tree == NULL)
        rc = psc_tree_join(r, ps_now_s() + r->timeout_ms * 1e-3, err);
    if (rc == PSC_OK && algorithm == PSC_ALGORITHM_AUTO)
        rc = take_measures(r, err);
    if (rc == PSC_OK)
        r->algorithm = algorithm;
    r->broken = r->broken || rc != PSC_OK;
    return rc;
}
