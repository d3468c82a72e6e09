/* psclique.h: cliques, groups of processes or threads that sum their vectors and that psd may see as one
 * client.
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

/* The ring: reduce-scatter, then allgather, each in n - 1 hops of an n-th of the vector, divided into
 * segments that are added while the next are in flight (Patarasu, Yuan 2009). The tree: a binomial tree with
 * member 0 at its top, 2 log2 n messages one after the other, for short vectors (You et al. 2017, the tree
 * reduction of Sync EASGD). */
struct psc_ring_options {
    size_t size;            /* set by psc_ring_options_init */
    uint32_t members;       /* of the clique, 1 to 1024 */
    int32_t rank;           /* 0 to members - 1; -1: the lowest that is free at the rendezvous */
    const char *rendezvous; /* where members find each other: "file:PATH", a prefix on a file system that all
                               share; or "psd:URL" or "psd:@FILE", a psd's control address or endpoint file */
    const char *name;       /* distinguishes cliques with the same rendezvous. "0" */
    const char *listen; /* "tcp://HOST": this host's address for the others; "unix:": abstract sockets of this
                           machine. "tcp://127.0.0.1" */
    uint32_t links;     /* parallel rings, each with a connection and a part of the vector; 1 to 16. 1 */
    uint32_t segment_bytes; /* 4096 to 4 MiB. 131072 */
    uint32_t timeout_ms; /* limit on the silence of a member's process, and on the rendezvous; at least 100.
                            60000 */
    /* As in psc_options, for a rendezvous at a psd that requires authentication. Traffic between members is
     * neither authenticated nor encrypted. */
    const char *key_file;
    const char *server_key;
    /* How long a call waits for a member whose process is alive but does not come to the call, because it
     * computes or hangs. At least timeout_ms. 3600000 */
    uint32_t step_ms;
    /* "ring"; "tree"; "auto": the tree for short vectors and the ring for long ones, by the latency and the
     * throughput between neighbours that psc_ring_open measures, so that another run may choose otherwise.
     * The same at every member. For a client of a psd its clique.algorithm decides instead. "ring" */
    const char *algorithm;
};

void psc_ring_options_init(struct psc_ring_options *opt, size_t size);

/* Finds the other members and connects to them; returns when all are connected. Strings are read during the
 * call only. On failure *out is a handle that is valid only for psc_clique_error and psc_clique_close, or
 * NULL if there was no memory. PSC_ECLIQUE names the missing ranks, or what two members disagree on. */
int psc_ring_open(const struct psc_ring_options *opt, struct psc_clique **out);

/* Threads of one process, which sum their vectors where they lie: by the order of a binary tree over the
 * ranks, each member its own part of all. Nothing travels, so that a codec changes nothing. */
struct psc_threads_options {
    size_t size;      /* set by psc_threads_options_init */
    uint32_t members; /* of the clique, 1 to 1024 */
    uint32_t step_ms; /* how long a call waits for a member that does not come to it; at least 100. 3600000 */
};

void psc_threads_options_init(struct psc_threads_options *opt, size_t size);

/* Fills out[members] with the handles of ranks 0 to members - 1; each is for one thread, which closes it.
 * PSC_EINVAL: options that are not allowed; PSC_ENOMEM: out is as it was. */
int psc_threads_open(const struct psc_threads_options *opt, struct psc_clique **out);

int psc_clique_rank(const struct psc_clique *q);
int psc_clique_size(const struct psc_clique *q);
const char *psc_clique_kind(const struct psc_clique *q);  /* "ring", "threads", "mpi"; a static string */
const char *psc_clique_error(const struct psc_clique *q); /* of the last failure, or ""; owned by q */

/* x, n floats, becomes the sum over all members. codec: of the floats in messages, a name of psd's codecs
 * ("raw", "fp16", "bf16", "trunc16", "int8"), the same at every member; NULL: raw. At each hop values are
 * decoded, added in float32 and encoded again. PSC_EINVAL for an unknown codec. */
int psc_allreduce(struct psc_clique *q, float *x, size_t n, const char *codec);
/* x becomes the sum at member `root`; elsewhere it holds parts of it. */
int psc_reduce(struct psc_clique *q, float *x, size_t n, int root, const char *codec);
/* data, n_bytes, becomes that of member `root`. */
int psc_broadcast(struct psc_clique *q, void *data, size_t n_bytes, int root);
/* Returns when all members have called it. */
int psc_barrier(struct psc_clique *q);

/* The same without blocking, in the order in which they were started. *ticket (may be NULL) names the call
 * for psc_clique_wait. Up to PSC_CLIQUE_MAX_STARTED may be in progress; one more waits for the oldest. */
#define PSC_CLIQUE_MAX_STARTED 64
int psc_allreduce_start(struct psc_clique *q, float *x, size_t n, const char *codec, uint64_t *ticket);
int psc_reduce_start(struct psc_clique *q, float *x, size_t n, int root, const char *codec, uint64_t *ticket);
int psc_broadcast_start(struct psc_clique *q, void *data, size_t n_bytes, int root, uint64_t *ticket);
int psc_barrier_start(struct psc_clique *q, uint64_t *ticket);
/* Waits until that call has ended (0: all that were started) and returns its result. */
int psc_clique_wait(struct psc_clique *q, uint64_t ticket);

/* Abandons what is in progress and frees everything; the others' calls fail. NULL is allowed. */
void psc_clique_close(struct psc_clique *q);

#ifdef __cplusplus
}
#endif
#endif
