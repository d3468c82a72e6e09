/* tensorboard.h: the job over time as a TensorBoard event file (config key `tensorboard`): each record of the
 * history as scalars, and histograms of what came since the one before. Loop's thread; another one writes the
 * file. */
#ifndef PSD_JOB_RECORD_TENSORBOARD_H
#define PSD_JOB_RECORD_TENSORBOARD_H

#include <stdint.h>

#include "proto/error.h"
#include "proto/tensorboard/event_file.h"
#include "server/lane/lane.h"

struct psd_job;
struct psd_record;

struct psd_tensorboard {
    struct ps_event_file *file;    /* NULL: not asked for */
    struct ps_histogram distance;  /* ‖x − x̃‖ of workers' exchanges, as the loop saw them */
    struct ps_histogram staleness; /* of each lane's part of an exchange */
    double *last_distance;         /* of each client [n_clients], to tell a new one */
    uint32_t n_clients;
    uint64_t last_staleness[PSD_STALENESS_BUCKETS], last_staleness_sum;
};

/* Does nothing where the configuration asks for no file. -errno with a sentence. */
int psd_tensorboard_open(struct psd_job *job, struct ps_error *err);
void psd_tensorboard_close(struct psd_job *job);
/* At each tick: looks at the last exchange of each live worker. */
void psd_tensorboard_look(struct psd_job *job);
/* The record, at step r->version. */
void psd_tensorboard_add(struct psd_job *job, const struct psd_record *r);

#endif
