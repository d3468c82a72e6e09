/* waits.c: a worker whose gradient is a sleep. What its steps take beyond the sleep and the local update is
 * waiting for exchanges: the figure that psbench plan --slow predicts. Under optimizer external its own step
 * moves a small part of x, so that several workers on one machine do not wait for its memory. */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "client/psclient.h"
#include "proto/clock.h"
#include "tests/bench/options.h"
#include "tests/bench/slow/slow.h"

const char bench_waits_help[] = "a worker that sleeps for its gradients: the share of time it does not wait";

static const char usage_text[] =
    "usage: psbench waits --server ENDPOINT [--floats 1000000] [--step-ms 30] [--periods 2]\n"
    "                     [--timeout-s 600] [--json]\n"
    "  --periods K    periods that are measured, after three, in which the first two exchanges land\n";

enum { SPARE_MS = 5000, PARTS = 64, UNCOUNTED = 3 };

struct options {
    const char *server;
    uint64_t floats, step_ms, periods, timeout_s;
    int json;
};

struct worker {
    const struct options *o;
    struct psc *c;
    float *x, *g;
    double computed_s, deadline_s;
    uint64_t n_own;
    double own_step_cpu_s;
};

struct result {
    uint64_t steps, bytes;
    uint32_t period;
    double wall_s, computed_s, update_s;
    double own_cpu_s, others_cpu_s; /* of the thread that makes the steps, without them; of the others */
};

/* 0; 2: wrong; -1: help was printed. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"server", 1, NULL, 's'},    {"floats", 1, NULL, 'f'},
                                          {"step-ms", 1, NULL, 'm'},   {"periods", 1, NULL, 'p'},
                                          {"timeout-s", 1, NULL, 't'}, {"json", 0, NULL, 'j'},
                                          {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0}};
    int found;
    bool fine = true;
    while (fine && (found = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        fine = found == 'f'   ? bench_digits("waits", "--floats", optarg, 1, 1000000000000, &o->floats)
               : found == 'm' ? bench_digits("waits", "--step-ms", optarg, 1, 3600000, &o->step_ms)
               : found == 'p' ? bench_digits("waits", "--periods", optarg, 1, 1000000, &o->periods)
               : found == 't' ? bench_digits("waits", "--timeout-s", optarg, 1, 86400, &o->timeout_s)
                              : found != '?';
        o->server = found == 's' ? optarg : o->server;
        o->json = o->json || found == 'j';
        if (found == 'h') {
            fputs(usage_text, stdout);
            return -1;
        }
    }
    fine = fine && optind == argc && o->server != NULL;
    if (!fine)
        fprintf(stderr, "psbench waits: --server is needed, and nothing but these options\n%s", usage_text);
    return fine ? 0 : 2;
}

static int may_wait(void *arg)
{
    const struct worker *w = arg;
    return ps_now_s() < w->deadline_s;
}

static double cpu_s(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* One part of x after the other. */
static void own_step(void *arg, float *x, const float *g, double learning_rate)
{
    struct worker *w = arg;
    double begin_s = cpu_s(RUSAGE_THREAD);
    uint64_t begin = w->o->floats / PARTS * (w->n_own % PARTS), end = begin + w->o->floats / PARTS;
    (void)learning_rate;
    for (uint64_t i = begin; i < end; i++)
        x[i] -= g[i];
    w->n_own++;
    w->own_step_cpu_s += cpu_s(RUSAGE_THREAD) - begin_s;
}

static int join(struct worker *w)
{
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {w->o->floats}};
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = w->o->server;
    opt.name = "psbench waits";
    opt.timeout_ms = (uint32_t)(w->o->timeout_s * 1000 + SPARE_MS); /* may_wait ends it first */
    opt.go_on = may_wait;
    opt.go_on_arg = w;
    opt.own_step = own_step;
    opt.own_step_arg = w;
    int rc = psc_open(&opt, &w->c);
    return rc == PSC_OK ? psc_begin(w->c, &tensor, 1, w->x) : rc;
}

static int steps(struct worker *w, uint64_t n)
{
    int rc = PSC_OK;
    for (uint64_t k = 0; k < n && rc == PSC_OK; k++) {
        double begin = ps_now_s();
        w->deadline_s = begin + (double)w->o->timeout_s;
        ps_sleep_us(w->o->step_ms * 1000);
        w->computed_s += ps_now_s() - begin;
        rc = psc_step(w->c, w->x, w->g, 1);
    }
    return rc;
}

/* Whole periods, from one exchange to another, so that each is counted with its waiting. After three periods
 * the first exchange has landed, whose answer is whole in any codec, and the second, which is the first to
 * touch all memory. */
static int measure(struct worker *w, struct result *out)
{
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    psc_info(w->c, &before);
    uint64_t period = before.period > 0 ? before.period : 1;
    int rc = steps(w, UNCOUNTED * period);
    psc_info(w->c, &before);
    double computed_s = w->computed_s, begin = ps_now_s();
    double own_s = cpu_s(RUSAGE_THREAD), all_s = cpu_s(RUSAGE_SELF), step_s = w->own_step_cpu_s;
    out->steps = period * w->o->periods;
    if (rc == PSC_OK)
        rc = steps(w, out->steps);
    out->wall_s = ps_now_s() - begin;
    own_s = cpu_s(RUSAGE_THREAD) - own_s;
    out->others_cpu_s = cpu_s(RUSAGE_SELF) - all_s - own_s;
    psc_info(w->c, &after);
    out->period = (uint32_t)period;
    out->computed_s = w->computed_s - computed_s;
    out->update_s = after.update_seconds - before.update_seconds;
    out->own_cpu_s = own_s - (w->own_step_cpu_s - step_s);
    out->bytes = after.bytes_sent + after.bytes_received - before.bytes_sent - before.bytes_received;
    return rc;
}

static void print(const struct options *o, const struct result *r)
{
    double own_s = r->computed_s + r->update_s, share = own_s / r->wall_s;
    double ns = 1e9 / (double)(o->floats * o->periods); /* of a value, in an exchange of the vector */
    if (o->json)
        printf("{\"bench\":\"waits\",\"floats\":%llu,\"period\":%u,\"steps\":%llu,\"step_ms\":%.4f,"
               "\"wall_ms\":%.3f,\"bytes\":%llu,\"own_cpu_ns\":%.3f,\"others_cpu_ns\":%.3f,\"share\":%.6f}\n",
               (unsigned long long)o->floats, r->period, (unsigned long long)r->steps,
               own_s * 1e3 / (double)r->steps, r->wall_s * 1e3, (unsigned long long)r->bytes,
               r->own_cpu_s * ns, r->others_cpu_s * ns, share);
    else
        printf("%.1f %% of the time not waiting: %llu steps of %.3f ms (period %u) in %.3f s, %.3f MB; CPU "
               "for a "
               "value: %.2f ns, in other threads %.2f\n",
               share * 100, (unsigned long long)r->steps, own_s * 1e3 / (double)r->steps, r->period,
               r->wall_s, (double)r->bytes * 1e-6, r->own_cpu_s * ns, r->others_cpu_s * ns);
}

int bench_waits(int argc, char **argv)
{
    struct options o = {.floats = 1000000, .step_ms = 30, .periods = 2, .timeout_s = 600};
    struct result r = {0};
    int rc = parse(argc, argv, &o);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    struct worker w = {.o = &o,
                       .x = calloc(o.floats, sizeof(float)),
                       .g = malloc(o.floats * sizeof(float)),
                       .deadline_s = ps_now_s() + (double)o.timeout_s};
    for (uint64_t i = 0; w.g != NULL && i < o.floats; i++)
        w.g[i] = bench_slow_gradient(i);
    rc = w.x == NULL || w.g == NULL ? PSC_ENOMEM : join(&w);
    if (rc == PSC_OK)
        rc = measure(&w, &r);
    if (rc == PSC_OK)
        print(&o, &r);
    else
        fprintf(stderr, "psbench waits: %s\n",
                rc == PSC_EINTERRUPTED ? "a step or the beginning was not done within --timeout-s"
                : rc == PSC_DRAINED    ? "psd is draining"
                : w.c != NULL          ? psc_error(w.c)
                                       : psc_result_name(rc));
    psc_close(w.c);
    free(w.x);
    free(w.g);
    return rc == PSC_OK ? 0 : 1;
}
