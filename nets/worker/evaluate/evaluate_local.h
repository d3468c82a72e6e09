/* evaluate_local.h: periodic evaluation in a worker without a server, which has no separate evaluator. */
#ifndef CNN_WORKER_EVALUATE_EVALUATE_LOCAL_H
#define CNN_WORKER_EVALUATE_EVALUATE_LOCAL_H

#include "nets/worker/evaluate/test_set.h"

struct cnn_local_evaluation {
    struct cnn_scorer scorer;
    float *x; /* the evaluated vector: the average if the method has one, otherwise the worker's x */
    double next_t;
    uint64_t told; /* steps at the last evaluation; UINT64_MAX: none yet */
};

/* Same results as cnn_scorer_open. */
int cnn_local_evaluation_open(struct cnn_local_evaluation *e, struct cnn_job *job);
void cnn_local_evaluation_close(struct cnn_local_evaluation *e);

/* Whether an evaluation is due after so many steps. t: as below. */
bool cnn_local_evaluation_is_due(const struct cnn_local_evaluation *e, uint64_t steps, double t);
/* Evaluates if an evaluation is due, or if `last` is set and this step was not evaluated. A signal ends any
 * but the last, without a result. t: seconds of training, without evaluations. Returns an enum cnn_exit. */
int cnn_local_evaluation_take(struct cnn_local_evaluation *e, uint64_t steps, double t, bool last);

#endif
