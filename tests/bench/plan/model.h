/* model.h: predicts the time of an iteration: the timing model of Li et al. (Pipe-SGD, 2018), with the
 * additions for psd. Pure arithmetic; units are seconds, bytes and floats.
 *
 * n floats of b bytes, p workers, cliques of M. alpha: latency of a message; beta: time of a byte on a link;
 * gamma: sum of a float; S: synchronisation; e, d: encoding and decoding of a float (0 for raw); a: decoding
 * and adding a float. w is 1 on a full-duplex link, 2 on a half-duplex link.
 *
 *   allreduce(M) = 2 (M - 1) alpha + w 2 ((M - 1) / M) n b beta + ((M - 1) / M) n a + n (e + d) + S
 *   broadcast(M) = (M - 1) alpha + w n 4 beta                in segments, all links at once
 *   server(p)    = 2 alpha + way(p n b) beta + p n (a + e) / lanes + n (e + d) + S
 *
 * A server's link carries the messages of all clients. psd answers a chunk as soon as it is done, so answers
 * are sent while messages still arrive: way(x) is x plus one chunk of each worker, or 2 x on a half-duplex
 * link.
 *
 *   d-sync       update + compute + allreduce(p)
 *   pipe-sgd     max(update + compute, allreduce(p))           K = 2
 *   sync-sgd     update + compute + server(p)                  Li et al.'s PS-Sync
 *   async-sgd    max(update + compute + server(1), p busy)
 *                busy: the time of one exchange on the server's link or lanes
 *   async-easgd  the same with server(1) / tau and p busy / tau
 *   mpi-sgd      update + compute + allreduce(M) + server(p / M) + broadcast(M)
 *
 * The iteration of d-sync is that of one bucket. `buckets` is the number that makes it shortest, at most
 * PLAN_MOST_BUCKETS, and bucketed_s its iteration then: by the layers' multiply-adds and sizes if the job has
 * a profile, else as if forward were a third of compute and all of backward alike.
 *
 * Efficiency is the speed divided by p times that of one worker: (update + compute) / iteration. */
#ifndef TEST_BENCH_PLAN_MODEL_H
#define TEST_BENCH_PLAN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/model/buckets.h"

enum { PLAN_MOST_BUCKETS = 64, PLAN_MAX_LAYERS = 512 };

enum plan_term {
    PLAN_UPDATE,
    PLAN_COMPUTE,
    PLAN_LATENCY,
    PLAN_WIRE,
    PLAN_ARITHMETIC,
    PLAN_SYNC,
    PLAN_N_TERMS
};
extern const char *const plan_term_names[PLAN_N_TERMS];

struct plan_link {
    double alpha_s, beta_s; /* per message; per byte */
    double sync_s;          /* S */
    double server_beta_s;   /* of psd's link */
    uint32_t lanes;         /* of psd, which work in parallel */
    bool half_duplex;
};

struct plan_codec {
    const char *name;
    double bytes_per_float;
    double encode_s, decode_s, add_s; /* per float */
};

struct plan_job {
    const struct ps_profile *profile; /* of the net's layers, its times as shares of compute_s; NULL: none */
    double n_floats, chunk_floats;
    double update_s, compute_s; /* per iteration, of one worker */
    uint32_t batch;
    uint32_t period; /* tau of async-easgd */
};

struct plan_method {
    const char *name;
    const char *title;    /* for display */
    bool every_gradient;  /* every gradient is applied, in every iteration: the speeds of such methods are
                             comparable */
    bool is_exact;        /* no gradient is stale */
    bool has_clique_size; /* strictly between 1 and p; otherwise a clique is one worker, or all */
    bool is_clique;       /* all workers are one clique, and there is no server */
};
extern const struct plan_method plan_methods[];
extern const size_t plan_n_methods;

struct plan_prediction {
    const struct plan_method *method;
    const struct plan_codec *codec;
    uint32_t workers, clique;
    double terms[PLAN_N_TERMS]; /* seconds per iteration, without overlap */
    double comm_s;              /* of these, all except update and compute */
    double iteration_s, images_s, efficiency;
    uint32_t buckets;  /* of a clique's sum, by equations 5 and 6 (proto/model/buckets.h); 0: there is none */
    double bucketed_s; /* the iteration with these buckets; 0: there are none */
    enum plan_term largest; /* the largest term of the iteration's time */
};

/* clique: for methods with a clique size. workers >= 1. */
void plan_predict(const struct plan_method *method, const struct plan_link *link,
                  const struct plan_codec *codec, const struct plan_job *job, uint32_t workers,
                  uint32_t clique, struct plan_prediction *out);

/* The prediction with the most images/s for that number of workers among methods that apply every gradient.
 * Of several within 3 %, the first exact one, otherwise the first: list lossless codecs first. NULL if there
 * is none. */
const struct plan_prediction *plan_choose(const struct plan_prediction *all, size_t n, uint32_t workers);

/* A measured allreduce. */
struct plan_sample {
    uint32_t members;
    double n_bytes, seconds;
};

/* Fits alpha, beta and S of *link to samples of the raw codec, whose gamma is known: least squares of
 * relative errors, with all three at least 0. With samples of one number of members alpha and S are not
 * separable: S stays 0 and is part of alpha. *error: the median relative error of the fit. -EINVAL: fewer
 * than two sizes, or a sample whose time is not positive. */
int plan_fit(const struct plan_sample *samples, size_t n, double gamma_s, bool half_duplex,
             struct plan_link *link, double *error);

#endif
