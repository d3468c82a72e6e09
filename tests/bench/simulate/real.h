/* real.h: a job on this machine, of a real psd and workers whose computing is sleep: what a step takes,
 * and which threads' CPU time it took. */
#ifndef TEST_BENCH_SIMULATE_REAL_H
#define TEST_BENCH_SIMULATE_REAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/simulate/model.h"

#define SIM_REAL_MAX_WORKERS 64

struct sim_real_job {
    const char *psd;    /* the program; NULL: the one beside this */
    const char *method; /* as sim_method_read takes it */
    uint64_t n_floats;
    double sleep_s; /* of a step */
    uint32_t workers, lanes, window, chunk_floats, steps;
};

/* Means over the workers' steps. */
struct sim_real_times {
    double iteration_s, slept_s;
    double exchange_s, update_s;                       /* as libpsclient counts them, of a step */
    double caller_s, client_io_s, server_io_s, lane_s; /* CPU time, a step of one worker */
    double staleness;                                  /* of an exchange, as psd counts it; NaN without psd */
};

/* 0, or -1 with a sentence on stderr. Forks: before there are threads. */
int sim_real_run(const struct sim_real_job *job, struct sim_real_times *out);

#endif
