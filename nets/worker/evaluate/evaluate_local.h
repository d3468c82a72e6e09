/* evaluate_local.h: a worker without a server has no evaluator beside it, and runs the test set itself now
 * and then. */
#ifndef CNN_WORKER_EVALUATE_EVALUATE_LOCAL_H
#define CNN_WORKER_EVALUATE_EVALUATE_LOCAL_H

#include "nets/worker/evaluate/test_set.h"

struct cnn_local_evaluation {
    struct cnn_scorer scorer;
    float *x; /* what is examined: the average if the method keeps one, else the worker's own x */
    double next_t;
    uint64_t told; /* steps at the last one; UINT64_MAX: none yet */
};

/* As cnn_scorer_open. */
int cnn_local_evaluation_open(struct cnn_local_evaluation *e, struct cnn_job *job);
void cnn_local_evaluation_close(struct cnn_local_evaluation *e);

/* After `steps` steps and t seconds of training, without what exams took: takes one if it is due, or if it is
 * the last and there was none at this step. An enum cnn_exit. */
int cnn_local_evaluation_take(struct cnn_local_evaluation *e, uint64_t steps, double t, bool last);

#endif
