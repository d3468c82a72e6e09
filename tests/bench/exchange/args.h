/* args.h: the options of psbench exchange. */
#ifndef TEST_BENCH_EXCHANGE_ARGS_H
#define TEST_BENCH_EXCHANGE_ARGS_H

#include <stdbool.h>
#include <stdint.h>

enum { BENCH_MAX_WORKERS = 64 };

struct bench_exchange_options {
    uint64_t floats, workers, count, servers, lanes, chunk_floats, window;
    double seconds, compute_ms;
    const char *transport, *psd, *admission, *codec, *answer_codec, *memory;
    bool json, curve, in_place;
    char key[128]; /* the workers' key file, with --curve */
};

/* Overrides the defaults in *opt. 0; -1: help was requested; 2 with a message on stderr. */
int bench_exchange_parse(int argc, char **argv, struct bench_exchange_options *opt);

#endif
