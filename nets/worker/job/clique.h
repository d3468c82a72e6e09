/* clique.h: psworker as a member of a clique. */
#ifndef CNN_WORKER_JOB_CLIQUE_H
#define CNN_WORKER_JOB_CLIQUE_H

#include "client/psclique.h"
#include "nets/worker/job/args.h"

/* Must be closed by the caller of cnn_clique_open. */
struct cnn_clique {
    struct psc_clique *q;        /* NULL: no clique, or no memory */
    struct psc_mpi_world *world; /* of --clique mpi; owns q */
};

/* Checks the clique options against each other and against the other options. -EINVAL with a sentence. */
int cnn_clique_check(const struct cnn_worker_args *args, struct ps_error *err);

/* Whether the clique that the arguments name sums vectors of a GPU, and no others; they were checked. */
bool cnn_clique_is_on_device(const struct cnn_worker_args *args);

/* Connects to the other members. A negative PSC_E... with a sentence. *out must be closed even after an
 * error. */
int cnn_clique_open(const struct cnn_worker_args *args, struct cnn_clique *out, struct ps_error *err);
void cnn_clique_close(struct cnn_clique *clique);

#endif
