/* Checks the configuration of a job whose workers are one clique. */
#include <errno.h>
#include <string.h>

#include "server/config/check_method.h"

static int check_vectors(const struct psd_config *cfg, struct ps_error *err)
{
    char overlap[PS_OVERLAP_TEXT];
    if (strcmp(cfg->rule, "elastic") != 0 || strcmp(cfg->admission, "sync") != 0)
        return ps_fail(err, -EINVAL,
                       "clique.mode: found vectors with rule %s and admission %s; it is for rule elastic in "
                       "rounds (sync-easgd); allowed is gradients",
                       cfg->rule, cfg->admission);
    if (strcmp(cfg->averaging, "none") != 0)
        return ps_fail(err, -EINVAL,
                       "averaging: found %s; with clique.mode vectors the center moves in the clique; "
                       "allowed is none",
                       cfg->averaging);
    if (cfg->hyper.overlap > 1)
        return ps_fail(err, -EINVAL,
                       "parameters.overlap: found %s; with clique.mode vectors a sum lands at the next step; "
                       "allowed are true and false",
                       ps_overlap_text(cfg->hyper.overlap, overlap));
    if (cfg->hyper.workers > 0)
        return ps_fail(
            err, -EINVAL,
            "workers: found %u; with clique.mode vectors the workers are one clique, which begins when "
            "all its members are connected; allowed is any",
            cfg->hyper.workers);
    return 0;
}

int psd_config_clique_check(const struct psd_config *cfg, const struct ps_rule_info *rule,
                            struct ps_error *err)
{
    char overlap[PS_OVERLAP_TEXT];
    if (cfg->clique.mode == PS_CLIQUE_VECTORS)
        return check_vectors(cfg, err);
    if (!rule->in_clique)
        return 0;
    if (strcmp(cfg->admission, "fcfs") != 0)
        return ps_fail(
            err, -EINVAL,
            "admission: found %s; rule %s has one client, whose copies of x are taken as they arrive; "
            "allowed is fcfs",
            cfg->admission, rule->name);
    if (cfg->hyper.overlap > 0)
        return ps_fail(err, -EINVAL,
                       "parameters.overlap: found %s; under rule %s parameters.pipeline: 2 overlaps the "
                       "sums with computation; allowed is false",
                       ps_overlap_text(cfg->hyper.overlap, overlap), rule->name);
    return 0;
}

void psd_config_clique_settle(struct psd_config *cfg)
{
    if (cfg->clique.mode == PS_CLIQUE_VECTORS)
        strcpy(cfg->admission, "fcfs");
}

const char *psd_config_clique_admission(const struct psd_config *cfg)
{
    return cfg->clique.mode == PS_CLIQUE_VECTORS ? "sync" : cfg->admission; /* check_vectors takes no other */
}

int psd_config_clique_change(const struct psd_config *now, const struct psd_config *next,
                             struct ps_error *err)
{
    const struct ps_rule_info *was = ps_rule_find(now->rule), *is = ps_rule_find(next->rule);
    if (!ps_method_is_one_clique(was, now->clique.mode) && !ps_method_is_one_clique(is, next->clique.mode))
        return 0;
    return ps_fail(err, -EINVAL,
                   "method: found %s%s after %s; a job whose workers are one clique moves its values without "
                   "psd, so its method and parameters change with a restart of psd and the clique (--resume "
                   "keeps the center)",
                   next->method, strcmp(next->method, now->method) == 0 ? " with other parameters" : "",
                   now->method);
}
