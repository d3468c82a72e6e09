/* What the halves have in common. */
#include "client/rules/rules.h"

const struct psc_half *psc_half_of(const struct ps_rule_info *rule, enum ps_clique_mode mode)
{
    static const struct psc_half *const halves[] = {
        [PS_MESSAGE_X] = &psc_half_elastic,
        [PS_MESSAGE_GRADIENT] = &psc_half_gradient,
        [PS_MESSAGE_DELTA] = &psc_half_delta,
        [PS_MESSAGE_ADMM] = &psc_half_admm,
    };
    if (rule == NULL)
        return &psc_half_local;
    if (rule->in_clique)
        return &psc_half_clique;
    return mode == PS_CLIQUE_VECTORS ? &psc_half_vectors : halves[rule->message];
}
