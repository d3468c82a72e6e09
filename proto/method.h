/* method.h: the methods of the parameter server, as four independent tables' names and a schedule.
 *
 * A method is a preset row: rule x admission x optimizer x averaging. Both ends know the row; the server owns
 * the rule's arithmetic (server/rules), the client the optimizer's (client/optimizers). */
#ifndef PS_METHOD_H
#define PS_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum ps_message_kind { PS_MESSAGE_X, PS_MESSAGE_GRADIENT }; /* what a worker sends */
enum ps_half { PS_HALF_ELASTIC, PS_HALF_ADOPT };            /* what it does with the answer */

/* What both ends must know of a rule. */
struct ps_rule_info {
    const char *name;
    enum ps_message_kind message;
    enum ps_half half;
    bool needs_alpha;        /* exactly one of alpha, rho, beta must be given */
    bool exchange_each_step; /* the period is 1: a gradient is never kept back */
};

/* What both ends must know of a worker's own optimizer. */
struct ps_optimizer_info {
    const char *name;
    bool steps;         /* moves the worker's x itself */
    bool uses_momentum; /* needs a momentum above 0 and below 1 */
};

struct ps_method {
    const char *name;
    const char *rule;
    const char *admission;
    const char *optimizer;
    const char *averaging;
    const char *source; /* paper and equation or algorithm */
};

/* NULL when there is no such row. The tables end with a row whose name is NULL. */
extern const struct ps_rule_info ps_rules[];
extern const struct ps_optimizer_info ps_optimizers[];
extern const struct ps_method ps_methods[];
const struct ps_rule_info *ps_rule_find(const char *name);
const struct ps_optimizer_info *ps_optimizer_find(const char *name);
const struct ps_method *ps_method_find(const char *name);

/* Learning-rate schedules: eta(t) for a worker's own step count t. */
enum ps_schedule_kind { PS_SCHEDULE_CONSTANT, PS_SCHEDULE_STEP, PS_SCHEDULE_INV_SQRT };

struct ps_schedule {
    enum ps_schedule_kind kind;
    double gamma; /* step: factor at each step; inv-sqrt: eta / sqrt(1 + gamma t) (Zhang 2015, section 5) */
    uint64_t step_steps;   /* step: worker steps between two factors */
    uint64_t warmup_steps; /* eta grows linearly from eta/warmup_steps over these first steps */
};

const char *ps_schedule_name(enum ps_schedule_kind kind);
int ps_schedule_parse(const char *name); /* kind, or -EINVAL */
double ps_schedule_rate(const struct ps_schedule *s, double eta, uint64_t t);

/* Hyper-parameters as a config gives them. Exactly one of alpha, rho, beta is set (not NaN) for an elastic
 * rule. */
struct ps_hyper {
    double learning_rate; /* eta, initial */
    double alpha, rho, beta;
    uint32_t period; /* tau: local steps between exchanges, at least 1 */
    double momentum;
    double weight_decay; /* lambda: the gradient is that of the loss + lambda/2 |x|^2 */
    bool overlap;        /* exchange while the worker computes */
    struct ps_schedule schedule;
};

/* The elastic moving rate: alpha; eta * rho with the initial eta; or beta / (p * period), following live p
 * (Zhang et al. 2015, section 3.1, for admissions without rounds). p = 0 counts as 1. */
double ps_hyper_alpha(const struct ps_hyper *h, uint32_t p);

#endif
