/* precision.h: --precision auto. */
#ifndef CNN_WORKER_JOB_PRECISION_H
#define CNN_WORKER_JOB_PRECISION_H

#include "nets/worker/job/args.h"

/* With --precision auto: measures the net, as it computes on one partition, and sets args->net_precision.
 * Logs what was chosen or what failed, and returns an enum cnn_exit. */
int cnn_precision_settle(struct cnn_worker_args *args);

#endif
