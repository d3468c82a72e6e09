/* rules.h: the client side of the rules (worker/rule.h). One file and one row each. */
#ifndef PSC_RULES_RULES_H
#define PSC_RULES_RULES_H

#include "client/worker/rule.h"
#include "proto/model/method.h"

/* The constants for applying the answer of the current step, under admm. */
struct psc_admm {
    const float *g;
    float eta, pull, scale; /* at this t: eta, eta rho, 1 / (1 + eta rho) */
};

extern const struct psc_rule psc_rule_elastic, psc_rule_gradient, psc_rule_delta, psc_rule_admm,
    psc_rule_local, psc_rule_clique, psc_rule_vectors;

/* The row for the rule's message type. rule NULL: there is no server. */
const struct psc_rule *psc_rule_of(const struct ps_rule_info *rule, enum ps_clique_mode mode);

#endif
