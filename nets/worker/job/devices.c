#include "nets/worker/job/devices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/psclique_vectors.h"
#include "nets/worker/job/job.h"
#include "nets/worker/job/partition.h"
#include "proto/log.h"

enum { MOST_GPU = PSC_MAX_VECTORS - 1, MOST_MEMBERS = 1024 };

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

/* The next number of a list, which moves *at behind it. -EINVAL: there is none. */
static int next_gpu(const char **at, uint32_t *gpu)
{
    char *end;
    unsigned long v = strtoul(*at, &end, 10);
    if (**at < '0' || **at > '9' || v > MOST_GPU || (*end != ',' && *end != 0) ||
        (*end == ',' && end[1] == 0))
        return -EINVAL;
    *gpu = (uint32_t)v;
    *at = *end == ',' ? end + 1 : end;
    return 0;
}

/* A list of different GPUs, such as 0,1: each part has one. */
static int read_gpus(const char *text, uint64_t *n, struct ps_error *err)
{
    bool seen[MOST_GPU + 1] = {false};
    const char *at = text;
    for (uint32_t gpu; *n == 0 || *at != 0; (*n)++) {
        if (next_gpu(&at, &gpu) != 0 || seen[gpu])
            return ps_fail(
                err, -EINVAL,
                "--devices: \"%.60s\" with --backend cuda; allowed: a list of different GPUs, from 0 "
                "to %d, such as 0,1",
                text, MOST_GPU);
        seen[gpu] = true;
    }
    return 0;
}

int cnn_devices_use(const struct cnn_worker_args *args, uint32_t part)
{
    const char *at = args->devices;
    struct ps_error err;
    uint32_t gpu = 0;
    if (!args->has_gpus)
        return CNN_EXIT_OK;
    for (uint32_t i = 0; i <= part; i++)
        next_gpu(&at, &gpu);
    if (cnn_use_device(args->backend, gpu, &err) == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "start.failed", "--devices %s: %s", args->devices, err.text);
    return CNN_EXIT_INTERNAL;
}

/* What the option means to a backend: one row each. NULL: the default backend, which computes on the CPU. */
static const struct {
    const char *backend;
    int (*read)(const char *text, uint64_t *n, struct ps_error *err);
} rows[] = {{"ref", read_number}, {"onednn", read_number}, {"cuda", read_gpus}};

static int read_by_backend(const struct cnn_worker_args *a, uint64_t *n, struct ps_error *err)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (a->backend != NULL && strcmp(a->backend, rows[i].backend) == 0)
            return rows[i].read(a->devices, n, err);
    return read_number(a->devices, n, err); /* an unknown backend is refused with the net */
}

bool cnn_devices_are_gpus(const struct cnn_worker_args *a)
{
    return a->devices != NULL && a->backend != NULL && strcmp(a->backend, "cuda") == 0;
}

/* GPUs sum over NCCL, each as a member: their places follow from the process's. */
static int check_gpus(const struct cnn_worker_args *a, uint64_t n, struct ps_error *err)
{
    if (a->clique != NULL && strcmp(a->clique, "nccl") != 0)
        return ps_fail(err, -EINVAL, "--clique: \"%.60s\" with a list of GPUs in --devices; allowed: nccl",
                       a->clique);
    if (a->clique != NULL && a->members > 1 && a->member < 0)
        return ps_fail(err, -EINVAL,
                       "--member: not given with --devices and --clique nccl; allowed: a number "
                       "from 0 to %" PRIu64,
                       a->members - 1);
    if (a->members * n > MOST_MEMBERS)
        return ps_fail(err, -EINVAL,
                       "--members %" PRIu64 " with %" PRIu64
                       " GPUs each in --devices; allowed: %d GPUs in all",
                       a->members, n, MOST_MEMBERS);
    return 0;
}

void cnn_devices_place(struct cnn_worker_args *p, const struct cnn_worker_args *a, uint32_t part,
                       const char *meets)
{
    uint64_t members = a->members > 0 ? a->members : 1, member = a->member > 0 ? (uint64_t)a->member : 0;
    if (members * a->n_devices == 1)
        return; /* as without --devices, on that GPU */
    p->members = members * a->n_devices;
    p->member = (int64_t)(member * a->n_devices + part);
    if (a->clique != NULL)
        return;
    p->clique = "nccl";
    p->rendezvous = meets;
    p->clique_name = "0";
    p->clique_listen = "unix:";
    p->links = 1;
    p->clique_timeout_s = 60;
    p->clique_step_s = 3600;
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
    if (rc == 0 && cnn_devices_are_gpus(a) && (rc = check_gpus(a, *n, err)) != 0)
        return rc;
    if (rc == 0 && batch % *n != 0)
        return ps_fail(err, -EINVAL,
                       "--devices: %" PRIu64 "; allowed: a number that divides --batch %" PRIu64, *n, batch);
    return rc;
}

void cnn_devices_plan(const struct cnn_worker_args *args, struct cnn_partitions *out)
{
    *out = (struct cnn_partitions){.data = NULL};
    pthread_mutex_init(&out->lock, NULL);
    out->placement.n = (uint32_t)args->n_devices;
    out->placement.threads = (uint32_t)args->threads;
}
