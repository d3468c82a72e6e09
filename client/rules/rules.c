/* Finds the row of a rule. */
#include "client/rules/rules.h"

const struct psc_rule *psc_rule_of(const struct ps_rule_info *rule, enum ps_clique_mode mode)
{
    static const struct psc_rule *const rules[] = {
        [PS_MESSAGE_X] = &psc_rule_elastic,
        [PS_MESSAGE_GRADIENT] = &psc_rule_gradient,
        [PS_MESSAGE_DELTA] = &psc_rule_delta,
        [PS_MESSAGE_ADMM] = &psc_rule_admm,
    };
    if (rule == NULL)
        return &psc_rule_local;
    if (rule->in_clique)
        return &psc_rule_clique;
    return mode == PS_CLIQUE_VECTORS ? &psc_rule_vectors : rules[rule->message];
}
