/* optimizers.h: the contract of an optimizer, the worker's own step. One optimizer a file, one row each. */
#ifndef PSC_OPTIMIZERS_OPTIMIZERS_H
#define PSC_OPTIMIZERS_OPTIMIZERS_H

#include <stdbool.h>
#include <stddef.h>

#include "client/memory/memory.h"

/* The vectors of one step, n floats each. */
struct psc_optimizer_vectors {
    float *at;      /* the caller's array: the point at which the next gradient is wanted */
    float *x, *v;   /* the library's own; NULL unless the optimizer keeps them. Without x, `at` is x */
    const float *g; /* the gradient at `at` */
    size_t n;
};

struct psc_optimizer {
    const char *name;      /* as in ps_optimizers */
    bool keeps_x, keeps_v; /* the library allocates these vectors for it */
    /* The worker's own step, at rate eta, with momentum delta. NULL: the caller makes the step, in
     * psc_options.own_step. */
    void (*step)(const struct psc_work *work, const struct psc_optimizer_vectors *p, float eta, float delta);
    /* Optimizers with keeps_x: recomputes `at` from x and v after an exchange has moved x. */
    void (*lookahead)(const struct psc_work *work, const struct psc_optimizer_vectors *p, float delta);
};

extern const struct psc_optimizer psc_optimizer_none, psc_optimizer_sgd, psc_optimizer_heavy_ball,
    psc_optimizer_nesterov, psc_optimizer_external;

/* NULL: no optimizer has this name. */
const struct psc_optimizer *psc_optimizer_find(const char *name);

#endif
