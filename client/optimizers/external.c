/* The program's own optimizer: psc_options.own_step moves the caller's array, and keeps what it needs for
 * that itself. */
#include "client/optimizers/optimizers.h"

const struct psc_optimizer psc_optimizer_external = {.name = "external"};
