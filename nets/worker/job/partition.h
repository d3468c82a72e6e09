/* partition.h: a psworker that is divided into partitions (--partitions): threads of one process, each with
 * its own cores, net, vectors and data in memory near to them, which are members of one clique of threads.
 *
 * A batch is divided too: partition k of P computes the k-th part of every batch that the undivided worker
 * would.
 *
 * The devices of --devices (devices.h) are partitions here, too. */
#ifndef CNN_WORKER_JOB_PARTITION_H
#define CNN_WORKER_JOB_PARTITION_H

#include <pthread.h>

#include "client/psclique.h"
#include "nets/net.h"
#include "nets/worker/job/args.h"
#include "proto/topology/topology.h"

/* What all partitions share. */
struct cnn_data;
struct cnn_partitions {
    struct cnn_data
        *data; /* one that holds no images in memory, for all; NULL: each partition opens a copy */
    struct ps_topology topology;   /* n_cores 0: of --devices, which are bound to nothing */
    struct ps_placement placement; /* of --devices: n and threads */
    pthread_mutex_t lock;          /* of what follows */
    /* Of steps that the first partition has not counted yet. */
    double loss_sum;
    uint64_t steps, images, correct;
};

/* One of them. */
struct cnn_partition {
    struct cnn_partitions *all;
    uint32_t index;
    struct psc_clique *q; /* NULL: there is only one, which is in no clique */
};

/* Reads the machine and decides by --partitions, --threads, --batch, the net and the data. Logs what is
 * wrong, and returns an enum cnn_exit. data: what --data is; NULL: it takes no memory. */
struct cnn_data_info;
int cnn_partitions_plan(const struct cnn_worker_args *args, const struct cnn_model *model,
                        const struct cnn_data_info *data, struct cnn_partitions *out);
void cnn_partitions_finish(struct cnn_partitions *all);

/* Binds the calling thread, and those that it starts later, to the partition's cores and memory; a device to
 * nothing. */
void cnn_partition_bind(const struct cnn_partition *p);
/* Binds each thread of the net, the calling one among them, to a core of its own. */
void cnn_partition_pin(const struct cnn_partition *p, struct cnn_net *net);

/* Counts a step of a partition that is not the first. */
void cnn_partition_count(const struct cnn_partition *p, const struct cnn_score *score, uint32_t images);
/* What others have counted since the last time: the means of their steps, and how many images. */
void cnn_partition_take(const struct cnn_partition *p, double *loss_sum, uint64_t *steps, uint64_t *images,
                        uint64_t *correct);

#endif
