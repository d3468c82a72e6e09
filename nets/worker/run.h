/* run.h: psworker after parsing its arguments. */
#ifndef CNN_WORKER_RUN_H
#define CNN_WORKER_RUN_H

#include <stdbool.h>
#include <stdio.h>

#include "nets/worker/job/args.h"
#include "nets/worker/job/job.h"

/* Opens the job and trains, evaluates or predicts. Returns an enum cnn_exit. */
int cnn_worker_run(const struct cnn_worker_args *args);

struct cnn_stop;
/* The same in the calling thread, which is the partition, or NULL: the whole worker. */
int cnn_worker_run_job(const struct cnn_worker_args *args, const struct cnn_partition *partition,
                       struct cnn_stop *stop);
/* Divides the worker by --partitions or --devices, and runs each part in a thread of its own. Returns an enum
 * cnn_exit. */
int cnn_worker_run_partitions(const struct cnn_worker_args *args, struct cnn_stop *stop);

/* Trains to the last step. drained: the server is already draining. Returns an enum cnn_exit. */
int cnn_train(struct cnn_job *job, bool drained);

/* --describe: prints layers, FLOPs and memory for a batch, as text or as one JSON object. Creates the net and
 * computes one gradient to measure the memory in use. Returns an enum cnn_exit; errors go to the log. */
int cnn_describe(const struct cnn_worker_args *args, FILE *out);

#endif
