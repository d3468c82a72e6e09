/* worker.h: the worker's own vectors, and what steps do to them whatever the rule. */
#ifndef PSC_WORKER_WORKER_H
#define PSC_WORKER_WORKER_H

#include "client/internal.h"

/* [n_floats] zeros that the library keeps; its own x lies in a buffer, which servers can reach. False: no
 * memory. */
bool psc_vector_make(struct psc *c, enum psc_vector k);
/* All but these (PSC_VECTOR_BIT bits). */
void psc_kept_drop_but(struct psc *c, unsigned keeps);
/* Which vectors the optimizer keeps: PSC_VECTOR_BIT bits. */
unsigned psc_optimizer_vectors_of(const struct psc *c);
/* Which vectors the method keeps: PSC_VECTOR_BIT bits. */
unsigned psc_vectors_of(const struct psc *c);
/* Whether they are there: not after a change to a method that the worker could not go over to. */
bool psc_vectors_are_there(const struct psc *c);
/* The next step begins at the caller's array, whatever the steps before it left. */
void psc_start_over(struct psc *c);
/* Whether the next step's exchange has begun where all of a round's workers save after the same step. */
bool psc_has_prefetch(const struct psc *c);
/* PSC_EINVAL when it is no worker's call yet, or an array is missing. */
int psc_check_worker(struct psc *c, const char *call, const void *a, const void *b);
/* `landed` of transfers that take the answer as it is; the second leaves frozen values alone. */
void psc_land_all(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);
void psc_land_moved(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);
/* Copies buffers; all but the frozen values. */
void psc_copy_buffers(const struct psc *c, float *to, const float *from);
void psc_copy_moved(const struct psc *c, float *to, const float *from);
/* The worker's own x, which an optimizer that looks ahead keeps apart from the caller's array. */
float *psc_own_x(struct psc *c, float *at);
/* The optimizer's step with g, of parameters alone. */
void psc_own_step(struct psc *c, float *at, const float *g);
/* The caller's array, buffers too, from the worker's own x, after an answer was adopted there: within r. */
void psc_own_lookahead(struct psc *c, float *at, struct ps_range r);
/* What a learning rate is for the segment's values. */
static inline float psc_eta_of(const struct ps_segment *s, float eta)
{
    return s->rate_ppm == 0 ? eta : (float)((double)eta * ps_rate_of(s->rate_ppm));
}
/* eta at this step. */
double psc_rate(const struct psc *c);
/* The exchange of the whole vector. */
struct psc_transfer psc_exchange_of(const struct psc *c, const float *message, float *target,
                                    size_t n_samples);
/* Lets it travel until the next step. */
void psc_prefetch_exchange(struct psc *c, const struct psc_transfer *t);

#endif
