#include "nets/worker/job/partition.h"

#include <errno.h>

#include "nets/data/data.h"
#include "nets/machine.h"
#include "nets/worker/job/job.h"
#include "proto/log.h"

/* Of a part of the batch that auto makes. A round number: nothing was measured. */
enum { LEAST_IMAGES = 8 };

/* x and g, and the client library's vectors: its copy of x, and a sum or a message. */
static uint64_t vectors_of(const struct cnn_net_memory *m)
{
    return 2 * m->vectors;
}

static int read_need(const struct cnn_worker_args *args, const struct cnn_model *model,
                     const struct cnn_data_info *data, struct ps_need *out, struct ps_error *err)
{
    struct cnn_net_memory memory;
    const struct cnn_net_options opt = {.model = model,
                                        .backend = args->backend,
                                        .batch = (uint32_t)args->batch,
                                        .threads = 1,
                                        .precision = args->net_precision};
    int rc = cnn_net_plan_memory(&opt, &memory, err);
    if (rc != 0)
        return rc;
    *out = (struct ps_need){.fixed_bytes =
                                vectors_of(&memory) + memory.own + (data != NULL ? data->held_bytes : 0),
                            .image_bytes = memory.values / args->batch,
                            .batch = (uint32_t)args->batch,
                            .least_images = LEAST_IMAGES,
                            .limit_bytes = cnn_machine_bytes()};
    return 0;
}

static int place(const struct cnn_worker_args *args, const struct ps_need *need, struct cnn_partitions *out,
                 struct ps_error *err)
{
    uint32_t quota = cnn_machine_quota();
    const struct ps_topology_source here = {.quota_cores = quota < UINT32_MAX ? quota : 0};
    int rc = ps_topology_read(&here, &out->topology, err);
    if (rc == 0)
        rc = ps_place(&out->topology, (uint32_t)args->n_partitions, (uint32_t)args->partition_threads, need,
                      &out->placement, err);
    return rc;
}

int cnn_partitions_plan(const struct cnn_worker_args *args, const struct cnn_model *model,
                        const struct cnn_data_info *data, struct cnn_partitions *out)
{
    struct ps_need need;
    struct ps_error err;
    *out = (struct cnn_partitions){.data = NULL};
    pthread_mutex_init(&out->lock, NULL);
    int rc = read_need(args, model, data, &need, &err);
    if (rc == 0)
        rc = place(args, &need, out, &err);
    if (rc == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "partitions.failed", "--partitions: %s", err.text);
    return rc == -EINVAL ? CNN_EXIT_USAGE : CNN_EXIT_INTERNAL;
}

void cnn_partitions_finish(struct cnn_partitions *all)
{
    pthread_mutex_destroy(&all->lock);
    ps_placement_finish(&all->placement);
    ps_topology_finish(&all->topology);
}

void cnn_partition_bind(const struct cnn_partition *p)
{
    struct ps_error err;
    if (p->all->topology.n_cores > 0 &&
        ps_topology_bind(&p->all->topology, &p->all->placement, p->index, &err) != 0)
        ps_log(PS_LOG_WARN, "partitions.not_bound", "partition %u runs where the system puts it: %s",
               p->index, err.text);
}

static void pin_one(void *arg, uint32_t index)
{
    const struct cnn_partition *p = arg;
    struct ps_error err;
    if (index < p->all->placement.threads &&
        ps_topology_pin(&p->all->topology, &p->all->placement, p->index, index, &err) != 0)
        ps_log(PS_LOG_WARN, "partitions.not_bound", "thread %u of partition %u: %s", index, p->index,
               err.text);
}

void cnn_partition_pin(const struct cnn_partition *p, struct cnn_net *net)
{
    struct cnn_partition own = *p;
    if (p->all->topology.n_cores > 0)
        cnn_net_each_thread(net, pin_one, &own);
}

void cnn_partition_count(const struct cnn_partition *p, const struct cnn_score *score, uint32_t images)
{
    struct cnn_partitions *all = p->all;
    pthread_mutex_lock(&all->lock);
    all->loss_sum += score->loss;
    all->steps++;
    all->images += images;
    all->correct += score->n_correct;
    pthread_mutex_unlock(&all->lock);
}

void cnn_partition_take(const struct cnn_partition *p, double *loss_sum, uint64_t *steps, uint64_t *images,
                        uint64_t *correct)
{
    struct cnn_partitions *all = p->all;
    pthread_mutex_lock(&all->lock);
    *loss_sum = all->loss_sum;
    *steps = all->steps;
    *images = all->images;
    *correct = all->correct;
    all->loss_sum = 0;
    all->steps = all->images = all->correct = 0;
    pthread_mutex_unlock(&all->lock);
}
