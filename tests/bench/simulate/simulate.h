/* simulate.h: psbench plan --simulate, jobs of psd that are run event by event, and beside real ones. */
#ifndef TEST_BENCH_SIMULATE_SIMULATE_H
#define TEST_BENCH_SIMULATE_SIMULATE_H

#include <stdio.h>

#include "tests/bench/simulate/model.h"

#define SIM_MAX_METHODS 64
#define SIM_MAX_WORKERS 16 /* numbers of them */

/* What a machine's threads need for a chunk and a byte, each NaN until given or measured. */
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
    const char *methods[SIM_MAX_METHODS]; /* as sim_method_read takes them */
    size_t n_methods;
    uint32_t workers[SIM_MAX_WORKERS];
    size_t n_workers;
    const char *net, *psd;
    double floats;              /* 0: the net's */
    double compute_s, update_s; /* NaN: timed, of a net; measured */
    double jitter, slow_share, slow_factor;
    double alpha_s, beta_s, server_beta_s, sync_s; /* NaN: this machine's */
    struct sim_cost costs[SIM_N_THREADS];
    double seconds; /* of each measurement */
    uint32_t batch, servers, lanes, window, chunk_floats, cores, exchanges, pieces, clique, seed, steps,
        rounds;
    bool named; /* the methods were; else they are all of psd's */
    bool half_duplex, check, json;
};

/* Whether the command line asks for a simulation. */
bool sim_is_asked(int argc, char **argv);
/* The command; argv as psbench plan has it. Returns the exit code. */
int bench_simulate(int argc, char **argv);

/* args.c. Of the simulation's own options. */
void sim_usage(FILE *out);
/* 0; 1: help was printed; -1: the command line is wrong, and stderr says how. */
int sim_parse(int argc, char **argv, struct sim_options *o);

/* costs.c. Fills what is NaN of the machine and of the load's steps, from real jobs of one worker, and of
 * two in a ring; *load's other parts are what they are. -1 with a sentence on stderr. */
int sim_measure_costs(struct sim_options *o, struct sim_machine *machine, struct sim_load *load);
/* The codecs of a method, each measured when first asked for; machine->link must be there. */
int sim_measure_codecs(const struct sim_options *o, const struct sim_codecs *names,
                       struct sim_machine *machine);

/* Whether each method that was named can be simulated for some of the numbers of workers; with a check, for
 * each, as workers by themselves or as one clique. Else a sentence on stderr. */
bool sim_methods_fit(const struct sim_options *o);

/* What of the load the options say. */
struct sim_load sim_load_of(const struct sim_options *o);

/* check.c: real jobs beside simulated ones, in rounds. The exit code. */
int sim_check(const struct sim_options *o);

#endif
