/* plugin.h: the interface of libpsclique-mpi that libpsclient looks up by name: one table, without types of
 * MPI. */
#ifndef PSC_CLIQUES_MPI_PLUGIN_H
#define PSC_CLIQUES_MPI_PLUGIN_H

#include <stdbool.h>

#include "client/psclique_mpi.h"
#include "proto/error.h"

#define PSC_MPI_LIBRARY "libpsclique-mpi.so.0"
#define PSC_MPI_CALLS   "psc_mpi_calls_1" /* changes whenever the table changes */

struct psc_mpi_calls {
    /* *started: MPI was started here, and `end` must end it */
    int (*open)(const struct psc_mpi_options *opt, uint32_t members, struct psc_clique **q,
                struct psc_mpi_place *place, bool *started, struct ps_error *err);
    void (*end)(const struct psc_mpi_options *opt); /* ends MPI; every process calls it */
};

#endif
