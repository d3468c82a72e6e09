/* train_sample.h: --train-sample: the training loss of what is evaluated, beside its test loss. */
#ifndef CNN_WORKER_EVALUATE_TRAIN_SAMPLE_H
#define CNN_WORKER_EVALUATE_TRAIN_SAMPLE_H

#include "nets/worker/job/job.h"

/* The same images each time, drawn by --seed in an order that no worker has, as training looks at them
 * (crops, flips). */
struct cnn_train_sample {
    struct cnn_job *job;
    struct cnn_stream *stream; /* NULL: nobody asked for it */
};

/* Nothing, unless --train-sample was given. An enum cnn_exit, having logged why. Close it whatever came back.
 */
int cnn_train_sample_open(struct cnn_train_sample *t, struct cnn_job *job);
void cnn_train_sample_close(struct cnn_train_sample *t);

/* The mean loss of x over the sample, without dropout and smoothing and by the running statistics, and what
 * part of it is right. NaN both where there is no sample. An enum cnn_exit. */
int cnn_train_sample_score(struct cnn_train_sample *t, const float *x, double *loss, double *accuracy);

#endif
