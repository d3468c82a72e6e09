/* events.h: --tensorboard: what a worker or an evaluator finds, as a TensorBoard event file. The thread that
 * trains adds values, every REPORT_EVERY_S; another one writes them. Nothing without the option. */
#ifndef CNN_WORKER_JOB_EVENTS_H
#define CNN_WORKER_JOB_EVENTS_H

#include "nets/worker/job/job.h"
#include "nets/worker/job/progress.h"

/* A new file in DIR/worker-RANK, or DIR/evaluator; only the part that tells has one. An enum cnn_exit, after
 * logging the cause. */
int cnn_events_open(struct cnn_job *job);
void cnn_events_close(struct cnn_job *job);

/* At step s->step. */
void cnn_events_train(struct cnn_job *job, const struct cnn_progress_state *s);
/* What an evaluation has found, at step m->center_version. accuracy_5: NaN: not asked for. */
void cnn_events_test(struct cnn_job *job, const struct psc_metrics *m, double accuracy_5);

#endif
