/* psclique_mpi.h: cliques over MPI, in a library of their own, libpsclique-mpi.
 *
 * A program that has MPI includes <mpi.h> before this header, links libpsclique-mpi and gives a communicator
 * to psc_mpi_open. One that does not know MPI, but was started by mpirun, calls psc_mpi_world_open of
 * libpsclient, which loads libpsclique-mpi when it is called.
 *
 * What psclique.h promises holds, but for this. Floats in a codec go round a ring of MPI's messages, with the
 * bits of psc_ring_open's ring of the same ranks with the default segment_bytes. Raw floats are added by MPI
 * in an order of its own; that all members get the same bits is the MPI standard's promise ("receive
 * identical results", section All-Reduce), and that the same call gives the same bits again is its advice,
 * which OpenMPI takes for the same number of members on machines of one kind. MPI cannot give up on a member,
 * nor tell computing from silence: when a call waits for timeout_ms, whatever the others do meanwhile, the
 * process is ended, after one line on stderr that names the state, with exit code PSC_MPI_EXIT_SILENT;
 * on_silence replaces both. A call that some members make otherwise than the others (another call, count or
 * root), or that one has closed the clique, is found out by a small reduction before each call, and fails
 * with PSC_ECLIQUE at every member. */
#ifndef PSCLIQUE_MPI_H
#define PSCLIQUE_MPI_H

#include "psclique.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PSC_MPI_EXIT_SILENT 76

struct psc_mpi_options {
    size_t size;         /* set by psc_mpi_options_init */
    uint32_t timeout_ms; /* how long a call waits for a member, its computing included. 60000 */
    /* Called once in a thread of the library, with the sentence. If it returns, the process continues, and
     * the call waits as long as MPI does. NULL: prints one line to stderr and calls
     * _exit(PSC_MPI_EXIT_SILENT). */
    void (*on_silence)(void *arg, const char *sentence);
    void *silence_arg;
};

void psc_mpi_options_init(struct psc_mpi_options *opt, size_t size);

/* The position of a process among all that mpirun started. */
struct psc_mpi_place {
    int rank, size;      /* of MPI_COMM_WORLD */
    int clique, cliques; /* the number of its clique, and of all cliques */
};

struct psc_mpi_world;

/* Starts MPI, unless the program has, and makes cliques of `members` processes in the order of their ranks.
 * All processes of mpirun call it, with the same members. Strings and options as in psc_ring_open.
 * PSC_EUNSUPPORTED: libpsclique-mpi is not installed, or MPI allows calls from one thread only; PSC_EINVAL:
 * the number of processes is not a multiple of members. */
int psc_mpi_world_open(const struct psc_mpi_options *opt, uint32_t members, struct psc_mpi_world **out);
struct psc_clique *psc_mpi_world_clique(const struct psc_mpi_world *w); /* owned by w; NULL after a failure */
void psc_mpi_world_place(const struct psc_mpi_world *w, struct psc_mpi_place *place);
const char *psc_mpi_world_error(const struct psc_mpi_world *w);
/* Closes the clique, and ends MPI if psc_mpi_world_open started it: all processes call it. After a failure
 * MPI is not ended. NULL is allowed. */
void psc_mpi_world_close(struct psc_mpi_world *w);

#ifdef MPI_VERSION
/* A clique of the processes of comm, which is duplicated: all of them call it, and psc_clique_close before
 * MPI_Finalize. MPI must have been started with MPI_THREAD_SERIALIZED, and then no other thread calls MPI
 * while a call on the clique is under way, or with MPI_THREAD_MULTIPLE. Failures as of psc_ring_open;
 * PSC_EUNSUPPORTED for less. */
int psc_mpi_open(const struct psc_mpi_options *opt, MPI_Comm comm, struct psc_clique **out);
#endif

#ifdef __cplusplus
}
#endif
#endif
