#include "nets/worker/job/devices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/psclique_vectors.h"
#include "nets/worker/job/partition.h"

static int read_number(const char *text, uint64_t *n, struct ps_error *err)
{
    char *end;
    uint64_t v = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == '\0' && v >= 1 && v <= PSC_MAX_VECTORS) {
        *n = v;
        return 0;
    }
    return ps_fail(err, -EINVAL, "--devices: \"%.60s\"; allowed: a number of nets on the CPU, from 1 to %d",
                   text, PSC_MAX_VECTORS);
}

/* A list of GPUs, such as 0,1: each part then has a device of the backend, and the sum of its gradients is
 * one over vectors of memory "cuda" (psclique_vectors.h). Neither exists yet. */
static int refuse_gpus(const char *text, uint64_t *n, struct ps_error *err)
{
    (void)n;
    return ps_fail(
        err, -EINVAL,
        "--devices: \"%.60s\" with --backend cuda; several GPUs in one process are not supported yet; "
        "allowed: a psworker for each GPU, joined by --clique; or --backend onednn or ref",
        text);
}

/* What the option means to a backend: one row each. NULL: the default backend, which computes on the CPU. */
static const struct {
    const char *backend;
    int (*read)(const char *text, uint64_t *n, struct ps_error *err);
} rows[] = {{"ref", read_number}, {"onednn", read_number}, {"cuda", refuse_gpus}};

static int read_by_backend(const struct cnn_worker_args *a, uint64_t *n, struct ps_error *err)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (a->backend != NULL && strcmp(a->backend, rows[i].backend) == 0)
            return rows[i].read(a->devices, n, err);
    return read_number(a->devices, n, err); /* an unknown backend is refused with the net */
}

int cnn_devices_read(const struct cnn_worker_args *a, uint64_t *n, struct ps_error *err)
{
    const struct {
        const char *name;
        bool given;
    } others[] = {{"evaluate", a->evaluate},
                  {"predict", a->predict},
                  {"describe", a->describe != NULL},
                  {"partitions", a->partitions != NULL}};
    uint64_t batch = a->batch > 0 ? a->batch : CNN_DEFAULT_BATCH;
    *n = 0;
    if (a->devices == NULL)
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return ps_fail(err, -EINVAL, "--%s and --devices: both given; allowed: one of them",
                           others[i].name);
    if (a->method != NULL && strcmp(a->method, "d-sync") != 0 && strcmp(a->method, "pipe-sgd") != 0)
        return ps_fail(
            err, -EINVAL,
            "--devices: given with --method %s, which is for a single worker; allowed: with --server, "
            "or with --method d-sync or pipe-sgd",
            a->method);
    int rc = read_by_backend(a, n, err);
    if (rc == 0 && batch % *n != 0)
        return ps_fail(err, -EINVAL,
                       "--devices: %" PRIu64 "; allowed: a number that divides --batch %" PRIu64, *n, batch);
    return rc;
}

void cnn_devices_plan(const struct cnn_worker_args *args, struct cnn_partitions *out)
{
    *out = (struct cnn_partitions){.stop_after = UINT64_MAX};
    pthread_mutex_init(&out->lock, NULL);
    out->placement.n = (uint32_t)args->n_devices;
    out->placement.threads = (uint32_t)args->threads;
}
