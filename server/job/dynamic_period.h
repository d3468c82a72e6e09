/* dynamic_period.h: each worker's own period, by its speed (parameters.dynamic_period): Liu et al. 2024,
 * "Asynchronous Local-SGD Training for Language Modeling", Dynamic Local Updates. */
#ifndef PSD_JOB_DYNAMIC_PERIOD_H
#define PSD_JOB_DYNAMIC_PERIOD_H

#include <stddef.h>
#include <stdint.h>

struct psd_job;

/* A peer's word on its steps a second, or 0 where that is none: not above 0, or beyond what any machine does.
 */
double psd_dynamic_period_speed(double told);
/* The speed that counts as the fastest, of n > 0 that are not 0: the highest, but at most 64 times the median
 * (the lower one of two), so that one worker that is wrong about itself does not make all others exchange at
 * every step. Sorts them. */
double psd_dynamic_period_fastest(double *speeds, size_t n);
/* max(fewest, round(period * speed / fastest)); the period where the speed is not known. fewest: 1 to period.
 */
uint32_t psd_dynamic_period_period(uint32_t period, uint32_t fewest, double speed, double fastest);

/* Plans every live worker's period. Loop's thread, at each tick. */
void psd_dynamic_period_plan(struct psd_job *job);

#endif
