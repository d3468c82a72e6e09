/* train_state.h: the progress of a worker's training: psworker's part of the state file, next to that of the
 * client library. */
#ifndef CNN_WORKER_JOB_TRAIN_STATE_H
#define CNN_WORKER_JOB_TRAIN_STATE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "client/psclique.h"
#include "nets/data/data.h"

struct cnn_train_state {
    uint64_t steps;       /* psc_step calls that succeeded */
    uint64_t draws;       /* gradients computed; the step of dropout (cnn_net_seed) */
    uint64_t seed, batch; /* from the options, batch of each part; must match those of the file */
    uint64_t rank;
    struct cnn_position position; /* in the data */
    /* 0: the file lacks it. */
    uint64_t passed;     /* images of all workers in these steps */
    uint64_t parts;      /* of --partitions or --devices, or 1; must match, too */
    uint64_t accumulate; /* from the options; must match, too */
};

/* Writes `path` with psc_save and returns its result. The previous file is kept as PATH.before: psd may stop
 * between a round's answers and its checkpoint. *saved: the file as this process has saved it; st_nlink 0:
 * it has not. Warns where another process has replaced it since, as a worker with the same --state does. */
int cnn_train_state_save(struct psc *psc, const char *path, const float *x,
                         const struct cnn_train_state *place, struct stat *saved);

/* Whether `path` or PATH.before exists. */
bool cnn_train_state_exists(const char *path);

/* If `path` or PATH.before exists, reads `path` with psc_load into x and *place; reads PATH.before if that
 * one matches the center's version and `path` does not, or if all members of q have a state of its version,
 * and not of that of `path`. In: the options and the rank in *place, and steps 0. path NULL: no state. q: the
 * clique that shares the steps; NULL: none. Every member makes the call. Members whose states are of
 * different steps, or some of which have none, are refused. An enum cnn_exit, after logging the cause. */
int cnn_train_state_load(struct psc *psc, struct psc_clique *q, const char *path, float *x,
                         struct cnn_train_state *place, bool *loaded);

#endif
