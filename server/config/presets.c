#include "server/config/presets.h"

#include <math.h>
#include <string.h>

#include "server/config/keys.h"

static bool is_moving_rate(const struct psd_config_key *k)
{
    static const char *const names[] = {"parameters.alpha", "parameters.rho", "parameters.beta"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(k->name, names[i]) == 0)
            return true;
    return false;
}

/* `none` disables only the key that it is given for. */
static bool any_moving_rate_given(const struct psd_config *cfg)
{
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        double rate;
        if (!is_moving_rate(k) || !psd_config_key_given(k, cfg))
            continue;
        memcpy(&rate, (const char *)cfg + k->offset, sizeof rate);
        if (!isnan(rate))
            return true;
    }
    return false;
}

int psd_preset_apply(struct psd_config *cfg, struct ps_error *err)
{
    const struct psd_preset *p = psd_presets;
    struct psd_config preset;
    bool rate_given = any_moving_rate_given(cfg);
    int rc;

    while (p->name != NULL && strcmp(p->name, cfg->method) != 0)
        p++;
    if (p->name == NULL)
        return 0;
    psd_config_defaults(&preset);
    if ((rc = psd_config_read_text(&preset, p->name, p->text, strlen(p->text), err)) < 0)
        return rc;
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++)
        if (k->fallback != NULL && !psd_config_key_given(k, cfg) && !(rate_given && is_moving_rate(k)))
            memcpy((char *)cfg + k->offset, (const char *)&preset + k->offset, psd_config_key_bytes(k));
    return 0;
}
