/* dynamic_period.h: each worker's own period, by its speed (parameters.dynamic_period): Liu et al. 2024,
 * "Asynchronous Local-SGD Training for Language Modeling", Dynamic Local Updates. */
#ifndef PSD_JOB_DYNAMIC_PERIOD_H
#define PSD_JOB_DYNAMIC_PERIOD_H

#include <stddef.h>
#include <stdint.h>

struct psd_job;

/* The steps per second that a peer reports, or 0 if that is implausible: not above 0, or faster than any
 * machine. */
double psd_dynamic_period_speed(double reported);
/* The speed that counts as the fastest of n > 0 nonzero speeds: the highest, but at most 64 times the lower
 * median, so that one worker that reports a wrong speed does not make all others exchange at every step.
 * Sorts the array. */
double psd_dynamic_period_fastest(double *speeds, size_t n);
/* max(fewest, round(period * speed / fastest)); `period` if the speed is unknown. fewest: 1 to period. */
uint32_t psd_dynamic_period_period(uint32_t period, uint32_t fewest, double speed, double fastest);

/* Computes the period of every live worker. Loop's thread, on each tick. */
void psd_dynamic_period_plan(struct psd_job *job);

#endif
