/* train_sample.h: --train-sample: the loss of the evaluated vector on training images. */
#ifndef CNN_WORKER_EVALUATE_TRAIN_SAMPLE_H
#define CNN_WORKER_EVALUATE_TRAIN_SAMPLE_H

#include "nets/worker/job/job.h"

/* Uses the same images each time, drawn with --seed in an order that no worker uses, and transformed as in
 * training (crops, flips). */
struct cnn_train_sample {
    struct cnn_job *job;
    struct cnn_stream *stream; /* NULL: not requested */
};

/* Does nothing without --train-sample. Returns an enum cnn_exit, after logging the cause. Must be closed even
 * after an error. */
int cnn_train_sample_open(struct cnn_train_sample *t, struct cnn_job *job);
void cnn_train_sample_close(struct cnn_train_sample *t);

/* The mean loss of x over the sample and the fraction of correct images, without dropout and label smoothing,
 * with the running statistics. Both are NaN without a sample, and after a signal to `stop` before the end;
 * NULL: none ends it. Returns an enum cnn_exit. */
int cnn_train_sample_score(struct cnn_train_sample *t, struct cnn_stop *stop, const float *x, double *loss,
                           double *accuracy);

#endif
