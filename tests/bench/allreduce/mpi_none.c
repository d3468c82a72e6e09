/* mpi_none.c: psd was built without MPI. */
#include "tests/bench/allreduce/allreduce.h"

bool bench_mpi(const struct bench_crowd *c, const struct bench_parts *parts, struct bench_times *out,
               const char **why)
{
    (void)c;
    (void)parts;
    (void)out;
    *why = "built without MPI";
    return false;
}
