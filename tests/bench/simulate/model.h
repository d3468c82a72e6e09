/* model.h: a job of psd, simulated: clients that compute and exchange pieces of a vector with the lanes
 * of some servers over links, under a method of ps_methods. Seconds, bytes and floats; docs/PLAN.md says what
 * is modelled and what is not. */
#ifndef TEST_BENCH_SIMULATE_MODEL_H
#define TEST_BENCH_SIMULATE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/method.h"
#include "tests/bench/plan/model.h"

/* CPU time: of a chunk, and of each byte of it. */
struct sim_cost {
    double chunk_s, byte_s;
};

struct sim_machine {
    struct sim_cost caller;    /* the thread that calls psc_step; one way; bytes of float32 values */
    struct sim_cost client_io; /* the client's thread for a lane's connection; one way; bytes of payload */
    struct sim_cost server_io; /* psd's, likewise */
    struct sim_cost lane;      /* taking a message in, and applying it alone; bytes of float32 values */
    struct sim_cost merge;     /* the same of a message in a round */
    struct sim_cost ring;      /* a member's for a block that it sends on, of which it took in as much */
    struct plan_link link;     /* alpha, beta, server_beta, half_duplex; lanes: of each server */
    struct plan_codec message, answer, clique; /* e, d and bytes of a float; add_s of clique alone */
    double ring_alpha_s;                       /* of a hop of a ring; alpha, but on one machine */
    double raw_add_s;                          /* what of clique's add_s is the sum itself */
    uint32_t servers, window, chunk_floats;
    uint32_t cores; /* that all processes share, which are on one machine; 0: threads have cores enough */
};

struct sim_load {
    double n_floats;
    double compute_s; /* a step's gradient, which takes no core here */
    /* The worker's own step, which does: by itself; right after an exchange, which leaves x in the caches; by
     * the mean of a clique that is the whole job. */
    double update_s, update_warm_s, update_clique_s;
    double jitter;                  /* a step's time is that times exp(jitter z - jitter^2 / 2), z normal */
    double slow_share, slow_factor; /* so many of the workers take so many times as long */
    uint32_t batch;
    uint32_t workers;
    uint32_t exchanges; /* of each client; the first quarter is not counted */
    uint32_t pieces;    /* of a lane's slice at most: chunks are moved together where there are more */
    uint64_t seed;
};

/* A row of ps_methods with its parameters. */
struct sim_method {
    const char *name;
    const char *admission;
    uint32_t period, slack, backup, quorum, pipeline;
    double grace_s;
    bool serial, overlap;
    bool steps;         /* the worker's own optimizer costs update_s */
    bool steps_warm;    /* an exchange's step comes right after it */
    bool is_clique;     /* all workers are one, without psd on the way */
    uint32_t members;   /* of each clique that is one client; 1: workers by themselves */
    bool sums_to_one;   /* of a clique's sum only the leader needs the result */
    bool takes_workers; /* psd is to be told how many clients begin */
};

struct sim_result {
    uint32_t workers, clients;
    double iteration_s; /* of a step of each worker */
    double exchanges_s, samples_s, samples_dropped_s;
    double staleness_mean, staleness_p99;
    double waited;  /* share of a worker's time in which it neither computes nor makes its own step */
    double dropped; /* share of exchanges that moved nothing */
    double lanes_busy, nic_busy, cores_busy; /* shares; nic: of the busiest server and way */
    double alone_s; /* a step of a worker that exchanges nothing and waits for nobody, on average */
    /* Of the whole run, for whoever checks that nothing is lost. */
    uint64_t exchanges, pieces_sent, pieces_applied, pieces_dropped, pieces_answered, most_apart, n_events;
    double bytes_up, bytes_in, bytes_out, bytes_down;
    double simulated_s;
};

/* The event-driven ring has a hop of each member a step: for cliques of at most so many that share cores. */
#define SIM_MAX_RING 64

/* 0; -ENOMEM; -EINVAL with a sentence for what does not go together. */
int sim_run(const struct sim_method *method, const struct sim_machine *machine, const struct sim_load *load,
            struct sim_result *out, struct ps_error *err);

/* method.c. "METHOD" or "METHOD:KEY=VALUE,...": a preset with psd's parameters, and members=M for cliques
 * of M. -EINVAL with a sentence: no such method or key, a value that is not allowed, or one that has no psd
 * and no clique to simulate. codecs: names of ps_codec_rows, 16 bytes each. */
struct sim_codecs {
    char message[16], answer[16], clique[16];
};
int sim_method_read(const char *text, uint32_t workers, struct sim_method *out, struct sim_codecs *codecs,
                    struct ps_error *err);

#endif
