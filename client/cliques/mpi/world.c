/* world.c: cliques of the processes that mpirun started, for programs that do not use MPI themselves. */

#include "client/cliques/mpi/mpi.h"
#include "client/cliques/mpi/plugin.h"
#include "client/cliques/mpi/watchdog.h"

extern const struct psc_mpi_calls psc_mpi_calls_1;

/* Sets *started to whether MPI was not running before. */
static int start(bool *started, struct ps_error *err)
{
    int initialized = 0, level = MPI_THREAD_SINGLE, rc;

    MPI_Initialized(&initialized);
    if (initialized)
        return PSC_OK;
    if ((rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)) != MPI_SUCCESS)
        return psc_mpi_fail(err, "MPI_Init_thread", rc);
    *started = true;
    return PSC_OK;
}

/* Checks that all processes ask for cliques of the same size, and that it divides their number. */
static int check_members(uint32_t members, int size, struct ps_error *err)
{
    int64_t both[2] = {members, -(int64_t)members}, most[2] = {0, 0};
    int rc = MPI_Allreduce(both, most, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);

    if (rc != MPI_SUCCESS)
        return psc_mpi_fail(err, "MPI_Allreduce", rc);
    if (most[0] != -most[1])
        return ps_fail(err, PSC_ECLIQUE,
                       "the processes disagree: some want cliques of %ld members, some of %ld",
                       (long)-most[1], (long)most[0]);
    if (members < 1 || members > (uint32_t)size || (uint32_t)size % members != 0)
        return ps_fail(err, PSC_EINVAL,
                       "mpirun started %d processes: they cannot be divided into cliques of %u members", size,
                       members);
    return PSC_OK;
}

static int split(uint32_t members, struct psc_mpi_place *place, MPI_Comm *part, struct ps_error *err)
{
    int rc;
    MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place->size);
    if ((rc = check_members(members, place->size, err)) != PSC_OK)
        return rc;
    place->clique = place->rank / (int)members;
    place->cliques = place->size / (int)members;
    if ((rc = MPI_Comm_split(MPI_COMM_WORLD, place->clique, place->rank, part)) != MPI_SUCCESS)
        return psc_mpi_fail(err, "MPI_Comm_split", rc);
    return PSC_OK;
}

static int open_world(const struct psc_mpi_options *opt, uint32_t members, struct psc_clique **q,
                      struct psc_mpi_place *place, bool *started, struct ps_error *err)
{
    struct psc_watchdog *dog = NULL;
    MPI_Comm part;
    int rc = psc_watchdog_create(opt, "starting MPI", &dog);

    if (rc != PSC_OK)
        return ps_fail(err, rc, "cannot start the watchdog of a clique over MPI");
    psc_watchdog_wait(dog, "MPI_Init_thread and MPI_Comm_split, which all processes call");
    if ((rc = start(started, err)) == PSC_OK)
        rc = split(members, place, &part, err);
    psc_watchdog_rest(dog);
    psc_watchdog_destroy(dog);
    if (rc != PSC_OK)
        return rc;
    rc = psc_mpi_open_on(opt, part, q, err);
    MPI_Comm_free(&part);
    return rc;
}

/* Ending MPI waits for all processes, for a bounded time. */
static void end_world(const struct psc_mpi_options *opt)
{
    struct psc_watchdog *dog = NULL;
    int finalized = 0;

    MPI_Finalized(&finalized);
    if (finalized || psc_watchdog_create(opt, "leaving MPI", &dog) != PSC_OK)
        return;
    psc_watchdog_wait(dog, "MPI_Finalize");
    MPI_Finalize();
    psc_watchdog_rest(dog);
    psc_watchdog_destroy(dog);
}

const struct psc_mpi_calls psc_mpi_calls_1 = {.open = open_world, .end = end_world};
