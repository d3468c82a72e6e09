/* allreduce.h: psbench allreduce: the ring of libpsclient compared with MPI_Allreduce in the same run. */
#ifndef TEST_BENCH_ALLREDUCE_ALLREDUCE_H
#define TEST_BENCH_ALLREDUCE_ALLREDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const char bench_allreduce_help[];
int bench_allreduce(int argc, char **argv);

enum { BENCH_MAX_REPEATS = 1000, BENCH_MAX_PARTS = 64, BENCH_MAX_RANKS = 64 };

/* Vectors summed one after the other. */
struct bench_parts {
    size_t n, counts[BENCH_MAX_PARTS];
};

struct bench_times {
    double seconds[BENCH_MAX_REPEATS]; /* per call, for each repetition, at the last rank to finish */
    double max_error, max_sum;         /* of the ring, compared with a sum in double */
};

struct bench_crowd {
    int ranks, repeats;
    int calls;        /* consecutive calls of a repetition, between two barriers */
    const char *road; /* "tcp", "unix" */
    const char *codec;
    const char *algorithm; /* "ring", "tree", "auto" */
    uint32_t links, segment_bytes;
};

/* Measures processes over a ring. False, with a message, if one fails. */
bool bench_ring(const struct bench_crowd *c, const struct bench_parts *parts, struct bench_times *out);
/* The same over MPI: tcp, or for unix its shared memory. False if there is no MPI or it failed; *why tells
 * the reason. */
bool bench_mpi(const struct bench_crowd *c, const struct bench_parts *parts, struct bench_times *out,
               const char **why);

/* --turns: ranks over a ring that read commands from the FIFOs PREFIX.RANK. 0, or 1 with a message. */
int bench_turns(const struct bench_crowd *c, const char *prefix);

/* --vectors */
struct bench_vectors {
    size_t vectors, floats; /* of each member; of each vector */
    size_t part_floats;     /* 0: the library's choice */
    uint64_t ranks;
    int64_t member; /* this process alone is that member; -1: all of them, on this machine */
    int repeats;
    const char *codec, *algorithm, *rendezvous, *listen;
    uint32_t links, segment_bytes;
    double beta_s; /* of a link, seconds a byte; NaN: not given */
    bool json;
};

/* Measures and prints. 0, or 1 with a message. */
int bench_vectors(const struct bench_vectors *o);

#endif
