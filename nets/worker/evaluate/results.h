/* results.h: --confusion: a file that has the results of each class, and the confusion matrix, of the last
 * evaluation. */
#ifndef CNN_WORKER_EVALUATE_RESULTS_H
#define CNN_WORKER_EVALUATE_RESULTS_H

#include "nets/training/confusion.h"
#include "nets/worker/job/job.h"

struct cnn_results {
    struct cnn_job *job;
    struct cnn_confusion confusion;
    uint16_t *predicted; /* [batch]; NULL: nobody asked for results */
};

/* Nothing, unless --confusion was given. An enum cnn_exit, having logged why. Close it whatever came back. */
int cnn_results_open(struct cnn_results *r, struct cnn_job *job);
void cnn_results_close(struct cnn_results *r);

/* Replaces the file by what was counted, and begins anew. vector: what was evaluated; version: of the center.
 * -errno, having logged why; the file is then as it was. */
int cnn_results_write(struct cnn_results *r, const char *vector, uint64_t version);

#endif
