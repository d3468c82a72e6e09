#include "proto/method.h"

#include <errno.h>
#include <math.h>
#include <string.h>

const struct ps_rule_info ps_rules[] = {
    {"elastic", PS_MESSAGE_X, PS_HALF_ELASTIC, .needs_alpha = true, .exchange_each_step = false},
    {"sgd", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT, .needs_alpha = false, .exchange_each_step = true},
    {.name = NULL},
};

const struct ps_optimizer_info ps_optimizers[] = {
    {"none", .steps = false, .uses_momentum = false},
    {"sgd", .steps = true, .uses_momentum = false},
    {"nesterov", .steps = true, .uses_momentum = true},
    {.name = NULL},
};

const struct ps_method ps_methods[] = {
    {"async-easgd", "elastic", "fcfs", "sgd", "none", "Zhang, Choromanska, LeCun 2015, Algorithm 1"},
    {"eamsgd", "elastic", "fcfs", "nesterov", "none", "Zhang, Choromanska, LeCun 2015, Algorithm 2"},
    {"async-sgd", "sgd", "fcfs", "none", "none", "You, Buluc, Demmel 2017; dist-ASGD of Mamidala et al."},
    {"hogwild-easgd", "elastic", "hogwild", "sgd", "none", "You, Buluc, Demmel 2017, Hogwild EASGD"},
    {"hogwild-sgd", "sgd", "hogwild", "none", "none", "Recht, Re, Wright, Niu 2011, Algorithm 1"},
    {.name = NULL},
};

const struct ps_rule_info *ps_rule_find(const char *name)
{
    for (const struct ps_rule_info *r = ps_rules; r->name != NULL; r++)
        if (strcmp(r->name, name) == 0)
            return r;
    return NULL;
}

const struct ps_optimizer_info *ps_optimizer_find(const char *name)
{
    for (const struct ps_optimizer_info *o = ps_optimizers; o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

const struct ps_method *ps_method_find(const char *name)
{
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static double rate_constant(const struct ps_schedule *s, double eta, uint64_t t)
{
    (void)s;
    (void)t;
    return eta;
}

static double rate_step(const struct ps_schedule *s, double eta, uint64_t t)
{
    return eta * pow(s->gamma, (double)(t / s->step_steps));
}

static double rate_inv_sqrt(const struct ps_schedule *s, double eta, uint64_t t)
{
    return eta / sqrt(1.0 + s->gamma * (double)t);
}

static const struct {
    const char *name;
    double (*rate)(const struct ps_schedule *s, double eta, uint64_t t);
} schedules[] = {
    [PS_SCHEDULE_CONSTANT] = {"constant", rate_constant},
    [PS_SCHEDULE_STEP] = {"step", rate_step},
    [PS_SCHEDULE_INV_SQRT] = {"inv-sqrt", rate_inv_sqrt},
};

const char *ps_schedule_name(enum ps_schedule_kind kind)
{
    return schedules[kind].name;
}

int ps_schedule_parse(const char *name)
{
    for (int i = 0; i < (int)(sizeof schedules / sizeof *schedules); i++)
        if (strcmp(name, schedules[i].name) == 0)
            return i;
    return -EINVAL;
}

double ps_schedule_rate(const struct ps_schedule *s, double eta, uint64_t t)
{
    double rate = schedules[s->kind].rate(s, eta, t);
    if (t < s->warmup_steps)
        rate *= (double)(t + 1) / (double)s->warmup_steps;
    return rate;
}

double ps_hyper_alpha(const struct ps_hyper *h, uint32_t p)
{
    if (!isnan(h->alpha))
        return h->alpha;
    if (!isnan(h->rho))
        return h->learning_rate * h->rho;
    return h->beta / ((double)(p > 0 ? p : 1) * (double)h->period);
}
