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
 * the tree is faster for longer vectors, and for two members, too. So `auto` times both with sums of a few
 * sizes, once, at setup; member 0 decides and tells the others. The equations serve beyond the longest one.
 *
 * A call that only compares goes by the tree if any does: members whose calls differ in size must not choose
 * differently. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/ring/tree.h"
#include "proto/clock.h"

enum { PROBES = 5 };
const size_t psc_probe_bytes[PSC_N_PROBES] = {1 << 10, 1 << 13, 1 << 16, 1 << 18}; /* ascending */
static const int probe_calls[PSC_N_PROBES] = {8, 8, 4, 1}; /* one after the other, as callers make them */
enum { MOST_FLOATS = (1 << 18) / sizeof(float) };

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

static int time_calls(struct psc_ring *r, uint8_t algorithm, const struct psc_collective *op, int calls,
                      double *took_s, struct ps_error *err)
{
    int rc = PSC_OK;
    r->algorithm = algorithm;
    double begin = ps_now_s();
    for (int k = 0; k < calls && rc == PSC_OK; k++)
        rc = psc_ring_run(r, op, err);
    *took_s = (ps_now_s() - begin) / calls;
    r->algorithm = PSC_ALGORITHM_RING;
    return rc;
}

/* The medians of a few calls by each. They take turns, so that other work on the machine meets both. */
static int probe(struct psc_ring *r, const struct psc_collective *op, int calls, double *ring_s,
                 double *tree_s, struct ps_error *err)
{
    double ring[PROBES], tree[PROBES];
    for (int k = 0; k < PROBES; k++) {
        int rc = time_calls(r, PSC_ALGORITHM_RING, op, calls, &ring[k], err);
        if (rc == PSC_OK)
            rc = time_calls(r, PSC_ALGORITHM_TREE, op, calls, &tree[k], err);
        if (rc != PSC_OK)
            return rc;
    }
    qsort(ring, PROBES, sizeof *ring, by_value);
    qsort(tree, PROBES, sizeof *tree, by_value);
    *ring_s = ring[PROBES / 2];
    *tree_s = tree[PROBES / 2];
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

uint64_t psc_tree_parts_bytes(uint32_t members, double alpha, double beta)
{
    return limit(members, 2, alpha, beta);
}

uint64_t psc_tree_crossing(const double ring_s[PSC_N_PROBES], const double tree_s[PSC_N_PROBES], double part,
                           uint64_t beyond)
{
    double before = 0, at = 0;
    for (int i = 0; i < PSC_N_PROBES; i++) {
        double bytes = (double)psc_probe_bytes[i];
        double ratio = fmax(tree_s[i], 1e-9) / fmax(part * ring_s[i], 1e-9);
        if (ratio >= 1)
            return i == 0 ? 0 : (uint64_t)(at * pow(bytes / at, log(1 / before) / log(ratio / before)));
        before = ratio;
        at = bytes;
    }
    return beyond > psc_probe_bytes[PSC_N_PROBES - 1] ? beyond : psc_probe_bytes[PSC_N_PROBES - 1] + 1;
}

/* A barrier is p - 1 messages one after the other; a sum takes 2 (p - 1) alpha + 2 (p - 1)/p bytes beta. */
static int measure(struct psc_ring *r, float *x, struct ps_error *err)
{
    const struct psc_collective barrier = {.kind = PSC_BARRIER};
    double p = r->members, barrier_s, ignored_s, ring_s[PSC_N_PROBES], tree_s[PSC_N_PROBES];
    int rc = probe(r, &barrier, 1, &barrier_s, &ignored_s, err); /* also the first use of every connection */
    for (int i = 0; i < PSC_N_PROBES && rc == PSC_OK; i++) {
        const struct psc_collective sum = {.kind = PSC_ALLREDUCE,
                                           .data = x,
                                           .n = psc_probe_bytes[i] / sizeof *x,
                                           .codec = ps_codec_named("raw")};
        rc = probe(r, &sum, probe_calls[i], &ring_s[i], &tree_s[i], err);
    }
    if (rc != PSC_OK)
        return rc;
    double alpha = barrier_s / (p - 1);
    double beta = (ring_s[PSC_N_PROBES - 1] - 2 * barrier_s) /
                  (2 * (p - 1) / p * (double)psc_probe_bytes[PSC_N_PROBES - 1]);
    r->limits.bytes = psc_tree_crossing(ring_s, tree_s, 1, psc_tree_bytes(r->members, alpha, beta));
    r->limits.parts_bytes =
        psc_tree_crossing(ring_s, tree_s, 0.5, psc_tree_parts_bytes(r->members, alpha, beta));
    const struct psc_collective tell = {
        .kind = PSC_BROADCAST, .data = &r->limits, .n = sizeof r->limits, .type = PSC_BYTES};
    return psc_ring_run(r, &tell, err);
}

static int take_measures(struct psc_ring *r, struct ps_error *err)
{
    float *x = calloc(MOST_FLOATS, sizeof *x);
    int rc = x != NULL ? measure(r, x, err) : ps_fail(err, PSC_ENOMEM, "no memory to measure connections");
    free(x);
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
