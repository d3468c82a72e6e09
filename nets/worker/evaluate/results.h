/* results.h: --confusion: writes the results of each class and the confusion matrix of the last evaluation to
 * a file. */
#ifndef CNN_WORKER_EVALUATE_RESULTS_H
#define CNN_WORKER_EVALUATE_RESULTS_H

#include "nets/training/confusion.h"
#include "nets/worker/job/job.h"

struct cnn_results {
    struct cnn_job *job;
    struct cnn_confusion confusion;
    uint16_t *predicted; /* [batch]; NULL: not requested */
};

/* Does nothing without --confusion. Returns an enum cnn_exit, after logging the cause. Must be closed even
 * after an error. */
int cnn_results_open(struct cnn_results *r, struct cnn_job *job);
void cnn_results_close(struct cnn_results *r);

/* Replaces the file with the current counts, and clears them. vector: the name of the evaluated vector;
 * version: of the center. -errno, after logging the cause; the file is then unchanged. */
int cnn_results_write(struct cnn_results *r, const char *vector, uint64_t version);

#endif
