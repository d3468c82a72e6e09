#include "server/config.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/admissions/admissions.h"
#include "server/config_table.h"
#include "server/endpoint.h"
#include "server/preset.h"
#include "server/url.h"

/* What this version has built, beside the rules and presets of proto/method.h. */
static const char *const averagings[] = {"none", NULL};

void psd_config_defaults(struct psd_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        if (k->type == PSD_CONFIG_GROUP)
            continue;
        int rc = psd_config_value_read(k, k->value, strlen(k->value), k->value[0] == 0, cfg, NULL);
        assert(rc == 0 && "a default of the table is outside its own range");
        (void)rc;
    }
}

static size_t append(char *text, size_t size, size_t used, const char *name)
{
    if (used >= size)
        return used;
    return used + (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", name);
}

static int fail_not_built(struct ps_error *err, const char *key, const char *found, const char *allowed)
{
    return ps_fail(err, -EINVAL, "%s: '%s' is not built into this version; allowed are %s", key, found,
                   allowed);
}

static int check_word(const char *key, const char *found, const char *const *words, struct ps_error *err)
{
    char allowed[200] = "";
    size_t used = 0;
    for (const char *const *w = words; *w != NULL; w++) {
        if (strcmp(*w, found) == 0)
            return 0;
        used = append(allowed, sizeof allowed, used, *w);
    }
    return fail_not_built(err, key, found, allowed);
}

static int check_admission(const char *found, struct ps_error *err)
{
    char allowed[200] = "";
    size_t used = 0;
    if (psd_admission_find(found) != NULL)
        return 0;
    for (const struct psd_admission *const *a = psd_admissions; *a != NULL; a++)
        used = append(allowed, sizeof allowed, used, (*a)->name);
    return fail_not_built(err, "admission", found, allowed);
}

static int check_rule(const char *found, struct ps_error *err)
{
    char allowed[200] = "";
    size_t used = 0;
    if (ps_rule_find(found) != NULL)
        return 0;
    for (const struct ps_rule_info *r = ps_rules; r->name != NULL; r++)
        used = append(allowed, sizeof allowed, used, r->name);
    return fail_not_built(err, "rule", found, allowed);
}

static int check_optimizer(const char *found, struct ps_error *err)
{
    char allowed[200] = "";
    size_t used = 0;
    if (ps_optimizer_find(found) != NULL)
        return 0;
    for (const struct ps_optimizer_info *o = ps_optimizers; o->name != NULL; o++)
        used = append(allowed, sizeof allowed, used, o->name);
    return fail_not_built(err, "optimizer", found, allowed);
}

static int check_method(const char *found, struct ps_error *err)
{
    char allowed[300] = "";
    size_t used = 0;
    const struct ps_method *row = ps_method_find(found);
    if (strcmp(found, "custom") == 0 || (row != NULL && row->rule != NULL))
        return 0;
    if (row != NULL)
        return ps_fail(err, -EINVAL, "method: %s is for one worker without psd: psworker --method %s", found,
                       found);
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        used = append(allowed, sizeof allowed, used, m->name);
    append(allowed, sizeof allowed, used,
           "and custom (rule, admission, optimizer and averaging given one by one)");
    return fail_not_built(err, "method", found, allowed);
}

/* Fills in what the preset says; the method is "custom" from the first of the four that differs from it. */
static int resolve(struct psd_config *cfg, struct ps_error *err)
{
    const struct ps_method *preset = ps_method_find(cfg->method);
    struct {
        const char *key;
        char *value;
        size_t size;
        const char *preset;
    } parts[] = {
        {"rule", cfg->rule, sizeof cfg->rule, preset != NULL ? preset->rule : NULL},
        {"admission", cfg->admission, sizeof cfg->admission, preset != NULL ? preset->admission : NULL},
        {"optimizer", cfg->optimizer, sizeof cfg->optimizer, preset != NULL ? preset->optimizer : NULL},
        {"averaging", cfg->averaging, sizeof cfg->averaging, preset != NULL ? preset->averaging : NULL},
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool left_out = strcmp(parts[i].value, "preset") == 0;
        if (left_out && parts[i].preset == NULL)
            return ps_fail(err, -EINVAL,
                           "%s: found none; method custom needs rule, admission, optimizer and averaging",
                           parts[i].key);
        if (left_out)
            snprintf(parts[i].value, parts[i].size, "%s", parts[i].preset);
        else if (parts[i].preset == NULL || strcmp(parts[i].value, parts[i].preset) != 0)
            snprintf(cfg->method, sizeof cfg->method, "custom");
    }
    return 0;
}

static int check_moving_rate(const struct psd_config *cfg, const struct ps_rule_info *rule,
                             struct ps_error *err)
{
    const struct ps_hyper *h = &cfg->hyper;
    char given[64] = "";
    size_t used = 0, n = 0;

    if (!isnan(h->alpha) && ++n)
        used = append(given, sizeof given, used, "alpha");
    if (!isnan(h->rho) && ++n)
        used = append(given, sizeof given, used, "rho");
    if (!isnan(h->beta) && ++n)
        append(given, sizeof given, used, "beta");
    if ((rule->uses & PS_USES_RATE) && n != 1)
        return ps_fail(err, -EINVAL, "parameters: rule %s needs exactly one of alpha, rho and beta; found %s",
                       rule->name, n == 0 ? "none" : given);
    if ((rule->uses & PS_USES_RATE) == 0 && n > 0)
        return ps_fail(err, -EINVAL,
                       "parameters.%s: rule %s has no moving rate; leave alpha, rho and beta out", given,
                       rule->name);
    return 0;
}

static int check_parameters(const struct psd_config *cfg, const struct ps_rule_info *rule,
                            struct ps_error *err)
{
    const struct ps_hyper *h = &cfg->hyper;
    int rc = check_moving_rate(cfg, rule, err);
    if (rc < 0)
        return rc;
    if ((rule->uses & PS_USES_PERIOD) == 0 && h->period != 1)
        return ps_fail(err, -EINVAL,
                       "parameters.period: found %u; rule %s takes every gradient, so allowed is 1",
                       h->period, rule->name);
    /* A rule that takes gradients makes the step at the server; one that takes x needs it at the worker. */
    const struct ps_optimizer_info *optimizer = ps_optimizer_find(cfg->optimizer);
    if (rule->message == PS_MESSAGE_GRADIENT && optimizer->steps)
        return ps_fail(err, -EINVAL,
                       "optimizer: found %s; rule %s makes the step with the gradient, so allowed is none",
                       cfg->optimizer, rule->name);
    if (rule->message == PS_MESSAGE_X && !optimizer->steps)
        return ps_fail(
            err, -EINVAL,
            "optimizer: found none; rule %s takes x from workers that step, so allowed are sgd and nesterov",
            rule->name);
    if ((optimizer->uses & PS_USES_MOMENTUM) == 0 && h->momentum != 0)
        return ps_fail(err, -EINVAL,
                       "parameters.momentum: found %g; neither rule %s nor optimizer %s uses momentum, so "
                       "allowed is 0",
                       h->momentum, rule->name, cfg->optimizer);
    if ((optimizer->uses & PS_USES_MOMENTUM) && (h->momentum <= 0 || h->momentum >= 1))
        return ps_fail(err, -EINVAL,
                       "parameters.momentum: found %g; optimizer %s needs one above 0 and below 1",
                       h->momentum, cfg->optimizer);
    return 0;
}

static int check_addresses(const struct psd_config *cfg, struct ps_error *err)
{
    struct ps_error why;
    struct psd_url url;
    bool ipc = strncmp(cfg->listen, "ipc://", 6) == 0;
    char bindable[300];

    if (ipc ? psd_endpoint_listen(cfg, bindable, sizeof bindable, &why) < 0
            : psd_url_parse(cfg->listen, &url, &why) < 0)
        return ps_fail(err, -EINVAL, "listen: %s%s", why.text, ipc ? "" : ", or ipc://PATH");
    if (ipc && cfg->advertise[0] != 0)
        return ps_fail(err, -EINVAL,
                       "advertise: found %.100s; %.100s is a file, reached from this machine only: leave "
                       "advertise out",
                       cfg->advertise, cfg->listen);
    if (!ipc && !psd_url_is_loopback(&url) && !cfg->insecure)
        return ps_fail(err, -EINVAL,
                       "listen: %.100s can be reached from other machines and this version has no "
                       "authentication; allowed is a loopback address such as tcp://127.0.0.1:0, or set "
                       "insecure: true on a network that you trust",
                       cfg->listen);
    if (strcmp(cfg->status.http, "none") != 0) {
        if (psd_url_parse(cfg->status.http, &url, &why) < 0)
            return ps_fail(err, -EINVAL, "status.http: %s, or none", why.text);
        if (!psd_url_is_loopback(&url))
            return ps_fail(err, -EINVAL,
                           "status.http: found %.100s; allowed is none or a loopback address such as "
                           "tcp://127.0.0.1:8080",
                           cfg->status.http);
    }
    if (strpbrk(cfg->advertise, ":/ ") != NULL && cfg->advertise[0] != '[')
        return ps_fail(err, -EINVAL,
                       "advertise: found %.100s; allowed is a host name or address without scheme and port",
                       cfg->advertise);
    if (cfg->state_dir[0] == 0 || cfg->status.socket[0] == 0)
        return ps_fail(err, -EINVAL, "%s: found an empty path; a path is needed",
                       cfg->state_dir[0] == 0 ? "state_dir" : "status.socket");
    return 0;
}

/* Zhang, Choromanska, LeCun 2015, section 4: EASGD in round-robin order on a quadratic of curvature 1 is
 * stable for 0 <= alpha <= (4 - 2 eta) / (4 - eta). The bound does not depend on the number of workers. */
static void warn_unstable(const struct psd_config *cfg, struct ps_error *warning)
{
    double eta = cfg->hyper.learning_rate, alpha = ps_hyper_alpha(&cfg->hyper, 1, false);
    double bound = (4 - 2 * eta) / (4 - eta);

    if (strcmp(cfg->rule, "elastic") != 0)
        return;
    if (eta > 2)
        ps_fail(
            warning, 0,
            "parameters.learning_rate: %g is beyond 2, where elastic averaging is not stable for any alpha "
            "(Zhang 2015, curvature 1)",
            eta);
    else if (alpha > bound)
        ps_fail(
            warning, 0,
            "parameters: alpha is %g%s; elastic averaging is stable up to (4 - 2 eta)/(4 - eta) = %.4g at "
            "this learning rate (Zhang 2015, curvature 1)",
            alpha, isnan(cfg->hyper.beta) ? "" : " with one worker", bound);
}

int psd_config_check(struct psd_config *cfg, struct ps_error *err, struct ps_error *warning)
{
    int rc;

    if (warning != NULL)
        warning->text[0] = 0;
    if ((rc = check_method(cfg->method, err)) < 0 || (rc = resolve(cfg, err)) < 0 ||
        (rc = psd_preset_apply(cfg, err)) < 0 || (rc = check_rule(cfg->rule, err)) < 0 ||
        (rc = check_admission(cfg->admission, err)) < 0 || (rc = check_optimizer(cfg->optimizer, err)) < 0 ||
        (rc = check_word("averaging", cfg->averaging, averagings, err)) < 0 ||
        (rc = check_parameters(cfg, ps_rule_find(cfg->rule), err)) < 0 ||
        (rc = check_addresses(cfg, err)) < 0)
        return rc;
    warn_unstable(cfg, warning);
    return 0;
}
