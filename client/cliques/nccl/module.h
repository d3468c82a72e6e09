/* module.h: the interface of the module psclique-nccl, so that only the module depends on NCCL and CUDA: what
 * a communicator does. What is waited for, for how long, and what a failure means is in nccl.c. Module and
 * library must be of the same build: another version is refused. Private to client/cliques/nccl. */
#ifndef PSC_CLIQUES_NCCL_MODULE_H
#define PSC_CLIQUES_NCCL_MODULE_H

#include "client/cliques/clique.h"

#define PSC_NCCL_LIBRARY "libpsclique-nccl.so"
#define PSC_NCCL_SYMBOL  "psc_nccl_module"

/* NCCL's unique id: the same at all members of a communicator. */
struct psc_nccl_id {
    unsigned char bytes[128];
};

struct psc_nccl_comm;

/* One thread at a time, unless stated. Failures are -EIO with the words of NCCL or CUDA, unless stated. */
struct psc_nccl_calls {
    int (*make_id)(struct psc_nccl_id *out, struct ps_error *err);
    /* Begins to connect, with the calling thread's current device; `advance` tells when that is done. After
     * it abort or destroy is called. *device: its number. -ENOTSUP: there is no device; -ENOMEM. */
    int (*begin)(const struct psc_nccl_id *id, int rank, int members, struct psc_nccl_comm **out, int *device,
                 struct ps_error *err);
    /* Goes on with what was begun, without waiting: 0: it is done; -EAGAIN: not yet. */
    int (*advance)(struct psc_nccl_comm *n, struct ps_error *err);
    /* -EINVAL with a sentence: data is not memory of the device. Any thread. */
    int (*check)(int device, const struct psc_collective *op, struct ps_error *err);
    /* Begins a collective, whose values are there: of those that nccl.c allows, and not a barrier. */
    int (*enqueue)(struct psc_nccl_comm *n, const struct psc_collective *op, struct ps_error *err);
    /* Begins to disconnect; nothing else is begun. */
    int (*finish)(struct psc_nccl_comm *n, struct ps_error *err);
    /* Ends what is under way, here only, and frees everything. */
    void (*abort)(struct psc_nccl_comm *n);
    /* After finish, which is done: frees everything. */
    void (*destroy)(struct psc_nccl_comm *n);
};

struct psc_nccl_module {
    const char *version; /* PSD_VERSION */
    size_t calls_bytes;  /* sizeof calls */
    struct psc_nccl_calls calls;
};

/* The only exported symbol of the module. */
extern const struct psc_nccl_module psc_nccl_module __attribute__((visibility("default")));

#endif
