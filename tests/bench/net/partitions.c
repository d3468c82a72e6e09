/* partitions.c: each partition is a thread with its own cores, net and vectors. Repetitions of steps that end
 * with a sum of all gradients and of steps without, in turn, so that a noisy neighbour meets both: what the
 * sum and the wait for the slowest cost. */
#include "tests/bench/net/partitions.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/psclique.h"
#include "nets/machine.h"
#include "proto/clock.h"
#include "proto/topology/topology.h"
#include "proto/vec/vec.h"
#include "tests/bench/samples.h"

enum { MAX_REPETITIONS = 1000, WARM_STEPS = 5 };
#define BLOCK_S 0.08 /* one repetition */

struct sample {
    double together, apart; /* seconds a step */
};

struct part {
    const struct bench_partitions *opt;
    const struct ps_topology *topology;
    const struct ps_placement *place;
    uint32_t index, batch; /* batch: its own */
    struct psc_clique *q;
    struct cnn_net *net;
    size_t n_floats;
    float *x, *v, *g, *images;
    uint16_t *labels;
    struct sample *samples; /* of the first */
    size_t n_samples;
    char backend[32];
    struct ps_error error; /* "": none */
    pthread_t thread;
};

/* What the first tells the others before each repetition; steps 0: the end. */
struct order {
    uint64_t steps;
};

static void pin(void *arg, uint32_t index)
{
    struct part *p = arg;
    if (index < p->place->threads)
        ps_topology_pin(p->topology, p->place, p->index, index, NULL);
}

static int set_up(struct part *p)
{
    const struct cnn_model *m = p->opt->model;
    size_t n_pixels = (size_t)m->channels * m->height * m->width * p->batch;
    const struct cnn_net_options opt = {.model = m,
                                        .backend = p->opt->backend,
                                        .batch = p->batch,
                                        .precision = p->opt->precision,
                                        .threads = p->place->threads,
                                        .first_image = p->index * p->batch};
    ps_topology_bind(p->topology, p->place, p->index, NULL);
    int rc = cnn_net_create(&opt, &p->net, &p->error);
    if (rc < 0)
        return rc;
    snprintf(p->backend, sizeof p->backend, "%s", cnn_net_backend(p->net));
    p->n_floats = cnn_model_n_floats(m);
    p->x = calloc(p->n_floats, sizeof *p->x);
    p->v = calloc(p->n_floats, sizeof *p->v);
    p->g = calloc(p->n_floats, sizeof *p->g);
    p->images = calloc(n_pixels, sizeof *p->images);
    p->labels = calloc(p->batch, sizeof *p->labels);
    if (p->x == NULL || p->v == NULL || p->g == NULL || p->images == NULL || p->labels == NULL)
        return ps_fail(&p->error, -ENOMEM, "no memory for %zu floats and their momentum", p->n_floats);
    cnn_model_fill(m, 1, p->x);
    for (size_t i = 0; i < n_pixels; i++)
        p->images[i] = (float)(i * 2654435761u % 1000) * 0.002f - 1.0f;
    for (uint32_t i = 0; i < p->batch; i++)
        p->labels[i] = (uint16_t)((p->index * p->batch + i) % m->classes);
    cnn_net_each_thread(p->net, pin, p);
    return 0;
}

static void tear_down(struct part *p)
{
    psc_clique_close(p->q);
    cnn_net_destroy(p->net);
    free(p->x);
    free(p->v);
    free(p->g);
    free(p->images);
    free(p->labels);
}

static int step(struct part *p, bool together)
{
    struct cnn_score score;
    if (cnn_net_gradient(p->net, p->x, p->images, p->labels, p->g, &score) < 0)
        return ps_fail(&p->error, -EIO, "%s", cnn_net_error(p->net));
    if (together && p->q != NULL && psc_allreduce(p->q, p->g, p->n_floats, NULL) != PSC_OK)
        return ps_fail(&p->error, -EIO, "%s", psc_clique_error(p->q));
    ps_vec_best()->heavy_ball(p->x, p->v, p->g, 0.001f / (float)p->place->n, 0.9f, p->n_floats);
    return 0;
}

static int meet(struct part *p)
{
    return p->q == NULL || psc_barrier(p->q) == PSC_OK
               ? 0
               : ps_fail(&p->error, -EIO, "%s", psc_clique_error(p->q));
}

/* Seconds a step, from when all begin to when all have ended. */
static int timed(struct part *p, uint64_t steps, bool together, double *out)
{
    int rc = meet(p);
    double begin = ps_now_s();
    for (uint64_t i = 0; i < steps && rc == 0; i++)
        rc = step(p, together);
    if (rc == 0)
        rc = meet(p);
    *out = (ps_now_s() - begin) / (double)steps;
    return rc;
}

/* How many steps the next repetition has, by the first partition's clock. */
static int next(struct part *p, uint64_t steps, double end, struct order *out)
{
    bool ends = (ps_now_s() >= end && p->n_samples >= 3) || p->n_samples == MAX_REPETITIONS;
    *out = (struct order){.steps = ends ? 0 : steps};
    if (p->q == NULL || psc_broadcast(p->q, out, sizeof *out, 0) == PSC_OK)
        return 0;
    return ps_fail(&p->error, -EIO, "%s", psc_clique_error(p->q));
}

static int measure(struct part *p)
{
    struct order order;
    struct sample own = {0};
    double once = 1, end = ps_now_s() + p->opt->seconds;
    int rc = timed(p, WARM_STEPS, true, &once); /* the first steps touch memory and start threads */
    if (rc == 0)
        rc = timed(p, 1, true, &once);
    uint64_t steps = once < BLOCK_S ? (uint64_t)(BLOCK_S / once) + 1 : 1;
    while (rc == 0 && (rc = next(p, steps, end, &order)) == 0 && order.steps > 0) {
        if ((rc = timed(p, order.steps, true, &own.together)) < 0 ||
            (rc = timed(p, order.steps, false, &own.apart)) < 0)
            break;
        if (p->index == 0)
            p->samples[p->n_samples++] = own;
    }
    return rc;
}

/* Who fails leaves the clique, and so ends the others. */
static void *run_part(void *arg)
{
    struct part *p = arg;
    if (set_up(p) == 0)
        measure(p);
    tear_down(p);
    return NULL;
}

/* The middle, or with `largest` the last, of one of the two times. */
static double pick(const struct part *p, bool together, bool largest)
{
    double values[MAX_REPETITIONS];
    for (size_t i = 0; i < p->n_samples; i++)
        values[i] = together ? p->samples[i].together : p->samples[i].apart;
    bench_sort(values, p->n_samples);
    return largest ? values[p->n_samples - 1] : values[p->n_samples / 2];
}

static void report(const struct part *first)
{
    const struct bench_partitions *o = first->opt;
    const struct ps_placement *place = first->place;
    double images_s = o->batch / pick(first, true, false), apart_s = o->batch / pick(first, false, false);
    double images_s_min = o->batch / pick(first, true, true);

    if (o->json) {
        printf("{\"bench\":\"net\",\"net\":\"%s\",\"backend\":\"%s\",\"precision\":\"%s\",\"batch\":%u,"
               "\"partitions\":%u,"
               "\"threads\":%u,"
               "\"repetitions\":%zu,\"images_s\":%.1f,\"images_s_min\":%.1f,\"images_s_apart\":%.1f,"
               "\"of_apart\":%.3f,\"placement\":\"%s\"}\n",
               o->net, first->backend, cnn_precision_name(o->precision), o->batch, place->n, place->threads,
               first->n_samples, images_s, images_s_min, apart_s, images_s / apart_s, place->why);
        return;
    }
    printf("%s, backend %s, %s, batch %u: medians of %zu repetitions\n  %s\n", o->net, first->backend,
           cnn_precision_name(o->precision), o->batch, first->n_samples, place->why);
    printf("  training          %10.0f images/s (slowest %.0f)\n", images_s, images_s_min);
    printf("  without sums      %10.0f images/s: with them it is %.2f of that\n", apart_s,
           images_s / apart_s);
}

static int open_clique(struct part *parts, uint32_t n)
{
    struct psc_threads_options opt;
    struct psc_clique **q = calloc(n, sizeof *q);
    psc_threads_options_init(&opt, sizeof opt);
    opt.members = n;
    int rc = q == NULL ? PSC_ENOMEM : n > 1 ? psc_threads_open(&opt, q) : PSC_OK;
    for (uint32_t i = 0; i < n && rc == PSC_OK; i++)
        parts[i].q = q[i];
    free(q);
    return rc;
}

/* The error of one that failed by itself, if there is one. */
static const struct part *find_failed(const struct part *parts, uint32_t n)
{
    const struct part *failed = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].error.text[0] != 0 && (failed == NULL || strstr(failed->error.text, "has left") != NULL))
            failed = &parts[i];
    return failed;
}

static int run(const struct bench_partitions *opt, const struct ps_topology *topology,
               const struct ps_placement *place)
{
    struct part *parts = calloc(place->n, sizeof *parts);
    struct sample *samples = calloc(MAX_REPETITIONS, sizeof *samples);
    uint32_t n_started = 0;
    int code = 1;
    if (parts != NULL && samples != NULL && open_clique(parts, place->n) == PSC_OK) {
        for (uint32_t i = 0; i < place->n; i++) {
            parts[i].opt = opt;
            parts[i].topology = topology;
            parts[i].place = place;
            parts[i].index = i;
            parts[i].batch = opt->batch / place->n;
            parts[i].samples = samples;
        }
        while (n_started < place->n &&
               pthread_create(&parts[n_started].thread, NULL, run_part, &parts[n_started]) == 0)
            n_started++;
        for (uint32_t i = n_started; i < place->n; i++) {
            ps_fail(&parts[i].error, -EAGAIN, "cannot start the thread of partition %u", i);
            psc_clique_close(parts[i].q);
        }
        for (uint32_t i = 0; i < n_started; i++)
            pthread_join(parts[i].thread, NULL);
        const struct part *failed = find_failed(parts, place->n);
        if (failed != NULL)
            fprintf(stderr, "psbench net: partition %u: %s\n", failed->index, failed->error.text);
        else
            report(&parts[0]);
        code = failed != NULL;
    } else {
        fprintf(stderr, "psbench net: no memory for %u partitions\n", place->n);
    }
    free(samples);
    free(parts);
    return code;
}

static int place_parts(const struct bench_partitions *opt, struct ps_topology *topology,
                       struct ps_placement *place, struct ps_error *err)
{
    const struct cnn_net_options net = {.model = opt->model,
                                        .backend = opt->backend,
                                        .batch = opt->batch,
                                        .threads = 1,
                                        .precision = opt->precision};
    uint32_t quota = cnn_machine_quota();
    const struct ps_topology_source here = {.quota_cores = quota < UINT32_MAX ? quota : 0};
    struct cnn_net_memory memory;
    int rc = cnn_net_plan_memory(&net, &memory, err);
    if (rc < 0 || (rc = ps_topology_read(&here, topology, err)) < 0)
        return rc;
    const struct ps_need need = {.fixed_bytes = 2 * memory.vectors + memory.own,
                                 .image_bytes = memory.values / opt->batch,
                                 .batch = opt->batch,
                                 .least_images = 8, /* as psworker */
                                 .limit_bytes = cnn_machine_bytes()};
    return ps_place(topology, opt->partitions, opt->threads, &need, place, err);
}

int bench_net_partitions(const struct bench_partitions *opt)
{
    struct ps_topology topology = {.n_cores = 0};
    struct ps_placement place = {.n = 0};
    struct ps_error err = {""};
    int code = 2, rc = place_parts(opt, &topology, &place, &err);
    if (rc < 0)
        fprintf(stderr, "psbench net: --partitions: %s\n", err.text);
    else
        code = run(opt, &topology, &place);
    ps_placement_finish(&place);
    ps_topology_finish(&topology);
    return code;
}
