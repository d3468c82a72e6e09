/* method.c: a method's properties from psd's presets and configuration, read by psd's own code. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "tests/bench/simulate/model.h"

enum { MAX_PART = 128 };

/* Reads the setting that is for psworker or scripts, not for psd. */
static bool take_members(const char *part, struct sim_method *m, struct ps_error *err, int *rc)
{
    char *end;
    unsigned long v;
    if (strncmp(part, "members=", 8) != 0)
        return false;
    v = strtoul(part + 8, &end, 10);
    *rc = part[8] >= '0' && part[8] <= '9' && *end == 0 && v >= 1 && v <= 65536
              ? 0
              : ps_fail(err, -EINVAL, "members is '%s'; allowed are 1 to 65536", part + 8);
    m->members = (uint32_t)v;
    return true;
}

static int take_parts(const char *text, struct psd_config *cfg, struct sim_method *m, struct ps_error *err)
{
    char part[MAX_PART];
    int rc = 0;
    while (rc == 0 && *text != 0) {
        size_t len = strcspn(text, ",");
        if (len == 0 || len >= sizeof part)
            return ps_fail(err, -EINVAL, "a setting is empty or too long; allowed is KEY=VALUE,KEY=VALUE");
        memcpy(part, text, len);
        part[len] = 0;
        if (!take_members(part, m, err, &rc))
            rc = psd_config_set(cfg, part, err);
        text += len + (text[len] == ',');
    }
    return rc;
}

static const struct ps_method *row_of(const char *text, size_t len)
{
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        if (strlen(m->name) == len && strncmp(m->name, text, len) == 0)
            return m;
    return NULL;
}

/* The maximum of psd; more can be simulated. */
enum { MOST_CLIENTS = 1024 };

/* Some methods need the number of clients; as in scripts/compare, it is given to methods that accept it. */
static int check(const struct psd_config *given, uint32_t clients, struct psd_config *cfg,
                 bool *takes_workers, struct ps_error *err)
{
    char workers[32];
    struct psd_config with = *given;
    snprintf(workers, sizeof workers, "workers=%u", clients < MOST_CLIENTS ? clients : MOST_CLIENTS);
    *cfg = *given;
    *takes_workers = psd_config_set(&with, workers, err) == 0 && psd_config_check(&with, err, NULL) == 0;
    if (*takes_workers) {
        *cfg = with;
        return 0;
    }
    return psd_config_check(cfg, err, NULL);
}

static int fill(const struct psd_config *cfg, uint32_t workers, struct sim_method *m, struct ps_error *err)
{
    const struct ps_rule_info *rule = ps_rule_find(cfg->rule);
    const struct ps_hyper *h = &cfg->hyper;

    m->admission = ps_admission_find(cfg->admission)->name;
    m->period = rule->worker_steps && !rule->in_clique ? h->period : 1;
    m->slack = h->slack;
    m->backup = h->backup;
    m->quorum = h->quorum;
    m->grace_s = h->grace_ms * 1e-3;
    m->serial = h->serial && strcmp(m->admission, "round-robin") == 0;
    m->overlap = h->overlap < h->period ? h->overlap : h->period; /* auto: until the next is due */
    m->steps = ps_optimizer_find(cfg->optimizer)->steps || rule->half == PS_HALF_ADMM;
    m->steps_warm = m->steps && rule->half == PS_HALF_ELASTIC;
    m->is_clique = ps_method_is_one_clique(rule, cfg->clique.mode);
    m->pipeline = rule->in_clique ? h->pipeline : 1;
    m->sums_to_one = !ps_optimizer_find(cfg->optimizer)->steps;
    if (h->dynamic_period || h->fragments > 1)
        return ps_fail(err, -EINVAL, "%s: dynamic_period and fragments are not simulated", m->name);
    if (strcmp(cfg->clique.algorithm, "ring") != 0 || (m->is_clique && m->overlap))
        return ps_fail(err, -EINVAL, "%s: clique.algorithm %s%s is not simulated", m->name,
                       cfg->clique.algorithm, m->overlap ? " with overlap" : "");
    if (m->is_clique)
        m->members = workers;
    if (workers % m->members != 0)
        return ps_fail(err, -EINVAL, "%s: %u workers cannot form cliques of %u", m->name, workers,
                       m->members);
    return 0;
}

int sim_method_read(const char *text, uint32_t workers, struct sim_method *out, struct sim_codecs *codecs,
                    struct ps_error *err)
{
    size_t len = strcspn(text, ":");
    const struct ps_method *row = row_of(text, len);
    struct sim_method m = {.members = 1};
    struct psd_config given, cfg;
    struct ps_error why;
    int rc;

    if (row == NULL)
        return ps_fail(err, -EINVAL, "'%s' is not a method of psd", text);
    m.name = row->name;
    if (row->rule == NULL)
        return ps_fail(err, -EINVAL,
                       "%s is one worker without psd: it exchanges nothing, and no number of it is a job",
                       row->name);
    psd_config_defaults(&given);
    snprintf(given.method, sizeof given.method, "%s", row->name);
    if ((rc = take_parts(text[len] == ':' ? text + len + 1 : "", &given, &m, &why)) < 0)
        return ps_fail(err, rc, "%s: %s", row->name, why.text);
    if (m.members > workers)
        return ps_fail(err, -EINVAL, "%s: %u workers cannot form cliques of %u", m.name, workers, m.members);
    if ((rc = check(&given, workers / m.members, &cfg, &m.takes_workers, &why)) < 0)
        return ps_fail(err, rc, "%s: %s", row->name, why.text);
    if ((rc = fill(&cfg, workers, &m, err)) < 0)
        return rc;
    memcpy(codecs->message, cfg.codec.message, sizeof codecs->message);
    memcpy(codecs->answer, cfg.codec.answer, sizeof codecs->answer);
    memcpy(codecs->clique, cfg.clique.codec, sizeof codecs->clique);
    *out = m;
    return 0;
}
