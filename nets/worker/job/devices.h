/* devices.h: a psworker with several devices (--devices): a thread of this process for each, with a net,
 * vectors and a part of every batch of its own. They are parts as those of --partitions (partition.h), and
 * share their code, but nothing is bound to cores, and together they are one member of a clique of processes.
 */
#ifndef CNN_WORKER_JOB_DEVICES_H
#define CNN_WORKER_JOB_DEVICES_H

#include "nets/worker/job/args.h"
#include "proto/error.h"

struct cnn_partitions;

/* Reads --devices into *n: 0: not given. Checks it against the backend and the other options. -EINVAL with a
 * sentence. */
int cnn_devices_read(const struct cnn_worker_args *args, uint64_t *n, struct ps_error *err);

/* Fills *out for args->n_devices, without reading the machine. */
void cnn_devices_plan(const struct cnn_worker_args *args, struct cnn_partitions *out);

#endif
