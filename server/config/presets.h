/* presets.h: configs/methods/NAME.yaml, built in. What a configuration leaves out of its parameters, the file
 * of its method gives. */
#ifndef PSD_CONFIG_PRESETS_H
#define PSD_CONFIG_PRESETS_H

#include "server/config/config.h"

struct psd_preset {
    const char *name;
    const char *text; /* the YAML */
};

/* Ends with a row whose name is NULL. */
extern const struct psd_preset psd_presets[];

/* Gives every parameter that cfg leaves to its method the preset's value. alpha, rho and beta count as one:
 * giving one of them leaves out the preset's. Nothing to do for method custom. -EINVAL: a preset of ours is
 * invalid. */
int psd_preset_apply(struct psd_config *cfg, struct ps_error *err);

#endif
