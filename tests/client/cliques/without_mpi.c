/* Where psd was built without MPI, or is: asking for it is an error with a sentence, and nothing else. */
#include <stdio.h>
#include <string.h>

#include "client/psclique_mpi.h"

int main(void)
{
    struct psc_mpi_world *w = NULL;
    struct psc_mpi_place place;
    int rc = psc_mpi_world_open(NULL, 2, &w);

    if (rc != PSC_EUNSUPPORTED || strstr(psc_mpi_world_error(w), "libpsclique-mpi.so.0") == NULL) {
        fprintf(stderr, "psc_mpi_world_open: %d, %s\n", rc, psc_mpi_world_error(w));
        return 1;
    }
    psc_mpi_world_place(w, &place);
    rc = psc_mpi_world_clique(w) != NULL || place.rank != -1;
    psc_mpi_world_close(w);
    fputs("no MPI here: cliques over MPI were refused, and not tested\n", stderr);
    return rc != 0 ? 1 : 77;
}
