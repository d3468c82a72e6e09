/* Averaging `mean`: z(t + 1) = z(t) + (c(t) - z(t)) / (t + 1), the center before each update, so that z after
 * t updates is the mean of c(0) to c(t - 1). `moving` has a constant rate instead. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/theory/job.h"
#include "tests/theory/noise.h"
#include "tests/theory/theory.h"

enum { N = 40000, STEPS = 200, P = 2 };

static const double moving_rate = 0.01;

/* Beside the run, in double precision. z is compared at every look. */
struct follower {
    bool mean;
    float *before; /* the center at the last look */
    double *z;
    double worst;
};

static void offer(void *arg, float *x, size_t n)
{
    (void)arg;
    noise_uniform(31, 0, x, n);
}

static void gradient(void *arg, unsigned rank, uint64_t t, const float *x, float *g, size_t n)
{
    (void)arg;
    noise_fill(32, rank, t, g, n);
    for (size_t i = 0; i < n; i++)
        g[i] = x[i] - g[i];
}

static void look(void *arg, uint64_t t, const float *center, const float *average, float *const *x, size_t n)
{
    struct follower *f = arg;
    double rate = f->mean ? 1 / (double)t : moving_rate;
    (void)x;
    for (size_t i = 0; i < n; i++) {
        f->z[i] += rate * ((double)f->before[i] - f->z[i]);
        f->worst = fmax(f->worst, fabs((double)average[i] - f->z[i]));
    }
    memcpy(f->before, center, n * sizeof *center);
}

/* Each step of z rounds some three times, values below 2; independent roundings add up as the root of their
 * number. */
static void check(struct table *table, const char *averaging)
{
    uint64_t stops[STEPS];
    struct settings settings;
    struct follower f = {.mean = strcmp(averaging, "mean") == 0,
                         .before = calloc(N, sizeof *f.before),
                         .z = calloc(N, sizeof *f.z)};
    for (uint64_t t = 0; t < STEPS; t++)
        stops[t] = t + 1;
    settings_init(&settings, "sync-easgd");
    settings_add(&settings, "averaging=%s", averaging);
    settings_add(&settings, "learning_rate=0.1");
    settings_add(&settings, "beta=0.9");
    settings_add(&settings, "period=1");
    settings_add(&settings, "workers=%d", P);
    if (!f.mean)
        settings_add(&settings, "averaging_rate=%.17g", moving_rate);
    offer(NULL, f.before, N);
    for (size_t i = 0; i < N; i++) /* z starts where the center does */
        f.z[i] = (double)f.before[i];
    job_run(&(struct job){.settings = &settings,
                          .p = P,
                          .n = N,
                          .stops = stops,
                          .n_stops = STEPS,
                          .averages = true,
                          .arg = &f,
                          .offer = offer,
                          .gradient = gradient,
                          .look = look});
    table_near(table, 0, f.worst, (struct tolerance){sqrt(3 * STEPS) * 2 * 0x1p-24, 1, "rounding"},
               "averaging %s, %d rounds of sync-easgd, to double precision", averaging, STEPS);
    free(f.before);
    free(f.z);
}

void theory_average(struct table *table)
{
    check(table, "mean");
    check(table, "moving");
}
