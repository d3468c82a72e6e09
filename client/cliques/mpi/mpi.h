/* mpi.h: inside libpsclique-mpi. */
#ifndef PSC_CLIQUES_MPI_MPI_H
#define PSC_CLIQUES_MPI_MPI_H

#include <mpi.h>

#include "client/cliques/clique.h"
#include "client/psclique_mpi.h"

/* As psc_mpi_open, with the sentence in err and no handle on failure. */
int psc_mpi_open_on(const struct psc_mpi_options *opt, MPI_Comm comm, struct psc_clique **out,
                    struct ps_error *err);
/* Sets *err to MPI's error text; returns PSC_ECLIQUE. */
int psc_mpi_fail(struct ps_error *err, const char *call, int code);

#endif
