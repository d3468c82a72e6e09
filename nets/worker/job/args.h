/* args.h: the command line of psworker. */
#ifndef CNN_WORKER_JOB_ARGS_H
#define CNN_WORKER_JOB_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "nets/net.h"

/* Images of a step, unless --batch says another number. */
enum { CNN_DEFAULT_BATCH = 64 };

struct cnn_worker_args {
    const char *server, *net, *backend, *data, *name, *history, *state, *method, *schedule, *describe,
        *clique, *rendezvous, *clique_name, *clique_listen, *algorithm, *on_loss, *codec, *key, *server_key,
        *transport, *memory, *init, *init_skip, *freeze, *confusion,
        *rates;                                   /* NULL: not given; point into argv or to static text */
    uint64_t batch, epochs, steps, seed, threads; /* batch, epochs, steps: 0: not given */
    uint64_t prefetch, data_threads;
    const char *tensorboard; /* folder; NULL: no event file */
    const char *view;        /* of images; NULL: the default */
    const char *cache;       /* of decoded images; NULL: none */
    const char *sampling;    /* NULL: the data set's default */
    uint64_t max_damaged;    /* unreadable images that may be skipped */
    uint64_t train_sample;   /* images; 0: not given */
    uint64_t accumulate;     /* batches a step */
    double label_smoothing;
    double clip_norm;                 /* NaN: gradients are not clipped */
    uint64_t step_ms;                 /* minimum time of a gradient */
    int64_t rank;                     /* -1: any */
    int64_t warmup;                   /* of --method; -1: the default */
    uint64_t members, links;          /* of the clique; 0: not given */
    int64_t member;                   /* rank in the clique; -1: any */
    uint64_t bucket_floats;           /* of --method d-sync and pipe-sgd; 0: the library's choice */
    int64_t pipeline;                 /* of --method pipe-sgd; -1: the default */
    int64_t pipeline_warmup;          /* of --method pipe-sgd; -1: the default */
    const char *precision;            /* NULL: float32 */
    const char *deterministic;        /* NULL: yes */
    bool any_order;                   /* --deterministic no */
    enum cnn_precision net_precision; /* of auto: float32 until cnn_precision_settle */
    const char *partitions;           /* NULL: the worker is not divided */
    uint64_t n_partitions;            /* 0: auto */
    uint64_t partition_threads;       /* of each; 0: as many as it has cores */
    const char *devices;              /* NULL: not given */
    uint64_t n_devices;               /* 0: not given */
    bool has_gpus;                    /* they are GPUs */
    double clique_timeout_s;          /* 0: not given */
    double clique_step_s;             /* likewise */
    double every_s;
    double learning_rate, momentum, averaging_rate, weight_decay; /* of --method; NaN: the default */
    bool evaluate, predict, center, once, json, help, version;
};

/* Fills *args from the command line. -EINVAL with a sentence that names the option, what was found and what
 * is allowed. --help and --version take precedence over errors in the rest. */
int cnn_worker_args_parse(int argc, char **argv, struct cnn_worker_args *args, struct ps_error *err);

void cnn_worker_args_help(FILE *out);

#endif
