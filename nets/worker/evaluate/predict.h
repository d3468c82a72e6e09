/* predict.h: --predict: labels and probabilities of the test set's images, a line each, on stdout. */
#ifndef CNN_WORKER_PREDICT_H
#define CNN_WORKER_PREDICT_H

#include "nets/worker/worker.h"

/* Of the server's center (or its average), or, without a server, of --init's point. An enum cnn_exit. */
int cnn_predict(struct cnn_job *job, bool drained);

#endif
