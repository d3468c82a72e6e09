/* progress.h: shows the progress of training: one redrawn line on a terminal, a line every few seconds
 * elsewhere, or JSON lines. */
#ifndef CNN_WORKER_JOB_PROGRESS_H
#define CNN_WORKER_JOB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/clock.h"

/* Means over the steps since it was started. */
struct cnn_meter {
    double since; /* ps_now_s() */
    double loss_sum;
    uint64_t steps, images, correct;
};

void cnn_meter_start(struct cnn_meter *m, double now);
void cnn_meter_add(struct cnn_meter *m, double loss, uint32_t correct, uint32_t images);
/* Several steps at once, by the sums over them. */
void cnn_meter_add_steps(struct cnn_meter *m, double loss_sum, uint64_t steps, uint64_t correct,
                         uint64_t images);
double cnn_meter_loss(const struct cnn_meter *m);             /* NaN before the first step */
double cnn_meter_accuracy(const struct cnn_meter *m);         /* NaN before the first step */
double cnn_meter_rate(const struct cnn_meter *m, double now); /* images a second */

/* Where the time went, in seconds. */
struct cnn_split_time {
    double data, compute, update, exchange, wall;
};

struct cnn_progress_state {
    int rank;
    uint64_t step, last_step;
    double epoch, loss, accuracy, rate;
    uint64_t center_version;
    struct cnn_split_time time;
};

struct cnn_progress {
    FILE *out;
    bool terminal, json;
    double interval_s;
    double last; /* ps_now_s() of the last line */
};

void cnn_progress_init(struct cnn_progress *p, FILE *out, bool json, double now);
bool cnn_progress_is_due(const struct cnn_progress *p, double now);
void cnn_progress_show(struct cnn_progress *p, const struct cnn_progress_state *s, double now);
/* Prints the last line: `how` is "finished", "drained"…. */
void cnn_progress_end(struct cnn_progress *p, const struct cnn_progress_state *s, const char *how);

/* Writes ,"key":number; null when v is not finite. */
void cnn_json_number(FILE *out, const char *key, double v);

#endif
