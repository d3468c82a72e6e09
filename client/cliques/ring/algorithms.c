/* Chooses the algorithm of a collective: the ring or the tree. The ring moves 2 (p - 1)/p of the vector
 * in 2 (p - 1) messages one after the other, the tree 2 L times the vector in 2 L of them, L = log2 p rounded
 * up. With a latency of alpha seconds a message and beta seconds a byte, the tree is the faster one up to
 *
 *     alpha (p - 1 - L) / (beta (L - (p - 1)/p)) bytes
 *
 * which is 0 for p of 2 and 3, where the ring needs no more messages. Calls with parts take half as much in
 * the ring, and in the tree the same, since they go through its top:
 *
 *     alpha (p - 1 - 2 L) / (beta (2 L - (p - 1)/p)) bytes
 *
 * A call that only compares goes by the tree if any does: members whose calls differ in size must not choose
 * differently. `auto` measures both between
 * neighbours, once, at setup; member 0 decides and tells the others. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/ring/tree.h"
#include "proto/clock.h"

enum { PROBES = 5, PROBE_FLOATS = 65536 };

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

/* The shortest time of a few calls: other work on the machine only makes a measured time longer. */
static int probe(struct psc_ring *r, const struct psc_collective *op, double *shortest_s,
                 struct ps_error *err)
{
    *shortest_s = INFINITY;
    for (int k = 0; k < PROBES; k++) {
        double begin = ps_now_s();
        int rc = psc_ring_run(r, op, err);
        if (rc != PSC_OK)
            return rc;
        *shortest_s = fmin(*shortest_s, ps_now_s() - begin);
    }
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

/* A barrier is p - 1 messages one after the other; a sum takes 2 (p - 1) alpha + 2 (p - 1)/p bytes beta. */
static int measure(struct psc_ring *r, float *x, struct ps_error *err)
{
    const struct psc_collective barrier = {.kind = PSC_BARRIER};
    const struct psc_collective sum = {
        .kind = PSC_ALLREDUCE, .data = x, .n = PROBE_FLOATS, .codec = ps_codec_named("raw")};
    double p = r->members, barrier_s, sum_s;
    int rc = probe(r, &barrier, &barrier_s, err);
    if (rc == PSC_OK)
        rc = probe(r, &sum, &sum_s, err);
    if (rc != PSC_OK)
        return rc;
    double alpha = barrier_s / (p - 1);
    double beta = (sum_s - 2 * barrier_s) / (2 * (p - 1) / p * PROBE_FLOATS * sizeof(float));
    r->limits.bytes = psc_tree_bytes(r->members, alpha, beta);
    r->limits.parts_bytes = psc_tree_parts_bytes(r->members, alpha, beta);
    const struct psc_collective tell = {
        .kind = PSC_BROADCAST, .data = &r->limits, .n = sizeof r->limits, .type = PSC_BYTES};
    return psc_ring_run(r, &tell, err);
}

static int take_measures(struct psc_ring *r, struct ps_error *err)
{
    float *x = calloc(PROBE_FLOATS, sizeof *x);
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
