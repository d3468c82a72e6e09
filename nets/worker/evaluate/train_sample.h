/* train_sample.h: --train-sample: the training loss of the evaluated vector, beside its test loss. */
#ifndef CNN_WORKER_EVALUATE_TRAIN_SAMPLE_H
#define CNN_WORKER_EVALUATE_TRAIN_SAMPLE_H

#include "nets/worker/job/job.h"

/* The same images each time, drawn by --seed in an order that no worker uses, and transformed as in training
 * (crops, flips). */
struct cnn_train_sample {
    struct cnn_job *job;
    struct cnn_stream *stream; /* NULL: not asked for */
};

/* Does nothing without --train-sample. An enum cnn_exit, after logging the cause. Close it whatever the
 * result. */
int cnn_train_sample_open(struct cnn_train_sample *t, struct cnn_job *job);
void cnn_train_sample_close(struct cnn_train_sample *t);

/* The mean loss of x over the sample, and the fraction of correct images, without dropout and smoothing and
 * by the running statistics. Both NaN without a sample. An enum cnn_exit. */
int cnn_train_sample_score(struct cnn_train_sample *t, const float *x, double *loss, double *accuracy);

#endif
