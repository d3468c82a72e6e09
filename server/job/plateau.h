/* plateau.h: schedule kind plateau: the learning rate drops when the loss does not get better any more (Zhang
 * et al. 2015: "divided by 5, then by 2, when the online loss stagnates").
 *
 * An observation is an evaluator's test loss of a center that was not evaluated before, or the mean of the
 * losses that workers reported over every_s seconds. One that is less than the best by `threshold` of it is
 * the new best; after `patience` in a row that are not the next factor applies. A drop is a change of the
 * method's parameters like a reload's: lanes and workers have it from the same exchange on. Runs on the loop.
 */
#ifndef PSD_JOB_PLATEAU_H
#define PSD_JOB_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

struct psd_job;
struct psd_evaluation;

struct psd_plateau {
    double best;    /* NaN: nothing was observed */
    uint32_t since; /* observations since */
    uint32_t drops; /* wanted; hyper.schedule.drops follows */
    double sum;     /* of what workers reported since begin_ms, finite numbers; how many */
    uint64_t n, begin_ms;
    uint64_t version; /* of the center, last evaluated */
};

/* One observation: whether the rate is to drop. */
bool psd_plateau_observe(struct psd_plateau *p, double loss, uint32_t patience, double threshold);

/* A worker reported its loss; an evaluator reported; time has passed. */
void psd_plateau_reported(struct psd_job *job, double loss);
void psd_plateau_evaluated(struct psd_job *job, const struct psd_evaluation *e);
void psd_plateau_tick(struct psd_job *job);
/* Goes on from what the checkpoint that is resumed says, before a center is made of it. */
void psd_plateau_resume(struct psd_job *job);
/* How many drops a configuration that is to be in force has. */
uint32_t psd_plateau_drops(const struct psd_job *job, uint32_t n_factors);

#endif
