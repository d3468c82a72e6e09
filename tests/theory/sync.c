/* Synchronous EASGD, Zhang et al. 2015, eq. 5-6, on noisy quadratics.
 *
 *     x_i(t+1) = x_i(t) - eta g_i(x_i(t)) - alpha (x_i(t) - c(t))
 *     c(t+1)   = c(t) + alpha sum_i (x_i(t) - c(t))
 *
 * Right hand sides are all of time t. psc_step exchanges first and then takes the gradient's step, which is
 * the same: the gradient was taken at the x that is sent, and both halves of the exchange use the center
 * before. So the center after t calls of psc_step by everyone is c(t), with no shift of the index; it lacks
 * the noise of the last step, and all noise at t = 1.
 *
 * With y = sum_i x_i, (y, c) follows a linear map of trace 2 - a and determinant 1 - a + c^2, a = eta h +
 * (p + 1) alpha, c^2 = eta h p alpha. Its eigenvalues gamma > phi give the closed forms. */
#include <math.h>
#include <stdlib.h>

#include "tests/theory/job.h"
#include "tests/theory/noise.h"
#include "tests/theory/theory.h"

enum { MAX_STOPS = 3 };

struct sync_case {
    unsigned p;
    size_t n;
    uint32_t seed;
    double x0, center0;
    uint64_t stops[MAX_STOPS];
    size_t n_stops;
};

static const double eta = 0.1, h = 1, sigma = 10, beta = 0.9;

struct closed_form {
    double alpha, gamma, phi;
};

static struct closed_form closed_form(unsigned p)
{
    double alpha = beta / p, a = eta * h + (p + 1) * alpha, c2 = eta * h * p * alpha;
    double root = sqrt(a * a - 4 * c2);
    return (struct closed_form){alpha, 1 - (a - root) / 2, 1 - (a + root) / 2};
}

static double closed_mean(const struct sync_case *s, uint64_t steps)
{
    struct closed_form f = closed_form(s->p);
    double t = (double)steps, u0 = s->p * (s->x0 - f.alpha * s->center0 / (1 - s->p * f.alpha - f.phi));
    return pow(f.gamma, t) * s->center0 +
           (pow(f.gamma, t) - pow(f.phi, t)) / (f.gamma - f.phi) * f.alpha * u0;
}

static double closed_variance(const struct sync_case *s, uint64_t steps)
{
    struct closed_form f = closed_form(s->p);
    double t = (double)steps, g = f.gamma, phi = f.phi, scale = s->p * f.alpha * eta / (g - phi);
    double sum = (g * g - pow(g, 2 * t)) / (1 - g * g) + (phi * phi - pow(phi, 2 * t)) / (1 - phi * phi) -
                 2 * (g * phi - pow(g * phi, t)) / (1 - g * phi);
    return scale * scale * sum * sigma * sigma / s->p;
}

/* {gamma, phi} = {1 - beta, 1 - eta h}: many workers. */
static double corollary_variance(unsigned p)
{
    double g = 1 - beta, phi = 1 - eta * h;
    return beta * beta * eta * eta / ((1 - g * g) * (1 - phi * phi)) * (1 + g * phi) / (1 - g * phi) * sigma *
           sigma / p;
}

/* What psd and its clients did, and the same in double precision with the same noise. */
struct sync_run {
    const struct sync_case *s;
    float *centers;   /* after each stop */
    double *x, *mean; /* x: of all workers, one after the other; mean: the center */
    float *xi;
};

static void offer(void *arg, float *x, size_t n)
{
    const struct sync_run *run = arg;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)run->s->center0;
}

static void start(void *arg, unsigned rank, float *x, size_t n)
{
    const struct sync_run *run = arg;
    (void)rank;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)run->s->x0;
}

static void gradient(void *arg, unsigned rank, uint64_t t, const float *x, float *g, size_t n)
{
    const struct sync_run *run = arg;
    noise_fill(run->s->seed, rank, t, g, n);
    for (size_t i = 0; i < n; i++)
        g[i] = (float)h * x[i] - (float)sigma * g[i];
}

static void look(void *arg, uint64_t t, const float *center, const float *average, float *const *x, size_t n)
{
    struct sync_run *run = arg;
    (void)average;
    (void)x;
    for (size_t i = 0; i < run->s->n_stops; i++)
        for (size_t k = 0; k < n && run->s->stops[i] == t; k++)
            run->centers[i * n + k] = center[k];
}

/* One round of eq. 2-3, for every coordinate. */
static void simulate_round(struct sync_run *run, uint64_t t, double alpha, double *sum)
{
    size_t n = run->s->n;
    for (size_t i = 0; i < n; i++)
        sum[i] = 0;
    for (unsigned r = 0; r < run->s->p; r++) {
        double *x = run->x + r * n;
        noise_fill(run->s->seed, r, t, run->xi, n);
        for (size_t i = 0; i < n; i++) {
            double offset = x[i] - run->mean[i], g = h * x[i] - sigma * (double)run->xi[i];
            sum[i] += offset;
            x[i] -= eta * g + alpha * offset;
        }
    }
    for (size_t i = 0; i < n; i++)
        run->mean[i] += alpha * sum[i];
}

/* The largest distance between the centers of psd and those in double precision. */
static double simulate(struct sync_run *run)
{
    const struct sync_case *s = run->s;
    double alpha = beta / s->p, worst = 0, *sum = calloc(s->n, sizeof *sum);
    uint64_t t = 0;
    for (size_t i = 0; i < s->n; i++)
        run->mean[i] = s->center0;
    for (size_t i = 0; i < s->p * s->n; i++)
        run->x[i] = s->x0;
    for (size_t k = 0; k < s->n_stops; k++) {
        for (; t < s->stops[k]; t++)
            simulate_round(run, t, alpha, sum);
        for (size_t i = 0; i < s->n; i++)
            worst = fmax(worst, fabs((double)run->centers[k * s->n + i] - run->mean[i]));
    }
    free(sum);
    return worst;
}

struct moments {
    double mean, variance;
};

static struct moments moments_of(const float *v, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i];
    for (size_t i = 0; i < n; i++)
        squares += ((double)v[i] - sum / (double)n) * ((double)v[i] - sum / (double)n);
    return (struct moments){sum / (double)n, squares / (double)(n - 1)};
}

static void run_case(const struct sync_case *s, struct sync_run *run)
{
    struct settings settings;
    settings_init(&settings, "sync-easgd");
    settings_add(&settings, "learning_rate=%.17g", eta);
    settings_add(&settings, "beta=%.17g", beta);
    settings_add(&settings, "period=1");
    settings_add(&settings, "workers=%u", s->p);
    *run = (struct sync_run){.s = s,
                             .centers = calloc(s->n_stops * s->n, sizeof *run->centers),
                             .x = calloc(s->p * s->n, sizeof *run->x),
                             .mean = calloc(s->n, sizeof *run->mean),
                             .xi = calloc(s->n, sizeof *run->xi)};
    job_run(&(struct job){.settings = &settings,
                          .p = s->p,
                          .n = s->n,
                          .stops = s->stops,
                          .n_stops = s->n_stops,
                          .arg = run,
                          .offer = offer,
                          .start = start,
                          .gradient = gradient,
                          .look = look});
}

static void run_free(struct sync_run *run)
{
    free(run->centers);
    free(run->x);
    free(run->mean);
    free(run->xi);
}

/* Mean and variance over the coordinates have the standard errors of independent normals. At t = 1 there is
 * no noise yet, and only rounding between them: values of at most 4. */
static void compare(struct table *table, const struct sync_run *run, size_t stop)
{
    const struct sync_case *s = run->s;
    uint64_t t = s->stops[stop];
    double n = (double)s->n, mean = closed_mean(s, t), variance = closed_variance(s, t);
    struct moments m = moments_of(run->centers + stop * s->n, s->n);
    table_near(table, mean, m.mean, (struct tolerance){sqrt(variance / n) + 0x1p-24, 4, "s.e."},
               "sync-easgd p=%u x0=%g t=%lu mean", s->p, s->x0, (unsigned long)t);
    table_near(table, variance, m.variance,
               (struct tolerance){variance * sqrt(2 / (n - 1)) + 0x1p-46, 4, "s.e."},
               "sync-easgd p=%u x0=%g t=%lu variance", s->p, s->x0, (unsigned long)t);
}

/* A step rounds some six times, values below 16 (5 standard deviations of x), and what it leaves shrinks by
 * gamma a step: independent roundings add up as the root of their number. */
static void compare_rounding(struct table *table, struct sync_run *run)
{
    double gamma = closed_form(run->s->p).gamma, allowed = sqrt(6 / (1 - gamma * gamma)) * 16 * 0x1p-24;
    table_near(table, 0, simulate(run), (struct tolerance){allowed, 1, "rounding"},
               "sync-easgd p=%u x0=%g to double precision", run->s->p, run->s->x0);
}

void theory_sync(struct table *table)
{
    static const struct sync_case cases[] = {
        {1, 20000, 1, 1, 1, {2, 10, 100}, 3}, {2, 20000, 2, 1, 1, {2, 10, 100}, 3},
        {4, 20000, 3, 1, 1, {2, 10, 100}, 3}, {8, 20000, 4, 1, 1, {2, 10, 100}, 3},
        {2, 20000, 5, 3, 1, {1, 2, 10}, 3},   {4, 20000, 6, -3, 1, {1, 2, 10}, 3},
    };
    struct sync_run run;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_case(&cases[i], &run);
        for (size_t k = 0; k < cases[i].n_stops; k++)
            compare(table, &run, k);
        compare_rounding(table, &run);
        run_free(&run);
    }
}

/* After 60 rounds 1 - gamma^120 = 0.999996 of the variance is there; 40,000 coordinates tell it to 0.7 %. The
 * corollary is of p without end: at 64 the exact variance is 1.5 % less. */
void theory_asymptotic(struct table *table)
{
    static const struct sync_case s = {64, 40000, 7, 1, 1, {60}, 1};
    struct sync_run run;
    run_case(&s, &run);
    compare(table, &run, 0);
    double got = moments_of(run.centers, s.n).variance, want = corollary_variance(s.p);
    table_near(table, want, got, (struct tolerance){0.01 * want, 3, "%"},
               "sync-easgd p=%u variance of Corollary 7.1", s.p);
    compare_rounding(table, &run);
    run_free(&run);
}
