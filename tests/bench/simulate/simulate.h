/* simulate.h: psbench plan --simulate: event-driven simulation of jobs of psd, with a comparison with real
 * jobs. */
#ifndef TEST_BENCH_SIMULATE_SIMULATE_H
#define TEST_BENCH_SIMULATE_SIMULATE_H

#include <stdio.h>

#include "tests/bench/simulate/model.h"

#define SIM_MAX_METHODS 64
#define SIM_MAX_WORKERS 16 /* different numbers of workers */

/* Costs of a machine's threads per chunk and per byte; NaN until given or measured. */
enum sim_thread {
    SIM_CALLER,
    SIM_CLIENT_IO,
    SIM_SERVER_IO,
    SIM_LANE,
    SIM_MERGE,
    SIM_RING,
    SIM_N_THREADS,
};
extern const char *const sim_thread_names[SIM_N_THREADS];

struct sim_options {
    const char *methods[SIM_MAX_METHODS]; /* see sim_method_read */
    size_t n_methods;
    uint32_t workers[SIM_MAX_WORKERS];
    size_t n_workers;
    const char *net, *psd;
    double floats;              /* 0: those of the net */
    double compute_s, update_s; /* NaN: measured */
    double jitter, slow_share, slow_factor;
    double alpha_s, beta_s, server_beta_s, sync_s; /* NaN: those of this machine */
    struct sim_cost costs[SIM_N_THREADS];
    double seconds; /* per measurement */
    uint32_t batch, servers, lanes, window, chunk_floats, cores, exchanges, pieces, clique, seed, steps,
        rounds;
    bool named; /* methods were given; otherwise all methods of psd */
    bool half_duplex, check, json;
};

/* Whether the command line has --simulate or --check. */
bool sim_is_asked(int argc, char **argv);
/* Runs the command; argv as in psbench plan. Returns the exit code. */
int bench_simulate(int argc, char **argv);

/* args.c. The options of the simulation. */
void sim_usage(FILE *out);
/* 0; 1: help was printed; -1: the command line is invalid, with a message on stderr. */
int sim_parse(int argc, char **argv, struct sim_options *o);

/* costs.c. Measures the NaN fields of the machine and of the load's steps, with real jobs of one worker and
 * of two in a ring. -1 with a message on stderr. */
int sim_measure_costs(struct sim_options *o, struct sim_machine *machine, struct sim_load *load);
/* Measures the codecs of a method, each once; machine->link must be set. */
int sim_measure_codecs(const struct sim_options *o, const struct sim_codecs *names,
                       struct sim_machine *machine);

/* The load from the options. */
struct sim_load sim_load_of(const struct sim_options *o);

/* check.c: compares real jobs with simulated ones, in rounds. Returns the exit code. */
int sim_check(const struct sim_options *o);

#endif
