/* real.h: a job on this machine with a real psd and workers that sleep instead of computing: measures the
 * time of a step, and the CPU time of threads. */
#ifndef TEST_BENCH_SIMULATE_REAL_H
#define TEST_BENCH_SIMULATE_REAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/simulate/model.h"

#define SIM_REAL_MAX_WORKERS 64

struct sim_real_job {
    const char *psd;    /* the program; NULL: the one near this program */
    const char *method; /* see sim_method_read */
    uint64_t n_floats;
    double sleep_s; /* per step */
    uint32_t workers, lanes, window, chunk_floats, steps;
};

/* Means over the workers' steps. */
struct sim_real_times {
    double iteration_s, slept_s;
    double exchange_s, update_s;                       /* per step, as counted by libpsclient */
    double caller_s, client_io_s, server_io_s, lane_s; /* CPU time per step of one worker */
    double staleness;                                  /* per exchange, as counted by psd; NaN without psd */
};

/* 0, or -1 with a message on stderr. Forks: call it before threads are started. */
int sim_real_run(const struct sim_real_job *job, struct sim_real_times *out);

#endif
