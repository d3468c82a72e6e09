/* check.c: compares real jobs on this machine, which sleep instead of computing, with simulations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/samples.h"
#include "tests/bench/simulate/real.h"
#include "tests/bench/simulate/simulate.h"

enum { MAX_ROUNDS = 101 };

/* The results of a method with a number of workers, for each round. */
struct pair {
    const char *method;
    uint32_t workers;
    double real_s[MAX_ROUNDS], sim_s[MAX_ROUNDS], ratio[MAX_ROUNDS], real_staleness[MAX_ROUNDS];
    double sim_staleness;
};

static int simulate(const struct sim_options *o, const char *text, uint32_t workers,
                    struct sim_machine *machine, const struct sim_load *load, struct sim_result *out)
{
    struct sim_load l = *load;
    struct sim_method m;
    struct sim_codecs codecs;
    struct ps_error err;
    l.workers = workers;
    l.pieces = UINT32_MAX; /* chunks move individually */
    if (sim_method_read(text, workers, &m, &codecs, &err) < 0 ||
        sim_measure_codecs(o, &codecs, machine) < 0 || sim_run(&m, machine, &l, out, &err) < 0) {
        fprintf(stderr, "psbench plan: %s\n", err.text);
        return -1;
    }
    return 0;
}

static int run_pair(const struct sim_options *o, struct sim_machine *machine, const struct sim_load *load,
                    struct pair *p, uint32_t round)
{
    struct sim_real_job job = {.psd = o->psd,
                               .method = p->method,
                               .n_floats = (uint64_t)load->n_floats,
                               .sleep_s = o->compute_s,
                               .workers = p->workers,
                               .lanes = o->lanes,
                               .window = o->window,
                               .chunk_floats = o->chunk_floats,
                               .steps = o->steps};
    struct sim_real_times real;
    struct sim_result sim;
    if (simulate(o, p->method, p->workers, machine, load, &sim) < 0 || sim_real_run(&job, &real) < 0)
        return -1;
    p->real_s[round] = real.iteration_s;
    p->real_staleness[round] = real.staleness;
    p->sim_s[round] = sim.iteration_s;
    p->ratio[round] = sim.iteration_s / real.iteration_s;
    p->sim_staleness = sim.staleness_mean;
    return 0;
}

static void print(const struct sim_options *o, const struct pair *p, uint32_t n)
{
    uint32_t mid = n / 2;
    if (!o->json) {
        printf("  %-46s %7u %12.3f %12.3f %8.3f (%.3f-%.3f) %9.2f %9.2f\n", p->method, p->workers,
               p->sim_s[mid] * 1e3, p->real_s[mid] * 1e3, p->ratio[mid], p->ratio[0], p->ratio[n - 1],
               p->sim_staleness, p->real_staleness[mid]);
        return;
    }
    printf("{\"bench\":\"plan\",\"check\":true,\"method\":\"%s\",\"workers\":%u,\"simulated_ms\":%.4f,"
           "\"measured_ms\":%.4f,\"ratio\":%.4f,\"lowest_ratio\":%.4f,\"highest_ratio\":%.4f,"
           "\"simulated_staleness\":%.3f",
           p->method, p->workers, p->sim_s[mid] * 1e3, p->real_s[mid] * 1e3, p->ratio[mid], p->ratio[0],
           p->ratio[n - 1], p->sim_staleness);
    if (isfinite(p->real_staleness[mid]))
        printf(",\"measured_staleness\":%.3f}\n", p->real_staleness[mid]);
    else
        puts(",\"measured_staleness\":null}");
}

static double load_average(void)
{
    double average = NAN;
    return getloadavg(&average, 1) == 1 ? average : NAN;
}

static void sort(struct pair *p, uint32_t n)
{
    bench_sort(p->real_s, n);
    bench_sort(p->sim_s, n);
    bench_sort(p->ratio, n);
    bench_sort(p->real_staleness, n);
}

static int print_all(const struct sim_options *o, struct pair *pairs, size_t n_pairs, double before)
{
    double worst = 1;
    size_t within = 0;
    if (!o->json)
        printf("  %-46s %7s %12s %12s %8s (%s) %9s %9s\n", "method", "workers", "simulated ms", "measured ms",
               "ratio", "low - high", "staleness", "measured");
    for (size_t i = 0; i < n_pairs; i++) {
        sort(&pairs[i], o->rounds);
        print(o, &pairs[i], o->rounds);
        double ratio = pairs[i].ratio[o->rounds / 2];
        worst = fabs(log(ratio)) > fabs(log(worst)) ? ratio : worst;
        within += ratio >= 0.8 && ratio <= 1.2;
    }
    if (o->json)
        printf("{\"bench\":\"plan\",\"check\":true,\"summary\":true,\"pairs\":%zu,\"within_20_percent\":%zu,"
               "\"worst_ratio\":%.4f,\"rounds\":%u,\"load_before\":%.2f,\"load_after\":%.2f}\n",
               n_pairs, within, worst, o->rounds, before, load_average());
    else
        printf("%zu of %zu within 20 %%, the worst ratio %.3f; %u rounds; load %.2f before, %.2f after\n",
               within, n_pairs, worst, o->rounds, before, load_average());
    return 0;
}

/* Costs are measured in each round: the load of the machine changes, and must affect both in the same way. */
static int run_round(const struct sim_options *given, struct pair *pairs, size_t n_pairs, uint32_t round)
{
    struct sim_options o = *given;
    struct sim_machine machine = {0};
    struct sim_load load = sim_load_of(&o);
    if (sim_measure_costs(&o, &machine, &load) < 0)
        return -1;
    for (size_t i = 0; i < n_pairs; i++)
        if (run_pair(&o, &machine, &load, &pairs[i], round) < 0)
            return -1;
    return 0;
}

static bool is_small(const struct sim_options *o)
{
    for (size_t w = 0; w < o->n_workers; w++)
        if (o->workers[w] > SIM_REAL_MAX_WORKERS) {
            fprintf(stderr, "psbench plan: --workers with --check is %u; allowed are 1 to %d\n",
                    o->workers[w], SIM_REAL_MAX_WORKERS);
            return false;
        }
    return true;
}

int sim_check(const struct sim_options *o)
{
    size_t n = 0;
    struct pair *pairs = calloc(o->n_methods * o->n_workers, sizeof *pairs);
    double before = load_average();
    int rc = is_small(o) ? 0 : 2;
    if (pairs == NULL) {
        fputs("psbench plan: no memory for the table\n", stderr);
        rc = 1;
    }
    for (size_t i = 0; i < o->n_methods && rc == 0; i++)
        for (size_t w = 0; w < o->n_workers; w++)
            pairs[n++] = (struct pair){.method = o->methods[i], .workers = o->workers[w]};
    for (uint32_t round = 0; round < o->rounds && rc == 0; round++)
        rc = run_round(o, pairs, n, round) < 0;
    if (rc == 0)
        rc = print_all(o, pairs, n, before);
    free(pairs);
    return rc;
}
