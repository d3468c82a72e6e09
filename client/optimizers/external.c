/* The program's own optimizer: psc_options.own_step moves the caller's array, and keeps its own state. */
#include "client/optimizers/optimizers.h"

const struct psc_optimizer psc_optimizer_external = {.name = "external"};
