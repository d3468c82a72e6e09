/* evaluate_local.h: runs the test set from time to time in a worker without a server, which has no evaluator
 * beside it. */
#ifndef CNN_WORKER_EVALUATE_EVALUATE_LOCAL_H
#define CNN_WORKER_EVALUATE_EVALUATE_LOCAL_H

#include "nets/worker/evaluate/test_set.h"

struct cnn_local_evaluation {
    struct cnn_scorer scorer;
    float *x; /* what is evaluated: the average if the method has one, else the worker's own x */
    double next_t;
    uint64_t told; /* steps at the last evaluation; UINT64_MAX: there was none */
};

/* As cnn_scorer_open. */
int cnn_local_evaluation_open(struct cnn_local_evaluation *e, struct cnn_job *job);
void cnn_local_evaluation_close(struct cnn_local_evaluation *e);

/* Evaluates, after `steps` steps and t seconds of training (evaluations not counted), if it is due, or if it
 * is the last chance and there was none at this step. An enum cnn_exit. */
int cnn_local_evaluation_take(struct cnn_local_evaluation *e, uint64_t steps, double t, bool last);

#endif
