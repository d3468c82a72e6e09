/* vec.h: the vector kernels, which both ends use.
 *
 * One source (kernels.c) is compiled for each instruction set; the rows give the same bits, since nothing is
 * contracted or reordered (-ffp-contract=off, no reductions over floats). Vectors may start at any multiple
 * of 4 bytes. */
#ifndef PS_VEC_VEC_H
#define PS_VEC_VEC_H

#include <stdbool.h>
#include <stddef.h>

/* Adam's constants for one update; rate and root include the bias corrections. */
struct ps_adam {
    float beta1, rest1; /* rest: 1 - beta */
    float beta2, rest2;
    float rate; /* eta / (1 - beta1^t) */
    float root; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
};

/* Delayed Nesterov's constants for the move that applies the momentum. */
struct ps_settle {
    float rate; /* eta / N */
    float beta;
    float share; /* 1 / N */
    float pull;  /* eta beta */
};

struct ps_vec {
    const char *name;
    /* Index of the first value that is NaN or Inf, or n. */
    size_t (*first_nonfinite)(const float *x, size_t n);
    /* y <- y + a x */
    void (*axpy)(float *restrict y, const float *restrict x, float a, size_t n);
    /* x <- x - a (x - center): the worker's side of the elastic exchange, Zhang et al. 2015 eq. 5. */
    void (*elastic)(float *restrict x, const float *restrict center, float a, size_t n);
    /* v <- delta v - eta g; x <- x + v; at <- x + delta v: Nesterov's step, Zhang et al. 2015 eq. 7-8, g
     * taken at `at`. */
    void (*nesterov)(float *restrict at, float *restrict x, float *restrict v, const float *restrict g,
                     float eta, float delta, size_t n);
    /* The server's side, fused: m holds x and receives the center before; center <- center + a (x - center)
     * (Zhang et al. 2015 eq. 6). Does not store results that are not finite; returns how many. */
    size_t (*exchange_elastic)(float *restrict center, float *restrict m, float a, size_t n);
    /* Both sides at once, with the same bits: center <- center + a (x - center), masked and counted likewise,
     * and x <- x - a (x - center before). */
    size_t (*elastic_in_place)(float *restrict center, float *restrict x, float a, size_t n);
    /* center <- center - eta g; m holds g and receives the center after. Masked and counted likewise. */
    size_t (*exchange_descend)(float *restrict center, float *restrict m, float eta, size_t n);
    /* center <- center + a (m - center); m receives the center after: the running mean of buffers under rules
     * whose answer is adopted. Masked and counted likewise. */
    size_t (*exchange_mean)(float *restrict center, float *restrict m, float a, size_t n);
    /* v <- mu v - eta g; center <- center + pull v; m holds g and receives the center after. Where the center
     * would not be finite, neither is stored. */
    size_t (*exchange_momentum)(float *restrict center, float *restrict v, float *restrict m, float mu,
                                float eta, float pull, size_t n);
    /* center <- center - eta (g + lambda g^2 (center - seen)); m holds g and receives the center after.
     * Masked and counted. */
    size_t (*exchange_compensate)(float *restrict center, const float *restrict seen, float *restrict m,
                                  float eta, float lambda, size_t n);
    /* s <- s + g^2; center <- center - eta g / (sqrt(s) + epsilon); both or neither, m as above. */
    size_t (*exchange_adagrad)(float *restrict center, float *restrict s, float *restrict m, float eta,
                               float epsilon, size_t n);
    /* v <- beta1 v + rest1 g; s <- beta2 s + rest2 g^2; center <- center - rate v / (root sqrt(s) + epsilon);
     * all or none, m as above. */
    size_t (*exchange_adam)(float *restrict center, float *restrict v, float *restrict s, float *restrict m,
                            const struct ps_adam *k, size_t n);
    /* With d = -m: v <- beta v + d; center <- center - eta (d + beta v); both or neither, m as above. */
    size_t (*exchange_outer)(float *restrict center, float *restrict v, float *restrict m, float eta,
                             float beta, size_t n);
    /* With d = -m: s <- s + d; center <- center - rate d; both or neither, m as above. */
    size_t (*exchange_gather)(float *restrict center, float *restrict s, float *restrict m, float rate,
                              size_t n);
    /* With d = -m: v <- beta v + share (s + d); s <- 0; center <- center - rate d - pull v; all or none, m as
     * above. */
    size_t (*exchange_settle)(float *restrict center, float *restrict v, float *restrict s, float *restrict m,
                              const struct ps_settle *k, size_t n);
    /* center <- center + share (m + pull center); m receives the center before. Masked and counted. */
    size_t (*exchange_admm)(float *restrict center, float *restrict m, float share, float pull, size_t n);
    /* z <- z + a (center - z): an average that follows the center. Masked and counted. */
    size_t (*follow)(float *restrict z, const float *restrict center, float a, size_t n);
    /* sum of x^2, and of (x - y)^2. Float sums within 16 x 128 values, double beyond. */
    double (*squares)(const float *x, size_t n);
    double (*squared_distance)(const float *x, const float *y, size_t n);
    /* out <- g + lambda x: the gradient with an L2 penalty of lambda/2 |x|^2. */
    void (*decay)(float *restrict out, const float *restrict g, const float *restrict x, float lambda,
                  size_t n);
    /* x <- a x */
    void (*scale)(float *x, float a, size_t n);
    /* Sorts each pair (low, high). */
    void (*order)(float *restrict low, float *restrict high, size_t n);
    /* dst <- src */
    void (*copy)(float *restrict dst, const float *restrict src, size_t n);
    /* dst <- src where src is finite. Returns how many were not. */
    size_t (*copy_finite)(float *restrict dst, const float *restrict src, size_t n);
    /* v <- mu v - eta g; x <- x + v: the heavy ball, You et al. 2017 eq. 5. */
    void (*heavy_ball)(float *restrict x, float *restrict v, const float *restrict g, float eta, float mu,
                       size_t n);
    /* out <- x + y */
    void (*add)(float *restrict out, const float *restrict x, const float *restrict y, size_t n);
    /* out <- x - y */
    void (*subtract)(float *restrict out, const float *restrict x, const float *restrict y, size_t n);
    /* change <- x - start; start <- x where the change is finite. Returns how many changes are not. */
    size_t (*take_change)(float *restrict change, float *restrict start, const float *restrict x, size_t n);
    /* x <- center + (x - start); start <- center: x as if it had started from center. */
    void (*rebase)(float *restrict x, float *restrict start, const float *restrict center, size_t n);
    /* The worker's side of ADMM, Zhang et al. 2015 eq. 9-11, with pull = eta rho and scale = 1 / (1 + pull).
     * m <- scale (x - eta g + pull (lambda - x)) */
    void (*admm_message)(float *restrict m, const float *restrict x, const float *restrict lambda,
                         const float *restrict g, float eta, float pull, float scale, size_t n);
    /* lambda <- lambda - (x - center); x <- scale (x - eta g + pull (lambda + center)) */
    void (*admm_land)(float *restrict x, float *restrict lambda, const float *restrict center,
                      const float *restrict g, float eta, float pull, float scale, size_t n);
};

/* The rows built into this program, the plain one first; *n of them. */
const struct ps_vec *const *ps_vec_rows(size_t *n);
/* Whether this CPU can run the row. */
bool ps_vec_runs_here(const struct ps_vec *row);
/* The fastest row that runs here; always the same pointer. */
const struct ps_vec *ps_vec_best(void);
/* The same kernels for a center that several threads move at once without locks, with intended data races
 * (Hogwild): plain loads and stores, excluded from the thread sanitizer. */
const struct ps_vec *ps_vec_best_racing(void);

#endif
