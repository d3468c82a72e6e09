/* test_set.h: evaluates a vector on the whole test set, and reports the result. */
#ifndef CNN_WORKER_EVALUATE_TEST_SET_H
#define CNN_WORKER_EVALUATE_TEST_SET_H

#include "nets/worker/evaluate/results.h"
#include "nets/worker/evaluate/train_sample.h"
#include "nets/worker/job/job.h"

struct cnn_scorer {
    struct cnn_job *job;
    struct cnn_stream *stream; /* of the test set; at its start between evaluations */
    double accuracy_5;         /* of the last time */
    FILE *history;             /* NULL: none */
    bool lacks;                /* a line of the history, or results, could not be written */
    struct cnn_results results;
    struct cnn_train_sample train;
};

/* Opens the test set and the history. An enum cnn_exit, after logging the cause. Close it whatever the
 * result. */
int cnn_scorer_open(struct cnn_scorer *s, struct cnn_job *job);
void cnn_scorer_close(struct cnn_scorer *s);
/* rc, an enum cnn_exit, or the failure to write the history. */
int cnn_scorer_end(const struct cnn_scorer *s, int rc);

/* Evaluates x, which reports call `vector`: fills m's test_loss and test_accuracy, and its loss and accuracy
 * if there is a training sample; prints them and appends them to the history. t: seconds since the start. An
 * enum cnn_exit. */
int cnn_scorer_tell(struct cnn_scorer *s, const char *vector, const float *x, double t,
                    struct psc_metrics *m);

#endif
