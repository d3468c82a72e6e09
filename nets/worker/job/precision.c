#include "nets/worker/job/precision.h"

#include <errno.h>
#include <string.h>

#include "nets/worker/job/job.h"
#include "proto/log.h"

static uint32_t share_of(const struct cnn_worker_args *args)
{
    uint64_t parts = args->n_devices > 0 ? args->n_devices : args->n_partitions;
    uint64_t share = parts > 1 ? args->batch / parts : args->batch;
    return share > 0 ? (uint32_t)share : 1;
}

int cnn_precision_settle(struct cnn_worker_args *args)
{
    struct cnn_model model;
    struct cnn_freeze freeze;
    struct cnn_precision_choice choice;
    struct ps_error err;
    const char *net = args->describe != NULL ? args->describe : args->net;

    if (args->precision == NULL || strcmp(args->precision, "auto") != 0)
        return CNN_EXIT_OK;
    int rc = 0, exit = cnn_job_read_model(args, net, &model, &freeze);
    if (exit == CNN_EXIT_OK) {
        const struct cnn_net_options opt = {.model = &model,
                                            .backend = args->backend,
                                            .batch = share_of(args),
                                            .threads = (uint32_t)args->threads,
                                            .any_order = args->any_order};
        rc = cnn_precision_choose(&opt, &choice, &err);
    }
    cnn_freeze_finish(&freeze);
    if (exit != CNN_EXIT_OK)
        return exit;
    if (rc != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "--precision auto: %s", err.text);
        return rc == -EINVAL ? CNN_EXIT_USAGE : CNN_EXIT_INTERNAL;
    }
    args->net_precision = choice.precision;
    ps_log(PS_LOG_INFO, "precision.chosen", "--precision auto: %s", choice.why);
    return CNN_EXIT_OK;
}
