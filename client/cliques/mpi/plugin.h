/* plugin.h: what libpsclient looks for in libpsclique-mpi, by name: one table, without any type of MPI's. */
#ifndef PSC_CLIQUES_MPI_PLUGIN_H
#define PSC_CLIQUES_MPI_PLUGIN_H

#include <stdbool.h>

#include "client/psclique_mpi.h"
#include "proto/error.h"

#define PSC_MPI_LIBRARY "libpsclique-mpi.so.0"
#define PSC_MPI_CALLS   "psc_mpi_calls_1" /* another number when what follows changes */

struct psc_mpi_calls {
    /* *started: MPI is ours to end. */
    int (*open)(const struct psc_mpi_options *opt, uint32_t members, struct psc_clique **q,
                struct psc_mpi_place *place, bool *started, struct ps_error *err);
    void (*end)(const struct psc_mpi_options *opt); /* MPI, which every process does */
};

#endif
