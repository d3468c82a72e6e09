/* rules.h: the worker's halves of the rules: what of a step goes to the server, when, and what
 * becomes of the answer. One file and one row each. */
#ifndef PSC_RULES_RULES_H
#define PSC_RULES_RULES_H

#include "client/internal.h"

extern const struct psc_half psc_half_elastic, psc_half_gradient, psc_half_delta, psc_half_admm,
    psc_half_local, psc_half_clique, psc_half_vectors;

/* rules.c: by what the rule takes; NULL: there is no server. */
const struct psc_half *psc_half_of(const struct ps_rule_info *rule, enum ps_clique_mode mode);

#endif
