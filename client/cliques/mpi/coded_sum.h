/* coded_sum.h: sums of floats that travel in a codec, over MPI. */
#ifndef PSC_CLIQUES_MPI_CODED_SUM_H
#define PSC_CLIQUES_MPI_CODED_SUM_H

#include <mpi.h>

#include "client/cliques/clique.h"

/* Where the payloads of one message are made, and where they arrive; both only grow. */
struct psc_coded_room {
    unsigned char *out, *in;
    size_t bytes; /* of each */
};

struct psc_coded_sum {
    MPI_Comm comm;
    uint32_t rank, members;
    const struct psc_collective *op; /* an allreduce, a reduce or a reduce-scatter */
    struct psc_coded_room *room;
    void (*lives)(void *arg, size_t done, size_t all); /* called before each wave */
    void *arg;
};

/* Makes the room that the sum needs: PSC_ENOMEM with a sentence. Others would wait for the messages of a
 * member that cannot. */
int psc_coded_room_make(struct psc_coded_room *room, uint32_t members, const struct psc_collective *op,
                        struct ps_error *err);
/* In a room that was made for it. PSC_OK; PSC_ECLIQUE with a sentence. */
int psc_coded_sum(const struct psc_coded_sum *s, struct ps_error *err);
/* The floats of a stripe: see struct psc_clique_ops. */
size_t psc_coded_stripe(uint32_t members);
void psc_coded_room_free(struct psc_coded_room *room);

#endif
