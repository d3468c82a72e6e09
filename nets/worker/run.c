/* One run of psworker, from its arguments to its exit status. */
#include "nets/worker/evaluate/evaluate.h"
#include "nets/worker/job/devices.h"
#include "nets/worker/job/precision.h"
#include "nets/worker/job/signals.h"
#include "nets/worker/run.h"
#include "proto/log.h"

int cnn_worker_run_job(const struct cnn_worker_args *args, const struct cnn_partition *partition,
                       struct cnn_stop *stop)
{
    struct cnn_job job;
    bool drained = false;
    int rc = cnn_job_open(&job, args, partition, stop, &drained);
    if (rc == CNN_EXIT_OK && !job.stopped)
        rc = (args->predict ? cnn_predict : args->evaluate ? cnn_evaluate : cnn_train)(&job, drained);
    cnn_job_close(&job);
    return rc;
}

int cnn_worker_run(const struct cnn_worker_args *given)
{
    struct cnn_worker_args own = *given;
    const struct cnn_worker_args *args = &own;
    struct cnn_stop stop;
    int rc = cnn_stop_init(&stop); /* before the threads of a net that is measured, too */
    if (rc != 0) {
        ps_log(PS_LOG_ERROR, "start.failed", "cannot make the signal thread");
        return CNN_EXIT_INTERNAL;
    }
    rc = cnn_devices_use(&own, 0); /* what is measured before the parts begin */
    if (rc == CNN_EXIT_OK)
        rc = cnn_precision_settle(&own);
    if (rc == CNN_EXIT_OK)
        rc = args->partitions != NULL || args->devices != NULL ? cnn_worker_run_partitions(args, &stop)
                                                               : cnn_worker_run_job(args, NULL, &stop);
    cnn_stop_finish(&stop);
    return rc;
}
