/* method.h: the methods of the parameter server: the names in four independent tables, and a schedule.
 *
 * A method is a preset row: rule x admission x optimizer x averaging. Both ends know the row. The server
 * implements the rule (server/rules) and the admission (server/admissions), the client the optimizer
 * (client/optimizers). An averaging consists of its rate and is defined here, since workers without a server
 * average too. */
#ifndef PS_MODEL_METHOD_H
#define PS_MODEL_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* What a worker sends. */
enum ps_message_kind {
    PS_MESSAGE_X,        /* x */
    PS_MESSAGE_GRADIENT, /* g of the current step */
    PS_MESSAGE_DELTA,    /* x - start: the sum of the steps since the last answer */
    PS_MESSAGE_ADMM, /* A - (x - lambda), A = (x - eta g + eta rho (lambda - x)) / (1 + eta rho) - lambda + x
                      */
};

/* How the client applies the answer. */
enum ps_half {
    PS_HALF_ELASTIC, /* exchange, then step: x <- x - alpha (x - answer) */
    PS_HALF_ADOPT,   /* step, then exchange: x <- answer */
    PS_HALF_CALLER,  /* the calling program applies it: psc_step does not exist */
    PS_HALF_CLIQUE,  /* the members of a clique step by their mean gradient; the center only stores x */
    PS_HALF_ADMM, /* lambda <- lambda - (x - answer); x <- (x - eta g + eta rho (lambda + answer)) / (1 + eta
                     rho) */
};

/* The hyper-parameters that a row uses, beside learning_rate, weight_decay, overlap and schedule. A
 * configuration that sets one that no row uses is refused. */
enum ps_uses {
    PS_USES_RATE = 1u << 0,     /* exactly one of alpha, rho, beta */
    PS_USES_RHO = 1u << 1,      /* rho itself */
    PS_USES_PERIOD = 1u << 2,   /* otherwise every step is exchanged */
    PS_USES_MOMENTUM = 1u << 3, /* above 0, below 1; a rule allows 0 */
    PS_USES_BETA2 = 1u << 4,
    PS_USES_EPSILON = 1u << 5,
    PS_USES_AVERAGING_RATE = 1u << 6,
    PS_USES_SERIAL = 1u << 7,
    PS_USES_WORKERS = 1u << 8, /* the number of workers that the job starts with */
    PS_USES_OUTER = 1u << 9,   /* outer_learning_rate and outer_momentum: the center's own */
    PS_USES_DELAY = 1u << 10,
    PS_USES_WEIGHT = 1u << 11, /* weight: eta by the staleness of the gradient */
    PS_USES_COMPENSATION = 1u << 12,
    PS_USES_SLACK = 1u << 13,
    PS_USES_BACKUP = 1u << 14,
    PS_USES_QUORUM = 1u << 15,    /* quorum and grace_ms */
    PS_USES_MERGE = 1u << 16,     /* aggregation of a round's messages */
    PS_USES_FRAGMENTS = 1u << 17, /* fragments and mix */
    PS_USES_DYNAMIC = 1u << 18,   /* dynamic_period */
    PS_USES_PIPELINE = 1u << 19,  /* pipeline and its warm-up */
};

/* The properties of a rule that both ends need. */
struct ps_rule_info {
    const char *name;
    enum ps_message_kind message;
    enum ps_half half;
    unsigned uses;      /* enum ps_uses */
    bool fixed_workers; /* p is fixed at the start: no worker joins later */
    bool worker_steps;  /* the worker's optimizer moves x; it must not be none */
    bool keeps_seen;    /* psd stores the center that each of `workers` clients last saw */
    unsigned drops;     /* parameters of other parts that have no meaning here */
    bool counts_moves;  /* every n-th move of a value is different: a race must not lose one */
    bool in_clique;     /* the workers are one clique and move x among themselves; there may be no server */
};

/* The properties of an admission that both ends need. */
struct ps_admission_info {
    const char *name;
    unsigned uses;
    unsigned drops;   /* hyper-parameters of the other parts that have no meaning here */
    bool members;     /* psd decides which workers are in a round. Under sync alpha is beta / p */
    bool keys;        /* allows an exchange of each tensor */
    bool fragments;   /* allows fragments */
    bool whole_lanes; /* each lane serves some of the clients, over the whole center */
    bool merges;      /* a round is one update of the center, and one version */
    bool drops_late;  /* a round may close without some messages */
};

/* The properties of a worker's optimizer that both ends need. */
struct ps_optimizer_info {
    const char *name;
    bool steps; /* moves the worker's x itself */
    unsigned uses;
    bool callers; /* the training program takes the step */
};

/* A vector z that averages the center, or, without a server, the worker's x: z <- z + rate (x - z), with x
 * before the update. */
struct ps_averaging {
    const char *name;
    unsigned uses;
    /* t: the number of earlier updates. NULL: no averaging. */
    double (*rate)(double averaging_rate, uint64_t t);
};

struct ps_method {
    const char *name;
    const char *rule; /* NULL: p = 1 without a server, see psworker --method */
    const char *admission;
    const char *optimizer;
    const char *averaging;
    const char *source; /* paper and equation or algorithm */
};

/* What the members of a clique share. */
enum ps_clique_mode {
    PS_CLIQUE_GRADIENTS, /* x: members step by the mean of their gradients, and psd sees one worker */
    PS_CLIQUE_VECTORS,   /* the center: each member moves its own x, and psd stores a copy of the center */
};

/* Whether all workers of the job form one clique. */
bool ps_method_is_one_clique(const struct ps_rule_info *rule, enum ps_clique_mode mode);

enum { PS_N_RULES = 13 };

/* NULL: unknown. The tables end with a row whose name is NULL. */
extern const struct ps_rule_info ps_rules[PS_N_RULES + 1];
extern const struct ps_admission_info ps_admissions[];
extern const struct ps_optimizer_info ps_optimizers[];
extern const struct ps_averaging ps_averagings[];
extern const struct ps_method ps_methods[];
const struct ps_rule_info *ps_rule_find(const char *name);
const struct ps_admission_info *ps_admission_find(const char *name);
const struct ps_optimizer_info *ps_optimizer_find(const char *name);
const struct ps_averaging *ps_averaging_find(const char *name);
const struct ps_method *ps_method_find(const char *name);

/* The largest number of steps, t included, that one end believes the other: sums of two do not overflow. */
#define PS_MAX_STEPS (UINT64_C(1) << 48)

/* Learning-rate schedules: eta(t) for a worker's own step count t. */
enum ps_schedule_kind {
    PS_SCHEDULE_CONSTANT,
    PS_SCHEDULE_STEP,
    PS_SCHEDULE_INV_SQRT,
    PS_SCHEDULE_COSINE,
    PS_SCHEDULE_MULTI_STEP,
    PS_SCHEDULE_PLATEAU, /* the server decides when the rate drops */
    PS_N_SCHEDULES
};
enum { PS_MAX_MILESTONES = 16 };

struct ps_schedule {
    enum ps_schedule_kind kind;
    double gamma; /* step: factor at each step; inv-sqrt: eta / sqrt(1 + gamma t) (Zhang 2015, Supplement) */
    uint64_t step_steps;   /* step: worker steps between two reductions */
    uint64_t warmup_steps; /* eta grows linearly from eta/warmup_steps over these first steps */
    /* cosine: eta (floor + (1 - floor) (1 + cos(pi t / total_steps)) / 2), from total_steps on eta floor
     * (Loshchilov, Hutter 2017, without restarts) */
    uint64_t total_steps;
    double floor;
    /* multi-step: at t = milestones[k] the rate is multiplied by factors[k], or by the last of fewer factors.
     * plateau: by the first `drops` of the factors */
    uint64_t milestones[PS_MAX_MILESTONES]; /* rising */
    uint32_t n_milestones;
    double factors[PS_MAX_MILESTONES];
    uint32_t n_factors;
    uint32_t drops;
};

int ps_schedule_parse(const char *name); /* kind, or -EINVAL */
/* Whether total_steps, floor, milestones and factors are valid for the kind: NULL, or what is allowed. */
const char *ps_schedule_wants(const struct ps_schedule *s);
double ps_schedule_rate(const struct ps_schedule *s, double eta, uint64_t t);

/* The factor by which staleness sigma reduces a gradient's eta: 1; 1 / max(sigma, 1); max(sigma,
 * 1)^-power. */
enum ps_weight_kind { PS_WEIGHT_CONST, PS_WEIGHT_INVERSE, PS_WEIGHT_POWER };

double ps_weight(enum ps_weight_kind kind, double power, uint64_t staleness);

/* How a round's messages are aggregated, if the rule takes one message: their mean, weighted by samples; the
 * mean of messages with norms clipped to `clip`; or for each value the mean without the `trim` highest and
 * the `trim` lowest. */
enum ps_merge_kind { PS_MERGE_MEAN, PS_MERGE_CLIP_NORM, PS_MERGE_TRIMMED_MEAN };

enum { PS_MAX_PIPELINE = 16 };

/* The answer of an exchange lands when it is there, at the latest when the next one is due. */
#define PS_OVERLAP_AUTO UINT32_MAX

/* Hyper-parameters as configured. Exactly one of alpha, rho, beta is set (not NaN) for an elastic rule. */
struct ps_hyper {
    double learning_rate; /* eta, initial */
    double alpha, rho, beta;
    uint32_t period;                            /* tau: local steps between exchanges, at least 1 */
    double momentum;                            /* delta, mu; beta1 of adam */
    double beta2, epsilon;                      /* adam; epsilon also of adagrad */
    double averaging_rate;                      /* of averaging moving */
    double outer_learning_rate, outer_momentum; /* the center's own step with the sum of the workers' steps */
    double compensation;                        /* lambda of dc-asgd, at least 0 */
    uint32_t delay; /* delayed-nesterov: moves of the center between two applications of its momentum, at
                       least 1 */
    enum ps_weight_kind weight;
    double weight_power; /* of weight power, at least 0 */
    uint32_t workers;    /* p at the start, for a job that needs to know it; 0: any */
    bool serial;         /* round-robin: one worker computes at a time */
    uint32_t slack;      /* ssp: exchanges that a worker may be ahead of the slowest */
    uint32_t backup;     /* backup: number of workers that a round does not wait for */
    uint32_t quorum;     /* quorum: messages that a round needs */
    uint32_t grace_ms;   /* how long it then waits for more */
    enum ps_merge_kind merge;
    double clip;        /* of merge clip_norm, above 0 */
    uint32_t trim;      /* of merge trimmed_mean */
    uint32_t fragments; /* number of fragments, exchanged in turn over one period; at least 1 */
    double mix;         /* the fraction of its own x that a worker keeps when it applies an answer; 0: none */
    bool dynamic_period; /* the period applies to the fastest worker; slower workers get shorter ones */
    double weight_decay; /* lambda: the gradient is that of the loss + lambda/2 |x|^2 */
    uint32_t overlap;    /* steps that an exchange may take while the worker computes; 0: the worker waits for
                            it; PS_OVERLAP_AUTO: as many as it takes */
    uint32_t pipeline;   /* K: a step uses the gradient of K - 1 steps before; 1 to PS_MAX_PIPELINE */
    uint64_t pipeline_warmup;      /* first steps, with K = 1 */
    double pipeline_warmup_epochs; /* the same in epochs; whichever ends later */
    struct ps_schedule schedule;
};

enum { PS_OVERLAP_TEXT = 12 };

/* An overlap as a configuration has it: "false", "true", "8", "auto". Returns text. */
const char *ps_overlap_text(uint32_t overlap, char text[PS_OVERLAP_TEXT]);

/* The elastic moving rate: alpha; eta * rho with the initial eta; or beta / p under rounds of all workers
 * (sync), beta / (p * period) else, following live p (Zhang et al. 2015, section 3.1). p = 0 counts as 1. */
double ps_hyper_alpha(const struct ps_hyper *h, uint32_t p, bool sync);

/* The rate at which the rule adds one message to the center outside rounds, without its momentum: of a
 * message of steps; else 1. */
double ps_hyper_unsent_rate(const struct ps_hyper *h, const struct ps_rule_info *rule);

#endif
