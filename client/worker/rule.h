/* rule.h: the contract of a rule's client side: the message that a step sends to the server, when, and how
 * the answer is applied. The rows are in client/rules; the header is here because worker, transfer and member
 * read its flags. */
#ifndef PSC_WORKER_RULE_H
#define PSC_WORKER_RULE_H

#include <stdbool.h>
#include <stddef.h>

#include "client/transfer/transfer.h"

struct psc_prefetch;

struct psc_rule {
    unsigned keeps;      /* PSC_VECTOR_BIT bits, beside the optimizer's vectors */
    bool sends_gradient; /* the message is g */
    bool overlaps;       /* an exchange may be in progress while the caller computes */
    bool staler;         /* an overlapped exchange lands one step later than one that is waited for */
    bool lands_in_x; /* the answer of such an exchange goes to the worker's own x, if the library keeps one */
    bool defers;     /* an overlapped exchange may take many steps: parameters.overlap above 1 */
    bool steps_first; /* the worker makes its own step before it sends */
    bool finishes;    /* the answer of an overlapped exchange is applied after the last step */
    bool collective;  /* the workers are one clique, and every member makes the step */
    /* Rules that sum gradients over a clique, with weight decay: begins the sum of a step, which
     * psc_gather_put then fills. Called before `step`, when the gradient is about to be computed or later.
     * NULL: `step` does all. */
    int (*begin)(struct psc *c, size_t n_samples);
    /* One step, its exchange included, after the exchange that the step before started has ended. Adds 1 to
     * the clock if it took effect. */
    int (*step)(struct psc *c, float *x, const float *g, size_t n_samples);
    /* Rules that defer: whether an exchange of some of this range begins at the end of the current step. */
    bool (*begins_next)(const struct psc *c, struct ps_range part);
    /* Rules that defer: the exchange of its part of PSC_VECTOR_MESSAGE, to be started again. */
    struct psc_transfer (*again)(struct psc *c, const struct psc_prefetch *a);
    /* Rules whose answer moves x and does not replace it: PSC_VECTOR_KEPT bits of what must be kept while an
     * exchange may be sent again that was answered in part. NULL: none. */
    unsigned (*keeps_moved)(const struct psc *c);
    /* Applies the answer of an overlapped exchange; NULL: there is nothing to apply. */
    void (*take_over)(struct psc *c, float *x, struct psc_prefetch *a);
    /* When the method changes: the part of the worker's steps that the center lacks, as an addition to it, in
     * a vector of the library. NULL: there is never any. */
    float *(*unsent)(struct psc *c, float *x);
    /* The server lost an overlapped exchange: its message becomes unsent again. NULL: nothing to do. */
    void (*take_back)(struct psc *c, const struct psc_prefetch *a);
    /* Collective rules: waits for the sum in progress and keeps it for the next step, to be saved. NULL: no
     * sum is in progress between steps. */
    int (*gather)(struct psc *c);
    /* Collective rules: what remains to be done after the last step. */
    int (*flush)(struct psc *c, float *x);
    /* Collective rules: the center, which every member has. */
    const float *(*center)(struct psc *c, float *x);
    /* How a pull into the array that psc_step moves is applied; NULL: it is copied. */
    psc_landed land_restart;
};

#endif
