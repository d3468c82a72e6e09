/* clique.h: the clique that a psworker is a member of. */
#ifndef CNN_WORKER_JOB_CLIQUE_H
#define CNN_WORKER_JOB_CLIQUE_H

#include "client/psclique.h"
#include "nets/worker/job/args.h"

/* Who opened it must close it. */
struct cnn_clique {
    struct psc_clique *q;        /* NULL: no clique, or no memory */
    struct psc_mpi_world *world; /* that owns q, of --clique mpi */
};

/* Checks rules between the options of cliques and others. -EINVAL with a sentence. */
int cnn_clique_check(const struct cnn_worker_args *args, struct ps_error *err);

/* Finds the other members. A negative PSC_E... with a sentence; close it whatever the result. */
int cnn_clique_open(const struct cnn_worker_args *args, struct cnn_clique *out, struct ps_error *err);
void cnn_clique_close(struct cnn_clique *clique);

#endif
