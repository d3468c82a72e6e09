/* vectors.c: psbench allreduce --vectors: sums over several vectors of each member in parts that overlap,
 * beside the same sum in one part: all vectors are summed, then the ring runs, then the result is copied.
 * Beside both the ring alone, of one vector. The three take turns.
 *
 * The bound is the time of the ring's bytes on a link of the given rate, by psbench plan's model
 * (plan/model.h) without latency and arithmetic. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique_vectors.h"
#include "proto/clock.h"
#include "tests/bench/allreduce/allreduce.h"
#include "tests/bench/allreduce/gradient.h"
#include "tests/bench/plan/model.h"
#include "tests/bench/samples.h"

enum { WARM_UPS = 1, CHECK_EVERY = 997 };
enum way { PARTS, WHOLE, RING, N_WAYS };
static const char *const way_names[] = {"parts", "one part", "the ring alone"};

struct member {
    const struct bench_vectors *opt;
    int rank;
    struct psc_clique *q;
    float *from, *x[PSC_MAX_VECTORS];
    struct psc_vectors *by[2]; /* PARTS and WHOLE */
    double seconds[N_WAYS][BENCH_MAX_REPEATS];
    double max_error;
};

static int open_way(struct member *m, enum way way)
{
    const struct bench_vectors *o = m->opt;
    struct psc_vector vectors[PSC_MAX_VECTORS] = {{.data = NULL}};
    struct psc_vectors_options opt;
    psc_vectors_options_init(&opt, sizeof opt);
    opt.vectors = vectors;
    opt.n_vectors = o->vectors;
    opt.n_floats = o->floats;
    opt.part_floats = way == WHOLE ? SIZE_MAX : o->part_floats;
    for (size_t i = 0; i < o->vectors; i++)
        vectors[i].data = m->x[i];
    return psc_vectors_open(m->q, &opt, &m->by[way]);
}

static int prepare(struct member *m)
{
    const struct bench_vectors *o = m->opt;
    size_t bytes = o->floats * sizeof(float);
    bool whole = (m->from = malloc(bytes)) != NULL;
    for (size_t i = 0; i < o->vectors; i++)
        whole = (m->x[i] = malloc(bytes)) != NULL && whole;
    if (!whole)
        return PSC_ENOMEM;
    for (size_t i = 0; i < o->floats; i++)
        m->from[i] = bench_gradient(m->rank, i);
    int rc = open_way(m, PARTS);
    return rc == PSC_OK ? open_way(m, WHOLE) : rc;
}

/* Vector i begins as `from` times i + 1. */
static void refill(struct member *m)
{
    const struct bench_vectors *o = m->opt;
    for (size_t i = 0; i < o->vectors; i++)
        for (size_t k = 0; k < o->floats; k++)
            m->x[i][k] = m->from[k] * (float)(i + 1);
}

static void measure_error(struct member *m)
{
    const struct bench_vectors *o = m->opt;
    double times = (double)o->vectors * ((double)o->vectors + 1) / 2;
    for (size_t k = 0; k < o->floats; k += CHECK_EVERY) {
        double sum = 0;
        for (int r = 0; r < (int)o->ranks; r++)
            sum += times * (double)bench_gradient(r, k);
        for (size_t i = 0; i < o->vectors; i++)
            m->max_error = fmax(m->max_error, fabs((double)m->x[i][k] - sum));
    }
}

static int run_way(struct member *m, enum way way)
{
    return way == RING ? psc_allreduce(m->q, m->x[0], m->opt->floats, m->opt->codec)
                       : psc_vectors_allreduce(m->by[way], 0, m->opt->floats, m->opt->codec);
}

static int repeat(struct member *m)
{
    int rc = prepare(m);
    for (int k = -WARM_UPS; k < m->opt->repeats && rc == PSC_OK; k++)
        for (enum way way = PARTS; way < N_WAYS && rc == PSC_OK; way++) {
            refill(m);
            if ((rc = psc_barrier(m->q)) != PSC_OK)
                break;
            double begin = ps_now_s();
            rc = run_way(m, way);
            if (rc == PSC_OK)
                rc = psc_barrier(m->q); /* until the last member has the result */
            if (k >= 0)
                m->seconds[way][k] = ps_now_s() - begin;
            else if (rc == PSC_OK && way != RING)
                measure_error(m);
        }
    return rc;
}

/* Seconds on the link, by psbench plan. */
static double bound_of(const struct bench_vectors *o)
{
    const struct plan_link link = {.beta_s = o->beta_s, .server_beta_s = o->beta_s, .lanes = 1};
    const struct plan_codec raw = {.name = "raw", .bytes_per_float = 4};
    const struct plan_job job = {.n_floats = (double)o->floats, .chunk_floats = 1, .batch = 1, .period = 1};
    const struct plan_method *d_sync = plan_methods;
    struct plan_prediction out;
    while (strcmp(d_sync->name, "d-sync") != 0)
        d_sync++;
    plan_predict(d_sync, &link, &raw, &job, (uint32_t)o->ranks, (uint32_t)o->ranks, &out);
    return out.comm_s;
}

static void print(struct member *m)
{
    const struct bench_vectors *o = m->opt;
    double ms[N_WAYS], low[N_WAYS], high[N_WAYS], bound_ms = isnan(o->beta_s) ? NAN : bound_of(o) * 1e3;
    for (enum way way = PARTS; way < N_WAYS; way++) {
        ms[way] = bench_median(m->seconds[way], (size_t)o->repeats) * 1e3;
        low[way] = m->seconds[way][0] * 1e3;
        high[way] = m->seconds[way][o->repeats - 1] * 1e3;
    }
    if (!o->json) {
        printf("%zu vectors of %.2f MB in each of %llu members, %s, medians of %d\n", o->vectors,
               (double)o->floats * 4e-6, (unsigned long long)o->ranks, o->codec, o->repeats);
        for (enum way way = PARTS; way < N_WAYS; way++)
            printf("  %-16s %9.3f ms (%.3f to %.3f)\n", way_names[way], ms[way], low[way], high[way]);
        printf("  parts are %.2f times as fast as one part; largest error %.3g\n", ms[WHOLE] / ms[PARTS],
               m->max_error);
        if (!isnan(bound_ms))
            printf("  the link's bound is %9.3f ms: parts take %.2f of it, one part %.2f\n", bound_ms,
                   ms[PARTS] / bound_ms, ms[WHOLE] / bound_ms);
        return;
    }
    printf("{\"bench\":\"allreduce\",\"vectors\":%zu,\"floats\":%zu,\"ranks\":%llu,\"codec\":\"%s\","
           "\"links\":%u,"
           "\"part_floats\":%zu,\"repeats\":%d,\"parts_ms\":%.3f,\"parts_min_ms\":%.3f,\"parts_max_ms\":%.3f,"
           "\"one_part_ms\":%.3f,\"one_part_min_ms\":%.3f,\"one_part_max_ms\":%.3f,\"ring_ms\":%.3f,"
           "\"speedup\":%.3f,"
           "\"max_error\":%.3g",
           o->vectors, o->floats, (unsigned long long)o->ranks, o->codec, o->links, o->part_floats,
           o->repeats, ms[PARTS], low[PARTS], high[PARTS], ms[WHOLE], low[WHOLE], high[WHOLE], ms[RING],
           ms[WHOLE] / ms[PARTS], m->max_error);
    if (!isnan(bound_ms))
        printf(",\"bound_ms\":%.3f,\"of_bound\":%.3f", bound_ms, ms[PARTS] / bound_ms);
    printf("}\n");
}

/* One member, to its end. 0, or 1 with a message. */
static int be_member(const struct bench_vectors *o, int rank, const char *rendezvous)
{
    struct psc_ring_options opt;
    struct member *m = calloc(1, sizeof *m);
    int rc = PSC_ENOMEM;
    if (m == NULL)
        return 1;
    m->opt = o;
    m->rank = rank;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)o->ranks;
    opt.rank = rank;
    opt.rendezvous = rendezvous;
    opt.listen = o->listen;
    opt.algorithm = o->algorithm;
    opt.links = o->links;
    opt.segment_bytes = o->segment_bytes;
    rc = psc_ring_open(&opt, &m->q);
    if (rc == PSC_OK)
        rc = repeat(m);
    if (rc != PSC_OK)
        fprintf(stderr, "psbench allreduce: member %d: %s: %s%s\n", rank, psc_result_name(rc),
                psc_clique_error(m->q), m->by[PARTS] != NULL ? psc_vectors_error(m->by[PARTS]) : "");
    if (rc == PSC_OK && rank == 0)
        print(m);
    psc_vectors_close(m->by[PARTS]);
    psc_vectors_close(m->by[WHOLE]);
    psc_clique_close(m->q);
    for (size_t i = 0; i < o->vectors; i++)
        free(m->x[i]);
    free(m->from);
    free(m);
    return rc == PSC_OK ? 0 : 1;
}

/* All members, as processes on loopback. */
static int run_all(const struct bench_vectors *o)
{
    char dir[] = "/tmp/psbench-XXXXXX", place[64];
    pid_t pids[BENCH_MAX_RANKS], self = getpid();
    int failed = 0;
    if (mkdtemp(dir) == NULL) {
        perror("psbench allreduce");
        return 1;
    }
    snprintf(place, sizeof place, "file:%s/ring", dir);
    fflush(stdout);
    for (int r = 1; r < (int)o->ranks; r++)
        if ((pids[r] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(getppid() != self ? 1 : be_member(o, r, place));
        }
    failed = be_member(o, 0, place);
    for (int r = 1; r < (int)o->ranks; r++) {
        int status = 1;
        if (pids[r] > 0)
            waitpid(pids[r], &status, 0);
        failed = failed != 0 || status != 0;
    }
    rmdir(dir);
    return failed;
}

int bench_vectors(const struct bench_vectors *o)
{
    return o->member < 0 ? run_all(o) : be_member(o, (int)o->member, o->rendezvous);
}
