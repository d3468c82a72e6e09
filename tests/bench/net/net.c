/* net.c: times a training step and its parts alternately, in many short repetitions, so that other load
 * affects all of them; reports medians. GFLOP/s count the multiply-adds of dense passes, so a backend that
 * skips zeros may seem faster than its convolutions. */
#include "proto/clock.h"
#include "tests/bench/net/net.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "nets/data/dataset.h"
#include "nets/net.h"
#include "nets/plan.h"
#include "tests/bench/net/conv_limit.h"
#include "tests/bench/net/fma.h"
#include "tests/bench/net/partitions.h"
#include "tests/bench/net/vectors.h"
#include "tests/bench/options.h"
#include "tests/bench/samples.h"

const char bench_net_help[] = "training steps of a net: images/s, compared with the machine's limits";

#define MAX_REPETITIONS 1000
#define BLOCK_S         0.08 /* one repetition of a step */
#define SERVER_BLOCK_S  1.0  /* with a server: of many periods */
#define WARM_UPS        5    /* the first steps touch memory and start threads */

struct options {
    const char *net, *backend;
    const char *server; /* NULL: no server */
    enum cnn_precision precision;
    struct cnn_model model; /* of net */
    uint32_t batch, threads;
    const char *partitions; /* NULL: one net on all threads */
    uint32_t n_partitions;  /* 0: auto */
    double seconds;
    bool only_steps; /* whole steps, after one to warm up, without a server: for nets that take seconds */
    bool json;
    bool paced; /* a measurement for each line of standard input */
};

/* The result of one repetition: seconds per step, except for the last two. library: the part of `step` spent
 * in the kernels of the backend's library. exchange: that in which it waited for the server. cpu: CPU seconds
 * of `step`, of all threads. */
struct sample {
    double step, cpu, forward, backward, update, library, exchange, fma_gflops, conv_gflops;
};

struct bench {
    struct options opt;
    struct cnn_net *net;
    struct cnn_plan *plan;
    struct conv_limit *conv; /* NULL: nothing to measure */
    struct bench_vectors vectors;
    struct cnn_batch batches[2]; /* in turn; on a GPU the next is uploaded beside the step */
    size_t n_gradients, n_begun; /* n_begun: not ended yet */
    struct ps_error error;       /* of the update */
    struct sample samples[MAX_REPETITIONS];
    size_t n_samples;
};

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: psbench net [--net lenet] [--backend NAME] [--batch 64] [--threads 1] [--partitions P|auto] "
        "[--precision float32|tf32|bf16] [--seconds 5] [--only-steps] [--server ENDPOINT] [--json] "
        "[--paced]\n"
        "  --server E  the steps are those of a worker of that psd, under its method\n"
        "  --paced     measures for --seconds after each line of standard input, until it ends\n  backends:");
    for (size_t i = 0; cnn_backend_name(i) != NULL; i++)
        fprintf(out, " %s", cnn_backend_name(i));
    fprintf(out, "\n  nets:");
    for (const struct cnn_model *const *m = cnn_models; (*m)->name != NULL; m++)
        fprintf(out, " %s", (*m)->name);
    fprintf(out, "\n");
}

static bool parse_precision(const char *text, enum cnn_precision *out)
{
    for (*out = CNN_FLOAT32; *out < CNN_N_PRECISIONS; (*out)++)
        if (strcmp(text, cnn_precision_name(*out)) == 0)
            return true;
    fprintf(stderr, "psbench net: --precision is '%s'; allowed are float32, tf32 and bf16\n", text);
    return false;
}

static bool parse_value(struct options *o, const char *option, const char *text)
{
    if (strcmp(option, "--precision") == 0)
        return parse_precision(text, &o->precision);
    if (strcmp(option, "--batch") == 0)
        return bench_count("net", option, text, 65536, &o->batch);
    if (strcmp(option, "--threads") == 0)
        return bench_count("net", option, text, 1024, &o->threads);
    if (strcmp(option, "--partitions") == 0) {
        o->partitions = text;
        return strcmp(text, "auto") == 0 || bench_count("net", option, text, 1024, &o->n_partitions);
    }
    if (strcmp(option, "--seconds") == 0)
        return bench_number("net", option, text, 0.1, 3600, &o->seconds);
    if (strcmp(option, "--net") == 0)
        o->net = text;
    else if (strcmp(option, "--server") == 0)
        o->server = text;
    else
        o->backend = text;
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const char *const with_value[] = {"--net",        "--backend",   "--batch",   "--threads",
                                             "--partitions", "--precision", "--seconds", "--server"};

    *o = (struct options){.net = "lenet", .batch = 64, .seconds = 5};
    for (int i = 1; i < argc; i++) {
        bool known = false;
        bool *flag = strcmp(argv[i], "--json") == 0         ? &o->json
                     : strcmp(argv[i], "--only-steps") == 0 ? &o->only_steps
                     : strcmp(argv[i], "--paced") == 0      ? &o->paced
                                                            : NULL;
        if (flag != NULL) {
            *flag = true;
            continue;
        }
        for (size_t k = 0; k < sizeof with_value / sizeof with_value[0]; k++)
            known = known || strcmp(argv[i], with_value[k]) == 0;
        if (!known) {
            fprintf(stderr, "psbench net: '%s' is not an option\n", argv[i]);
            usage(stderr);
            return false;
        }
        if (i + 1 == argc) {
            fprintf(stderr, "psbench net: %s needs a value\n", argv[i]);
            return false;
        }
        if (!parse_value(o, argv[i], argv[i + 1]))
            return false;
        i++;
    }
    if (o->server != NULL && o->partitions != NULL) {
        fprintf(stderr, "psbench net: --server and --partitions exclude each other\n");
        return false;
    }
    if (o->threads == 0 && o->partitions == NULL)
        o->threads = 1;
    struct ps_error err = {""};
    if (cnn_model_read(o->net, &o->model, &err) == 0)
        return true;
    fprintf(stderr, "psbench net: --net: %s\n", err.text);
    usage(stderr);
    return false;
}

/* Ends gradients but for the last `left`. */
static int end_gradients(struct bench *b, size_t left)
{
    struct cnn_score score;
    int rc = 0;
    while (rc == 0 && b->n_begun > left) {
        rc = cnn_net_gradient_end(b->net, &score);
        b->n_begun = rc == 0 ? b->n_begun - 1 : 0;
    }
    return rc;
}

/* As psworker: on a GPU the one before ends when this one has begun. */
static int gradient(struct bench *b)
{
    const struct cnn_batch *now = &b->batches[b->n_gradients % 2], *next = &b->batches[++b->n_gradients % 2];
    int rc = cnn_net_announce(b->net, next);
    if (rc == 0)
        rc = cnn_net_gradient_begin(b->net, b->vectors.x, now, b->vectors.g, NULL);
    if (rc < 0)
        return rc;
    b->n_begun++;
    return end_gradients(b, 1);
}

static int forward(struct bench *b)
{
    struct cnn_score score;
    return cnn_net_score_of(b->net, b->vectors.x, &b->batches[0], &score);
}

static int move(struct bench *b)
{
    return bench_vectors_update(&b->vectors, &b->error);
}

static int train_step(struct bench *b)
{
    int rc = gradient(b);
    return rc < 0 ? rc : move(b);
}

static int convolve(struct bench *b)
{
    conv_limit_run(b->conv);
    return 0;
}

/* *out: seconds per call over n calls. A negative errno if one failed. */
static int timed(struct bench *b, int (*call)(struct bench *), size_t n, double *out)
{
    double start = ps_now_s();
    for (size_t i = 0; i < n; i++) {
        int rc = call(b);
        if (rc < 0)
            return rc;
    }
    int rc = end_gradients(b, 0);
    if (rc == 0)
        rc = bench_vectors_wait(&b->vectors, &b->error);
    *out = (ps_now_s() - start) / (double)n;
    return rc;
}

static double process_cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int repeat(struct bench *b, size_t steps, struct sample *s)
{
    double conv_s = 0, gradient_s = 0, library_s = cnn_net_library_s(b->net), cpu_s = process_cpu_s();
    double exchange_s = bench_vectors_exchange_s(&b->vectors);
    int rc;

    *s = (struct sample){0};
    if ((rc = timed(b, train_step, steps, &s->step)) < 0)
        return rc;
    s->cpu = (process_cpu_s() - cpu_s) / (double)steps;
    s->library = (cnn_net_library_s(b->net) - library_s) / (double)steps;
    s->exchange = (bench_vectors_exchange_s(&b->vectors) - exchange_s) / (double)steps;
    if (b->opt.only_steps)
        return 0;
    if ((rc = timed(b, forward, steps, &s->forward)) < 0 ||
        (rc = timed(b, gradient, steps, &gradient_s)) < 0 || (rc = timed(b, move, steps, &s->update)) < 0)
        return rc;
    s->backward = gradient_s - s->forward;
    if (b->conv != NULL && timed(b, convolve, steps, &conv_s) == 0)
        s->conv_gflops = conv_limit_flops(b->conv) / conv_s * 1e-9;
    s->fma_gflops = bench_fma_gflops(b->opt.threads);
    return 0;
}

static int measure(struct bench *b)
{
    double once = 0, end;
    int rc;

    for (int i = 0; i < (b->opt.only_steps && b->opt.server == NULL ? 1 : WARM_UPS); i++)
        if ((rc = timed(b, train_step, 1, &once)) < 0)
            return rc;
    const double block_s = b->opt.server != NULL ? SERVER_BLOCK_S : BLOCK_S;
    size_t steps = once < block_s ? (size_t)(block_s / once) + 1 : 1;
    for (end = ps_now_s() + b->opt.seconds;
         (ps_now_s() < end || b->n_samples < (b->opt.only_steps ? 1 : 3)) &&
         b->n_samples < MAX_REPETITIONS;) {
        struct sample *s = &b->samples[b->n_samples];
        if ((rc = repeat(b, steps, s)) < 0)
            return rc;
        b->n_samples++;
        if (b->opt.json)
            printf("{\"bench\":\"net\",\"repetition\":%zu,\"images_s\":%.2f,\"step_ms\":%.4f,"
                   "\"forward_ms\":%.4f,\"backward_ms\":%.4f,\"update_ms\":%.4f,\"library_ms\":%.4f,"
                   "\"conv_gflops\":%.2f,\"fma_gflops\":%.2f}\n",
                   b->n_samples, b->opt.batch / s->step, s->step * 1e3, s->forward * 1e3, s->backward * 1e3,
                   s->update * 1e3, s->library * 1e3, s->conv_gflops, s->fma_gflops);
    }
    return 0;
}

/* The median, or with `largest` the maximum, of one field of all samples. */
static double pick(const struct bench *b, size_t field, bool largest)
{
    double values[MAX_REPETITIONS];

    for (size_t i = 0; i < b->n_samples; i++)
        memcpy(&values[i], (const char *)&b->samples[i] + field, sizeof values[i]);
    bench_sort(values, b->n_samples);
    return largest ? values[b->n_samples - 1] : values[b->n_samples / 2];
}

#define MEDIAN(b, field) pick(b, offsetof(struct sample, field), false)

/* Medians of all samples. */
struct medians {
    double step_s, cpu_s, forward_s, backward_s, update_s, library_s, exchange_s, conv_gflops, fma_gflops;
    double images_s, slowest_images_s, gflops;
};

static struct medians medians_of(const struct bench *b)
{
    struct medians m = {.step_s = MEDIAN(b, step),
                        .cpu_s = MEDIAN(b, cpu),
                        .forward_s = MEDIAN(b, forward),
                        .backward_s = MEDIAN(b, backward),
                        .update_s = MEDIAN(b, update),
                        .library_s = MEDIAN(b, library),
                        .exchange_s = MEDIAN(b, exchange),
                        .conv_gflops = MEDIAN(b, conv_gflops),
                        .fma_gflops = MEDIAN(b, fma_gflops),
                        .slowest_images_s = b->opt.batch / pick(b, offsetof(struct sample, step), true)};
    m.images_s = b->opt.batch / m.step_s;
    m.gflops = m.images_s * cnn_model_train_flops(b->plan->model) * 1e-9;
    return m;
}

static void report_json(const struct bench *b, const struct medians *m)
{
    printf("{\"bench\":\"net\",\"net\":\"%s\",\"backend\":\"%s\",\"precision\":\"%s\",\"batch\":%u,"
           "\"threads\":%u,\"repetitions\":%zu,\"images_s\":%.2f,\"images_s_min\":%.2f,\"step_ms\":%.4f,"
           "\"cpu_ms\":%.4f,\"library_ms\":%.4f,\"gflops\":%.2f",
           b->opt.net, cnn_net_backend(b->net), cnn_precision_name(b->opt.precision), b->opt.batch,
           b->opt.threads, b->n_samples, m->images_s, m->slowest_images_s, m->step_s * 1e3, m->cpu_s * 1e3,
           m->library_s * 1e3, m->gflops);
    if (b->opt.server != NULL)
        printf(",\"exchange_ms\":%.4f", m->exchange_s * 1e3);
    if (!b->opt.only_steps) {
        printf(",\"forward_ms\":%.4f,\"backward_ms\":%.4f,\"update_ms\":%.4f,", m->forward_s * 1e3,
               m->backward_s * 1e3, m->update_s * 1e3);
        if (b->conv != NULL)
            printf("\"conv_gflops\":%.2f,", m->conv_gflops);
        else
            printf("\"conv_gflops\":null,");
        printf("\"limit_fma_gflops\":%.2f", m->fma_gflops);
    }
    puts("}");
}

static void report_text(const struct bench *b, const struct medians *m)
{
    printf("%s, backend %s, %s, batch %u, threads %u: medians of %zu repetitions\n", b->opt.net,
           cnn_net_backend(b->net), cnn_precision_name(b->opt.precision), b->opt.batch, b->opt.threads,
           b->n_samples);
    printf("  training          %10.1f images/s (slowest %.1f)\n", m->images_s, m->slowest_images_s);
    if (!b->opt.only_steps) {
        printf("  forward           %10.3f ms\n", m->forward_s * 1e3);
        printf("  backward          %10.3f ms\n", m->backward_s * 1e3);
        printf("  update            %10.3f ms\n", m->update_s * 1e3);
    }
    printf("  library           %10.3f ms, %.2f of the step%s\n", m->library_s * 1e3,
           m->library_s / (m->step_s - m->update_s), b->opt.only_steps ? "" : " without its update");
    if (b->opt.server != NULL)
        printf("  exchanges         %10.3f ms waited, %.4f of the step\n", m->exchange_s * 1e3,
               m->exchange_s / m->step_s);
    printf("  reached           %10.1f GFLOP/s\n", m->gflops);
    if (b->opt.only_steps)
        return;
    if (b->conv != NULL)
        printf("  its convolutions  %10.1f GFLOP/s alone, in oneDNN's own layouts\n", m->conv_gflops);
    printf("  multiply-add peak %10.1f GFLOP/s\n", m->fma_gflops);
}

static void report(const struct bench *b)
{
    struct medians m = medians_of(b);
    (b->opt.json ? report_json : report_text)(b, &m);
}

/* As psworker has them: floats for a CPU's backend, bytes for a GPU's. */
static int make_batch(struct bench *b, struct cnn_batch *out)
{
    static float values[CNN_MAX_CHANNELS][256];
    const struct cnn_model *m = &b->opt.model;
    const bool bytes = cnn_net_stream(b->net) != NULL;
    const size_t n = (size_t)m->channels * m->height * m->width * b->opt.batch;
    void *images = cnn_net_alloc(b->net, n * (bytes ? 1 : sizeof(float)));
    uint16_t *labels = cnn_net_alloc(b->net, b->opt.batch * sizeof *labels);

    *out = (struct cnn_batch){.images = images,
                              .pixels = bytes ? CNN_PIXELS_BYTE : CNN_PIXELS_FLOAT,
                              .is_hwc = bytes,
                              .value_of = (const float(*)[256])values,
                              .labels = labels,
                              .n = b->opt.batch};
    if (images == NULL || labels == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (bytes)
            ((uint8_t *)images)[i] = (uint8_t)(i * 2654435761u % 251);
        else
            ((float *)images)[i] = (float)(i * 2654435761u % 1000) * 0.002f - 1.0f;
    for (uint32_t c = 0; c < m->channels && c < CNN_MAX_CHANNELS; c++)
        for (int k = 0; k < 256; k++)
            values[c][k] = (float)k / 128 - 1;
    for (uint32_t i = 0; i < b->opt.batch; i++)
        labels[i] = (uint16_t)(i % m->classes);
    return 0;
}

static int set_up(struct bench *b, struct ps_error *err)
{
    const struct cnn_model *model = &b->opt.model;
    struct cnn_net_options options = {.model = model,
                                      .backend = b->opt.backend,
                                      .batch = b->opt.batch,
                                      .threads = b->opt.threads,
                                      .precision = b->opt.precision};
    int rc = cnn_net_create(&options, &b->net, err);

    if (rc < 0 || (rc = cnn_plan_create(model, &b->plan, err)) < 0)
        return rc;
    rc = b->opt.server != NULL ? bench_vectors_join(model, b->net, b->opt.server, &b->vectors, err)
                               : bench_vectors_create(model, b->net, b->opt.threads, &b->vectors, err);
    for (size_t i = 0; i < 2 && rc == 0; i++)
        if (make_batch(b, &b->batches[i]) < 0)
            rc = ps_fail(err, -ENOMEM, "no memory for a batch of %u images", b->opt.batch);
    if (rc < 0)
        return rc;
    if (!b->opt.only_steps && conv_limit_create(b->plan, b->opt.batch, b->opt.threads, &b->conv) < 0)
        b->conv = NULL;
    return 0;
}

static void tear_down(struct bench *b)
{
    conv_limit_destroy(b->conv);
    if (b->net != NULL) {
        end_gradients(b, 0);
        cnn_net_announce(b->net, NULL);
    }
    for (size_t i = 0; i < 2 && b->net != NULL; i++) {
        cnn_net_free(b->net, (void *)(uintptr_t)b->batches[i].images);
        cnn_net_free(b->net, (void *)(uintptr_t)b->batches[i].labels);
    }
    bench_vectors_destroy(&b->vectors); /* before the net, in whose stream they may be */
    cnn_net_destroy(b->net);
    cnn_plan_destroy(b->plan);
    free(b);
}

/* Returns the exit code. */
static int measure_for(struct bench *b, const char *command)
{
    b->n_samples = 0;
    if (measure(b) == 0)
        return 0;
    fprintf(stderr, "psbench %s: %s\n", command,
            b->error.text[0] != 0 ? b->error.text : cnn_net_error(b->net));
    return 1;
}

/* Prepares and measures. Returns the exit code. */
static int run_command(struct bench *b, const char *command)
{
    struct ps_error err = {""};
    int rc;

    if ((rc = set_up(b, &err)) < 0) {
        fprintf(stderr, "psbench %s: %s\n", command, err.text);
        return rc == -EINVAL ? 2 : 1;
    }
    return b->opt.paced ? 0 : measure_for(b, command);
}

static int run_paced(struct bench *b)
{
    char line[256];
    int code = 0;

    while (code == 0 && fgets(line, sizeof line, stdin) != NULL) {
        if ((code = measure_for(b, "net")) == 0)
            report(b);
        fflush(stdout);
    }
    return code;
}

int bench_net(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    int code = 0;

    if (b == NULL)
        return 1;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        usage(stdout);
    else if (!parse(argc, argv, &b->opt))
        code = 2;
    else if (b->opt.partitions != NULL)
        code = bench_net_partitions(&(struct bench_partitions){.net = b->opt.net,
                                                               .backend = b->opt.backend,
                                                               .model = &b->opt.model,
                                                               .precision = b->opt.precision,
                                                               .batch = b->opt.batch,
                                                               .partitions = b->opt.n_partitions,
                                                               .threads = b->opt.threads,
                                                               .seconds = b->opt.seconds,
                                                               .json = b->opt.json});
    else if ((code = run_command(b, "net")) == 0 && b->opt.paced)
        code = run_paced(b);
    else if (code == 0)
        report(b);
    tear_down(b);
    return code;
}

int bench_net_measure(const char *net, const char *backend, uint32_t batch, uint32_t threads, double seconds,
                      struct bench_net_times *out)
{
    struct bench *b = calloc(1, sizeof *b);
    int code = 1;

    if (b == NULL)
        return 1;
    b->opt = (struct options){
        .net = net, .backend = backend, .batch = batch, .threads = threads, .seconds = seconds};
    if (cnn_model_read(net, &b->opt.model, NULL) == 0 && (code = run_command(b, "plan")) == 0)
        *out = (struct bench_net_times){MEDIAN(b, forward), MEDIAN(b, backward), MEDIAN(b, update)};
    tear_down(b);
    return code;
}
