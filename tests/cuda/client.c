/* client.c: libpsclient with memory: cuda on the stand-in, with a real psd. Every method makes the same steps
 * with the worker's vectors on the host and on the device: the same x and center, bit for bit, since with one
 * worker sums have one order. Between the steps the host waits for nothing, so that the order of copies and
 * kernels is the stand-in's: STANDIN_ORDER. CUDA_CLIENT_SEEDS=FIRST:COUNT: only random orders, a row each. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/psclique.h"
#include "proto/model/method.h"
#include "tests/client/psd_fixture.h"

enum { N = RIG_N, STEPS = 9, SAVED_AFTER = 5, MOST_SETTINGS = 12 };

struct row {
    const char *name, *settings[MOST_SETTINGS];
    const char *local; /* a method without a server; no settings then */
    const char *transport;
    const char *change; /* the method after half of the steps */
    bool saves;         /* the second half is made by another handle, from the file */
};

/* Beside all methods with their own settings. */
static const struct row more[] = {
    {"sgd", .local = "sgd"},
    {"msgd", .local = "msgd"},
    {"asgd", .local = "asgd"},
    {"mvasgd", .local = "mvasgd"},
    {"d-sync of one", .local = "d-sync"},
    {"pipe-sgd of one, saved", {"method=pipe-sgd", "clique.publish=2"}, .saves = true},
    {"Sync EASGD of one", {"method=sync-easgd", "clique.mode=vectors", "alpha=0.25", "clique.publish=2"}},
    {"elastic over tcp", {"method=eamsgd", "period=2", "alpha=0.25"}, .transport = "tcp"},
    {"elastic with weight decay", {"method=async-easgd", "period=2", "alpha=0.25", "weight_decay=0.01"}},
    {"elastic, overlap", {"method=async-easgd", "period=2", "alpha=0.25", "overlap=true"}},
    {"elastic, momentum, overlap", {"method=eamsgd", "period=1", "alpha=0.25", "overlap=true"}},
    {"elastic, momentum, overlap in rounds",
     {"method=sync-easgd", "workers=1", "alpha=0.25", "overlap=true"}},
    {"elastic, overlap of 3",
     {"method=async-easgd", "optimizer=nesterov", "momentum=0.5", "period=4", "alpha=0.25", "overlap=3"}},
    {"elastic, overlap of 3, shm",
     {"method=eamsgd", "lanes=4", "transport=shm", "period=4", "alpha=0.25", "overlap=3"},
     .transport = "shm"},
    {"elastic, serial, overlap",
     {"method=original-easgd", "workers=1", "alpha=0.25", "serial=true", "overlap=true"}},
    {"gradients, overlap", {"method=async-sgd", "overlap=true"}},
    {"gradients with weight decay", {"method=async-msgd", "weight_decay=0.01"}},
    {"gradients over shm",
     {"method=async-sgd", "lanes=4", "transport=shm", "overlap=true"},
     .transport = "shm"},
    {"gradients over shm, one chunk in flight",
     {"method=async-sgd", "lanes=1", "transport=shm", "window_chunks=1"},
     .transport = "shm"},
    {"gradients over shm, many chunks of one lane",
     {"method=async-sgd", "lanes=1", "transport=shm", "overlap=true"},
     .transport = "shm"},
    {"int8 over shm",
     {"method=async-easgd", "period=1", "alpha=0.25", "lanes=1", "transport=shm", "codec.message=int8",
      "codec.answer=bf16"},
     .transport = "shm"},
    {"moves, overlap", {"method=downpour", "period=2", "overlap=true"}},
    {"moves, fragments, mix", {"method=diloco", "workers=1", "period=4", "fragments=4", "mix=0.5"}},
    {"moves, overlap of 3, mix", {"method=diloco", "workers=1", "period=4", "overlap=3", "mix=0.5"}},
    {"int8", {"method=async-easgd", "period=1", "alpha=0.25", "codec.message=int8", "codec.answer=bf16"}},
    {"int8 with error feedback",
     {"method=async-sgd", "codec.message=int8", "codec.error_feedback=true", "overlap=true"}},
    {"top-k moves", {"method=downpour", "period=2", "codec.message=topk:0.1", "codec.error_feedback=true"}},
    {"fp16 and feedback",
     {"method=downpour", "period=2", "codec.message=fp16", "codec.answer=fp16", "codec.error_feedback=true"}},
    {"trunc16, many chunks of one lane",
     {"method=async-easgd", "period=1", "alpha=0.25", "codec.message=trunc16", "codec.answer=int8",
      "lanes=1"}},
    {"int8 of one lane, feedback, over tcp",
     {"method=async-sgd", "codec.message=int8", "codec.error_feedback=true", "lanes=1"},
     .transport = "tcp"},
    {"bf16, feedback, momentum, overlap of 3",
     {"method=async-easgd", "optimizer=nesterov", "momentum=0.5", "period=4", "alpha=0.25", "overlap=3",
      "codec.message=bf16", "codec.error_feedback=true"}},
    {"int4 both ways, feedback",
     {"method=downpour", "workers=1", "period=2", "codec.message=int4", "codec.answer=int4",
      "codec.error_feedback=true"}},
    {"int4, overlap", {"method=downpour", "period=2", "overlap=true", "codec.message=int4"}},
    {"top-k both ways, fragments",
     {"method=diloco", "workers=1", "period=4", "fragments=4", "codec.message=topk:0.02",
      "codec.answer=topk:0.2", "codec.error_feedback=true"}},
    {"admm, int8", {"method=admm", "workers=1", "codec.message=int8"}},
    {"admm, weight decay", {"method=admm", "workers=1", "weight_decay=0.01"}},
    {"elastic, then moves", {"method=eamsgd", "period=2"}, .change = "method=downpour\n"},
    {"moves, then gradients", {"method=downpour"}, .change = "method=async-sgd\n"},
    {"gradients, then hogwild", {"method=async-sgd"}, .change = "method=hogwild-sgd\ncodec.message=int8\n"},
    {"gradients, then admm", {"method=async-sgd"}, .change = "method=admm\nworkers=1\n"},
    {"int8, then top-k, with feedback",
     {"method=async-sgd", "codec.message=int8", "codec.error_feedback=true"},
     .change = "codec.message=topk:0.1\n"},
    {"raw, then int4 with feedback",
     {"method=async-sgd"},
     .change = "method=async-msgd\ncodec.message=int4\ncodec.error_feedback=true\n"},
    {"elastic, saved", {"method=eamsgd", "period=2", "alpha=0.25"}, .saves = true},
    {"moves, overlap of 3, saved", {"method=downpour", "period=4", "overlap=3"}, .saves = true},
    {"feedback, saved",
     {"method=downpour", "period=2", "codec.message=int8", "codec.error_feedback=true"},
     .saves = true},
    {"answers that are moves, saved",
     {"method=downpour", "workers=1", "period=2", "codec.message=topk:0.1", "codec.answer=int4",
      "codec.error_feedback=true"},
     .saves = true},
    {"feedback, overlap of 3, saved",
     {"method=downpour", "period=4", "overlap=3", "codec.message=topk:0.1", "codec.error_feedback=true"},
     .saves = true},
};

/* One of the methods, then of the rows above. */
static struct row row_of(size_t i)
{
    static char method[64];
    size_t n = 0;
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        if (m->rule != NULL && strcmp(m->rule, "hold") != 0 && n++ == i) {
            bool counts = strcmp(m->admission, "fcfs") != 0 && strcmp(m->admission, "hogwild") != 0;
            snprintf(method, sizeof method, "method=%s", m->name);
            return (struct row){m->name,
                                {method, counts || strcmp(m->rule, "dc-asgd") == 0 ? "workers=1" : NULL}};
        }
    return more[i - n];
}

static size_t n_methods(void)
{
    size_t n = 0;
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        n += m->rule != NULL && strcmp(m->rule, "hold") != 0;
    return n;
}

/* What the worker's program does, and where it got to. */
static float start[N], gradients[STEPS][N], seen[STEPS][N];
static struct result {
    float x[N], own[N], center[N];
} results[2];

static void roll(void)
{
    struct dice dice = {25};
    for (int i = 0; i < N; i++) {
        start[i] = dice_float(&dice);
        for (int t = 0; t < STEPS; t++) {
            gradients[t][i] = dice_float(&dice);
            seen[t][i] = dice_float(&dice);
        }
    }
}

/* A worker whose vectors are on the host or the device, and which puts its work into a stream. */
struct worker {
    struct psc *c;
    bool on_device;
    cudaStream_t stream;
    float *x, *g[STEPS];
    float *pinned[STEPS]; /* what it has seen for the buffers */
};

static void open_worker(struct worker *w, const struct daemon *d, const struct row *row)
{
    struct psc_options opt;
    struct psc_local local;
    psc_options_init(&opt, sizeof opt);
    psc_local_init(&local, sizeof local, row->local);
    local.weight_decay = 0.01;
    opt.server = row->local == NULL ? d->endpoint : NULL;
    opt.local = row->local != NULL ? &local : NULL;
    opt.transport = row->transport;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    opt.rank = 0;
    opt.memory = w->on_device ? "cuda" : NULL;
    opt.stream = w->on_device ? w->stream : NULL;
    ck_assert_msg(psc_open(&opt, &w->c) == PSC_OK, "%s: %s", row->name, psc_error(w->c));
}

static void begin_worker(struct worker *w, const struct row *row)
{
    assert_ok(w->c, psc_alloc(w->c, N, &w->x));
    assert_ok(w->c, psc_write(w->c, w->x, start, N));
    ck_assert_msg(psc_begin(w->c, rig_model, RIG_TENSORS, w->x) == PSC_OK, "%s: %s", row->name,
                  psc_error(w->c));
    for (int t = 0; t < STEPS; t++) {
        w->g[t] = gradients[t];
        w->pinned[t] = seen[t];
        if (!w->on_device)
            continue;
        w->g[t] = NULL;
        assert_ok(w->c, psc_alloc(w->c, N, &w->g[t]));
        assert_ok(w->c, psc_write(w->c, w->g[t], gradients[t], N));
        ck_assert_int_eq(cudaHostAlloc((void **)&w->pinned[t], sizeof seen[t], 0), cudaSuccess);
        memcpy(w->pinned[t], seen[t], sizeof seen[t]);
    }
}

/* The program changes the buffers before each step, in the order of its stream. */
static void see(struct worker *w, int t)
{
    for (size_t i = 0; i < RIG_TENSORS; i++) {
        const struct psc_tensor *b = &rig_model[i];
        if (b->role != PSC_BUFFER)
            continue;
        size_t bytes = b->shape[0] * sizeof *w->x;
        if (w->on_device)
            ck_assert_int_eq(cudaMemcpyAsync(w->x + b->offset, w->pinned[t] + b->offset, bytes,
                                             cudaMemcpyHostToDevice, w->stream),
                             cudaSuccess);
        else
            memcpy(w->x + b->offset, w->pinned[t] + b->offset, bytes);
    }
}

static void close_worker(struct worker *w)
{
    if (w->on_device)
        for (int t = 0; t < STEPS; t++)
            ck_assert_int_eq(cudaStreamSynchronize(w->stream), cudaSuccess);
    psc_close(w->c);
    for (int t = 0; w->on_device && t < STEPS; t++)
        ck_assert_int_eq(cudaFreeHost(w->pinned[t]), cudaSuccess);
}

static void step_worker(struct worker *w, const struct row *row, int t)
{
    see(w, t);
    int rc = psc_step(w->c, w->x, w->g[t], 8);
    ck_assert_msg(rc == PSC_OK, "%s, step %d: %s: %s", row->name, t, psc_result_name(rc), psc_error(w->c));
}

/* The other handle is of the other kind of memory: the file is the same. */
static void save_and_load(struct worker *w, const struct daemon *d, const struct row *row)
{
    char path[160];
    snprintf(path, sizeof path, "%s/worker.state", d->dir);
    assert_ok(w->c, psc_save(w->c, path, w->x, NULL, 0));
    close_worker(w);
    ck_assert(daemon_workers_become(d, 0));
    w->on_device = !w->on_device;
    open_worker(w, d, row);
    begin_worker(w, row);
    assert_ok(w->c, psc_load(w->c, path, w->x, NULL, 0, NULL));
}

static void run(const struct row *row, bool on_device, struct result *out)
{
    struct worker w = {.on_device = on_device};
    struct daemon d;
    /* a request to save changes where an overlapped exchange begins */
    const char *settings[MOST_SETTINGS + 6] = {"learning_rate=0.0625", "checkpoint.every_s=0", RIG_CUT};
    for (size_t n = 4, i = 0; row->settings[i] != NULL; i++)
        settings[n++] = row->settings[i];
    if (row->local == NULL)
        rig_start(&d, settings);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking), cudaSuccess);
    open_worker(&w, &d, row);
    begin_worker(&w, row);
    for (int t = 0; t < STEPS; t++) {
        if (t == SAVED_AFTER && row->change != NULL)
            assert_ok(w.c, psc_set_method(w.c, row->change));
        if (t == SAVED_AFTER && row->saves)
            save_and_load(&w, &d, row);
        step_worker(&w, row, t);
    }
    assert_ok(w.c, psc_wait(w.c, PSC_ALL));
    assert_ok(w.c, psc_read(w.c, out->x, w.x, N));
    assert_ok(w.c, psc_point(w.c, w.g[0]));
    assert_ok(w.c, psc_read(w.c, out->own, w.g[0], N));
    if (row->local == NULL) {
        assert_ok(w.c, psc_pull(w.c, NULL, w.g[1]));
        assert_ok(w.c, psc_read(w.c, out->center, w.g[1], N));
    }
    close_worker(&w);
    if (row->local == NULL)
        daemon_remove(&d);
    ck_assert_int_eq(cudaStreamDestroy(w.stream), cudaSuccess);
    roll(); /* of the host's rows psc_point and psc_pull have overwritten two */
}

static void compare(const struct row *row, const char *what, const float *host, const float *device)
{
    for (int i = 0; i < N; i++)
        ck_assert_msg(memcmp(&host[i], &device[i], sizeof *host) == 0,
                      "%s: %s[%d] is %a on the host, %a on the device", row->name, what, i, (double)host[i],
                      (double)device[i]);
}

static void check_row(size_t i)
{
    struct row row = row_of(i);
    roll();
    run(&row, false, &results[0]);
    run(&row, true, &results[1]);
    compare(&row, "x", results[0].x, results[1].x);
    compare(&row, "the worker's own x", results[0].own, results[1].own);
    compare(&row, "the center", results[0].center, results[1].center);
    ck_assert_msg(memcmp(results[0].x, start, sizeof start) != 0, "%s: x has not moved", row.name);
}

START_TEST(steps_are_those_of_the_host)
{
    check_row((size_t)_i);
}
END_TEST

static unsigned long first_seed;

START_TEST(any_order_gives_the_same_bits)
{
    char order[40];
    unsigned long seed = first_seed + (unsigned long)_i;
    snprintf(order, sizeof order, "random:%lu", seed);
    setenv("STANDIN_ORDER", order, 1);
    check_row(seed % (n_methods() + ROWS(more)));
}
END_TEST

/* ---- refusals and failures */

static struct daemon psd;

static void start_psd(void)
{
    static const char *const settings[] = {"method=async-easgd", "learning_rate=0.0625", RIG_CUT, NULL};
    roll();
    rig_start(&psd, settings);
}

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static int try_open(struct psc_options *opt, struct psc **c)
{
    opt->memory = "cuda";
    return psc_open(opt, c);
}

START_TEST(what_it_cannot_do_is_refused_at_open)
{
    struct psc_options opt;
    struct psc_threads_options threads;
    struct psc_clique *cliques[2];
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.kind = PSC_OBSERVER;
    assert_fails(c, try_open(&opt, &c), PSC_EUNSUPPORTED, "memory 'cuda' is for workers");
    psc_close(c);
    opt.kind = PSC_WORKER;
    psc_threads_options_init(&threads, sizeof threads);
    threads.members = 2;
    ck_assert_int_eq(psc_threads_open(&threads, cliques), PSC_OK);
    opt.clique = cliques[0];
    assert_fails(c, try_open(&opt, &c), PSC_EUNSUPPORTED,
                 "a clique of 2 members over threads sums vectors of the host only");
    psc_close(c);
    psc_clique_close(cliques[0]);
    psc_clique_close(cliques[1]);
    opt.clique = NULL;
    opt.memory = "opencl";
    assert_fails(c, psc_open(&opt, &c), PSC_EINVAL, "memory 'opencl'; allowed are host and cuda");
    psc_close(c);
    opt.memory = NULL;
    opt.stream = &opt;
    assert_fails(c, psc_open(&opt, &c), PSC_EINVAL, "stream is for memory 'cuda'");
    psc_close(c);
}
END_TEST

START_TEST(no_device_is_a_sentence)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    setenv("STANDIN_DEVICES", "0", 1);
    assert_fails(c, try_open(&opt, &c), PSC_EUNSUPPORTED, "no CUDA-capable device is detected");
    psc_close(c);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaSuccess);
}
END_TEST

/* A worker with the library's own stream. */
static struct psc *join(float **x, float **g)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.timeout_ms = 5000;
    assert_ok(c, try_open(&opt, &c));
    assert_ok(c, psc_alloc(c, N, x));
    assert_ok(c, psc_alloc(c, N, g));
    assert_ok(c, psc_write(c, *x, start, N));
    assert_ok(c, psc_write(c, *g, gradients[0], N));
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, *x));
    return c;
}

START_TEST(memory_of_the_host_is_refused)
{
    float *x, *g, seen_x[N];
    struct psc *c = join(&x, &g);
    struct psc_memory *kept;
    assert_fails(c, psc_step(c, start, g, 8), PSC_EINVAL, "a vector is not memory of the device");
    assert_fails(c, psc_step(c, x, gradients[0], 8), PSC_EINVAL, "a vector is not memory of the device");
    assert_fails(c, psc_pull(c, NULL, start), PSC_EINVAL, "psc_pull: a vector is not memory of the device");
    assert_fails(c, psc_keep(c, x, &kept), PSC_EUNSUPPORTED, "memory of a device ends with psc_close");
    assert_ok(c, psc_step(c, x, g, 8));
    assert_ok(c, psc_read(c, seen_x, x, N));
    ck_assert(seen_x[0] != start[0]);
    psc_close(c);
}
END_TEST

/* A kernel would reach it only where the GPUs are peers. */
START_TEST(memory_of_another_device_is_refused)
{
    float *x, *g, *far;
    setenv("STANDIN_DEVICES", "2", 1);
    ck_assert_int_eq(cudaSetDevice(1), cudaSuccess);
    ck_assert_int_eq(cudaMalloc((void **)&far, N * sizeof *far), cudaSuccess);
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    struct psc *c = join(&x, &g);
    assert_fails(c, psc_step(c, x, far, 8), PSC_EINVAL, "a vector is not memory of the device");
    ck_assert_int_eq(cudaSetDevice(1), cudaSuccess); /* a call is made on the handle's own */
    assert_ok(c, psc_step(c, x, g, 8));
    psc_close(c);
    ck_assert_int_eq(cudaFree(far), cudaSuccess);
}
END_TEST

/* The device finds the value, and names it as the host does: in a pass of its own, as it makes the message,
 * or as it encodes it. In place a lane would find it. */
static const char *const checked[] = {
    "method=async-sgd\n", "method=async-sgd\nweight_decay=0.01\n", "method=async-sgd\ncodec.message=int8\n",
    "method=async-sgd\ncodec.message=topk:0.1\ncodec.error_feedback=true\n"};

START_TEST(a_value_that_is_not_finite_is_not_sent)
{
    float *x, *g, center[N], diverged[N];
    struct psc *c = join(&x, &g);
    assert_ok(c, psc_set_method(c, checked[_i]));
    memcpy(diverged, gradients[1], sizeof diverged);
    diverged[5000] = 1 / 0.0f; /* frozen: it is not sent */
    diverged[8123] = 0 / 0.0f;
    diverged[9000] = 1 / 0.0f;
    assert_ok(c, psc_write(c, g, diverged, N));
    assert_fails(c, psc_step(c, x, g, 8), PSC_EVALUE,
                 "[8123], in tensor 'fc.weight', is not finite: nothing was sent");
    assert_ok(c, psc_pull(c, NULL, x));
    assert_ok(c, psc_read(c, center, x, N));
    ck_assert(memcmp(center, start, sizeof start) == 0);
    assert_ok(c, psc_write(c, g, gradients[1], N));
    assert_ok(c, psc_step(c, x, g, 8));
    psc_close(c);
}
END_TEST

/* Once it has failed, every call of CUDA fails. */
START_TEST(a_fault_of_the_device_is_told_with_cudas_words)
{
    float *x, *g;
    struct psc *c = join(&x, &g);
    assert_ok(c, psc_step(c, x, g, 8));
    setenv("STANDIN_FAULT", "device", 1);
    assert_fails(c, psc_step(c, x, g, 8), PSC_EDEVICE, "CUDA: an illegal memory access was encountered");
    assert_fails(c, psc_step(c, x, g, 8), PSC_EDEVICE, "CUDA: an illegal memory access was encountered");
    assert_fails(c, psc_read(c, start, x, N), PSC_EDEVICE, "CUDA: an illegal memory access was encountered");
    psc_close(c);
}
END_TEST

/* Somebody else's error is not this device's, and stays; an error that was handled is not left to others. */
START_TEST(last_errors_are_left_to_whom_they_belong)
{
    float *x, *g;
    struct psc *c;
    ck_assert_int_eq(cudaSetDevice(7), cudaErrorInvalidDevice);
    c = join(&x, &g);
    assert_ok(c, psc_step(c, x, g, 8));
    psc_close(c);
    cudaGetLastError();
    c = join(&x, &g);
    assert_ok(c, psc_step(c, x, g, 8));
    assert_ok(c, psc_read(c, start, x, N));
    ck_assert_int_eq(cudaPeekAtLastError(), cudaSuccess);
    psc_close(c);
}
END_TEST

START_TEST(a_device_that_hangs_is_not_waited_for_without_end)
{
    float *x, *g;
    struct psc *c = join(&x, &g);
    setenv("STANDIN_FAULT", "hang", 1);
    assert_fails(c, psc_step(c, x, g, 8), PSC_EDEVICE, "has not finished its work in 5.0 s");
    unsetenv("STANDIN_FAULT"); /* what is closed waits */
    psc_close(c);
}
END_TEST

START_TEST(memory_that_cannot_be_pinned_is_told)
{
    struct psc_options opt;
    struct psc *c;
    float *x;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    assert_ok(c, try_open(&opt, &c));
    assert_ok(c, psc_alloc(c, N, &x));
    setenv("STANDIN_FAULT", "host-register", 1);
    assert_fails(c, psc_begin(c, rig_model, RIG_TENSORS, x), PSC_ENOMEM, "cannot pin");
    psc_close(c);
}
END_TEST

/* ---- what is counted, where there is a stand-in */

struct counted {
    uint64_t up_bytes, down_bytes, launches, passes;
};

static struct counted count(void)
{
    void (*counts)(uint64_t out[4]) = NULL;
    uint64_t now[4] = {0};
    *(void **)&counts = dlsym(RTLD_DEFAULT, "standin_counts");
    if (counts != NULL)
        counts(now);
    return (struct counted){now[0], now[1], now[2], now[3]};
}

/* What a step has done since. */
static struct counted since(struct counted before)
{
    struct counted now = count();
    return (struct counted){now.up_bytes - before.up_bytes, now.down_bytes - before.down_bytes,
                            now.launches - before.launches, now.passes - before.passes};
}

static const struct {
    const char *codec;
    double least, most; /* bytes of a float */
} bus[] = {
    {"raw", 4, 4},     {"bf16", 2, 2},     {"trunc16", 2, 2},     {"fp16", 2, 2},
    {"int8", 1, 1.02}, {"int4", 0.5, 1.1}, {"topk:0.1", 0.2, 0.8}}; /* the model's buffers travel as floats */

/* Both ways the bus carries the payloads, and of a search what it has found. */
START_TEST(the_bus_carries_payloads)
{
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    char message[48], answer[48];
    const bool moves = strncmp(bus[_i].codec, "int4", 4) == 0 || strncmp(bus[_i].codec, "topk", 4) == 0;
    const char *const settings[] = {"learning_rate=0.0625",      RIG_CUT, "method=async-sgd", message, answer,
                                    "codec.error_feedback=true", NULL};
    float *x, *g;
    snprintf(message, sizeof message, "codec.message=%s", bus[_i].codec);
    snprintf(answer, sizeof answer, "codec.answer=%s", moves ? "raw" : bus[_i].codec);
    roll();
    rig_start(&psd, settings);
    struct psc *c = join(&x, &g);
    assert_ok(c, psc_step(c, x, g, 8));
    assert_ok(c, psc_info(c, &before));
    struct counted at = count();
    assert_ok(c, psc_step(c, x, g, 8));
    assert_ok(c, psc_info(c, &after));
    struct counted made = since(at);
    const uint64_t sent = after.bytes_sent - before.bytes_sent,
                   received = after.bytes_received - before.bytes_received;
    const double floats = (double)(moves ? received : received * 4 / (uint64_t)bus[_i].least) / 4;
    printf("%s: %llu bytes of %.0f floats to the host, %llu to the device\n", bus[_i].codec,
           (unsigned long long)made.down_bytes, floats, (unsigned long long)made.up_bytes);
    if (made.launches > 0) {
        const uint64_t at_least = _i == 0 ? N * sizeof *x : sent; /* floats are copied with the frozen ones */
        ck_assert_uint_ge(made.down_bytes, at_least + sizeof(uint64_t));
        ck_assert_uint_lt(made.down_bytes,
                          at_least + sizeof(uint64_t) + 16 * N / 1024); /* between payloads */
        ck_assert_uint_eq(made.up_bytes, received);
    }
    ck_assert((double)sent >= bus[_i].least * floats * 0.99 && (double)sent <= bus[_i].most * floats);
    psc_close(c);
    daemon_remove(&psd);
}
END_TEST

/* Weights, of which each has a bias that does not decay, and statistics behind it. */
enum { LAYERS = 60, LAYER_FLOATS = 100 };

START_TEST(a_step_is_a_few_launches_for_any_number_of_tensors)
{
    static const char *const settings[] = {"method=eamsgd",     "period=1000", "learning_rate=0.0625",
                                           "weight_decay=0.01", RIG_CUT,       NULL};
    static struct psc_tensor tensors[3 * LAYERS];
    static char names[3 * LAYERS][16];
    static float zeros[LAYERS * LAYER_FLOATS];
    static const uint64_t counts[3] = {70, 10, 20};
    struct psc_options opt;
    struct psc *c;
    float *x, *g;
    uint64_t at = 0;
    for (size_t i = 0; i < 3 * LAYERS; i++) {
        snprintf(names[i], sizeof names[i], "tensor-%zu", i);
        tensors[i] = (struct psc_tensor){names[i],
                                         at,
                                         {counts[i % 3]},
                                         1,
                                         i % 3 == 2 ? PSC_BUFFER : PSC_PARAM,
                                         i % 3 == 0 ? PSC_DECAY : PSC_NO_DECAY};
        at += counts[i % 3];
    }
    rig_start(&psd, settings);
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    assert_ok(c, try_open(&opt, &c));
    assert_ok(c, psc_alloc(c, at, &x));
    assert_ok(c, psc_alloc(c, at, &g));
    assert_ok(c, psc_write(c, x, zeros, at));
    assert_ok(c, psc_begin(c, tensors, 3 * LAYERS, x));
    for (int t = 0; t < 3; t++)
        assert_ok(c, psc_step(c, x, g, 8));
    struct counted before = count();
    assert_ok(c, psc_step(c, x, g, 8));
    struct counted made = since(before);
    printf("a step over %d tensors: %llu passes in %llu launches\n", 3 * LAYERS,
           (unsigned long long)made.passes, (unsigned long long)made.launches);
    if (made.launches > 0) {
        ck_assert_uint_eq(made.passes, 3 * LAYERS); /* 60 decays and 120 parts of the optimizer's step */
        ck_assert_uint_le(made.launches, 5);
    }
    psc_close(c);
    daemon_remove(&psd);
}
END_TEST

static bool has_standin(void)
{
    return dlsym(RTLD_DEFAULT, "standin_counts") != NULL;
}

static int count_seeds(void)
{
    const char *seeds = getenv("CUDA_CLIENT_SEEDS");
    int n = 0;
    if (seeds != NULL && sscanf(seeds, "%lu:%d", &first_seed, &n) != 2)
        abort();
    return n;
}

int main(void)
{
    int seeds = count_seeds();
    Suite *s = suite_create("cuda-client");
    TCase *rows = tcase_create("steps"), *orders = tcase_create("orders"),
          *refusals = tcase_create("refusals"), *counts = tcase_create("counts"),
          *machine = tcase_create("the stand-in's machine");

    tcase_set_timeout(rows, 300);
    tcase_set_timeout(orders, 300);
    if (seeds == 0)
        tcase_add_loop_test(rows, steps_are_those_of_the_host, 0, (int)(n_methods() + ROWS(more)));
    tcase_add_loop_test(orders, any_order_gives_the_same_bits, 0, seeds);
    tcase_add_checked_fixture(refusals, start_psd, stop_psd);
    if (seeds == 0) {
        tcase_add_test(refusals, what_it_cannot_do_is_refused_at_open);
        tcase_add_test(refusals, memory_of_the_host_is_refused);
        tcase_add_loop_test(refusals, a_value_that_is_not_finite_is_not_sent, 0, (int)ROWS(checked));
        tcase_add_test(refusals, last_errors_are_left_to_whom_they_belong);
        tcase_add_loop_test(counts, the_bus_carries_payloads, 0, (int)ROWS(bus));
        tcase_add_test(counts, a_step_is_a_few_launches_for_any_number_of_tensors);
    }
    if (seeds == 0 && has_standin()) {
        tcase_add_checked_fixture(machine, start_psd, stop_psd);
        tcase_add_test(machine, no_device_is_a_sentence);
        tcase_add_test(machine, memory_of_another_device_is_refused);
        tcase_add_test(machine, a_fault_of_the_device_is_told_with_cudas_words);
        tcase_add_test(machine, a_device_that_hangs_is_not_waited_for_without_end);
        tcase_add_test(machine, memory_that_cannot_be_pinned_is_told);
    }
    suite_add_tcase(s, rows);
    suite_add_tcase(s, orders);
    suite_add_tcase(s, refusals);
    suite_add_tcase(s, counts);
    suite_add_tcase(s, machine);
    return unit_run(s);
}
