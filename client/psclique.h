/* psclique.h: cliques. A clique is a group of processes or threads that sum their vectors. A psd may see it
 * as one client.
 *
 *     psc_ring_options_init(&opt, sizeof opt);  opt.rendezvous = "file:/shared/job/ring";  opt.members = 4;
 *     psc_ring_open(&opt, &q);
 *     psc_allreduce(q, g, n, NULL);
 *     psc_clique_close(q);
 *
 * All members make the same calls in the same order with the same counts, as with MPI. A clique is used from
 * one thread at a time. A thread of the library runs the calls that were started (psc_..._start). The library
 * uses their arrays until psc_clique_wait.
 *
 * A sum is added in one fixed order. All members end with the same bits, under any codec.
 *
 * If a member is gone, or silent for timeout_ms, the call fails on every member with PSC_ECLIQUE, and so do
 * all later calls, until psc_clique_shrink forms the clique anew. psc_clique_error names the member. A member
 * that computes is not silent: a thread of the library sends heartbeats to its neighbours while the process
 * runs. The other members' calls wait for it for at most step_ms, by default an hour, and then fail in the
 * same way. Threads of one process have step_ms only.
 *
 * In a child of fork every call returns PSC_EINVAL. With psc_options.clique a clique becomes one client of a
 * psd.
 *
 * Functions of type int return PSC_OK or a negative PSC_E... of psclient.h, unless noted otherwise. Calls on
 * a clique return PSC_EINVAL for an argument that is not allowed, and the clique stays usable; PSC_ECLIQUE;
 * and PSC_ESYSTEM if a thread cannot be started. */
#ifndef PSCLIQUE_H
#define PSCLIQUE_H

#include "psclient.h"

#ifdef __cplusplus
extern "C" {
#endif

struct psc_clique;

/* Processes that are connected by sockets. They sum by one of two algorithms, for p members:
 * - ring: reduce-scatter, then allgather, each in p - 1 hops (Patarasu, Yuan 2009). A hop carries a p-th of
 *   the vector. It is divided into segments; one is added while the next is in flight. Two members that add
 *   at most 16 kB send all of it to each other, in one hop.
 * - tree: a binomial tree with member 0 as its root, for short vectors (You et al. 2017, the tree
 *   reduction of Sync EASGD). A sum takes 2 log2 p messages in sequence.
 *
 * A number or name after a field's description is its default. */
struct psc_ring_options {
    size_t size;            /* set by psc_ring_options_init */
    uint32_t members;       /* of the clique, 1 to 1024. 1 */
    int32_t rank;           /* 0 to members - 1. -1: the lowest that is free at the rendezvous. -1 */
    const char *rendezvous; /* where members find each other. "file:PATH": a prefix of a file name, on a file
                               system that all members share. "psd:URL", "psd:@FILE": the control address or
                               the endpoint file of a psd. Required if there are 2 members or more */
    const char *name;       /* distinguishes cliques with the same rendezvous; 1 to 63 bytes. "0" */
    const char *listen;     /* "tcp://HOST": the address by which other members reach this one. "unix:":
                               abstract sockets of this machine. "tcp://127.0.0.1" */
    uint32_t links; /* parallel rings or trees, 1 to 16. Each has its own connections and a part of the
                       vector. 1 */
    uint32_t segment_bytes; /* 4096 to 4 MiB; 0, the default: 131072, and 262144 with two members */
    uint32_t timeout_ms;    /* limit on the silence of a member's process, and on psc_ring_open: 100 to 2^30.
                               60000 */
    /* As in psc_options, for a rendezvous at a psd that requires authentication. Traffic between members is
     * neither authenticated nor encrypted. NULL */
    const char *key_file;
    const char *server_key;
    /* How long a call waits for a member whose process is alive but does not make the call, because it
     * computes or hangs: 100 to 2^30. A value below timeout_ms counts as timeout_ms. 3600000 */
    uint32_t step_ms;
    /* "ring", "tree" or "auto"; the same at every member. auto: the tree for short vectors, the ring for long
     * ones. The limit is where the ring becomes the faster one, by sums of a few sizes that psc_ring_open
     * times. Another run may choose differently, and its sums may differ in the last bits. For a client of
     * a psd, clique.algorithm of psd decides instead. "ring" */
    const char *algorithm;
    /* After the loss of a member: "end": all later calls fail. "shrink": the others may call
     * psc_clique_shrink; each member keeps a listening socket for it. The same at every member. "end" */
    const char *on_loss;
};

/* Fills every field with its default. size: sizeof *opt. */
void psc_ring_options_init(struct psc_ring_options *opt, size_t size);

/* Finds the other members, connects to them and returns when all are connected. Strings are read during the
 * call only. psc_clique_close frees *out. After a failure *out is valid only for psc_clique_error and
 * psc_clique_close, or is NULL if there was no memory. Errors: PSC_ECLIQUE names the missing ranks, or what
 * two members disagree on; PSC_EAUTH: the psd of the rendezvous refuses this member, or the key file cannot
 * be used; PSC_EINVAL, PSC_ENOMEM, PSC_ESYSTEM. */
int psc_ring_open(const struct psc_ring_options *opt, struct psc_clique **out);

/* Threads of one process, which sum their vectors in shared memory. Each member sums one part of all vectors,
 * in the order of a binary tree over the ranks. Nothing is sent, so codecs have no effect. */
struct psc_threads_options {
    size_t size;      /* set by psc_threads_options_init */
    uint32_t members; /* of the clique, 1 to 1024; there is no default */
    uint32_t step_ms; /* how long a call waits for a member that does not make it, at least 100. 3600000 */
};

/* Fills every field with its default. size: sizeof *opt. */
void psc_threads_options_init(struct psc_threads_options *opt, size_t size);

/* Fills out[members] with the handles of ranks 0 to members - 1. Each handle is for one thread, which closes
 * it. After a failure the contents of out are undefined. Errors: PSC_EINVAL: an option is not allowed;
 * PSC_ENOMEM. */
int psc_threads_open(const struct psc_threads_options *opt, struct psc_clique **out);

int psc_clique_rank(const struct psc_clique *q); /* 0 to size - 1 */
int psc_clique_size(const struct psc_clique *q); /* members */
const char *
psc_clique_kind(const struct psc_clique *q); /* "ring", "threads", "mpi", "devices", "nccl"; static */
const char *psc_clique_error(const struct psc_clique *q); /* about the last failure, or "". Owned by q */

/* Replaces x, [n], by the sum over all members. codec: how floats are encoded in messages, "raw", "fp16",
 * "bf16", "trunc16" or "int8", the same at every member; NULL: raw. At each hop values are decoded, added in
 * float32 and encoded again. Errors: PSC_EINVAL: the codec is not known, or not for sums; PSC_EUNSUPPORTED:
 * the clique sends raw floats only (MPI). */
int psc_allreduce(struct psc_clique *q, float *x, size_t n, const char *codec);
/* Replaces x, [n], by the sum at member `root`. At the other members x is undefined afterwards. Errors: as of
 * psc_allreduce. */
int psc_reduce(struct psc_clique *q, float *x, size_t n, int root, const char *codec);
/* Replaces data, [n_bytes], by that of member `root`. */
int psc_broadcast(struct psc_clique *q, void *data, size_t n_bytes, int root);
/* Returns when all members have made the call. */
int psc_barrier(struct psc_clique *q);

/* Collectives of other types and operations, and out of place. */
enum psc_collective_kind {
    PSC_ALLREDUCE,      /* every member receives the result */
    PSC_REDUCE,         /* member `root` receives it */
    PSC_BROADCAST,      /* every member receives the values of `root` */
    PSC_BARRIER,        /* returns when all members have made the call */
    PSC_REDUCE_SCATTER, /* member r receives the r-th part of the result, n values */
    PSC_ALLGATHER,      /* every member receives the n values of each, in the order of ranks */
};

enum psc_type {
    PSC_FLOAT32,
    PSC_FLOAT64,
    PSC_INT32,
    PSC_INT64,
    /* IEEE half precision and bfloat16. Each operation is computed in float32 and rounded to nearest even; a
     * finite result beyond the range becomes the largest value. */
    PSC_FLOAT16,
    PSC_BFLOAT16,
    PSC_BYTES, /* for broadcast and allgather */
};

/* Where a value of any member is NaN, the result is NaN. -0 is less than +0. */
enum psc_operation {
    PSC_SUM,  /* of integers: modulo 2^32 or 2^64 */
    PSC_MEAN, /* the sum as above, divided by the number of members; of integers rounded towards 0 */
    PSC_MIN,
    PSC_MAX,
};

enum psc_collective_memory {
    PSC_MEMORY_HOST,
    /* Of a GPU, in cliques over nccl (psclique_nccl.h). The values are there when the call is made: the
     * library does not know the stream that computes them. In place only; sums of float32, float64 and
     * integers, and copies of every type. After psc_clique_wait every stream may use the result. */
    PSC_MEMORY_CUDA,
};

/* A number after a field's description is its default. */
struct psc_collective_options {
    size_t size;        /* set by psc_collective_options_init */
    uint32_t kind;      /* enum psc_collective_kind. PSC_ALLREDUCE */
    uint32_t type;      /* enum psc_type, of the values of in and out. PSC_FLOAT32 */
    uint32_t operation; /* enum psc_operation, of calls that reduce. PSC_SUM */
    int32_t root;       /* of PSC_REDUCE and PSC_BROADCAST. 0 */
    uint64_t n; /* values. With PSC_REDUCE_SCATTER and PSC_ALLGATHER: values of each member's part. 0 */
    /* This member's values, which are not changed: [n], of PSC_REDUCE_SCATTER [size * n]. NULL: in place.
     * PSC_BROADCAST reads it at `root` only. NULL */
    const void *in;
    /* The result: [n], of PSC_ALLGATHER [size * n]. PSC_REDUCE with `in` writes it at `root` only, and it may
     * be NULL elsewhere. In place, out holds this member's values first, at their place in the result:
     * PSC_ALLGATHER reads the rank-th n values; PSC_REDUCE_SCATTER reads all [size * n] values, and the
     * result replaces the rank-th n of them. After PSC_REDUCE_SCATTER in place the other parts are undefined,
     * after PSC_REDUCE in place all values at the other members. in and out do not overlap, unless they are
     * the same place. NULL */
    void *out;
    const char *codec;   /* of sums and means of PSC_FLOAT32, as of psc_allreduce. NULL */
    uint32_t compare;    /* 1: the members compare kind, type, operation, n, root and codec before anything is
                            written. 0: they do not, which saves one barrier; if members differ, the call fails
                            in the same way, but out may have been changed. The same at every member. 1 */
    uint32_t timeout_ms; /* if the call has not ended this long after it began to run, it fails at every
                            member: 1 to 2^30. 0: the limits of the clique alone. 0 */
    uint32_t memory;     /* enum psc_collective_memory: of in and out. PSC_MEMORY_HOST */
};

/* Fills every field with its default. size: sizeof *opt. */
void psc_collective_options_init(struct psc_collective_options *opt, size_t size);
/* Runs one collective. opt is read during the call only. Members that make different calls, in kind, type,
 * operation, n, root or codec, all get PSC_ECLIQUE; the error names two of them, with their ranks. With
 * `compare` no array has been written to then. Threads do not compare codecs, which they do not use. Errors:
 * PSC_EINVAL: an option is not allowed; PSC_ENOMEM: no memory for a PSC_REDUCE or PSC_REDUCE_SCATTER out of
 * place, before the call began. After another failure out is undefined. */
int psc_collective_run(struct psc_clique *q, const struct psc_collective_options *opt);

/* The non-blocking variants. Started calls run in the order in which they were started. *ticket identifies
 * the call for psc_clique_wait; ticket may be NULL. At most PSC_CLIQUE_MAX_STARTED are in progress; one more
 * waits for the oldest. */
#define PSC_CLIQUE_MAX_STARTED 64
int psc_allreduce_start(struct psc_clique *q, float *x, size_t n, const char *codec, uint64_t *ticket);
int psc_reduce_start(struct psc_clique *q, float *x, size_t n, int root, const char *codec, uint64_t *ticket);
int psc_broadcast_start(struct psc_clique *q, void *data, size_t n_bytes, int root, uint64_t *ticket);
int psc_barrier_start(struct psc_clique *q, uint64_t *ticket);
int psc_collective_start(struct psc_clique *q, const struct psc_collective_options *opt, uint64_t *ticket);
/* *ended: 1 if the call has ended (ticket 0: all that were started), so that psc_clique_wait returns its
 * result at once; otherwise 0. Errors: PSC_EINVAL. */
int psc_clique_test(struct psc_clique *q, uint64_t ticket, int *ended);
/* Like psc_clique_wait, for at most timeout_ms. *ended as of psc_clique_test; with 0 the result is PSC_OK,
 * the call goes on, and its arrays stay the library's. */
int psc_clique_wait_for(struct psc_clique *q, uint64_t ticket, uint32_t timeout_ms, int *ended);
/* Waits until the call has ended and returns its result. ticket 0: waits for all started calls. Errors: those
 * of the call; PSC_EINVAL: no such ticket. */
int psc_clique_wait(struct psc_clique *q, uint64_t ticket);

/* What is left of a clique that has lost members. Ranks are the new ones. */
struct psc_shrunk {
    uint64_t step;   /* the greatest step of the members */
    uint32_t source; /* the lowest rank that has it */
    uint32_t behind; /* how many members have a smaller one */
    uint32_t lost;   /* how many members the clique had more before */
};
/* Forms the clique anew of the members that are left, after a call has failed with PSC_ECLIQUE. For rings
 * that were opened with on_loss "shrink"; every member that is left calls it. step: how many steps this
 * member has applied, by the caller's count; it decides nothing. Waits for at most timeout_ms, 100 to 2^30,
 * for members whose process runs and which have not called it; it returns as soon as the others are gone or
 * have called. Afterwards all members know the same step, psc_clique_rank and psc_clique_size are new, in the
 * order of the old ranks, and calls work again. If out->behind is not 0, a member had its result when another
 * one had not: all call psc_broadcast of their state from out->source, and continue at out->step; else all
 * continue at the step that they said. Tickets from before are PSC_EINVAL.
 *
 * A member that has ended is left out at once; one that is silent, or does not call in time, only if more
 * than half of the members that have not ended are here, or half of them and the lowest rank: so of a clique
 * whose network is divided one part goes on. Errors: PSC_ECLIQUE: not so, or the others have gone on without
 * this member; it may be called again. PSC_EINVAL: no call has failed, or on_loss is "end"; PSC_EUNSUPPORTED:
 * threads, MPI and NCCL.
 *
 * With psc_options.clique psclient.h makes these calls itself. */
int psc_clique_shrink(struct psc_clique *q, uint64_t step, uint32_t timeout_ms, struct psc_shrunk *out);

/* Abandons calls in progress and frees the handle. The other members' calls fail then. A clique over MPI
 * or NCCL waits first, for at most timeout_ms, until all members close it. NULL is allowed. */
void psc_clique_close(struct psc_clique *q);

#ifdef __cplusplus
}
#endif
#endif
