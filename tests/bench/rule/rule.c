/* rule.c: the pass of each rule over vectors larger than all caches, and a plain loop over as many vectors.
 * The two alternate, so that other load affects both; medians count. One thread; vectors are processed chunk
 * by chunk, as in a lane. */
#include "tests/bench/rule/rule.h"

#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "proto/model/method.h"
#include "server/rules/rules.h"
#include "tests/bench/options.h"
#include "tests/bench/samples.h"
#include "tests/bench/streams.h"

const char bench_rule_help[] = "each rule's pass over memory, compared with plain loops over as many vectors";

enum { MAX_ROUNDS = 1000, CHUNK_FLOATS = 131072 };
#define HUGE_PAGE ((size_t)2 << 20)

struct options {
    size_t n_floats;
    double seconds;   /* per rule */
    const char *rule; /* NULL: all */
    bool json;
};

/* Center, message, state; the plain loop uses them in the same order. */
struct vectors {
    float *x[BENCH_MAX_STREAMS];
    size_t n;
};

/* CPU time of this thread, which excludes time when other processes run. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void usage(FILE *out)
{
    fputs("usage: psbench rule [--rule NAME] [--floats 67108864] [--seconds 2] [--json]\n"
          "  --rule: only that rule; --floats: values of each vector; --seconds: for each rule\n",
          out);
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"rule", 1, NULL, 'r'},
                                          {"floats", 1, NULL, 'f'},
                                          {"seconds", 1, NULL, 's'},
                                          {"json", 0, NULL, 'j'},
                                          {NULL, 0, NULL, 0}};
    double floats = 67108864;
    bool good = true;
    int found;

    *o = (struct options){.seconds = 2};
    optind = 0;
    while (good && (found = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (found == 'r')
            o->rule = optarg;
        else if (found == 'f')
            good = bench_number("rule", "--floats", optarg, 1, 4294967296.0, &floats);
        else if (found == 's')
            good = bench_number("rule", "--seconds", optarg, 0.1, 3600, &o->seconds);
        else if (found == 'j')
            o->json = true;
        else
            good = false;
    }
    o->n_floats = (size_t)floats;
    if (good && optind < argc)
        fprintf(stderr, "psbench rule: '%s' is not an option\n", argv[optind]);
    if (good && o->rule != NULL && psd_rule_find(o->rule) == NULL) {
        fprintf(stderr, "psbench rule: --rule is '%s'; allowed are", o->rule);
        for (const struct ps_rule_info *r = ps_rules; r->name != NULL; r++)
            fprintf(stderr, " %s", r->name);
        fputc('\n', stderr);
        return false;
    }
    if (good && optind == argc)
        return true;
    usage(stderr);
    return false;
}

/* In huge pages if available, like the center. */
static bool vectors_create(struct vectors *v, size_t n)
{
    size_t len_bytes = (n * sizeof(float) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    *v = (struct vectors){.n = n};
    for (int k = 0; k < BENCH_MAX_STREAMS; k++) {
        if ((v->x[k] = aligned_alloc(HUGE_PAGE, len_bytes)) == NULL)
            return false;
        madvise(v->x[k], len_bytes, MADV_HUGEPAGE);
    }
    return true;
}

static void vectors_destroy(struct vectors *v)
{
    for (int k = 0; k < BENCH_MAX_STREAMS; k++)
        free(v->x[k]);
}

/* Values that remain normal numbers under every rule. Not timed. */
static void fill_message(struct vectors *v)
{
    for (size_t i = 0; i < v->n; i++)
        v->x[1][i] = 0.001f * (float)(1 + i % 64);
}

static void fill(struct vectors *v)
{
    for (size_t i = 0; i < v->n; i++) {
        v->x[0][i] = 1;
        v->x[2][i] = v->x[3][i] = 0.5f;
    }
}

static double time_rule(const struct psd_rule *rule, const struct vectors *v)
{
    const struct psd_move move = {.vec = ps_vec_best(),
                                  .alpha = 0.1f,
                                  .eta = 1e-4f,
                                  .momentum = 0.9f,
                                  .beta2 = 0.999f,
                                  .epsilon = 1e-8f,
                                  .compensation = 0.04f,
                                  .outer_eta = 1e-3f,
                                  .outer_momentum = 0.9f,
                                  .delay = 1, /* every update is the expensive one */
                                  .share = 0.25f,
                                  .kappa = -0.6f,
                                  .n_moves = 1,
                                  .t = 1000};
    double begin = now();
    for (size_t at = 0; at < v->n; at += CHUNK_FLOATS) {
        float *state[] = {v->x[2] + at, v->x[3] + at};
        rule->apply(&move, v->x[0] + at, state, v->x[1] + at,
                    v->n - at < CHUNK_FLOATS ? v->n - at : CHUNK_FLOATS);
    }
    return now() - begin;
}

static double time_plain(const struct vectors *v, uint32_t n_streams)
{
    void (*run)(float *const *x, float c, size_t n) = bench_streams_best()->run[n_streams];
    volatile float nothing = 0; /* unknown to the compiler */
    double begin = now();
    for (size_t at = 0; at < v->n; at += CHUNK_FLOATS) {
        float *x[] = {v->x[0] + at, v->x[1] + at, v->x[2] + at, v->x[3] + at};
        run(x, nothing, v->n - at < CHUNK_FLOATS ? v->n - at : CHUNK_FLOATS);
    }
    return now() - begin;
}

static double median(double *of, int n)
{
    bench_sort(of, (size_t)n);
    return n % 2 ? of[n / 2] : (of[n / 2 - 1] + of[n / 2]) / 2;
}

/* Prints the rule's line. Returns the ratio of its time to that of the plain loop. */
static double measure(const struct options *o, const struct psd_rule *rule, struct vectors *v)
{
    static double times[2][MAX_ROUNDS];
    uint32_t n_streams = 2 + rule->n_state + rule->takes_seen;
    double bytes = 2.0 * n_streams * (double)v->n * sizeof(float), end = now() + o->seconds;
    int n = 0;

    fill(v);
    while (n < MAX_ROUNDS && (n < 5 || now() < end)) {
        for (int turn = 0; turn < 2; turn++) {
            fill_message(v);
            bool plain = (turn + n) % 2;
            times[plain][n] = plain ? time_plain(v, n_streams) : time_rule(rule, v);
        }
        n++;
    }
    double rule_s = median(times[0], n), plain_s = median(times[1], n), ratio = rule_s / plain_s;
    if (o->json)
        printf("{\"bench\":\"rule\",\"rule\":\"%s\",\"floats\":%zu,\"streams\":%u,\"gb_s\":%.2f,"
               "\"limit_gb_s\":%.2f,\"ratio\":%.3f}\n",
               rule->name, v->n, n_streams, bytes * 1e-9 / rule_s, bytes * 1e-9 / plain_s, ratio);
    else
        printf(
            "  %-16s reads and writes %u vectors  %7.2f GB/s, plain loop %7.2f GB/s  %.2f times its time\n",
            rule->name, n_streams, bytes * 1e-9 / rule_s, bytes * 1e-9 / plain_s, ratio);
    fflush(stdout);
    return ratio;
}

int bench_rule(int argc, char **argv)
{
    const char *worst = NULL;
    double worst_ratio = 0;
    struct vectors v;
    struct options o;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        usage(stdout);
        return 0;
    }
    if (!parse(argc, argv, &o))
        return 2;
    if (!vectors_create(&v, o.n_floats)) {
        fprintf(stderr, "psbench rule: no memory for %d vectors of %zu floats\n", BENCH_MAX_STREAMS,
                o.n_floats);
        vectors_destroy(&v);
        return 1;
    }
    if (!o.json)
        printf("%zu floats a vector, kernels %s, one thread\n", v.n, ps_vec_best()->name);
    for (const struct ps_rule_info *r = ps_rules; r->name != NULL; r++) {
        if (o.rule != NULL && strcmp(o.rule, r->name) != 0)
            continue;
        double ratio = measure(&o, psd_rule_find(r->name), &v);
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = r->name;
        }
    }
    if (o.json)
        printf(
            "{\"bench\":\"rule\",\"worst_rule\":\"%s\",\"worst_ratio\":%.3f,\"floats\":%zu,\"row\":\"%s\"}\n",
            worst, worst_ratio, v.n, ps_vec_best()->name);
    vectors_destroy(&v);
    return 0;
}
