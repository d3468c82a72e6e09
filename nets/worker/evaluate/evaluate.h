/* evaluate.h: the modes of psworker that do not train. */
#ifndef CNN_WORKER_EVALUATE_EVALUATE_H
#define CNN_WORKER_EVALUATE_EVALUATE_H

#include <stdbool.h>

#include "nets/worker/job/job.h"

/* --evaluate: evaluates the server's center on the test set periodically until the job ends. Returns an enum
 * cnn_exit. */
int cnn_evaluate(struct cnn_job *job, bool drained);
/* --predict: prints the label and the probabilities of each test image to stdout, one image a line. Uses the
 * server's center (or its average) or, without a server, the tensors of --init. Returns an enum cnn_exit. */
int cnn_predict(struct cnn_job *job, bool drained);

#endif
