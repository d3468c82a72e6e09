/* partitions.h: psbench net --partitions: training steps of a net that is divided over the cores. */
#ifndef BENCH_NET_PARTITIONS_H
#define BENCH_NET_PARTITIONS_H

#include <stdbool.h>

#include "nets/net.h"

struct bench_partitions {
    const char *net, *backend;
    const struct cnn_model *model;
    enum cnn_precision precision;
    uint32_t batch;      /* of all partitions together */
    uint32_t partitions; /* 0: auto */
    uint32_t threads;    /* of each; 0: as many as it has cores */
    double seconds;
    bool json;
};

/* Measures and prints; the exit code. */
int bench_net_partitions(const struct bench_partitions *opt);

#endif
