/* Compares the configuration in force with the one that was read again. */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "server/config/keys.h"

static bool differs(const struct psd_config_key *k, const struct psd_config *a, const struct psd_config *b)
{
    const char *at_a = (const char *)a + k->offset, *at_b = (const char *)b + k->offset;
    if (k->type == PSD_CONFIG_STRING || k->type == PSD_CONFIG_WORD)
        return strcmp(at_a, at_b) != 0;
    return memcmp(at_a, at_b, psd_config_key_bytes(k)) != 0;
}

bool psd_config_is_of_method(const struct psd_config_key *k)
{
    static const char *const words[] = {"method",    "rule",    "admission",  "optimizer",
                                        "averaging", "workers", "parameters", "codec"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(k->name, words[i]) == 0)
            return true;
    return strncmp(k->name, "parameters.", strlen("parameters.")) == 0 ||
           strncmp(k->name, "codec.", strlen("codec.")) == 0;
}

int psd_config_change(const struct psd_config *now, const struct psd_config *next, bool *method, bool *others,
                      struct ps_error *err)
{
    *method = *others = false;
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        if (k->type == PSD_CONFIG_GROUP || !differs(k, now, next))
            continue;
        if (k->applies == PSD_CONFIG_RESTART)
            return ps_fail(err, -EINVAL,
                           "%s: changed, and a change takes effect only at a start of psd; allowed is the "
                           "previous value (see /config), or a restart with --resume",
                           k->name);
        *method = *method || psd_config_is_of_method(k);
        *others = *others || !psd_config_is_of_method(k);
    }
    return 0;
}

uint64_t psd_config_method_hash(const struct psd_config *cfg)
{
    uint64_t hash = 0;
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        const char *at = (const char *)cfg + k->offset;
        bool is_text = k->type == PSD_CONFIG_STRING || k->type == PSD_CONFIG_WORD;
        if (k->type != PSD_CONFIG_GROUP && psd_config_is_of_method(k))
            hash = XXH3_64bits_withSeed(at, is_text ? strlen(at) : psd_config_key_bytes(k), hash);
    }
    const uint32_t drops = cfg->hyper.schedule.drops; /* no key's, but each has a generation of its own */
    return drops > 0 ? XXH3_64bits_withSeed(&drops, sizeof drops, hash) : hash;
}
