/* plan.h: psbench plan: predicts the time of an iteration of each method with a model of the link. */
#ifndef TEST_BENCH_PLAN_PLAN_H
#define TEST_BENCH_PLAN_PLAN_H

#include "tests/bench/plan/model.h"

extern const char bench_plan_help[];
int bench_plan(int argc, char **argv);

#define PLAN_MAX_LIST   16
#define PLAN_MAX_CODECS 16

struct plan_options {
    const char *net, *backend;
    uint32_t batch, threads, period, lanes, chunk_floats;
    double seconds; /* per measurement */
    double floats;  /* 0: those of the net */
    uint32_t workers[PLAN_MAX_LIST], cliques[PLAN_MAX_LIST];
    size_t n_workers, n_cliques;
    const struct ps_codec *codecs[PLAN_MAX_CODECS];
    size_t n_codecs;
    /* NaN: measured. */
    double compute_s, update_s, alpha_s, beta_s, gamma_s, sync_s, server_beta_s;
    bool half_duplex, json;
};

/* args.c: 0; 1: help was printed; -1: the command line is invalid, with a message on stderr. */
int plan_parse(int argc, char **argv, struct plan_options *o);
/* "1gbit", "100Mbit": a rate in bits per second as in tc(8), returned as seconds per byte. False with a
 * message on stderr. */
bool plan_read_link(const char *option, const char *text, double *beta_s);

/* measure.c: measures what was not given. -1 on error, with a message on stderr. */
int plan_measure_codec(const struct plan_options *o, const struct ps_codec *codec, struct plan_codec *out);
double plan_n_floats(const struct plan_options *o);
/* The layers of --net from last to first, each ready at a share of forward and backward by the multiply-adds
 * until then. points: [PLAN_MAX_LAYERS]. False: there is no net, or it has more layers. */
bool plan_read_profile(const struct plan_options *o, struct ps_ready_point *points, struct ps_profile *out);
int plan_measure_compute(const struct plan_options *o, double *compute_s, double *update_s);

/* link.c: alpha, beta and S of a ring of two processes on this machine, for vectors up to n_floats. *error as
 * of plan_fit. Forks: call it before threads are started. */
int plan_measure_link(const struct plan_options *o, double n_floats, double gamma_s, struct plan_link *link,
                      double *error);

#endif
