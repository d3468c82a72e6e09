/* rules.h: how a message moves the center. One file and one row each. */
#ifndef PSD_RULES_H
#define PSD_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/vec/vec.h"

#define PSD_MAX_STATE 4

struct psd_rule;

/* What a rule may use of one exchange. */
struct psd_move {
    const struct ps_vec *vec;
    const struct psd_rule *rule; /* the job's; `add` for what a worker owed when the method changed */
    bool owed;                   /* it is that */
    float alpha;                 /* elastic moving rate; 0 for rules without */
    float eta;                   /* learning rate at the worker's t */
    float momentum;              /* mu, delta; adam's beta1 */
    float beta2, epsilon;
    float outer_eta, outer_momentum;
    float compensation;
    uint32_t delay;   /* delayed-nesterov's N */
    float share;      /* 1/p, of rules with fixed workers */
    float kappa;      /* admm: (eta rho - 1) / (eta rho + 1) */
    double pull;      /* eta rho */
    uint32_t n_moves; /* messages that m is the sum of; 1 unless in a round */
    uint64_t t;       /* updates of these values before this one */
    float follow;     /* the rate of the average z at t; 0 when there is none */
};

/* What a round of several messages becomes before the rule sees it, by values, in a fixed tree over ranks. */
enum psd_merge {
    PSD_MERGE_MEAN,    /* the mean, weighted by samples */
    PSD_MERGE_SUM,     /* the sum */
    PSD_MERGE_OFFSETS, /* the sum of m - center, which apply_offsets takes; answered with the center before */
};

struct psd_rule {
    const char *name; /* as in ps_rules */
    uint32_t n_state; /* vectors of state beside the center, zero at the start */
    /* Behind its state, state[n_state] is what the client last saw of these values, and stays as it is. */
    bool takes_seen;
    enum psd_merge merge;
    /* Moves n floats of the center by the message m and leaves in m what is answered. state[i] is aligned
     * with center. Nothing that is not finite is stored; returns how many results were not. Lane's thread;
     * cannot fail. */
    size_t (*apply)(const struct psd_move *move, float *center, float *const *state, float *m, size_t n);
    /* Of a rule whose worker's half is elementwise: both halves on the worker's own x, whose values may
     * change while they are read; the center is guarded as by apply. NULL: this rule cannot work in place. */
    size_t (*meet)(const struct psd_move *move, float *center, float *x, size_t n);
    /* Of PSD_MERGE_OFFSETS: the same for a round, offsets being the sum over n_moves of m - center. */
    size_t (*apply_offsets)(const struct psd_move *move, float *center, float *offsets, size_t n);
    /* The rate to tell the client: what its half multiplies with. */
    float (*rate)(const struct psd_move *move);
};

extern const struct psd_rule psd_rule_elastic, psd_rule_add, psd_rule_sgd, psd_rule_momentum,
    psd_rule_mdownpour, psd_rule_adagrad, psd_rule_adam, psd_rule_admm, psd_rule_outer_nesterov,
    psd_rule_delayed_nesterov, psd_rule_dc_asgd, psd_rule_hold;

/* NULL: no such rule. */
const struct psd_rule *psd_rule_find(const char *name);

#endif
