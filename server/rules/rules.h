/* rules.h: how a message moves the center. Each rule is one file and one row. */
#ifndef PSD_RULES_H
#define PSD_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/vec/vec.h"

#define PSD_MAX_STATE 4

struct psd_rule;

/* The inputs of a rule for one exchange. */
struct psd_move {
    const struct ps_vec *vec;
    /* the job's rule; `add` for a worker's unsent delta when the method changed */
    const struct psd_rule *rule;
    bool is_delta;  /* the message is such a delta */
    float alpha;    /* elastic moving rate; 0 for rules without one */
    float eta;      /* learning rate at the worker's t */
    float momentum; /* mu, delta; adam's beta1 */
    float beta2, epsilon;
    float outer_eta, outer_momentum;
    float compensation;
    uint32_t delay;      /* delayed-nesterov's N */
    float share;         /* 1/p, for rules with a fixed number of workers */
    float kappa;         /* admm: (eta rho - 1) / (eta rho + 1), of several messages the mean */
    double pull;         /* eta rho */
    const double *pulls; /* [n_moves]: of each message, whose workers' t may differ; NULL: all have `pull` */
    uint32_t n_moves;    /* messages summed in m; 1 outside rounds */
    uint64_t t;          /* earlier updates of these values */
    float follow;        /* the rate of the average z at t; 0 without an average */
};

/* How the messages of a round are aggregated before the rule, value by value, in a fixed tree over ranks. */
enum psd_merge {
    PSD_MERGE_MEAN,    /* the mean, weighted by samples */
    PSD_MERGE_SUM,     /* the sum */
    PSD_MERGE_OFFSETS, /* the sum of m - center, for apply_offsets; answered with the center before */
};

struct psd_rule {
    const char *name; /* as in ps_rules */
    uint32_t n_state; /* vectors of state beside the center, initially zero */
    /* After the rule's own state, state[n_state] is what the client last saw of these values; the rule does
     * not change it. */
    bool takes_seen;
    enum psd_merge merge;
    /* Moves n floats of the center by the message m, and writes the answer to m. state[i] is aligned with
     * center. Never stores a value that is not finite; returns how many results were not. Lane's thread;
     * cannot fail. */
    size_t (*apply)(const struct psd_move *move, float *center, float *const *state, float *m, size_t n);
    /* For a rule whose worker side is elementwise: applies both sides to the worker's own x, whose values
     * may change while they are read. The center is protected as in apply. NULL: the rule cannot work in
     * place. */
    size_t (*apply_in_place)(const struct psd_move *move, float *center, float *x, size_t n);
    /* For PSD_MERGE_OFFSETS: the same for a round; offsets is the sum of m - center over n_moves messages. */
    size_t (*apply_offsets)(const struct psd_move *move, float *center, float *offsets, size_t n);
    /* The rate that is sent to the client, for its side of the rule. */
    float (*rate)(const struct psd_move *move);
};

extern const struct psd_rule psd_rule_elastic, psd_rule_add, psd_rule_sgd, psd_rule_momentum,
    psd_rule_mdownpour, psd_rule_adagrad, psd_rule_adam, psd_rule_admm, psd_rule_outer_nesterov,
    psd_rule_delayed_nesterov, psd_rule_dc_asgd, psd_rule_hold, psd_rule_sum;

/* NULL: no such rule. */
const struct psd_rule *psd_rule_find(const char *name);

#endif
