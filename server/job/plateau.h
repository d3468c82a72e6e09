/* plateau.h: schedule kind plateau: the learning rate drops when the loss stops improving (Zhang et al. 2015:
 * on ImageNet it is divided by 5, then by 2, when the online loss stagnates).
 *
 * An observation is an evaluator's test loss of a center that was not evaluated before, or the mean of the
 * losses that workers reported over every_s seconds. One that is below the best by the fraction `threshold`
 * is the new best; after `patience` successive others the next factor applies. A drop is a change of the
 * method's parameters like that of a reload: lanes and workers use it from the same exchange on. Runs on the
 * loop. */
#ifndef PSD_JOB_PLATEAU_H
#define PSD_JOB_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

#include "server/config/config.h"

struct psd_job;
struct psd_evaluation;
struct psd_saved_plateau;

struct psd_plateau {
    enum psd_watch watch; /* the loss that `best` is of */
    double best;          /* NaN: no observation yet; infinite: losses whose sum was too large for a double */
    uint32_t since;       /* observations since the best */
    uint32_t drops;       /* so far; hyper.schedule.drops follows */
    double sum;           /* sum and number of finite losses reported since begin_ms */
    uint64_t n, begin_ms;
    uint64_t version;    /* of the center that was last evaluated */
    uint64_t refused_ms; /* when a drop was last refused, for lack of memory; 0: never */
};

/* Adds an observation: returns whether the rate is to drop. */
bool psd_plateau_observe(struct psd_plateau *p, double loss, uint32_t patience, double threshold);

/* A worker reported its loss; an evaluator reported; time has passed. */
void psd_plateau_reported(struct psd_job *job, double loss);
void psd_plateau_evaluated(struct psd_job *job, const struct psd_evaluation *e);
void psd_plateau_tick(struct psd_job *job);
/* What a checkpoint has of it: drops stay also where there is no best yet. */
struct psd_saved_plateau psd_plateau_to_save(const struct psd_job *job);
/* Restores the state from the checkpoint to resume from, before a center is created from it. */
void psd_plateau_resume(struct psd_job *job);
/* The number of drops for a configuration that is about to take effect. */
uint32_t psd_plateau_drops(const struct psd_job *job, uint32_t n_factors);

#endif
