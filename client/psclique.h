/* psclique.h: cliques, groups of processes that sum their vectors and that psd may see as one client.
 *
 *     psc_ring_options_init(&opt, sizeof opt);  opt.rendezvous = "file:/shared/job/ring";  opt.members = 4;
 *     psc_ring_open(&opt, &q);
 *     psc_allreduce(q, g, n, NULL);
 *     psc_clique_close(q);
 *
 * Every member makes the same calls in the same order with the same counts, as with MPI. A clique is used
 * from one thread at a time. What was started (psc_..._start) goes on in a thread of the clique's own; its
 * arrays are the library's until psc_clique_wait. A sum is added in one fixed order, and every member ends
 * with the same bits, under any codec. When a member is gone, or silent for timeout_ms, the call fails on
 * every member with PSC_ECLIQUE, psc_clique_error says which, and so does every later call. A member that
 * computes is not silent: a thread of the ring's own says to its neighbours that the process runs. The
 * others' calls wait for it for step_ms, an hour unless told otherwise; then they fail likewise. In a child
 * of fork every call is PSC_EINVAL. With psc_options.clique a clique becomes one client of a psd.
 *
 * Every function returns PSC_OK or a negative PSC_E... of psclient.h. */
#ifndef PSCLIQUE_H
#define PSCLIQUE_H

#include "psclient.h"

#ifdef __cplusplus
extern "C" {
#endif

struct psc_clique;

/* The ring: reduce-scatter, then allgather, each in n - 1 hops of an n-th of the vector, cut into segments
 * that are added while the next are on their way (Patarasu, Yuan 2009). */
struct psc_ring_options {
    size_t size;            /* set by psc_ring_options_init */
    uint32_t members;       /* of the clique, 1 to 1024 */
    int32_t rank;           /* 0 to members - 1; -1: the lowest that is free at the rendezvous */
    const char *rendezvous; /* where members find each other: "file:PATH", a prefix on a file system that all
                               see; or "psd:URL" or "psd:@FILE", a psd's control address or endpoint file */
    const char *name;       /* tells cliques apart that meet at the same place. "0" */
    const char *listen; /* "tcp://HOST": this host's address as the others reach it; "unix:": sockets of this
                           machine, without names in the file system. "tcp://127.0.0.1" */
    uint32_t links;     /* rings side by side, each with a connection and a part of the vector; 1 to 16. 1 */
    uint32_t segment_bytes; /* 4096 to 4 MiB. 131072 */
    uint32_t timeout_ms;    /* longest silence of a member's process, longest rendezvous; from 100. 60000 */
    /* As of psc_options, for a rendezvous at a psd that asks who comes. What members then say to each other
     * is neither proved nor encrypted. */
    const char *key_file;
    const char *server_key;
    /* How long a call waits for a member whose process runs and which does not come to it: it computes, or
     * hangs. At least timeout_ms; where that is longer, that. 3600000 */
    uint32_t step_ms;
};

void psc_ring_options_init(struct psc_ring_options *opt, size_t size);

/* Meets the others and connects to them; returns when all have. Strings are read during the call only. On
 * failure *out holds a handle only good for psc_clique_error and psc_clique_close, or NULL when there was no
 * memory. PSC_ECLIQUE names the ranks that are missing or what two members disagree on. */
int psc_ring_open(const struct psc_ring_options *opt, struct psc_clique **out);

int psc_clique_rank(const struct psc_clique *q);
int psc_clique_size(const struct psc_clique *q);
const char *psc_clique_kind(const struct psc_clique *q);  /* "ring", "mpi"; a static string */
const char *psc_clique_error(const struct psc_clique *q); /* of the last failure; "" without; owned by q */

/* x, n floats, becomes the sum over all members. codec: how floats travel, a name of psd's codecs ("raw",
 * "fp16", "bf16", "trunc16", "int8"), the same at every member; NULL: raw. At each hop values are decoded,
 * added in float32 and encoded again. PSC_EINVAL for a codec that is not known. */
int psc_allreduce(struct psc_clique *q, float *x, size_t n, const char *codec);
/* x becomes the sum at member `root`; elsewhere it holds parts of it. */
int psc_reduce(struct psc_clique *q, float *x, size_t n, int root, const char *codec);
/* data, n_bytes, becomes what it is at member `root`. */
int psc_broadcast(struct psc_clique *q, void *data, size_t n_bytes, int root);
/* Returns when all members have called it. */
int psc_barrier(struct psc_clique *q);

/* The same in the background, in the order in which they were started. *ticket (may be NULL) names the call
 * for psc_clique_wait. Up to PSC_CLIQUE_MAX_STARTED may be under way; one more waits for the oldest. */
#define PSC_CLIQUE_MAX_STARTED 64
int psc_allreduce_start(struct psc_clique *q, float *x, size_t n, const char *codec, uint64_t *ticket);
int psc_reduce_start(struct psc_clique *q, float *x, size_t n, int root, const char *codec, uint64_t *ticket);
int psc_broadcast_start(struct psc_clique *q, void *data, size_t n_bytes, int root, uint64_t *ticket);
int psc_barrier_start(struct psc_clique *q, uint64_t *ticket);
/* Until that call has ended (0: all that were started); how it ended. */
int psc_clique_wait(struct psc_clique *q, uint64_t ticket);

/* Gives up what is under way and frees everything; the others' calls fail. NULL is fine. */
void psc_clique_close(struct psc_clique *q);

#ifdef __cplusplus
}
#endif
#endif
