/* model.h: how long an iteration takes, before it is run. The timing model of Li et al. (Pipe-SGD,
 * 2018), with what psd adds to it. Pure arithmetic; seconds, bytes and floats.
 *
 * n floats of b bytes, p workers, clique of M. alpha: a message's latency; beta: a byte's time on a link;
 * gamma: a float's sum; S: what keeping in step costs; e, d: a float's encoding and decoding (0 for raw); a:
 * decoding and adding one. w is 1 on a link that carries both ways at once, 2 where they share it.
 *
 *   allreduce(M) = 2 (M - 1) alpha + w 2 ((M - 1) / M) n b beta + ((M - 1) / M) n a + n (e + d) + S
 *   server(p)    = 2 alpha + way(p n b) beta + p n (a + e) / lanes + n (e + d) + S
 *
 * A server's link carries the messages of all. psd answers a chunk as soon as it is done, so that answers
 * travel while messages still come: way(x) is x and one chunk of each worker, or 2 x where both ways share
 * the link.
 *
 *   d-sync     update + compute + allreduce(p)
 *   pipe-sgd   max(update + compute, allreduce(p))          K = 2
 *   sync-sgd   update + compute + server(p)                 Li et al.'s PS-Sync
 *   async-sgd  max(update + compute + server(1), p busy)    busy: what one exchange takes of the server's
 * link or lanes async-easgd the same with server(1) / tau and p busy / tau mpi-sgd    update + compute +
 * allreduce(M) + server(p / M) + broadcast(M) broadcast(M) = (M - 1) alpha + w n 4 beta               in
 * segments, all links at once
 *
 * Efficiency is the share of p times one worker's speed: (update + compute) / iteration. */
#ifndef TEST_BENCH_PLAN_MODEL_H
#define TEST_BENCH_PLAN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    double alpha_s, beta_s; /* of a message; of a byte */
    double sync_s;          /* S */
    double server_beta_s;   /* of psd's own link */
    uint32_t lanes;         /* of psd, which add at once */
    bool half_duplex;
};

struct plan_codec {
    const char *name;
    double bytes_per_float;
    double encode_s, decode_s, add_s; /* a float */
};

struct plan_job {
    double n_floats, chunk_floats;
    double update_s, compute_s; /* an iteration's, of one worker */
    uint32_t batch;
    uint32_t period; /* tau of async-easgd */
};

struct plan_method {
    const char *name;
    const char *title;    /* for people */
    bool every_gradient;  /* enters the model, in every iteration: what such methods reach can be compared */
    bool is_exact;        /* no gradient is stale */
    bool has_clique_size; /* between 1 and p, both apart; else the clique is one worker, or all */
    bool is_clique;       /* all workers are one clique, and there is no server */
};
extern const struct plan_method plan_methods[];
extern const size_t plan_n_methods;

struct plan_prediction {
    const struct plan_method *method;
    const struct plan_codec *codec;
    uint32_t workers, clique;
    double terms[PLAN_N_TERMS]; /* seconds an iteration, as if nothing overlapped */
    double comm_s;              /* of them, all but update and compute */
    double iteration_s, images_s, efficiency;
    enum plan_term largest; /* what the iteration's time is made of most */
};

/* clique: of a method that has one, else ignored. workers >= 1. */
void plan_predict(const struct plan_method *method, const struct plan_link *link,
                  const struct plan_codec *codec, const struct plan_job *job, uint32_t workers,
                  uint32_t clique, struct plan_prediction *out);

/* The most images/s of those that take every gradient and have so many workers; where several are within 3 %
 * of it, the first that is exact, then the first of all: put what loses least first. NULL: there is none. */
const struct plan_prediction *plan_choose(const struct plan_prediction *all, size_t n, uint32_t workers);

/* A measured allreduce. */
struct plan_sample {
    uint32_t members;
    double n_bytes, seconds;
};

/* alpha, beta and S from samples of the raw codec, whose gamma is known: the least squares of relative
 * errors, none of the three below 0. With one number of members alpha and S cannot be told apart: S stays 0
 * and is in alpha. Sets these three of *link. *error: the median relative error that is left. -EINVAL: fewer
 * than two sizes, or a sample that is no time. */
int plan_fit(const struct plan_sample *samples, size_t n, double gamma_s, bool half_duplex,
             struct plan_link *link, double *error);

#endif
