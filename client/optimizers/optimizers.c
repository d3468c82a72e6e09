#include "client/optimizers/optimizers.h"

#include <string.h>

static const struct psc_optimizer *const optimizers[] = {&psc_optimizer_none, &psc_optimizer_sgd,
                                                         &psc_optimizer_heavy_ball, &psc_optimizer_nesterov,
                                                         &psc_optimizer_external};

const struct psc_optimizer *psc_optimizer_find(const char *name)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (strcmp(optimizers[i]->name, name) == 0)
            return optimizers[i];
    return NULL;
}
