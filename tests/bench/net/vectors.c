/* vectors.c: vectors of a measured net and their update, by the kernels of the client library. */
#include "tests/bench/net/vectors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETA        0.001f
#define MU         0.9f
#define TIMEOUT_MS 60000

static int create_on_host(struct bench_vectors *b, uint32_t threads, struct ps_error *err)
{
    int rc = threads > 1 ? psc_team_create(threads, &b->team) : 0;

    b->memory.kind = &psc_memory_host;
    b->x = calloc(b->n, sizeof *b->x);
    b->v = calloc(b->n, sizeof *b->v);
    b->g = calloc(b->n, sizeof *b->g);
    if (rc < 0)
        return ps_fail(err, rc, "no %u threads for the update: %s", threads, strerror(-rc));
    if (b->x == NULL || b->v == NULL || b->g == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu floats and their momentum", b->n);
    return 0;
}

static int create_on_device(struct bench_vectors *b, void *stream, struct ps_error *err)
{
    const struct psc_device_options opt = {.stream = stream, .timeout_ms = TIMEOUT_MS};
    float **const all[] = {&b->x, &b->v, &b->g};
    int rc = psc_memory_find("cuda", &b->memory.kind, err);

    if (rc == 0)
        rc = b->memory.kind->open(&opt, &b->memory.device, err);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && rc == 0; i++) {
        void *p = NULL;
        rc = b->memory.kind->alloc(b->memory.device, b->n * sizeof **all[i], &p, err);
        *all[i] = p;
    }
    return rc;
}

/* The initial point, by way of pinned memory. */
static int fill_device(struct bench_vectors *b, const struct cnn_model *model, struct ps_error *err)
{
    const struct psc_memory_kind *kind = b->memory.kind;
    struct psc_queue *q = kind->queue(b->memory.device, PSC_COMPUTE);
    const size_t bytes = b->n * sizeof(float);
    float *x = malloc(bytes);

    if (x == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu floats", b->n);
    cnn_model_fill(model, 1, x);
    int rc = kind->pin(b->memory.device, x, bytes, err);
    if (rc == 0) {
        kind->up(q, b->x, x, bytes);
        rc = kind->finish(q, err);
        kind->unpin(b->memory.device, x);
    }
    free(x);
    return rc;
}

int bench_vectors_create(const struct cnn_model *model, const struct cnn_net *net, uint32_t threads,
                         struct bench_vectors *out, struct ps_error *err)
{
    *out = (struct bench_vectors){.n = cnn_model_n_floats(model)};
    if (cnn_net_stream(net) != NULL) {
        int rc = create_on_device(out, cnn_net_stream(net), err);
        return rc == 0 ? fill_device(out, model, err) : rc;
    }
    int rc = create_on_host(out, threads, err);
    if (rc == 0)
        cnn_model_fill(model, 1, out->x);
    return rc;
}

static int begin_session(struct bench_vectors *b, const struct cnn_model *model)
{
    const struct psc_tensor all = {.name = "x", .n_dims = 1, .shape = {b->n}};
    float *values = malloc(b->n * sizeof *values);
    int rc = values != NULL ? psc_alloc(b->session, b->n, &b->x) : PSC_ENOMEM;

    if (rc == PSC_OK)
        rc = psc_alloc(b->session, b->n, &b->g);
    if (rc == PSC_OK) {
        cnn_model_fill(model, 1, values);
        rc = psc_write(b->session, b->x, values, b->n);
    }
    free(values);
    return rc == PSC_OK ? psc_begin(b->session, &all, 1, b->x) : rc;
}

int bench_vectors_join(const struct cnn_model *model, const struct cnn_net *net, const char *server,
                       struct bench_vectors *out, struct ps_error *err)
{
    struct psc_options opt;

    *out = (struct bench_vectors){.n = cnn_model_n_floats(model)};
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.stream = cnn_net_stream(net);
    opt.memory = opt.stream != NULL ? "cuda" : "host";
    int rc = psc_open(&opt, &out->session);
    if (rc == PSC_OK)
        rc = begin_session(out, model);
    return rc == PSC_OK ? 0 : ps_fail(err, -EIO, "%s: %s", server, psc_error(out->session));
}

double bench_vectors_exchange_s(const struct bench_vectors *b)
{
    struct psc_info info = {.size = sizeof info};
    return b->session != NULL && psc_info(b->session, &info) == PSC_OK ? info.exchange_seconds : 0;
}

void bench_vectors_destroy(struct bench_vectors *b)
{
    float *const all[] = {b->x, b->v, b->g};

    if (b->session != NULL) {
        psc_close(b->session);
        *b = (struct bench_vectors){.n = 0};
        return;
    }

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (b->memory.device == NULL)
            free(all[i]);
        else if (all[i] != NULL)
            b->memory.kind->free(b->memory.device, all[i]);
    if (b->memory.device != NULL)
        b->memory.kind->close(b->memory.device);
    psc_team_destroy(b->team);
    *b = (struct bench_vectors){.n = 0};
}

static void update_part(void *arg, uint64_t begin, uint64_t count)
{
    const struct bench_vectors *b = arg;
    ps_vec_best()->heavy_ball(b->x + begin, b->v + begin, b->g + begin, ETA, MU, count);
}

int bench_vectors_wait(struct bench_vectors *b, struct ps_error *err)
{
    return b->memory.device == NULL
               ? 0
               : b->memory.kind->finish(b->memory.kind->queue(b->memory.device, PSC_COMPUTE), err);
}

int bench_vectors_update(struct bench_vectors *b, struct ps_error *err)
{
    if (b->session != NULL)
        return psc_step(b->session, b->x, b->g, 1) == PSC_OK
                   ? 0
                   : ps_fail(err, -EIO, "%s", psc_error(b->session));
    if (b->memory.device == NULL) {
        psc_team_run(b->team, b->n, update_part, b);
        return 0;
    }
    const struct psc_work w = psc_work_of(&b->memory, PSC_COMPUTE);
    psc_heavy_ball(&w, b->x, b->v, b->g, ETA, MU, b->n);
    return b->memory.kind->check(b->memory.device, err);
}
