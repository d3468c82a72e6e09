/* model.h: a simulated job of psd: clients compute and exchange pieces of a vector with the lanes of servers
 * over links, under a method of ps_methods. Units are seconds, bytes and floats. docs/PLAN.md describes what
 * is modelled. */
#ifndef TEST_BENCH_SIMULATE_MODEL_H
#define TEST_BENCH_SIMULATE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/method.h"
#include "tests/bench/plan/model.h"

/* CPU time per chunk, and per byte. */
struct sim_cost {
    double chunk_s, byte_s;
};

struct sim_machine {
    struct sim_cost caller;    /* the thread that calls psc_step; one way; bytes of float32 values */
    struct sim_cost client_io; /* the client's thread for a lane's connection; one way; bytes of payload */
    struct sim_cost server_io; /* the same for psd's thread */
    struct sim_cost lane;      /* receiving a message and applying it by itself; bytes of float32 values */
    struct sim_cost merge;     /* the same for a message in a round */
    struct sim_cost ring;      /* a member's cost of receiving a block and sending one */
    struct plan_link link;     /* alpha, beta, server_beta, half_duplex; lanes: of each server */
    struct plan_codec message, answer, clique; /* e, d and bytes per float; add_s only of clique */
    double ring_alpha_s;                       /* of a hop of a ring; equals alpha, except on one machine */
    double raw_add_s;                          /* the part of clique's add_s that is the sum itself */
    uint32_t servers, window, chunk_floats;
    uint32_t cores; /* shared by all processes, on one machine; 0: every thread has a core */
};

struct sim_load {
    double n_floats;
    double compute_s; /* a step's gradient; it does not occupy a core */
    /* The worker's own step, which occupies a core: by itself; directly after an exchange, with x in the
     * caches; with the mean of a clique that is the whole job. */
    double update_s, update_warm_s, update_clique_s;
    double jitter;                  /* the time of a step is multiplied by exp(jitter z - jitter^2 / 2), z
                                       normal */
    double slow_share, slow_factor; /* share of slow workers, and their factor */
    uint32_t batch;
    uint32_t workers;
    uint32_t exchanges; /* per client; the first quarter is not counted */
    uint32_t pieces;    /* maximum per lane's slice: more chunks are moved in groups */
    uint64_t seed;
};

/* A row of ps_methods with its parameters. */
struct sim_method {
    const char *name;
    const char *admission;
    uint32_t period, slack, backup, quorum, pipeline;
    double grace_s;
    uint32_t overlap; /* steps that run beside an exchange, at most the period; 0: it is waited for */
    bool serial;
    bool steps;         /* the worker's optimizer costs update_s */
    bool steps_warm;    /* the step follows directly after an exchange */
    bool is_clique;     /* all workers are one clique, without psd */
    uint32_t members;   /* members of each clique, which is one client; 1: no cliques */
    bool sums_to_one;   /* only the leader needs the result of a clique's sum */
    bool takes_workers; /* psd must know the number of clients */
};

struct sim_result {
    uint32_t workers, clients;
    double iteration_s; /* per step of each worker */
    double exchanges_s, samples_s;
    double staleness_mean, staleness_p99;
    double waited;  /* share of a worker's time in which it neither computes nor makes its own step */
    double dropped; /* share of exchanges that were not applied */
    double lanes_busy, nic_busy, cores_busy; /* shares; nic: of the busiest server and direction */
    double alone_s;                          /* mean step of a worker without exchanges and waits */
    /* Counts of the whole run, for checks that nothing is lost. */
    uint64_t exchanges, pieces_sent, pieces_applied, pieces_dropped, pieces_answered, most_apart, n_events;
    double bytes_up, bytes_in, bytes_out, bytes_down;
};

/* The largest clique on shared cores: there every hop of every member is an event. */
#define SIM_MAX_RING 64

/* 0; -ENOMEM; -EINVAL with a sentence for an unsupported combination. */
int sim_run(const struct sim_method *method, const struct sim_machine *machine, const struct sim_load *load,
            struct sim_result *out, struct ps_error *err);

/* method.c. "METHOD" or "METHOD:KEY=VALUE,...": a preset with psd's parameters, and members=M for cliques of
 * M. -EINVAL with a sentence: no such method or key, an invalid value, or a method with neither psd nor a
 * clique. codecs: names of ps_codec_rows, 16 bytes each. */
struct sim_codecs {
    char message[16], answer[16], clique[16];
};
int sim_method_read(const char *text, uint32_t workers, struct sim_method *out, struct sim_codecs *codecs,
                    struct ps_error *err);

#endif
