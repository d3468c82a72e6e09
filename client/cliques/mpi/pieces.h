/* pieces.h: collectives by MPI's own, in pieces: an int counts the values of one. */
#ifndef PSC_CLIQUES_MPI_PIECES_H
#define PSC_CLIQUES_MPI_PIECES_H

#include <mpi.h>

#include "client/cliques/clique.h"

/* What MPI lacks: the half types, and minima and maxima that do not depend on the order of the members. */
struct psc_mpi_kinds {
    MPI_Op op[PSC_N_TYPES][PSC_N_OPERATIONS]; /* MPI_OP_NULL: MPI's own */
};

void psc_mpi_kinds_init(struct psc_mpi_kinds *k);
void psc_mpi_kinds_finish(struct psc_mpi_kinds *k);

struct psc_mpi_pieces {
    MPI_Comm comm;
    int rank, members;
    const struct psc_mpi_kinds *kinds;
    const struct psc_collective *op;
    void (*lives)(void *arg, size_t done, size_t all); /* called before each piece */
    void *arg;
};

/* PSC_OK; PSC_ECLIQUE with a sentence. */
int psc_mpi_run_pieces(const struct psc_mpi_pieces *p, struct ps_error *err);

#endif
