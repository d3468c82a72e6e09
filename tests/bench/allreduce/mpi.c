/* mpi.c: runs psbench-mpi, which is in the same folder as this program, under mpirun. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/allreduce/allreduce.h"

/* tcp is requested by name; by default OpenMPI uses shared memory between ranks of one machine. */
static bool command_of(const struct bench_crowd *c, const struct bench_parts *parts, char *out, size_t size)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0)
        return false;
    self[len] = 0;
    bool crowded = c->ranks > sysconf(_SC_NPROCESSORS_ONLN);
    int at = snprintf(out, size, "%s mpirun --allow-run-as-root %s-n %d '%s/psbench-mpi' %d %d",
                      strcmp(c->road, "tcp") == 0 ? "OMPI_MCA_btl=self,tcp" : "OMPI_MCA_btl=self,vader",
                      crowded ? "--oversubscribe " : "", c->ranks, dirname(self), c->repeats, c->calls);
    for (size_t k = 0; k < parts->n; k++)
        at += snprintf(out + at, size - (size_t)at, " %zu", parts->counts[k]);
    return true;
}

bool bench_mpi(const struct bench_crowd *c, const struct bench_parts *parts, struct bench_times *out,
               const char **why)
{
    char command[PATH_MAX + 2048], line[256];
    int n = 0;
    for (size_t k = 0; k < parts->n; k++)
        if (parts->counts[k] > INT_MAX) {
            *why = "its counts are int";
            return false;
        }
    *why = "mpirun failed";
    fflush(stdout);
    FILE *f = command_of(c, parts, command, sizeof command) ? popen(command, "r") : NULL;
    if (f == NULL)
        return false;
    while (n < c->repeats && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%lf", &out->seconds[n]) == 1)
            n++;
    return pclose(f) == 0 && n == c->repeats;
}
