/* evaluate.h: the modes of psworker that do not train. */
#ifndef CNN_WORKER_EVALUATE_EVALUATE_H
#define CNN_WORKER_EVALUATE_EVALUATE_H

#include <stdbool.h>

#include "nets/worker/job/job.h"

/* --evaluate: runs the test set on the server's center, again and again until the job ends. An enum
 * cnn_exit. */
int cnn_evaluate(struct cnn_job *job, bool drained);
/* --predict: prints label and probabilities of each image of the test set, one a line, to stdout: of the
 * server's center (or its average), or, without a server, of the first point of --init. An enum cnn_exit. */
int cnn_predict(struct cnn_job *job, bool drained);

#endif
