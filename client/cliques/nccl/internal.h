/* internal.h: the state of a clique over NCCL. Private to client/cliques/nccl. */
#ifndef PSC_CLIQUES_NCCL_INTERNAL_H
#define PSC_CLIQUES_NCCL_INTERNAL_H

#include <pthread.h>

#include "client/cliques/nccl/module.h"

struct psc_nccl {
    struct psc_clique *ring; /* beneath; its members are this clique's */
    const struct psc_nccl_calls *calls;
    struct psc_nccl_comm *comm; /* NULL: there is none yet, or it was aborted */
    int device;
    uint32_t timeout_ms;
    pthread_mutex_t lock; /* guards the members below */
    bool calls_now;       /* a collective is in progress */
    bool given_up;
    bool broken; /* a collective has failed, or was interrupted */
};

/* nccl.c. The kind's row. */
extern const struct psc_clique_ops psc_clique_nccl;
/* Waits until what the communicator has begun is done, for at most timeout_ms. `what` names it. PSC_ECLIQUE,
 * PSC_EDEVICE with a sentence: the communicator is aborted, and the other members were told. */
int psc_nccl_wait(struct psc_nccl *s, const struct psc_collective *op, const char *what,
                  struct ps_error *err);
/* This member has failed, as err says: aborts the communicator and tells the others. Returns rc; if another
 * member has failed before, err is its sentence. */
int psc_nccl_fail(struct psc_nccl *s, const struct psc_collective *op, int rc, struct ps_error *err);
/* Leaves the others, and frees everything. */
void psc_nccl_destroy(struct psc_nccl *s);

#endif
