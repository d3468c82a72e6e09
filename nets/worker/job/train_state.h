/* train_state.h: the position of a worker's training: psworker's own part of the state file, beside the
 * client library's. */
#ifndef CNN_WORKER_JOB_TRAIN_STATE_H
#define CNN_WORKER_JOB_TRAIN_STATE_H

#include <stdbool.h>

#include "client/psclient.h"
#include "nets/data/data.h"

struct cnn_train_state {
    uint64_t steps;       /* psc_step calls that took effect */
    uint64_t draws;       /* gradients computed: dropout's step, see cnn_net_seed */
    uint64_t seed, batch; /* from the options; a file with others is refused */
    uint64_t rank;
    struct cnn_position position; /* in the data */
    uint64_t passed;              /* images of all workers in these steps; 0: of a file that does not know */
};

/* Writes `path` by psc_save, whose result it returns. The previous file is kept as PATH.before, because psd
 * may be stopped between a round's answers and its checkpoint. */
int cnn_train_state_save(struct psc *psc, const char *path, const float *x,
                         const struct cnn_train_state *place);

/* Whether `path` or PATH.before exists. */
bool cnn_train_state_exists(const char *path);

/* Reads `path`, or PATH.before where that goes with the center's version and `path` does not, by psc_load
 * into x and *place, of which seed, batch and rank are given. An enum cnn_exit, having logged why. */
int cnn_train_state_load(struct psc *psc, const char *path, float *x, struct cnn_train_state *place);

#endif
