/* devices.h: a psworker with several devices (--devices): a thread of this process for each, with a net,
 * vectors and a part of every batch of its own. They are parts as those of --partitions (partition.h), and
 * share their code, but nothing is bound to cores. Nets on the CPU are together one member of a clique of
 * processes. GPUs are members of one clique over NCCL, with those of other processes if there are any. */
#ifndef CNN_WORKER_JOB_DEVICES_H
#define CNN_WORKER_JOB_DEVICES_H

#include <stdbool.h>

#include "nets/worker/job/args.h"
#include "proto/error.h"

struct cnn_partitions;

/* Reads --devices into *n: 0: not given. Checks it against the backend and the other options. -EINVAL with a
 * sentence. */
int cnn_devices_read(const struct cnn_worker_args *args, uint64_t *n, struct ps_error *err);

/* Whether they are GPUs. Of arguments that were checked. */
bool cnn_devices_are_gpus(const struct cnn_worker_args *args);
/* Where they are GPUs, the part's becomes the calling thread's. An enum cnn_exit, after logging the cause. */
int cnn_devices_use(const struct cnn_worker_args *args, uint32_t part);
/* The arguments of a part with a GPU: its place in the clique, which it joins by itself. meets: where the
 * GPUs of a process without --clique meet. */
void cnn_devices_place(struct cnn_worker_args *part_args, const struct cnn_worker_args *args, uint32_t part,
                       const char *meets);

/* Fills *out for args->n_devices, without reading the machine. */
void cnn_devices_plan(const struct cnn_worker_args *args, struct cnn_partitions *out);

#endif
