/* rules.h: the worker's halves of the rules (DESIGN 3): what of a step goes to the server, when, and what
 * becomes of the answer. One file and one row each. */
#ifndef PSC_RULES_RULES_H
#define PSC_RULES_RULES_H

#include "client/internal.h"

typedef void (*psc_landed)(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);

struct psc_half {
    unsigned keeps;      /* PSC_KEPT bits, beside the optimizer's */
    bool sends_gradient; /* the message is g */
    bool overlaps;       /* an exchange may travel while the caller computes */
    bool staler;         /* and then lands a step later than without */
    bool lands_in_x;     /* and what it brings goes to the worker's own x where the library keeps that */
    bool steps_first;    /* the step is the worker's own, and what is sent comes after it */
    bool finishes;       /* what an overlapped exchange brought is taken over after the last step */
    bool collective;     /* every member of a clique makes the step: the workers are one clique */
    /* One step, exchange included, when what the step before started has ended. Adds 1 to the clock when it
     * took effect. */
    int (*step)(struct psc *c, float *x, const float *g, size_t n_samples);
    /* Takes over what an overlapped exchange brought; NULL: there is none. */
    void (*take_over)(struct psc *c, float *x);
    /* What the center has not had of the worker's steps, as an addition to it, when the method changes; NULL:
     * nothing is ever owed. */
    const float *(*owed)(struct psc *c, float *x);
    /* What an exchange that was made ahead carried is owed again: the server lost it. NULL: it never is. */
    void (*take_back)(struct psc *c);
    /* Of `collective`: waits for the sum that travels, and keeps it for the next step (it is saved then).
     * NULL: nothing travels between steps. */
    int (*gather)(struct psc *c);
    /* Of `collective`: what is left to do after the last step. */
    int (*flush)(struct psc *c, float *x);
    /* Of `collective`: the center, which is at hand. */
    const float *(*center)(struct psc *c, float *x);
    /* How a pull into the array that psc_step moves lands; NULL: as any other. */
    psc_landed land_anew;
};

extern const struct psc_half psc_half_elastic, psc_half_gradient, psc_half_delta, psc_half_admm,
    psc_half_local, psc_half_clique, psc_half_vectors;

/* rules.c: by what the rule takes; NULL: there is no server. */
const struct psc_half *psc_half_of(const struct ps_rule_info *rule, enum ps_clique_mode mode);

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
void psc_own_look(struct psc *c, float *at, struct ps_range r);

/* eta at this step. */
double psc_rate(const struct psc *c);
/* The exchange of the whole vector. */
struct psc_transfer psc_exchange_of(const struct psc *c, const float *message, float *target,
                                    size_t n_samples);
/* Lets it travel until the next step. */
void psc_exchange_ahead(struct psc *c, const struct psc_transfer *t);

#endif
