/* Round-robin order, Zhang et al. 2015, section 4: at step t only worker t mod p moves, with the center. A
 * step is one worker's exchange; p of them are a round. f(x) = x^2/2 without noise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/theory/job.h"
#include "tests/theory/noise.h"
#include "tests/theory/theory.h"

enum { N = 64, MAX_ROUNDS = 20000 };

/* One coordinate: the workers' x (and lambda, of ADMM) and the center. */
struct state {
    double x[8], lambda[8], center;
};

/* Eq. 12-13: Algorithm 1's exchange and step of the worker. */
static void easgd_step(struct state *s, unsigned i, double eta, double alpha)
{
    double offset = s->x[i] - s->center;
    s->x[i] -= eta * s->x[i] + alpha * offset;
    s->center += alpha * offset;
}

/* Eq. 9-11. */
static void admm_step(struct state *s, unsigned i, unsigned p, double eta, double rho)
{
    s->lambda[i] -= s->x[i] - s->center;
    s->x[i] = (s->x[i] - eta * s->x[i] + eta * rho * (s->lambda[i] + s->center)) / (1 + eta * rho);
    s->center = 0;
    for (unsigned k = 0; k < p; k++)
        s->center += (s->x[k] - s->lambda[k]) / p;
}

static double norm(const struct state *s, unsigned p)
{
    double sum = s->center * s->center;
    for (unsigned k = 0; k < p; k++)
        sum += s->x[k] * s->x[k];
    return sum;
}

static void quadratic(void *arg, unsigned rank, uint64_t t, const float *x, float *g, size_t n)
{
    (void)arg;
    (void)rank;
    (void)t;
    memcpy(g, x, n * sizeof *g);
}

/* A job from random points, beside the same in double precision. */
struct stability {
    uint32_t seed;
    unsigned p;
    double eta, alpha;
    struct state states[N];
    double norm; /* over all coordinates, of psd's and the workers' vectors at the end */
};

/* The center has the ranks' generator after the last. */
static void random_center(void *arg, float *x, size_t n)
{
    const struct stability *s = arg;
    noise_uniform(s->seed, s->p, x, n);
}

static void random_start(void *arg, unsigned rank, float *x, size_t n)
{
    const struct stability *s = arg;
    noise_uniform(s->seed, rank, x, n);
}

static void measure(void *arg, uint64_t t, const float *center, const float *average, float *const *x,
                    size_t n)
{
    struct stability *s = arg;
    double sum = 0;
    (void)t;
    (void)average;
    for (size_t i = 0; i < n; i++) {
        sum += (double)center[i] * (double)center[i];
        for (unsigned r = 0; r < s->p; r++)
            sum += (double)x[r][i] * (double)x[r][i];
    }
    s->norm = sqrt(sum);
}

static double simulated_norm(const struct stability *s)
{
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += norm(&s->states[i], s->p);
    return sqrt(sum);
}

static void simulate_start(struct stability *s)
{
    float v[N];
    for (unsigned r = 0; r <= s->p; r++) {
        noise_uniform(s->seed, r, v, N);
        for (size_t i = 0; i < N; i++)
            *(r < s->p ? &s->states[i].x[r] : &s->states[i].center) = (double)v[i];
    }
}

/* Rounds until the state is a thousandth or a thousandfold of its start. Near the bound that takes hundreds:
 * the spectral radius of a round's map is as near 1. */
static uint64_t simulate_rounds(struct stability *s)
{
    double start = simulated_norm(s), ratio = 1;
    uint64_t rounds = 0;
    for (; rounds < MAX_ROUNDS && ratio > 1e-3 && ratio < 1e3; rounds++) {
        for (unsigned r = 0; r < s->p; r++)
            for (size_t i = 0; i < N; i++)
                easgd_step(&s->states[i], r, s->eta, s->alpha);
        ratio = simulated_norm(s) / start;
    }
    return rounds;
}

static void easgd_settings(struct settings *settings, unsigned p, double eta, double alpha)
{
    settings_init(settings, "original-easgd");
    settings_add(settings, "learning_rate=%.17g", eta);
    settings_add(settings, "alpha=%.17g", alpha);
    settings_add(settings, "period=1");
    settings_add(settings, "serial=false");
    settings_add(settings, "workers=%u", p);
}

static void check_stability(struct table *table, unsigned p, double eta, double of_bound)
{
    struct stability s = {.seed = 11, .p = p, .eta = eta, .alpha = of_bound * (4 - 2 * eta) / (4 - eta)};
    struct settings settings;
    simulate_start(&s);
    double start = simulated_norm(&s);
    uint64_t rounds = simulate_rounds(&s);
    double simulated = simulated_norm(&s) / start;
    easgd_settings(&settings, p, eta, s.alpha);
    job_run(&(struct job){.settings = &settings,
                          .p = p,
                          .n = N,
                          .stops = &rounds,
                          .n_stops = 1,
                          .arg = &s,
                          .offer = random_center,
                          .start = random_start,
                          .gradient = quadratic,
                          .look = measure});
    double got = s.norm / start;
    static const char *const name = "original-easgd p=%u eta=%g, %g of the bound, %lu rounds: |s|/|s0|";
    if (of_bound < 1)
        table_below(table, 0.01, got, name, p, eta, of_bound, (unsigned long)rounds);
    else
        table_above(table, 100, got, name, p, eta, of_bound, (unsigned long)rounds);
    /* Some 10 operations a round, each relative to the state's size, all in one direction at worst. */
    struct tolerance rounding = {10 * (double)rounds * 0x1p-24 * simulated, 1, "rounding"};
    table_near(table, simulated, got, rounding, "  the same in double precision");
}

void theory_stability(struct table *table)
{
    static const unsigned workers[] = {3, 8};
    static const double rates[] = {0.1, 0.5, 1.0}, of_bound[] = {0.98, 1.02};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 3; k++)
            for (size_t m = 0; m < 2; m++)
                check_stability(table, workers[i], rates[k], of_bound[m]);
}

/* The setting in which the paper shows ADMM to diverge: everything starts at 1000, eta = 0.001, rho = 2.5.
 * Looked for is where |center| first passes 10^6 times its start. It swings with a period of some 126 rounds,
 * 2 pi / sqrt(eta rho), under an envelope that doubles every 2,200 steps: the first to pass is a peak. */
static const double admm_eta = 0.001, admm_rho = 2.5, x0 = 1000, far = 1e9;

struct crossing {
    unsigned p;
    double step; /* the end of the first round that left |center| above `far`; 0: none has */
    double last; /* center */
};

static void thousand(void *arg, float *x, size_t n)
{
    (void)arg;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)x0;
}

static void look_for_crossing(void *arg, uint64_t t, const float *center, const float *average,
                              float *const *x, size_t n)
{
    struct crossing *c = arg;
    (void)average;
    (void)x;
    (void)n;
    c->last = (double)center[0];
    if (fabs(c->last) > far && c->step == 0)
        c->step = (double)(t * c->p);
}

/* In double precision. */
static struct crossing admm_crossing(unsigned p)
{
    struct crossing c = {.p = p};
    struct state s = {.center = x0};
    for (unsigned r = 0; r < p; r++)
        s.x[r] = x0;
    for (uint64_t t = 0; c.step == 0; t++) {
        admm_step(&s, (unsigned)(t % p), p, admm_eta, admm_rho);
        if (fabs(s.center) > far && (t + 1) % p == 0)
            c.step = (double)(t + 1);
    }
    return c;
}

static double easgd_end(unsigned p, uint64_t rounds, double alpha)
{
    struct state s = {.center = x0};
    for (unsigned r = 0; r < p; r++)
        s.x[r] = x0;
    for (uint64_t t = 0; t < rounds * p; t++)
        easgd_step(&s, (unsigned)(t % p), admm_eta, alpha);
    return s.center;
}

/* Looks at every round from 2 % before the one expected on, where the envelope is at 0.6 of `far`; before,
 * now and then. */
static void run_crossing(const struct settings *settings, struct crossing *c, uint64_t expected,
                         uint64_t rounds)
{
    enum { SELDOM = 100 };
    uint64_t *stops = calloc(rounds, sizeof *stops);
    size_t n_stops = 0;
    for (uint64_t t = 1; t <= rounds; t++)
        if (t % SELDOM == 0 || t > expected - expected / 50)
            stops[n_stops++] = t;
    job_run(&(struct job){.settings = settings,
                          .p = c->p,
                          .n = N,
                          .stops = stops,
                          .n_stops = n_stops,
                          .arg = c,
                          .offer = thousand,
                          .gradient = quadratic,
                          .look = look_for_crossing});
    free(stops);
}

static void check_admm(struct table *table, unsigned p)
{
    struct settings settings;
    struct crossing admm = {.p = p}, easgd = {.p = p};
    double expected = admm_crossing(p).step;
    uint64_t round = (uint64_t)expected / p, rounds = round + 100;
    settings_init(&settings, "admm");
    settings_add(&settings, "learning_rate=%.17g", admm_eta);
    settings_add(&settings, "rho=%.17g", admm_rho);
    settings_add(&settings, "workers=%u", p);
    run_crossing(&settings, &admm, round, rounds);
    /* Should rounding keep a peak below, then the next passes. */
    table_near(table, expected, admm.step, (struct tolerance){p, 64, "rounds"},
               "admm p=%u passes 1e9, end of round at step", p);

    easgd_settings(&settings, p, admm_eta, admm_eta * admm_rho);
    run_crossing(&settings, &easgd, round, rounds);
    /* Single precision: each of 10^4 exchanges rounds by 2^-24, in the same direction at worst. */
    double end = easgd_end(p, rounds, admm_eta * admm_rho);
    table_near(table, end, easgd.last, (struct tolerance){5 * (double)rounds * 0x1p-24 * end, 1, "rounding"},
               "original-easgd p=%u alpha=0.0025, center at step %lu", p, (unsigned long)(rounds * p));
    table_below(table, 1e-3 * x0, fabs(easgd.last), "original-easgd p=%u converges", p);
}

void theory_admm(struct table *table)
{
    check_admm(table, 3);
    check_admm(table, 8);
}
