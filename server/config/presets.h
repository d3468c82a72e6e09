/* presets.h: configs/methods/NAME.yaml, built in. Parameters that a configuration leaves out come from the
 * file of its method. */
#ifndef PSD_CONFIG_PRESETS_H
#define PSD_CONFIG_PRESETS_H

#include "server/config/config.h"

struct psd_preset {
    const char *name;
    const char *text; /* the YAML */
};

/* Ends with a row whose name is NULL. */
extern const struct psd_preset psd_presets[];

/* Sets every parameter that cfg leaves to its method to the preset's value. alpha, rho and beta count as one:
 * if the user gave one of them, the preset's is ignored. Does nothing for method custom. -EINVAL: a built-in
 * preset is invalid. */
int psd_preset_apply(struct psd_config *cfg, struct ps_error *err);

#endif
