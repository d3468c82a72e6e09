/* psbench-mpi REPEAT FLOATS...: the comparison of psbench allreduce, which starts it under mpirun. Sums
 * vectors of FLOATS values in turn, in place, and prints the seconds of each repetition on a line: from a
 * barrier to the end at the last rank.
 *
 * psbench-mpi turns PREFIX: the same for turns of tests/bench/allreduce/peers.py, as turns.c has it. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/allreduce/gradient.h"

static void sum_parts(float *x, char **counts, int n_counts)
{
    for (int k = 0; k < n_counts; k++) {
        int n = atoi(counts[k]);
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        x += n;
    }
}

static double repeat_once(float *x, const float *from, size_t total, int calls, char **counts, int n_counts)
{
    memcpy(x, from, total * sizeof *x);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), own, last;
    for (int k = 0; k < calls; k++)
        sum_parts(x, counts, n_counts);
    own = (MPI_Wtime() - begin) / calls;
    MPI_Allreduce(&own, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return last;
}

static void take_turn(float **x, size_t *has, int n, int calls)
{
    int ranks, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (*has != (size_t)n) {
        free(*x);
        *x = calloc((size_t)n, sizeof **x);
        *has = (size_t)n;
        if (*x == NULL)
            MPI_Abort(MPI_COMM_WORLD, 2);
        MPI_Allreduce(MPI_IN_PLACE, *x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    for (int i = 0; i < n; i++)
        (*x)[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), own, last;
    for (int k = 0; k < calls; k++)
        MPI_Allreduce(MPI_IN_PLACE, *x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    own = (MPI_Wtime() - begin) / calls;
    MPI_Allreduce(&own, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    float sum = powf((float)ranks, (float)calls);
    if ((*x)[0] != sum || (*x)[n - 1] != sum)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == 0)
        printf("%.9f\n", last);
    fflush(stdout);
}

static int take_turns(const char *prefix)
{
    char path[200], line[64];
    float *x = NULL;
    size_t has = 0;
    int rank, n, calls;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", prefix, rank);
    FILE *in = fopen(path, "re");
    if (in == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
    while (fgets(line, sizeof line, in) != NULL)
        if (sscanf(line, "%d %d", &n, &calls) == 2 && n > 0 && calls > 0)
            take_turn(&x, &has, n, calls);
    fclose(in);
    free(x);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "turns") == 0)
        return take_turns(argv[2]);
    int rank, repeats = argc > 1 ? atoi(argv[1]) : 0, calls = argc > 2 ? atoi(argv[2]) : 0;
    size_t total = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int k = 3; k < argc; k++)
        total += (size_t)atoi(argv[k]);
    float *x = malloc(total * sizeof *x + 4), *from = malloc(total * sizeof *x + 4);
    if (x == NULL || from == NULL || calls < 1 || argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t i = 0; i < total; i++)
        from[i] = bench_gradient(rank, i);
    for (int k = -2; k < repeats; k++) { /* two warm-up repetitions touch every page and connect */
        double s = repeat_once(x, from, total, k < 0 ? 1 : calls, argv + 3, argc - 3);
        if (rank == 0 && k >= 0)
            printf("%.9f\n", s);
    }
    free(x);
    free(from);
    MPI_Finalize();
    return 0;
}
