#include "server/rules/rules.h"

#include <string.h>

static const struct psd_rule *const rules[] = {&psd_rule_elastic, &psd_rule_sgd};

const struct psd_rule *psd_rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}
