/* args.h: what psbench step is asked for. */
#ifndef TEST_BENCH_STEP_ARGS_H
#define TEST_BENCH_STEP_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "nets/model.h"

enum { STEP_MAX_MEMBERS = 64, STEP_MAX_STEPS = 1000 };

struct step_options {
    struct cnn_model model;
    const char *messages; /* NULL: steps of the method. Else "packed" or "layers": sums of the caller's own */
    const char *net, *method, *codec, *server, *rendezvous, *listen;
    uint64_t members, links, segment, bucket_floats, steps, batch, threads;
    int64_t member; /* this process is that one alone; -1: all are here */
    double step_ms; /* computing is so long a sleep; 0: it is real */
    bool whole;     /* the gradient leaves when all of it is there */
    bool both_only; /* computing and communication are not measured by themselves */
    bool json;
};

/* Over defaults in *opt. 0; -1: help was asked for; 2 with a line on stderr. */
int step_parse(int argc, char **argv, struct step_options *opt);

#endif
