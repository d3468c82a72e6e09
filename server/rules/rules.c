#include "server/rules/rules.h"

#include <string.h>

static const struct psd_rule *const rules[] = {
    &psd_rule_elastic, &psd_rule_add,  &psd_rule_sgd,  &psd_rule_momentum,       &psd_rule_mdownpour,
    &psd_rule_adagrad, &psd_rule_adam, &psd_rule_admm, &psd_rule_outer_nesterov, &psd_rule_delayed_nesterov,
    &psd_rule_dc_asgd, &psd_rule_hold, &psd_rule_sum,
};

const struct psd_rule *psd_rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}
