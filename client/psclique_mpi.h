/* psclique_mpi.h: cliques over MPI, in a library of their own, libpsclique-mpi.
 *
 * A program that uses MPI includes <mpi.h> before this header, links libpsclique-mpi and passes a
 * communicator to psc_mpi_open. A program that does not use MPI, but was started by mpirun, calls
 * psc_mpi_world_open of libpsclient, which loads libpsclique-mpi.
 *
 * The functions of psclique.h work as described there, with these differences:
 *
 * - Floats in a codec are summed by a ring of MPI messages, with the same bits as psc_ring_open's ring of the
 *   same ranks with the default segment_bytes.
 * - MPI runs all other collectives; half types, and minima and maxima of floats, by operations of this
 *   library. It sums raw floats, and chooses the order of additions. The MPI standard requires that all
 * members get the same bits ("receive identical results", section All-Reduce). It only advises that the same
 * call gives the same bits again. OpenMPI follows this advice for the same number of members on machines of
 * one kind.
 * - MPI cannot abandon a call, and cannot tell computing from silence. If a call waits for timeout_ms,
 *   whatever the other members do, the library prints one line to stderr with the state of the call and
 *   ends the process with exit code PSC_MPI_EXIT_SILENT. on_silence replaces both. A timeout_ms of struct
 *   psc_collective_options that is shorter replaces this limit in its call.
 * - Before each call a small reduction compares the members' calls, whatever `compare` says. If they differ
 *   (another function, type, operation, count, root or codec), or a member has closed the clique, the call
 *   fails at every member with PSC_ECLIQUE. */
#ifndef PSCLIQUE_MPI_H
#define PSCLIQUE_MPI_H

#include "psclique.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PSC_MPI_EXIT_SILENT 76

struct psc_mpi_options {
    size_t size;         /* set by psc_mpi_options_init */
    uint32_t timeout_ms; /* how long a call waits for a member, which may be computing; at least 1. 60000 */
    /* Called in a thread of the library when a call has waited for timeout_ms, at most once for each clique.
     * The sentence names this rank and the call. If it returns, the process continues, and the call waits as
     * long as MPI does. NULL: prints the sentence to stderr and calls _exit(PSC_MPI_EXIT_SILENT). NULL */
    void (*on_silence)(void *arg, const char *sentence);
    void *silence_arg;
};

/* Fills every field with its default. size: sizeof *opt. */
void psc_mpi_options_init(struct psc_mpi_options *opt, size_t size);

/* The position of a process among all processes that mpirun started. */
struct psc_mpi_place {
    int rank, size;      /* of MPI_COMM_WORLD */
    int clique, cliques; /* the index of its clique, from 0, and the number of cliques */
};

struct psc_mpi_world;

/* Starts MPI, unless it is running, and divides the processes into cliques of `members`, in the order of
 * their ranks. All processes of mpirun call it, with the same members. opt NULL: the defaults.
 * psc_mpi_world_close frees *out. After a failure *out is valid for psc_mpi_world_error and
 * psc_mpi_world_close, or is NULL if there was no memory. Errors: PSC_EUNSUPPORTED: libpsclique-mpi is not
 * installed or of another version, or MPI allows calls from one thread only; PSC_EINVAL: an option is not
 * allowed, or the number of processes is not a multiple of members; PSC_ECLIQUE: the processes disagree on
 * members, or MPI fails; PSC_ENOMEM, PSC_ESYSTEM. */
int psc_mpi_world_open(const struct psc_mpi_options *opt, uint32_t members, struct psc_mpi_world **out);
/* This process's clique, owned by w. NULL if it could not be opened. */
struct psc_clique *psc_mpi_world_clique(const struct psc_mpi_world *w);
void psc_mpi_world_place(const struct psc_mpi_world *w, struct psc_mpi_place *place);
/* About the failure of psc_mpi_world_open, "" if it succeeded. Owned by w. */
const char *psc_mpi_world_error(const struct psc_mpi_world *w);
/* Closes the clique, and ends MPI if psc_mpi_world_open started it. All processes call it. If a call on the
 * clique has failed, MPI is not ended. NULL is allowed. */
void psc_mpi_world_close(struct psc_mpi_world *w);

#ifdef MPI_VERSION
/* Makes a clique of the processes of comm, which is duplicated. All of them call it, and call
 * psc_clique_close before MPI_Finalize. opt NULL: the defaults. MPI must have been started with
 * MPI_THREAD_MULTIPLE, or with MPI_THREAD_SERIALIZED; with the latter no other thread may call MPI while a
 * call on the clique is in progress. *out after a failure: as of psc_ring_open. Errors: PSC_EUNSUPPORTED: MPI
 * was started with less; PSC_EINVAL: MPI is not running, or an option is not allowed; PSC_ECLIQUE: MPI fails;
 * PSC_ENOMEM, PSC_ESYSTEM. */
int psc_mpi_open(const struct psc_mpi_options *opt, MPI_Comm comm, struct psc_clique **out);
#endif

#ifdef __cplusplus
}
#endif
#endif
