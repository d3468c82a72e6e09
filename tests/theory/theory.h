/* theory.h: the checks. Each runs jobs of a real psd and adds rows to the table.
 *
 * Everywhere f(x) = h/2 x^2 in every coordinate, the gradient h x - sigma xi with xi ~ N(0, 1) independent
 * over coordinates, workers and steps. Each coordinate is one sample of the same process. */
#ifndef THEORY_H
#define THEORY_H

#include "tests/theory/report.h"

/* Zhang, Choromanska, LeCun 2015, eq. 5-6 and their closed forms; p = 1, 2, 4, 8. */
void theory_sync(struct table *table);
/* Their Corollary 7.1: the variance that is left, at p = 64. */
void theory_asymptotic(struct table *table);
/* Section 4: EASGD in round-robin order is stable up to alpha = (4 - 2 eta) / (4 - eta). */
void theory_stability(struct table *table);
/* Section 4: ADMM in round-robin order is not, where EASGD is. Takes a minute. */
void theory_admm(struct table *table);
/* Methods that must do the same, compared bit for bit. */
void theory_twins(struct table *table);
/* Averaging: z against the mean of the centers. */
void theory_average(struct table *table);

#endif
