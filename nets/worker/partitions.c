/* partitions.c: --partitions and --devices: each part trains in a thread of its own, as a psworker of a
 * clique would. Partitions are the whole clique. Devices may be one member of a clique of processes. */
#include "nets/worker/run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/psclique_vectors.h"
#include "nets/worker/job/devices.h"
#include "nets/worker/job/signals.h"
#include "nets/worker/job/train_state.h"
#include "proto/log.h"
#include "proto/thread.h"

struct part {
    struct cnn_partition partition;
    struct cnn_worker_args args;
    struct cnn_stop *stop;
    char state[PATH_MAX];
    pthread_t thread;
    int rc;
};

static const char *option_of(const struct cnn_worker_args *args)
{
    return args->devices != NULL ? "--devices" : "--partitions";
}

static void *run_part(void *arg)
{
    struct part *p = arg;
    if (p->partition.index > 0)
        ps_log_set_thread_lowest(PS_LOG_WARN); /* the first tells what all do */
    cnn_partition_bind(&p->partition);
    p->rc = cnn_devices_use(&p->args, p->partition.index);
    if (p->rc == CNN_EXIT_OK)
        p->rc = cnn_worker_run_job(&p->args, &p->partition, p->stop);
    return NULL;
}

/* Each part's own arguments. -1: the name of its state file would be too long. */
static int fill_part(struct part *p, const struct cnn_worker_args *args, const struct ps_placement *place)
{
    p->args = *args;
    p->args.batch = args->batch / place->n;
    p->args.threads = place->threads;
    if (args->state == NULL || p->partition.index == 0)
        return 0;
    p->args.state = p->state;
    return snprintf(p->state, sizeof p->state, "%s.%u", args->state, p->partition.index) <
                   (int)sizeof p->state
               ? 0
               : -1;
}

/* Either all parts go on from a state, or none. */
static int check_states(const struct part *parts, const struct ps_placement *place)
{
    uint32_t n_there = 0;
    const char *missing = NULL;
    for (uint32_t i = 0; parts[0].args.state != NULL && i < place->n; i++) {
        bool is_there = cnn_train_state_exists(parts[i].args.state);
        n_there += is_there;
        missing = is_there ? missing : parts[i].args.state;
    }
    if (n_there == 0 || n_there == place->n)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "state.failed",
           "--state: %s is not there, and %u files of %u parts (%s) are; allowed: all of them, or none",
           missing, n_there, place->n, option_of(&parts[0].args));
    return CNN_EXIT_USAGE;
}

/* What ended the worker: rather a partition's own failure than that another has left the clique. */
static int worst_of(const struct part *parts, uint32_t n)
{
    int rc = CNN_EXIT_OK;
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].rc != CNN_EXIT_OK && (rc == CNN_EXIT_OK || rc == CNN_EXIT_CLIQUE))
            rc = parts[i].rc;
    return rc;
}

/* Those that could not be started leave the clique, so that the others end. */
static int run_parts(struct part *parts, uint32_t n)
{
    uint32_t n_started = 0;
    while (n_started < n && pthread_create(&parts[n_started].thread, NULL, run_part, &parts[n_started]) == 0)
        n_started++;
    for (uint32_t i = n_started; i < n; i++) {
        ps_log(PS_LOG_ERROR, "start.failed", "%s: cannot start the thread of part %u",
               option_of(&parts[i].args), i);
        psc_clique_close(parts[i].partition.q);
        parts[i].rc = CNN_EXIT_INTERNAL;
    }
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(parts[i].thread, NULL);
    return worst_of(parts, n);
}

/* A clique of n threads; within `outer`, where that is one: its members have n each. */
static int open_handles(struct psc_clique *outer, uint32_t n, struct psc_clique **q)
{
    struct psc_threads_options threads;
    struct psc_devices_options devices;
    psc_threads_options_init(&threads, sizeof threads);
    psc_devices_options_init(&devices, sizeof devices);
    threads.members = devices.devices = n;
    if (outer != NULL)
        return psc_devices_open(outer, &devices, q);
    return n > 1 ? psc_threads_open(&threads, q) : PSC_OK; /* a single part needs none */
}

/* The handles of the clique, one for each part. */
static int open_clique(struct part *parts, uint32_t n, struct psc_clique *outer)
{
    struct psc_clique **q = calloc(n, sizeof *q);
    int rc = q == NULL ? PSC_ENOMEM : open_handles(outer, n, q);
    for (uint32_t i = 0; i < n && rc == PSC_OK; i++)
        parts[i].partition.q = q[i];
    free(q);
    if (rc != PSC_OK)
        ps_log(PS_LOG_ERROR, "start.failed", "%s: no clique of %u threads (%s)", option_of(&parts[0].args), n,
               psc_result_name(rc));
    return rc == PSC_OK ? CNN_EXIT_OK : CNN_EXIT_INTERNAL;
}

/* GPUs of a process without a clique of processes: they meet at a file that only this process knows. */
static int run_gpus(struct part *parts, uint32_t n, const struct cnn_worker_args *args)
{
    char folder[] = "/tmp/psworker-XXXXXX", meets[64];
    int rc = CNN_EXIT_OK;
    for (uint32_t i = 0; i < n && rc == CNN_EXIT_OK;
         i++) /* or the others would wait for one that is not there */
        rc = cnn_devices_use(args, i);
    if (rc != CNN_EXIT_OK)
        return rc;
    if (mkdtemp(folder) == NULL) {
        ps_log(PS_LOG_ERROR, "start.failed", "--devices: no folder %s: %s", folder, strerror(errno));
        return CNN_EXIT_INTERNAL;
    }
    snprintf(meets, sizeof meets, "file:%s/gpus", folder);
    for (uint32_t i = 0; i < n; i++)
        cnn_devices_place(&parts[i].args, args, i, meets);
    rc = run_parts(parts, n);
    rmdir(folder);
    return rc;
}

/* All parts have closed their handles when the clique of processes is closed. */
static int join_and_run(struct part *parts, uint32_t n)
{
    struct cnn_job joined = {.args = &parts[0].args, .stop = parts[0].stop};
    int rc = cnn_job_open_clique(&joined);
    if (rc == CNN_EXIT_OK && !joined.stopped)
        rc = open_clique(parts, n, joined.clique.q);
    if (rc == CNN_EXIT_OK && !joined.stopped)
        rc = run_parts(parts, n);
    cnn_clique_close(&joined.clique);
    return rc;
}

static void say_parts(const struct cnn_worker_args *args, const struct ps_placement *place)
{
    if (args->devices != NULL)
        ps_log(PS_LOG_INFO, "devices.opened", "--devices %s: %u nets with batches of %llu", args->devices,
               place->n, (unsigned long long)(args->batch / place->n));
    else
        ps_log(PS_LOG_INFO, "partitions.placed", "--partitions %s: %s", args->partitions, place->why);
}

static int divide(struct cnn_partitions *all, const struct cnn_worker_args *args, struct cnn_stop *stop)
{
    const struct ps_placement *place = &all->placement;
    struct part *parts = calloc(place->n, sizeof *parts);
    int rc = CNN_EXIT_OK;
    if (parts == NULL) {
        ps_log(PS_LOG_ERROR, "start.failed", "%s: no memory for %u parts", option_of(args), place->n);
        return CNN_EXIT_INTERNAL;
    }
    say_parts(args, place);
    for (uint32_t i = 0; i < place->n && rc == CNN_EXIT_OK; i++) {
        parts[i].partition = (struct cnn_partition){.all = all, .index = i};
        parts[i].stop = stop;
        if (fill_part(&parts[i], args, place) < 0) {
            ps_log(PS_LOG_ERROR, "state.failed", "--state %s: its name is too long", args->state);
            rc = CNN_EXIT_USAGE;
        }
    }
    if (rc == CNN_EXIT_OK)
        rc = check_states(parts, place);
    if (rc == CNN_EXIT_OK)
        rc = args->has_gpus ? run_gpus(parts, place->n, args) : join_and_run(parts, place->n);
    free(parts);
    return rc;
}

static int plan(const struct cnn_worker_args *args, const struct cnn_job *probe, struct cnn_partitions *out)
{
    if (args->devices == NULL)
        return cnn_partitions_plan(args, &probe->model, &probe->info, out);
    cnn_devices_plan(args, out);
    return CNN_EXIT_OK;
}

/* The data that is opened to learn what it takes is kept if all can share it: partitions have what is held in
 * memory near to them. */
int cnn_worker_run_partitions(const struct cnn_worker_args *args, struct cnn_stop *stop)
{
    struct cnn_job probe = {.args = args, .stop = stop};
    struct cnn_partitions all;
    int rc = cnn_job_read_model(args, args->net, &probe.model, &probe.freeze);
    if (rc == CNN_EXIT_OK)
        rc = cnn_job_open_data(&probe);
    if (rc != CNN_EXIT_OK || probe.stopped) {
        cnn_data_close(probe.data);
        cnn_freeze_finish(&probe.freeze);
        return rc;
    }
    rc = plan(args, &probe, &all);
    if (probe.info.held_bytes == 0 || args->devices != NULL) {
        all.data = probe.data;
    } else {
        cnn_data_close(probe.data);
        probe.data = NULL;
    }
    if (rc == CNN_EXIT_OK)
        rc = divide(&all, args, stop);
    cnn_data_close(probe.data);
    cnn_partitions_finish(&all);
    cnn_freeze_finish(&probe.freeze);
    return rc;
}
