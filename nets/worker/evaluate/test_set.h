/* test_set.h: evaluates a vector on the whole test set, and reports the result. */
#ifndef CNN_WORKER_EVALUATE_TEST_SET_H
#define CNN_WORKER_EVALUATE_TEST_SET_H

#include "nets/worker/evaluate/results.h"
#include "nets/worker/evaluate/train_sample.h"
#include "nets/worker/job/job.h"

struct cnn_scorer {
    struct cnn_job *job;
    struct cnn_stop *stop;     /* a signal ends an evaluation at the next batch; NULL: it does not */
    bool is_given_up;          /* the last evaluation was ended so, without a result */
    struct cnn_stream *stream; /* of the test set; at its start between evaluations */
    double accuracy_5;         /* of the last evaluation */
    FILE *history;             /* NULL: none */
    bool lacks;                /* a line of the history, or the results, could not be written */
    struct cnn_results results;
    struct cnn_train_sample train;
};

/* An enum cnn_exit, after logging it: there are no test images, as of a folder with few of each class. */
int cnn_test_set_check(const struct cnn_job *job);

/* Opens the test set and the history, and sets s->stop to the job's. Returns an enum cnn_exit, after logging
 * the cause. Must be closed even after an error. */
int cnn_scorer_open(struct cnn_scorer *s, struct cnn_job *job);
void cnn_scorer_close(struct cnn_scorer *s);
/* Returns rc, an enum cnn_exit, or CNN_EXIT_INTERNAL if the history could not be written. */
int cnn_scorer_end(const struct cnn_scorer *s, int rc);

/* Evaluates x: fills m's test_loss and test_accuracy, and its loss and accuracy if there is a training
 * sample; prints them and appends them to the history; nothing of that if s->is_given_up. vector: the name of
 * x in reports. t: seconds since the start. Returns an enum cnn_exit. */
int cnn_scorer_tell(struct cnn_scorer *s, const char *vector, const float *x, double t,
                    struct psc_metrics *m);

#endif
