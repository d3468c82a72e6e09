#include "server/config/check_method.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "server/config/keys.h"
#include "server/config/presets.h"

/* The four parts of a method. Each looks its word up in a table of proto/model/method.h. A row of such a
 * table begins with its name; the last row has no name. */
struct part {
    const char *key;
    size_t word;   /* offset of the char[32] in struct psd_config */
    size_t preset; /* offset of the word in struct ps_method */
    const void *rows;
    size_t row_bytes;
    size_t uses; /* offset of the bits in a row */
};

#define PART(member, row, table)                                                                             \
    {                                                                                                        \
        .key = #member, .word = offsetof(struct psd_config, member),                                         \
        .preset = offsetof(struct ps_method, member), .rows = (table), .row_bytes = sizeof(row),             \
        .uses = offsetof(row, uses),                                                                         \
    }

static const struct part parts[] = {
    PART(rule, struct ps_rule_info, ps_rules),
    PART(admission, struct ps_admission_info, ps_admissions),
    PART(optimizer, struct ps_optimizer_info, ps_optimizers),
    PART(averaging, struct ps_averaging, ps_averagings),
};
#define N_PARTS (sizeof parts / sizeof *parts)
_Static_assert(offsetof(struct ps_rule_info, name) == 0 && offsetof(struct ps_admission_info, name) == 0 &&
                   offsetof(struct ps_optimizer_info, name) == 0 && offsetof(struct ps_averaging, name) == 0,
               "a row of a part begins with its name");

static const char *row_name(const struct part *p, size_t i)
{
    const char *name;
    memcpy(&name, (const char *)p->rows + i * p->row_bytes, sizeof name);
    return name;
}

static unsigned row_uses(const struct part *p, size_t i)
{
    unsigned uses;
    memcpy(&uses, (const char *)p->rows + i * p->row_bytes + p->uses, sizeof uses);
    return uses;
}

static char *word_of(const struct part *p, struct psd_config *cfg)
{
    return (char *)cfg + p->word;
}

static const char *word_in(const struct part *p, const struct psd_config *cfg)
{
    return (const char *)cfg + p->word;
}

/* Whether the part's word has a row; its index is in *i. */
static bool find_row(const struct part *p, const char *word, size_t *i)
{
    for (*i = 0; row_name(p, *i) != NULL; (*i)++)
        if (strcmp(row_name(p, *i), word) == 0)
            return true;
    return false;
}

static int check_parts(const struct psd_config *cfg, struct ps_error *err)
{
    for (const struct part *p = parts; p < parts + N_PARTS; p++) {
        char allowed[200] = "";
        size_t i;
        if (find_row(p, word_in(p, cfg), &i))
            continue;
        for (i = 0; row_name(p, i) != NULL; i++)
            ps_text_join(allowed, sizeof allowed, ", ", row_name(p, i));
        return ps_fail(err, -EINVAL, "%s: '%s' is not known to this version; allowed are %s", p->key,
                       word_in(p, cfg), allowed);
    }
    return 0;
}

/* The method that the user probably meant: one whose name ends in this word, async- first, or one within two
 * typing errors. NULL: none. */
static const char *meant_by(const char *found)
{
    const char *ends = NULL, *near = NULL;
    size_t best = 3;
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        size_t n = strlen(m->name), tail = strlen(found), d = psd_config_distance(m->name, found);
        if (m->rule == NULL)
            continue;
        bool is_end =
            tail > 0 && n > tail && m->name[n - tail - 1] == '-' && strcmp(m->name + n - tail, found) == 0;
        if (is_end && (ends == NULL || strncmp(m->name, "async-", 6) == 0))
            ends = m->name;
        if (d < best) {
            best = d;
            near = m->name;
        }
    }
    return ends != NULL ? ends : near;
}

static int check_method(const char *found, struct ps_error *err)
{
    char allowed[420] = "";
    const char *meant = meant_by(found);
    const struct ps_method *row = ps_method_find(found);
    if (strcmp(found, "custom") == 0 || (row != NULL && row->rule != NULL))
        return 0;
    if (row != NULL)
        return ps_fail(err, -EINVAL, "method: %s is for one worker without psd: psworker --method %s", found,
                       found);
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        if (m->rule != NULL)
            ps_text_join(allowed, sizeof allowed, ", ", m->name);
    ps_text_join(allowed, sizeof allowed, ", ",
                 "and custom (rule, admission, optimizer and averaging given one by one)");
    return ps_fail(err, -EINVAL, "method: '%s' is not known to this version; %s%s%sallowed are %s", found,
                   meant != NULL ? "did you mean " : "", meant != NULL ? meant : "",
                   meant != NULL ? "? " : "", allowed);
}

static const char *preset_of(const struct part *p, const struct ps_method *method)
{
    const char *preset = NULL;
    if (method != NULL)
        memcpy(&preset, (const char *)method + p->preset, sizeof preset);
    return preset;
}

int psd_config_method_by_name(const struct psd_config *asked, const struct psd_config *all,
                              struct ps_error *err)
{
    const struct ps_method *method = ps_method_find(asked->method);
    char found[160] = "", allowed[80] = "";
    for (const struct part *p = parts; p < parts + N_PARTS; p++) {
        const char *preset = preset_of(p, method), *word = word_in(p, all);
        if (preset == NULL || strcmp(word_in(p, asked), "preset") != 0 || strcmp(word, "preset") == 0 ||
            strcmp(word, preset) == 0)
            continue;
        ps_text_join(found, sizeof found, ", ", p->key);
        ps_text_join(found, sizeof found, " ", word);
        ps_text_join(allowed, sizeof allowed, ", ", p->key);
        ps_text_join(allowed, sizeof allowed, "=", "preset");
    }
    return found[0] == 0 ? 0
                         : ps_fail(err, -EINVAL,
                                   "method: found %s; %s of the file, the options or an earlier set would "
                                   "override it; allowed is a method with %s",
                                   asked->method, found, allowed);
}

/* Fills in what the preset gives. The method becomes "custom" if one of the four parts differs from the
 * preset. */
static int resolve(struct psd_config *cfg, struct ps_error *err)
{
    const struct ps_method *method = ps_method_find(cfg->method);

    for (const struct part *p = parts; p < parts + N_PARTS; p++) {
        const char *preset = preset_of(p, method);
        bool left_out = strcmp(word_of(p, cfg), "preset") == 0;
        if (left_out && preset == NULL)
            return ps_fail(err, -EINVAL,
                           "%s: found none; method custom needs rule, admission, optimizer and averaging",
                           p->key);
        if (left_out)
            snprintf(word_of(p, cfg), sizeof cfg->rule, "%s", preset);
        else if (preset == NULL || strcmp(word_of(p, cfg), preset) != 0)
            snprintf(cfg->method, sizeof cfg->method, "custom");
    }
    return 0;
}

/* The uses that this rule or admission rules out. */
static unsigned drops_of(const struct psd_config *cfg)
{
    const struct ps_rule_info *rule = ps_rule_find(cfg->rule);
    const struct ps_admission_info *admission = ps_admission_find(cfg->admission);
    return (rule != NULL ? rule->drops : 0) | (admission != NULL ? admission->drops : 0);
}

/* All uses of the four parts together; every use while one of the parts is unknown. */
static unsigned uses_of(const struct psd_config *cfg)
{
    unsigned uses = 0;
    size_t i;
    for (const struct part *p = parts; p < parts + N_PARTS; p++)
        uses |= find_row(p, word_in(p, cfg), &i) ? row_uses(p, i) : ~0u;
    return (uses & ~drops_of(cfg)) | (psd_config_answers_moves(cfg) ? PS_USES_WORKERS : 0);
}

/* The index stored in a PSD_CONFIG_CHOICE key. */
static unsigned choice_of(const struct psd_config_key *key, const struct psd_config *cfg)
{
    unsigned choice;
    memcpy(&choice, (const char *)cfg + key->offset, sizeof choice);
    return choice;
}

static const struct psd_config_key *chooser_of(const struct psd_config_key *key)
{
    return key->chooser != NULL ? psd_config_key_find(key->chooser, strlen(key->chooser)) : NULL;
}

bool psd_config_key_used(const struct psd_config_key *key, const struct psd_config *cfg)
{
    if (key->uses != 0)
        return (key->uses & uses_of(cfg)) != 0;
    const struct psd_config_key *chooser = chooser_of(key);
    return chooser == NULL || (key->chosen & 1u << choice_of(chooser, cfg)) != 0;
}

/* Lists the rows of the four tables that have one of these uses: "rules momentum and adam, optimizer
 * nesterov". */
static void list_users(unsigned uses, char *text, size_t size)
{
    for (const struct part *p = parts; p < parts + N_PARTS; p++) {
        size_t n = 0, left = 0;
        for (size_t i = 0; row_name(p, i) != NULL; i++)
            left += (row_uses(p, i) & uses) != 0;
        if (left > 0)
            ps_text_join(text, size, ", ", p->key);
        if (left > 1)
            ps_text_join(text, size, "s", "");
        for (size_t i = 0; row_name(p, i) != NULL; i++)
            if (row_uses(p, i) & uses)
                ps_text_join(text, size, n++ == 0 ? " " : --left > 1 ? ", " : " and ", row_name(p, i));
    }
}

static int fail_unused(const struct psd_config_key *key, const struct psd_config *cfg, struct ps_error *err)
{
    char users[200] = "";
    if (key->uses != 0) {
        bool by_rule = (key->uses & ps_rule_find(cfg->rule)->drops) != 0;
        bool by_admission = (key->uses & ps_admission_find(cfg->admission)->drops) != 0;
        list_users(key->uses, users, sizeof users);
        return ps_fail(
            err, -EINVAL,
            "%s: rule %s, admission %s, optimizer %s and averaging %s do not use it; %s would%s%s; allowed "
            "is preset, or to leave it out",
            key->name, cfg->rule, cfg->admission, cfg->optimizer, cfg->averaging, users,
            by_rule        ? ", but not with rule "
            : by_admission ? ", but not under admission "
                           : "",
            by_rule        ? cfg->rule
            : by_admission ? cfg->admission
                           : "");
    }
    const struct psd_config_key *chooser = chooser_of(key);
    for (unsigned i = 0; key->chosen >> i != 0; i++)
        if (key->chosen & 1u << i)
            ps_text_join(users, sizeof users, " and ", chooser->choices[i]);
    return ps_fail(err, -EINVAL, "%s: %s %s does not use it; %s would; allowed is preset, or to leave it out",
                   key->name, chooser->name, chooser->choices[choice_of(chooser, cfg)], users);
}

/* Handles a key that the method does not use. A given value is an error unless it disables the key (`off`); a
 * preset's value becomes the fallback. */
static int settle_unused(struct psd_config *cfg, struct ps_error *err)
{
    struct psd_config fallback;
    psd_config_defaults(&fallback);
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        char *value = (char *)cfg + k->offset;
        const char *unused = (const char *)&fallback + k->offset;
        if (psd_config_key_used(k, cfg))
            continue;
        if (!psd_config_key_given(k, cfg))
            memcpy(value, unused, psd_config_key_bytes(k));
        else if (!k->off || memcmp(value, unused, psd_config_key_bytes(k)) != 0)
            return fail_unused(k, cfg, err);
    }
    return 0;
}

static int check_moving_rate(const struct psd_config *cfg, unsigned uses, struct ps_error *err)
{
    const struct ps_hyper *h = &cfg->hyper;
    char given[64] = "";
    size_t n = 0;

    if (uses & PS_USES_RHO)
        return h->rho > 0 ? 0
                          : ps_fail(err, -EINVAL, "parameters.rho: found %s; rule %s needs one above 0",
                                    isnan(h->rho) ? "none" : "0", cfg->rule);
    if ((uses & PS_USES_RATE) == 0)
        return 0;
    if (!isnan(h->alpha) && ++n)
        ps_text_join(given, sizeof given, ", ", "alpha");
    if (!isnan(h->rho) && ++n)
        ps_text_join(given, sizeof given, ", ", "rho");
    if (!isnan(h->beta) && ++n)
        ps_text_join(given, sizeof given, ", ", "beta");
    if (n != 1)
        return ps_fail(err, -EINVAL, "parameters: rule %s needs exactly one of alpha, rho and beta; found %s",
                       cfg->rule, n == 0 ? "none" : given);
    return 0;
}

static int check_optimizer(const struct psd_config *cfg, const struct ps_rule_info *rule,
                           const struct ps_optimizer_info *optimizer, struct ps_error *err)
{
    char allowed[100] = "";
    if (!rule->worker_steps && optimizer->steps)
        return ps_fail(err, -EINVAL,
                       "optimizer: found %s; rule %s applies the gradient at the center; allowed is none",
                       cfg->optimizer, rule->name);
    if (!rule->worker_steps || optimizer->steps)
        return 0;
    for (const struct ps_optimizer_info *o = ps_optimizers; o->name != NULL; o++)
        if (o->steps)
            ps_text_join(allowed, sizeof allowed, ", ", o->name);
    return ps_fail(err, -EINVAL,
                   "optimizer: found %s; rule %s needs local steps of the workers; allowed are %s",
                   cfg->optimizer, rule->name, allowed);
}

/* Weight decay belongs to the side that takes the step with the gradient. */
static int check_decay(const struct psd_config *cfg, const struct ps_optimizer_info *optimizer,
                       struct ps_error *err)
{
    return !optimizer->callers || cfg->hyper.weight_decay == 0
               ? 0
               : ps_fail(err, -EINVAL,
                         "parameters.weight_decay: found %g; with optimizer %s the workers' programs apply "
                         "weight decay themselves; allowed is 0",
                         cfg->hyper.weight_decay, optimizer->name);
}

/* The key table allows momentum in [0, 1). An optimizer with momentum 0 would be sgd under another name. Rule
 * mdownpour moves the center by momentum times v, so with momentum 0 the center would never move. */
static int check_momentum(const struct psd_config *cfg, const struct ps_optimizer_info *optimizer,
                          struct ps_error *err)
{
    bool of_optimizer = (optimizer->uses & PS_USES_MOMENTUM) != 0;
    if (cfg->hyper.momentum > 0 || (!of_optimizer && strcmp(cfg->rule, "mdownpour") != 0))
        return 0;
    return ps_fail(err, -EINVAL, "parameters.momentum: found 0; %s %s needs one above 0 and below 1",
                   of_optimizer ? "optimizer" : "rule", of_optimizer ? optimizer->name : cfg->rule);
}

/* The answer lands before the next exchange of the same values begins. */
static int check_overlap_fits(const struct psd_config *cfg, const char *found, struct ps_error *err)
{
    const struct ps_hyper *h = &cfg->hyper;
    if (h->overlap == PS_OVERLAP_AUTO || h->overlap <= h->period)
        return 0;
    return ps_fail(err, -EINVAL,
                   "parameters.overlap: found %s; the next exchange leaves after parameters.period: %u; "
                   "allowed are 1 to %u, true, false and auto, or a longer period",
                   found, h->period, h->period);
}

static int check_overlap(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    char text[PS_OVERLAP_TEXT];
    const char *found = ps_overlap_text(cfg->hyper.overlap, text);
    if (cfg->hyper.overlap == 0)
        return 0;
    if (rule->half == PS_HALF_ADMM)
        return ps_fail(err, -EINVAL,
                       "parameters.overlap: found %s; under rule %s the next step needs the answer to this "
                       "one; allowed is false",
                       found, rule->name);
    if (cfg->hyper.serial && rule->half != PS_HALF_ELASTIC)
        return ps_fail(err, -EINVAL,
                       "parameters.overlap: found %s; with parameters.serial only one worker computes at a "
                       "time, and under rule %s its message is made of what it computes; allowed is false",
                       found, rule->name);
    if (cfg->hyper.overlap == 1 || rule->in_clique)
        return 0;
    if (cfg->hyper.serial)
        return ps_fail(err, -EINVAL,
                       "parameters.overlap: found %s; with parameters.serial a worker's turn ends with its "
                       "exchange, before its next step; allowed are true and false",
                       found);
    if ((rule->uses & PS_USES_PERIOD) == 0)
        return ps_fail(err, -EINVAL,
                       "parameters.overlap: found %s; rule %s exchanges at every step, so that an answer "
                       "lands at the next one; allowed are true and false",
                       found, rule->name);
    return check_overlap_fits(cfg, found, err);
}

/* With `serial`, a slow worker delays the others by its whole turn, whatever its period. */
static int check_dynamic(const struct psd_config *cfg, struct ps_error *err)
{
    if (!cfg->hyper.dynamic_period || !cfg->hyper.serial)
        return 0;
    return ps_fail(err, -EINVAL,
                   "parameters.dynamic_period: found true; with parameters.serial only one worker computes "
                   "at a time, so that a shorter period saves nothing; allowed is false");
}

static int check_fragments(const struct psd_config *cfg, struct ps_error *err)
{
    const struct ps_hyper *h = &cfg->hyper;
    char allowed[100] = "";
    if (h->fragments <= 1)
        return 0;
    if (h->period < h->fragments)
        return ps_fail(
            err, -EINVAL,
            "parameters.period: found %u; each of parameters.fragments: %u is exchanged after a different "
            "step; allowed is at least %u",
            h->period, h->fragments, h->fragments);
    if (ps_admission_find(cfg->admission)->fragments)
        return 0;
    for (const struct ps_admission_info *a = ps_admissions; a->name != NULL; a++)
        if (a->fragments)
            ps_text_join(allowed, sizeof allowed, ", ", a->name);
    return ps_fail(
        err, -EINVAL,
        "parameters.fragments: found %u; admission %s counts exchanges of the whole vector; allowed is 1, "
        "or admissions %s",
        h->fragments, cfg->admission, allowed);
}

static int check_races(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    const struct ps_admission_info *admission = ps_admission_find(cfg->admission);
    if ((!rule->fixed_workers && !rule->counts_moves) || admission == NULL || !admission->whole_lanes)
        return 0;
    return ps_fail(err, -EINVAL,
                   "admission: found %s, where a race may lose a message; rule %s %s; allowed are fcfs, %s",
                   cfg->admission, rule->name,
                   rule->counts_moves ? "counts the moves of each value" : "needs every message",
                   rule->counts_moves ? "backup, quorum, round-robin, ssp and sync"
                                      : "round-robin, ssp and sync");
}

/* A rule that needs every message excludes admissions that drop some. */
static int check_drops(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    const struct ps_admission_info *admission = ps_admission_find(cfg->admission);
    if (!rule->fixed_workers || admission == NULL || !admission->drops_late)
        return 0;
    return ps_fail(err, -EINVAL,
                   "admission: found %s, which may drop a message; rule %s needs every message; allowed are "
                   "fcfs, round-robin, ssp and sync",
                   cfg->admission, rule->name);
}

/* The trimmed mean needs at least one remaining message. */
static int check_trim(const struct psd_config *cfg, struct ps_error *err)
{
    const struct ps_hyper *h = &cfg->hyper;
    if (h->merge != PS_MERGE_TRIMMED_MEAN || h->workers == 0 || h->workers > 2 * h->trim)
        return 0;
    return ps_fail(err, -EINVAL,
                   "parameters.trim: found %u; no message of %u workers would remain; allowed are 0 to %u",
                   h->trim, h->workers, (h->workers - 1) / 2);
}

/* In an aggregated round every gradient is taken at the center that it moves: there is no delay to
 * compensate. */
static int check_seen(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    const struct ps_admission_info *admission = ps_admission_find(cfg->admission);
    if (!rule->keeps_seen || admission == NULL || !admission->merges)
        return 0;
    return ps_fail(
        err, -EINVAL,
        "admission: found %s, where all workers saw the same center, so that rule %s would be sgd; allowed "
        "are fcfs, hogwild, round-robin and ssp",
        cfg->admission, rule->name);
}

static int check_workers(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    if ((rule->uses & PS_USES_WORKERS) != 0 && cfg->hyper.workers == 0)
        return ps_fail(err, -EINVAL,
                       "workers: found any; rule %s needs a fixed number of workers; allowed is 1 to 1024",
                       rule->name);
    if (cfg->hyper.workers > cfg->limits.clients)
        return ps_fail(err, -EINVAL, "workers: found %u; allowed are at most %u (limits.clients)",
                       cfg->hyper.workers, cfg->limits.clients);
    return 0;
}

/* Parses numbers separated by commas, such as "0.2, 0.5". Returns how many. -EINVAL: one is not a number, or
 * there are more than PS_MAX_MILESTONES. */
static int read_list(const char *text, double *out)
{
    int n = 0;
    for (const char *at = text;; at++) {
        char *end;
        at += strspn(at, " ");
        if (n == PS_MAX_MILESTONES || strspn(at, "0123456789.") == 0)
            return -EINVAL;
        out[n++] = strtod(at, &end);
        if (end > at + strspn(at, "0123456789+-.eE"))
            return -EINVAL; /* 0x1 */
        at = end + strspn(end, " ");
        if (*at == 0)
            return n;
        if (*at != ',')
            return -EINVAL;
    }
}

/* Refuses milestones that do not fit in a uint64_t, and more than the list holds. */
static int read_milestones(const char *text, struct ps_schedule *s)
{
    double steps[PS_MAX_MILESTONES];
    int n = read_list(text, steps);
    for (int k = 0; k < n; k++) {
        if (!(steps[k] <= 1e12 && steps[k] == floor(steps[k])))
            return -EINVAL;
        s->milestones[k] = (uint64_t)steps[k];
    }
    s->n_milestones = n > 0 ? (uint32_t)n : 0;
    return n < 0 ? n : 0;
}

static int read_factors(const char *text, struct ps_schedule *s)
{
    int n = read_list(text, s->factors);
    s->n_factors = n > 0 ? (uint32_t)n : 0;
    return n < 0 ? n : 0;
}

static int check_schedule(struct psd_config *cfg, struct ps_error *err)
{
    struct ps_schedule *s = &cfg->hyper.schedule;
    const char *milestones = cfg->schedule.milestones, *factors = cfg->schedule.factors;
    s->n_milestones = s->n_factors = 0;
    bool none = strcmp(factors, "none") == 0;
    int rc = strcmp(milestones, "none") == 0 ? 0 : read_milestones(milestones, s);
    if (rc == 0)
        rc = read_factors(!none ? factors : s->kind == PS_SCHEDULE_PLATEAU ? "0.2, 0.5" : "0.1", s);
    bool one_clique = ps_method_is_one_clique(ps_rule_find(cfg->rule), cfg->clique.mode);
    if (s->kind == PS_SCHEDULE_PLATEAU && (one_clique || cfg->servers.count > 1))
        return ps_fail(
            err, -EINVAL,
            "parameters.schedule.kind: found plateau %s, where parameters cannot change while the job "
            "runs; allowed are the other kinds",
            one_clique ? "in a job whose workers are one clique" : "with several servers");
    const char *wants = rc == 0 ? ps_schedule_wants(s) : "numbers separated by commas, at most 16";
    if (wants == NULL)
        return 0;
    return ps_fail(err, -EINVAL,
                   "parameters.schedule: found milestones '%.60s', factors '%.60s'; allowed are %s",
                   milestones, factors, wants);
}

int psd_config_method_check(struct psd_config *cfg, struct ps_error *err)
{
    int rc;
    if ((rc = check_method(cfg->method, err)) < 0 || (rc = psd_preset_apply(cfg, err)) < 0 ||
        (rc = resolve(cfg, err)) < 0 || (rc = check_parts(cfg, err)) < 0)
        return rc;

    const struct ps_rule_info *rule = ps_rule_find(cfg->rule);
    const struct ps_optimizer_info *optimizer = ps_optimizer_find(cfg->optimizer);
    if ((rc = check_optimizer(cfg, rule, optimizer, err)) < 0 || (rc = settle_unused(cfg, err)) < 0 ||
        (rc = check_schedule(cfg, err)) < 0 || (rc = check_moving_rate(cfg, uses_of(cfg), err)) < 0 ||
        (rc = check_momentum(cfg, optimizer, err)) < 0 || (rc = check_decay(cfg, optimizer, err)) < 0 ||
        (rc = check_dynamic(cfg, err)) < 0 || (rc = check_fragments(cfg, err)) < 0 ||
        (rc = check_overlap(cfg, rule, err)) < 0 || (rc = check_races(cfg, rule, err)) < 0 ||
        (rc = check_drops(cfg, rule, err)) < 0 || (rc = check_trim(cfg, err)) < 0 ||
        (rc = check_seen(cfg, rule, err)) < 0 || (rc = psd_config_codec_check(cfg, rule, err)) < 0 ||
        (rc = psd_config_clique_check(cfg, rule, err)) < 0)
        return rc;
    return check_workers(cfg, rule, err);
}

const char *psd_config_remark(const struct psd_config *cfg)
{
    return cfg->hyper.overlap == PS_OVERLAP_AUTO
               ? "overlap auto: an answer lands when it is there; two runs with equal seeds differ"
               : "";
}

/* Stability bounds of elastic averaging on a quadratic of curvature 1, for eta < 2.
 *
 * Exchanges one at a time (round-robin, and approximately fcfs): alpha <= (4 - 2 eta) / (4 - eta), whatever
 * the number of workers p (Zhang, Choromanska, LeCun 2015, section 4).
 *
 * In rounds (sync): the workers' mean y and the center move by
 *   y' = (1 - eta - alpha) y + alpha x~, x~' = (1 - p alpha) x~ + p alpha y.
 * The eigenvalues of one step are 1 - l with l^2 - a l + c^2 = 0, a = eta + (p + 1) alpha, c^2 = eta p alpha.
 * Both l are real, so the step is stable iff both lie in (0, 2). The larger one first reaches 2 where 4 - 2 a
 * + c^2 = 0, that is at
 *   alpha = (4 - 2 eta) / (2 (p + 1) - p eta).
 * The workers' differences shrink by 1 - eta - alpha, which is stable up to 2 - eta, a weaker condition. With
 * p = 1 this is the bound above. */
static double stable_alpha(double eta, uint32_t p, bool sync)
{
    return sync ? (4 - 2 * eta) / (2 * (p + 1.0) - p * eta) : (4 - 2 * eta) / (4 - eta);
}

void psd_config_method_warn(const struct psd_config *cfg, struct ps_error *warning)
{
    const struct ps_hyper *h = &cfg->hyper;
    bool sync = ps_admission_find(cfg->admission)->merges || cfg->clique.mode == PS_CLIQUE_VECTORS;
    uint32_t p = h->workers > 0 ? h->workers : 1;
    double eta = h->learning_rate, alpha = ps_hyper_alpha(h, p, sync), bound = stable_alpha(eta, p, sync);
    char workers[40] = "";

    if (ps_rule_find(cfg->rule)->fixed_workers && !ps_admission_find(cfg->admission)->members && p > 1)
        ps_fail(warning, 0,
                "admission: %s lets a worker begin at a center that others have moved; then the center of "
                "rule %s is not the mean of the workers' shares, and ends elsewhere. With round-robin, "
                "ssp and sync all begin together",
                cfg->admission, cfg->rule);
    if ((uses_of(cfg) & PS_USES_RATE) == 0)
        return;
    if (sync || !isnan(h->beta))
        snprintf(workers, sizeof workers, p > 1 ? " with %u workers" : " with one worker", p);
    if (eta > 2)
        ps_fail(
            warning, 0,
            "parameters.learning_rate: %g is above 2, where elastic averaging is unstable for every alpha "
            "(Zhang 2015, curvature 1)",
            eta);
    else if (alpha > bound)
        ps_fail(
            warning, 0,
            "parameters: alpha is %g%s; elastic averaging is stable up to %s = %.4g at this learning rate "
            "(Zhang 2015, curvature 1)",
            alpha, workers, sync ? "(4 - 2 eta)/(2 (workers + 1) - workers eta)" : "(4 - 2 eta)/(4 - eta)",
            bound);
}
