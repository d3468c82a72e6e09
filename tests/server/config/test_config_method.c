/* The method of a configuration: presets, mixes, and what holds between keys. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/check_method.h"
#include "server/config/presets.h"
#include "tests/support/unit.h"

static int read_text(struct psd_config *cfg, const char *text, struct ps_error *err)
{
    psd_config_defaults(cfg);
    err->text[0] = 0;
    return psd_config_read_text(cfg, "text", text, strlen(text), err);
}

static void assert_error_says(const struct ps_error *err, const char *part)
{
    ck_assert_msg(part == NULL || strstr(err->text, part) != NULL, "'%s' is not in the sentence '%s'", part,
                  err->text);
}

/* What a preset cannot know: the job's number of workers. */
static void give_what_a_job_must(struct psd_config *cfg, const struct ps_method *m)
{
    struct ps_error err;
    if (m->rule != NULL && (ps_rule_find(m->rule)->uses & PS_USES_WORKERS))
        ck_assert_msg(psd_config_set(cfg, "workers=4", &err) == 0, "%s", err.text);
}

static void assert_has_parts_of(const struct psd_config *cfg, const struct ps_method *m)
{
    ck_assert_str_eq(cfg->method, m->name);
    ck_assert_str_eq(cfg->rule, m->rule);
    ck_assert_str_eq(cfg->admission, m->admission);
    ck_assert_str_eq(cfg->optimizer, m->optimizer);
    ck_assert_str_eq(cfg->averaging, m->averaging);
}

START_TEST(preset_files_pass_the_check)
{
    char path[256];
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        struct psd_config cfg;
        struct ps_error err, warning;
        if (m->rule == NULL)
            continue; /* psworker's own */
        snprintf(path, sizeof path, PSD_CONFIGS "/methods/%s.yaml", m->name);
        psd_config_defaults(&cfg);
        ck_assert_msg(psd_config_read(&cfg, path, &err) == 0, "%s", err.text);
        give_what_a_job_must(&cfg, m);
        ck_assert_msg(psd_config_check(&cfg, &err, &warning) == 0, "%s: %s", m->name, err.text);
        assert_has_parts_of(&cfg, m);
        ck_assert_str_eq(warning.text, "");
    }
}
END_TEST

/* A row is a preset and a preset is a row, so that a new method is one file and one row. */
START_TEST(presets_are_the_rows)
{
    struct psd_config cfg;
    struct ps_error err;
    for (const struct psd_preset *p = psd_presets; p->name != NULL; p++) {
        const struct ps_method *m = ps_method_find(p->name);
        ck_assert_msg(m != NULL && m->rule != NULL, "configs/methods/%s.yaml has no row in ps_methods",
                      p->name);
    }
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        psd_config_defaults(&cfg);
        snprintf(cfg.method, sizeof cfg.method, "%s", m->name);
        give_what_a_job_must(&cfg, m);
        int rc = psd_config_check(&cfg, &err, NULL);
        if (m->rule != NULL) {
            ck_assert_msg(rc == 0, "%s: %s", m->name, err.text);
            assert_has_parts_of(&cfg, m);
        } else {
            ck_assert_int_eq(rc, -EINVAL);
            assert_error_says(&err, "psworker --method");
        }
    }
}
END_TEST

/* Each key that belongs to a method: every preset that does not use it refuses it by name and says who would,
 * and takes it where it only says that there is no such thing. */
START_TEST(unused_keys_are_refused)
{
    static const struct {
        const char *key, *value, *off, *would;
        const char *beside; /* what the value needs of those who use it */
    } keys[] = {
        {"workers", "3", "any",
         "rules admm and dc-asgd, admissions round-robin, backup, quorum, ssp and sync would"},
        {"parameters.alpha", "0.1", "none", "rule elastic would"},
        {"parameters.rho", "0.1", "none", "rules elastic and admm would"},
        {"parameters.beta", "0.1", "none", "rule elastic would"},
        {"parameters.period", "3", "1", "rules elastic, add, outer-nesterov and delayed-nesterov would"},
        {"parameters.dynamic_period", "true", "false",
         "rules add, outer-nesterov and delayed-nesterov would"},
        {"parameters.fragments", "2", "1", "rules add, outer-nesterov and delayed-nesterov would",
         "period=2"},
        {"parameters.mix", "0.5", "0", "rules add, outer-nesterov and delayed-nesterov would"},
        {"parameters.momentum", "0.5", "0",
         "rules momentum, mdownpour and adam, optimizers heavy-ball and nesterov would"},
        {"parameters.beta2", "0.999", NULL, "rule adam would"},
        {"parameters.epsilon", "1e-8", NULL, "rules adagrad and adam would"},
        {"parameters.averaging_rate", "0.001", NULL, "averaging moving would"},
        {"parameters.outer_learning_rate", "0.7", NULL, "rules outer-nesterov and delayed-nesterov would"},
        {"parameters.outer_momentum", "0.9", NULL, "rules outer-nesterov and delayed-nesterov would"},
        {"parameters.delay", "4", NULL, "rule delayed-nesterov would"},
        {"parameters.weight", "inverse", "const",
         "rules sgd, momentum, mdownpour, adagrad, adam and dc-asgd would"},
        {"parameters.weight_power", "0.5", NULL, "does not use it; power would"},
        {"parameters.compensation", "0.04", NULL, "rule dc-asgd would"},
        {"parameters.serial", "true", "false", "admission round-robin would"},
        {"parameters.slack", "5", NULL, "admission ssp would"},
        {"parameters.backup", "2", NULL, "admission backup would"},
        {"parameters.quorum", "2", NULL, "admission quorum would"},
        {"parameters.grace_ms", "7", NULL, "admission quorum would"},
        {"parameters.pipeline", "2", "1", "rule hold would"},
        {"parameters.pipeline_warmup", "5", NULL, "rule hold would"},
        {"parameters.pipeline_warmup_epochs", "2.5", NULL, "rule hold would"},
        {"parameters.merge", "clip_norm", "mean", "admissions backup, quorum and sync would"},
        {"parameters.clip", "2", NULL, "clip_norm would"},
        {"parameters.trim", "1", NULL, "trimmed_mean would"},
        {"parameters.schedule.gamma", "0.1", NULL, "step and inv-sqrt would"},
        {"parameters.schedule.step_steps", "10000", NULL, "step would"},
        {"parameters.schedule.total_steps", "10000", NULL, "cosine would"},
        {"parameters.schedule.floor", "0.1", NULL, "cosine would"},
        {"parameters.schedule.milestones", "300", "none", "multi-step would"},
        {"parameters.schedule.factors", "0.2", "none", "multi-step and plateau would"},
        {"parameters.schedule.watch", "train_loss", NULL, "plateau would"},
        {"parameters.schedule.patience", "3", NULL, "plateau would"},
        {"parameters.schedule.threshold", "0.01", NULL, "plateau would"},
        {"parameters.schedule.every_s", "30", NULL, "train_loss would"},
    };
    struct psd_config cfg, given;
    struct ps_error err;
    char text[100], sentence[200];
    size_t refused = 0, taken = 0;

    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        size_t i = 0;
        if (k->uses == 0 && k->chooser == NULL)
            continue;
        while (i < sizeof keys / sizeof *keys && strcmp(keys[i].key, k->name) != 0)
            i++;
        ck_assert_msg(i < sizeof keys / sizeof *keys, "%s belongs in this table", k->name);
        for (const struct ps_method *m = ps_methods; m->rule != NULL; m++) {
            psd_config_defaults(&cfg);
            snprintf(cfg.method, sizeof cfg.method, "%s", m->name);
            give_what_a_job_must(&cfg, m);
            given = cfg;
            ck_assert_int_eq(psd_config_check(&cfg, &err, NULL), 0);
            snprintf(text, sizeof text, "%s=%s", k->name, keys[i].value);
            ck_assert_int_eq(psd_config_set(&given, text, &err), 0);
            if (psd_config_key_used(k, &cfg)) {
                ck_assert_int_eq(keys[i].beside != NULL ? psd_config_set(&given, keys[i].beside, &err) : 0,
                                 0);
                ck_assert_msg(psd_config_check(&given, &err, NULL) == 0, "%s of %s: %s", text, m->name,
                              err.text);
                taken++;
                continue;
            }
            ck_assert_msg(psd_config_check(&given, &err, NULL) == -EINVAL, "%s takes %s", m->name, text);
            snprintf(sentence, sizeof sentence, "%s: ", k->name);
            ck_assert_msg(strncmp(err.text, sentence, strlen(sentence)) == 0, "%s", err.text);
            assert_error_says(&err, "not use it; ");
            assert_error_says(&err, keys[i].would);
            refused++;
            ck_assert_int_eq(k->off, keys[i].off != NULL);
            if (k->off) {
                snprintf(text, sizeof text, "%s=%s", k->name, keys[i].off);
                ck_assert_int_eq(psd_config_set(&given, text, &err), 0);
                ck_assert_msg(psd_config_check(&given, &err, NULL) == 0, "%s of %s: %s", text, m->name,
                              err.text);
            }
        }
    }
    ck_assert_uint_gt(refused, 100);
    ck_assert_uint_gt(taken, 20);
}
END_TEST

static const struct {
    const char *schedule, *says; /* what an error says, or NULL: the schedule is taken */
} schedules[] = {
    {"{kind: cosine, total_steps: 100, floor: 0.25}", NULL},
    {"{kind: multi-step, milestones: \"30000, 60000,  70000\", factors: \"0.2, 0.5\"}", NULL},
    {"{kind: multi-step, milestones: 300}", NULL},
    {"{kind: plateau}", NULL},
    {"{kind: plateau, watch: train_loss, every_s: 10, factors: \"0.2, 0.5, 0.5\", patience: 3}", NULL},
    {"{kind: plateau, every_s: 10}", "watch test_loss does not use it; train_loss would"},
    {"{kind: plateau, factors: 0}", "factors, 1 to 16 above 0 up to 1"},
    {"{kind: multi-step}", "allowed are milestones, 1 to 16 steps that rise"},
    {"{kind: multi-step, milestones: \"60000, 30000\"}", "milestones '60000, 30000'"},
    {"{kind: multi-step, milestones: \"3, , 4\"}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: \"3,4,\"}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: \"1e15\"}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: \"-3\"}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: \"2.5\"}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: \"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\"}", "at most 16"},
    {"{kind: multi-step, milestones: 300, factors: \"0.2, 0.5\"}", "one for each milestone or fewer"},
    {"{kind: multi-step, milestones: 300, factors: 5}", "factors '5'"},
    {"{kind: multi-step, milestones: 300, factors: a fifth}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: 300, factors: 0x1}", "numbers separated by commas"},
    {"{kind: multi-step, milestones: \"1e2\", factors: \"1e-1\"}", NULL},
};

START_TEST(schedules_are_read_from_their_lists)
{
    struct psd_config cfg;
    struct ps_error err = {""};
    char text[200];
    snprintf(text, sizeof text, "method: async-sgd\nparameters: {schedule: %s}\n", schedules[_i].schedule);
    ck_assert_msg(read_text(&cfg, text, &err) == 0, "%s", err.text);
    int rc = psd_config_check(&cfg, &err, NULL);
    ck_assert_msg((rc == 0) == (schedules[_i].says == NULL), "%s: %s", text, err.text);
    if (schedules[_i].says != NULL) {
        ck_assert_msg(strstr(err.text, schedules[_i].says) != NULL, "%s", err.text);
    } else if (_i == 1) {
        const struct ps_schedule *s = &cfg.hyper.schedule;
        ck_assert_uint_eq(s->n_milestones, 3);
        ck_assert(s->milestones[0] == 30000 && s->milestones[1] == 60000 && s->milestones[2] == 70000);
        ck_assert(s->n_factors == 2 && s->factors[0] == 0.2 && s->factors[1] == 0.5);
    }
}
END_TEST

/* A mix keeps what it uses of its preset; the rest is as if the preset did not have it. */
START_TEST(mix_keeps_what_it_uses)
{
    struct psd_config cfg;
    struct ps_error err;
    ck_assert_int_eq(read_text(&cfg, "method: eamsgd\noptimizer: sgd\n", &err), 0);
    ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
    ck_assert_str_eq(cfg.method, "custom");
    ck_assert_double_eq(cfg.hyper.momentum, 0);
    ck_assert_double_eq(cfg.hyper.alpha, 0.2);
    ck_assert_uint_eq(cfg.hyper.period, 16);
    ck_assert_int_eq(cfg.hyper.schedule.kind, PS_SCHEDULE_STEP);
    ck_assert_int_eq(read_text(&cfg, "method: eamsgd\nparameters: {schedule: {kind: constant}}\n", &err), 0);
    ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
    ck_assert_str_eq(cfg.method, "eamsgd");
    ck_assert_double_eq(cfg.hyper.schedule.gamma, 0.1); /* the key's own, not the preset's 0.3 */
    ck_assert_int_eq(
        read_text(&cfg,
                  "method: async-easgd\nrule: admm\noptimizer: none\nworkers: 3\nparameters: {rho: 2}\n",
                  &err),
        0);
    ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
    ck_assert(isnan(cfg.hyper.alpha) && cfg.hyper.rho == 2);
    ck_assert_uint_eq(cfg.hyper.period, 1);
}
END_TEST

/* JSON puts words that stand for a number or nothing in quotes, which psctl config does not print. */
static void unquote_words(char *text)
{
    static const char *const words[] = {"\"preset\"", "\"any\"", "\"auto\"", "\"off\""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (char *at = text; (at = strstr(at, words[i])) != NULL;) {
            at[0] = ' ';
            at[strlen(words[i]) - 1] = ' ';
        }
}

/* What psd shows of a configuration can be read again and is then the same, whatever the method uses. */
START_TEST(json_is_read_again)
{
    struct psd_config cfg, again;
    struct ps_error err;
    for (const struct ps_method *m = ps_methods; m->rule != NULL; m++) {
        psd_config_defaults(&cfg);
        snprintf(cfg.method, sizeof cfg.method, "%s", m->name);
        give_what_a_job_must(&cfg, m);
        ck_assert_int_eq(psd_config_check(&cfg, &err, NULL), 0);
        char *text = psd_config_json(&cfg);
        ck_assert_ptr_nonnull(text);
        unquote_words(text);
        psd_config_defaults(&again);
        ck_assert_msg(psd_config_read_text(&again, m->name, text, strlen(text), &err) == 0, "%s", err.text);
        ck_assert_msg(psd_config_check(&again, &err, NULL) == 0, "%s", err.text);
        ck_assert_mem_eq(&again.hyper, &cfg.hyper, sizeof cfg.hyper);
        free(text);
    }
}
END_TEST

/* As psctl config prints it: psd has settled what it runs with. */
START_TEST(json_of_a_clique_in_vectors_mode_is_read_again)
{
    static const char given[] = "method: sync-easgd\nclique: {mode: vectors}\n";
    struct psd_config cfg, again;
    struct ps_error err;
    psd_config_defaults(&cfg);
    ck_assert_int_eq(psd_config_read_text(&cfg, "given", given, strlen(given), &err), 0);
    ck_assert_msg(psd_config_settle(&cfg, &err, NULL) == 0, "%s", err.text);
    ck_assert_str_eq(cfg.admission, "fcfs");
    char *text = psd_config_json(&cfg);
    ck_assert_ptr_nonnull(text);
    unquote_words(text);
    psd_config_defaults(&again);
    ck_assert_msg(psd_config_read_text(&again, "json", text, strlen(text), &err) == 0, "%s", err.text);
    ck_assert_msg(psd_config_settle(&again, &err, NULL) == 0, "%s", err.text);
    ck_assert_mem_eq(&again.hyper, &cfg.hyper, sizeof cfg.hyper);
    ck_assert_str_eq(again.admission, cfg.admission);
    free(text);
}
END_TEST

/* How far rounds of sync EASGD grow, with period 1, curvature 1 and p workers that start at different places:
 * the size of the state (x_1 ... x_p, center) after many, or once it tells. */
static double sync_growth(double eta, double alpha, int p)
{
    double x[8], center = 1, size = 0;
    for (int i = 0; i < p; i++)
        x[i] = i % 2 == 0 ? -1.5 : -0.5;
    for (int t = 0; t < 400000; t++) {
        double sum = 0;
        size = fabs(center);
        for (int i = 0; i < p; i++) {
            sum += x[i] - center;
            x[i] -= eta * x[i] + alpha * (x[i] - center);
        }
        center += alpha * sum;
        for (int i = 0; i < p; i++)
            size = fmax(size, fabs(x[i]));
        if (size > 1e100 || size < 1e-100)
            return size;
    }
    return size;
}

/* The warning begins where rounds begin to grow, a hundredth to either side. The rounds decide by the size of
 * one eigenvalue alone, which is less than a thousandth from 1 there: 400,000 of them leave no doubt. */
START_TEST(sync_bound_is_where_rounds_grow)
{
    static const double etas[] = {0.1, 0.5, 1.0, 1.9};
    static const int workers[] = {1, 2, 4, 8};
    struct psd_config cfg;
    struct ps_error err, warning;
    char text[300];

    for (size_t e = 0; e < 4; e++) {
        for (size_t w = 0; w < 4; w++) {
            double eta = etas[e], bound = (4 - 2 * eta) / (2 * (workers[w] + 1) - workers[w] * eta);
            ck_assert_double_lt(sync_growth(eta, 0.99 * bound, workers[w]), 1e-3);
            ck_assert_double_gt(sync_growth(eta, 1.01 * bound, workers[w]), 1e3);
            for (int beyond = 0; beyond < 2; beyond++) {
                snprintf(text, sizeof text,
                         "method: sync-easgd\nworkers: %d\nparameters: {learning_rate: %g, alpha: %.9f}\n",
                         workers[w], eta, bound * (beyond ? 1.01 : 0.99));
                ck_assert_int_eq(read_text(&cfg, text, &err), 0);
                ck_assert_msg(psd_config_check(&cfg, &err, &warning) == 0, "%s", err.text);
                ck_assert_int_eq(warning.text[0] != 0, beyond);
            }
        }
    }
}
END_TEST

#define FORTY "1234567890123456789012345678901234567890"

static const struct {
    const char *text;
    const char *says[3]; /* none: it passes */
    const char *warns;
} checks[] = {
    {"method: async-easgd\nparameters: {alpha: 0.2}\n", {NULL}, NULL},
    {"method: async-easgd\nparameters: {rho: 2}\n", {NULL}, NULL},
    {"method: async-easgd\nparameters: {beta: 0.9, period: 8}\n", {NULL}, NULL},
    {"method: async-easgd\n", {NULL}, NULL}, /* the preset gives what is needed */
    {"parameters: {alpha: none}\n", {"exactly one of alpha, rho and beta", "found none"}, NULL},
    {"method: async-easgd\nparameters: {alpha: 0.2, beta: 0.9}\n",
     {"exactly one", "found alpha, beta"},
     NULL},
    {"method: async-sgd\nparameters: {alpha: 0.2}\n",
     {"parameters.alpha: ", "rule sgd, admission fcfs, optimizer none and averaging none do not use it",
      "rule elastic would"},
     NULL},
    {"method: async-sgd\nparameters: {period: 2}\n",
     {"parameters.period: ", "rule sgd", "rules elastic, add, outer-nesterov and"},
     NULL},
    {"method: async-sgd\nparameters: {momentum: 0.9}\n",
     {"parameters.momentum: ", "rule sgd", "do not use it"},
     NULL},
    {"method: async-sgd\nparameters: {momentum: 0, period: 1, alpha: none, serial: false}\nworkers: any\n",
     {NULL},
     NULL},
    {"method: lookahead\n",
     {"method: 'lookahead' is not known", "async-easgd, async-measgd, eamsgd", "sgd, and custom (rule"},
     NULL},
    {"method: easgd\n", {"did you mean async-easgd? allowed are original-easgd", "and custom (rule"}, NULL},
    {"method: easgsd\n", {"did you mean eamsgd?"}, NULL},
    {"method: pipesgd\n", {"did you mean pipe-sgd?"}, NULL},
    {"method: diloco\nadmission: hogwild\n", {NULL}, NULL},
    {"method: diloco\noptimizer: none\n", {"optimizer: found none", "rule outer-nesterov", "sgd"}, NULL},
    {"method: diloco\nparameters: {outer_momentum: 0}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {delay: 4}\n", {"parameters.delay: ", "rule delayed-nesterov would"}, NULL},
    {"method: async-local-sgd\nadmission: hogwild\n",
     {"admission: found hogwild", "rule delayed-nesterov counts the moves of each value",
      "fcfs, backup, quorum, round-robin, ssp and sync"},
     NULL},
    {"method: async-local-sgd\nadmission: sync\n", {NULL}, NULL},
    {"method: diloco\nparameters: {dynamic_period: true}\n", {NULL}, NULL},
    {"method: downpour\nadmission: ssp\nparameters: {dynamic_period: true}\n", {NULL}, NULL},
    {"method: downpour\nadmission: round-robin\nparameters: {dynamic_period: true}\n", {NULL}, NULL},
    {"method: downpour\nadmission: round-robin\nparameters: {dynamic_period: true, serial: true}\n",
     {"parameters.dynamic_period: found true", "parameters.serial", "allowed is false"},
     NULL},
    {"method: diloco\nparameters: {fragments: 50, mix: 0.5}\n", {NULL}, NULL},
    {"method: diloco\nadmission: hogwild\nparameters: {fragments: 4}\n", {NULL}, NULL},
    {"method: async-local-sgd\nparameters: {fragments: 4}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {fragments: 51}\n",
     {"parameters.period: found 50", "parameters.fragments: 51", "allowed is at least 51"},
     NULL},
    {"method: downpour\nadmission: ssp\nparameters: {period: 10, fragments: 4}\n",
     {"parameters.fragments: found 4", "admission ssp", "allowed is 1, or admissions fcfs, hogwild, sync"},
     NULL},
    {"method: diloco\ncodec: {message: int4}\n", {NULL}, NULL},
    {"method: diloco\ncodec: {message: topk:0.03, answer: int8, error_feedback: true}\n", {NULL}, NULL},
    {"method: async-sgd\ncodec: {message: topk:1, error_feedback: true}\n", {NULL}, NULL},
    {"method: diloco\ncodec: {message: topk:0.03}\n",
     {"codec.error_feedback: found false", "topk:0.03", "allowed is true"},
     NULL},
    {"method: diloco\nworkers: 4\ncodec: {answer: int4}\n", {NULL}, NULL},
    {"method: downpour\nworkers: 4\ncodec: {answer: topk:0.03}\n",
     {NULL},
     NULL}, /* which counts no workers else */
    {"method: downpour\nworkers: 4\n", {"workers: rule add"}, NULL},
    {"method: downpour\ncodec: {answer: topk:0.03}\n",
     {"workers: found any; with codec.answer topk:0.03", "allowed is 1 to 1024"},
     NULL},
    {"method: async-easgd\nworkers: 4\ncodec: {answer: int4}\n",
     {"codec.answer: found int4", "rule elastic", "int8; allowed are these, or rules whose workers"},
     NULL},
    {"method: dc-asgd\nworkers: 4\ncodec: {answer: int4}\n",
     {"codec.answer: found int4", "rule dc-asgd"},
     NULL},
    {"method: admm\nworkers: 4\ncodec: {answer: topk:0.5}\n",
     {"codec.answer: found topk:0.5", "rule admm"},
     NULL},
    {"method: async-easgd\ncodec: {message: int4}\n",
     {"codec.message: found int4; the message of rule elastic is a vector itself",
      "raw, fp16, bf16, trunc16, int8, or rules that send moves"},
     NULL},
    {"method: eamsgd\ncodec: {message: topk:0.1, error_feedback: true}\n",
     {"found topk:0.1", "rule elastic"},
     NULL},
    {"method: sync-easgd\nclique: {mode: vectors}\ncodec: {message: int4}\n",
     {"found int4", "rule elastic"},
     NULL},
    {"method: admm\nworkers: 4\ncodec: {message: int4}\n", {"found int4", "rule admm"}, NULL},
    {"method: pipe-sgd\ncodec: {message: int4}\n", {"found int4", "rule hold"}, NULL},
    {"method: sync-sgd\nworkers: 4\nparameters: {merge: trimmed_mean, trim: 1}\n"
     "codec: {message: topk:0.1, error_feedback: true}\n",
     {"found topk:0.1", "trimmed_mean", "int4, or merge: mean or clip_norm"},
     NULL},
    {"method: sync-sgd\nworkers: 4\nparameters: {merge: trimmed_mean, trim: 1}\ncodec: {message: int4}\n",
     {NULL},
     NULL},
    {"method: sync-easgd\nclique: {mode: vectors}\n", {NULL}, NULL},
    {"method: sync-sgd\nclique: {mode: vectors}\n",
     {"clique.mode: found vectors", "rule sgd", "allowed is gradients"},
     NULL},
    {"method: async-easgd\nadmission: ssp\nclique: {mode: vectors}\n",
     {"clique.mode: found vectors", "admission ssp", "allowed is gradients"},
     NULL},
    {"method: sync-easgd\nworkers: 2\nclique: {mode: vectors}\n",
     {"workers: found 2", "one clique", "allowed is any"},
     NULL},
    {"method: sync-easgd\nclique: {mode: vectors}\nparameters: {overlap: true}\n", {NULL}, NULL},
    {"method: d-sync\nadmission: sync\n", {"admission: found sync", "rule hold", "allowed is fcfs"}, NULL},
    {"method: pipe-sgd\nparameters: {overlap: true}\n",
     {"parameters.overlap: found true", "pipeline: 2", "allowed is false"},
     NULL},
    {"method: downpour\nadmission: round-robin\nparameters: {mix: 0.5}\n", {NULL}, NULL},
    {"method: dc-asgd\n", {"workers: found any", "rule dc-asgd", "allowed is 1 to 1024"}, NULL},
    {"method: dc-asgd\nworkers: 4\nparameters: {weight: inverse, compensation: 0}\n", {NULL}, NULL},
    {"method: dc-asgd\nworkers: 4\nadmission: hogwild\n", {NULL}, NULL},
    {"method: dc-asgd\nworkers: 4\nadmission: sync\n",
     {"admission: found sync", "rule dc-asgd would be sgd", "fcfs, hogwild, round-robin and ssp"},
     NULL},
    {"method: staleness-sgd\nparameters: {weight: power, weight_power: 1.5}\n", {NULL}, NULL},
    {"method: staleness-sgd\nparameters: {weight_power: 1.5}\n",
     {"parameters.weight_power: parameters.weight inverse does not use it; power would"},
     NULL},
    {"method: staleness-sgd\nadmission: round-robin\n", {NULL}, NULL},
    {"method: staleness-sgd\nadmission: sync\n", {NULL}, NULL}, /* the preset's weight is left out */
    {"method: sync-sgd\nparameters: {weight: inverse}\n",
     {"parameters.weight: rule sgd, admission sync", "dc-asgd would, but not under admission sync"},
     NULL},
    {"method: sync-sgd\nparameters: {weight: const}\n", {NULL}, NULL},
    {"method: downpour\nparameters: {weight: inverse}\n",
     {"parameters.weight: rule add", "dc-asgd would"},
     NULL},
    {"method: mvasgd\n", {"method: mvasgd is for one worker without psd: psworker --method mvasgd"}, NULL},
    {"method: eamsgd\nparameters: {momentum: 0}\n",
     {"parameters.momentum: found 0", "optimizer nesterov needs one above 0 and below 1"},
     NULL},
    {"method: async-measgd\nparameters: {momentum: 0}\n",
     {"parameters.momentum: found 0", "optimizer heavy-ball"},
     NULL},
    {"method: async-msgd\nparameters: {momentum: 0}\n", {NULL}, NULL},
    {"method: mdownpour\nparameters: {momentum: 0}\n",
     {"parameters.momentum: found 0", "rule mdownpour needs one above 0"},
     NULL},
    {"method: admm\n", {"workers: found any", "rule admm", "allowed is 1 to 1024"}, NULL},
    {"method: admm\nworkers: 4\n", {NULL}, NULL},
    {"method: admm\nworkers: 1\nadmission: fcfs\n", {NULL}, NULL},
    {"method: admm\nworkers: 4\nadmission: fcfs\n",
     {NULL},
     "admission: fcfs lets a worker begin at a center that others have moved"},
    {"method: admm\nworkers: 4\nadmission: sync\n", {NULL}, NULL},
    {"method: admm\nworkers: 4\nadmission: hogwild\n",
     {"admission: found hogwild", "rule admm", "fcfs, round-robin, ssp and sync"},
     NULL},
    {"method: admm\nworkers: 4\noptimizer: sgd\n",
     {"optimizer: found sgd", "rule admm", "allowed is none"},
     NULL},
    {"method: admm\nworkers: 4\nparameters: {overlap: true}\n",
     {"parameters.overlap: found true", "rule admm", "allowed is false"},
     NULL},
    {"method: admm\nworkers: 4\nparameters: {beta: 0.9}\n",
     {"parameters.beta: rule admm", "rule elastic would"},
     NULL},
    {"method: admm\nworkers: 4\nparameters: {rho: none}\n", {"parameters.rho: found none", "above 0"}, NULL},
    {"method: admm\nworkers: 4\nparameters: {rho: 0}\n", {"parameters.rho: found 0", "above 0"}, NULL},
    {"method: sync-sgd\nworkers: 9\nlimits: {clients: 8}\n",
     {"workers: found 9", "at most 8 (limits.clients)"},
     NULL},
    {"method: original-easgd\nworkers: 4\nparameters: {serial: true}\n", {NULL}, NULL},
    {"method: original-easgd\nparameters: {serial: true, overlap: true}\n", {NULL}, NULL},
    {"method: downpour\nadmission: round-robin\nparameters: {serial: true, overlap: true}\n",
     {"parameters.overlap: found true", "parameters.serial", "rule add"},
     NULL},
    {"method: sync-easgd\nparameters: {serial: true}\n",
     {"parameters.serial: ", "admission sync", "admission round-robin would"},
     NULL},
    {"method: sync-easgd\nparameters: {overlap: true}\n", {NULL}, NULL},
    {"method: sync-easgd\nparameters: {overlap: 8, period: 8}\n", {NULL}, NULL},
    {"method: eamsgd\nparameters: {overlap: auto, period: 8}\n", {NULL}, NULL},
    {"method: async-easgd\nparameters: {overlap: 1, period: 1}\n", {NULL}, NULL},
    {"method: async-easgd\nparameters: {overlap: 9, period: 8}\n",
     {"parameters.overlap: found 9", "period: 8; allowed are 1 to 8, true, false and auto", "longer period"},
     NULL},
    {"method: downpour\nparameters: {overlap: 10, period: 10}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {overlap: 65, period: 64}\n",
     {"parameters.overlap: found 65", "period: 64", "allowed are 1 to 64"},
     NULL},
    {"method: async-local-sgd\nparameters: {overlap: auto}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {overlap: 4, period: 16, fragments: 4}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {overlap: auto, period: 16, fragments: 4}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {overlap: 16, period: 16, fragments: 4}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {overlap: 17, period: 16, fragments: 4}\n",
     {"parameters.overlap: found 17", "parameters.period: 16", "allowed are 1 to 16"},
     NULL},
    {"method: async-sgd\nparameters: {overlap: 1}\n", {NULL}, NULL},
    {"method: async-sgd\nparameters: {overlap: 2}\n",
     {"parameters.overlap: found 2", "rule sgd exchanges at every step", "allowed are true and false"},
     NULL},
    {"method: async-sgd\nparameters: {overlap: auto}\n",
     {"parameters.overlap: found auto", "rule sgd", "allowed are true and false"},
     NULL},
    {"method: admm\nworkers: 4\nparameters: {overlap: 2}\n",
     {"parameters.overlap: found 2", "rule admm", "allowed is false"},
     NULL},
    {"method: original-easgd\nparameters: {serial: true, overlap: 2, period: 4}\n",
     {"parameters.overlap: found 2", "parameters.serial", "allowed are true and false"},
     NULL},
    {"method: sync-easgd\nclique: {mode: vectors}\nparameters: {overlap: 2, period: 4}\n",
     {"parameters.overlap: found 2", "clique.mode vectors", "allowed are true and false"},
     NULL},
    {"method: d-sync\nparameters: {overlap: auto}\n",
     {"parameters.overlap: found auto", "rule hold", "allowed is false"},
     NULL},
    {"method: hogwild-easgd\nworkers: 2\n",
     {"workers: ", "admission hogwild", "round-robin, backup, quorum, ssp and sync would"},
     NULL},
    {"method: hogwild-easgd\naveraging: mean\n", {NULL}, NULL},
    {"method: downpour\noptimizer: none\n",
     {"optimizer: found none", "rule add", "allowed are sgd, heavy-ball, nesterov, external"},
     NULL},
    {"method: downpour\noptimizer: nesterov\nparameters: {momentum: 0.9}\n", {NULL}, NULL},
    {"method: preset\n", {"method: 'preset' is not known"}, NULL},
    {"rule: rmsprop\n", {"rule: 'rmsprop' is not known", "elastic, add, sgd, momentum"}, NULL},
    {"admission: raft\n",
     {"admission: 'raft' is not known", "fcfs, hogwild, round-robin, backup, quorum, ssp, sync"},
     NULL},
    {"method: backup-sgd\nparameters: {backup: 2}\nworkers: 4\n", {NULL}, NULL},
    {"method: backup-sgd\nworkers: 1\n", {NULL}, NULL},
    {"method: diloco\nadmission: quorum\nparameters: {quorum: 3, grace_ms: 0}\nworkers: 4\n", {NULL}, NULL},
    {"method: sync-easgd\nadmission: backup\nparameters: {backup: 2}\n", {NULL}, NULL},
    {"method: sync-sgd\nparameters: {backup: 2}\n",
     {"parameters.backup: ", "admission sync", "admission backup would"},
     NULL},
    {"method: backup-sgd\nparameters: {quorum: 2}\n",
     {"parameters.quorum: ", "admission backup", "admission quorum would"},
     NULL},
    {"method: backup-sgd\nparameters: {grace_ms: 2}\n",
     {"parameters.grace_ms: ", "admission backup", "admission quorum would"},
     NULL},
    {"method: admm\nworkers: 4\nadmission: backup\n",
     {"admission: found backup", "rule admm needs every message", "fcfs, round-robin, ssp and sync"},
     NULL},
    {"method: admm\nworkers: 4\nadmission: quorum\n", {"admission: found quorum", "rule admm"}, NULL},
    {"method: dc-asgd\nworkers: 4\nadmission: quorum\n",
     {"admission: found quorum", "rule dc-asgd", "fcfs, hogwild, round-robin and ssp"},
     NULL},
    {"method: backup-sgd\nparameters: {weight: inverse}\n",
     {"parameters.weight: ", "admission backup"},
     NULL},
    {"method: sync-sgd\nparameters: {merge: clip_norm, clip: 2}\n", {NULL}, NULL},
    {"method: diloco\nparameters: {merge: trimmed_mean, trim: 1}\nworkers: 3\n", {NULL}, NULL},
    {"method: diloco\nparameters: {merge: trimmed_mean, trim: 2}\nworkers: 4\n",
     {"parameters.trim: found 2", "4 workers", "allowed are 0 to 1"},
     NULL},
    {"method: sync-easgd\nparameters: {merge: clip_norm}\n",
     {"parameters.merge: ", "admissions backup, quorum and sync would", "not with rule elastic"},
     NULL},
    {"method: sync-easgd\nparameters: {merge: mean}\n", {NULL}, NULL},
    {"method: async-sgd\nparameters: {merge: trimmed_mean}\n",
     {"parameters.merge: ", "admission fcfs", "admissions backup, quorum and sync would"},
     NULL},
    {"method: sync-sgd\nparameters: {clip: 2}\n",
     {"parameters.clip: parameters.merge mean does not use it", "clip_norm would"},
     NULL},
    {"method: sync-sgd\nparameters: {merge: clip_norm, trim: 2}\n",
     {"parameters.trim: parameters.merge clip_norm", "trimmed_mean would"},
     NULL},
    {"method: ssp-sgd\nparameters: {slack: 0}\nworkers: 4\n", {NULL}, NULL},
    {"method: eamsgd\nadmission: ssp\nparameters: {slack: 1000000}\n", {NULL}, NULL},
    {"method: admm\nworkers: 4\nadmission: ssp\n", {NULL}, NULL},
    {"method: async-sgd\nparameters: {slack: 3}\n",
     {"parameters.slack: ", "admission fcfs", "admission ssp would"},
     NULL},
    {"optimizer: adam\n",
     {"optimizer: 'adam' is not known", "none, sgd, heavy-ball, nesterov, external"},
     NULL},
    {"method: diloco\noptimizer: external\n", {NULL}, NULL},
    {"method: eamsgd\noptimizer: external\n", {NULL}, NULL},
    {"method: async-sgd\noptimizer: external\n", {"optimizer: found external", "rule sgd", "none"}, NULL},
    {"method: diloco\noptimizer: external\nparameters: {weight_decay: 0.1}\n",
     {"parameters.weight_decay: found 0.1", "optimizer external", "allowed is 0"},
     NULL},
    {"averaging: median\n", {"averaging: 'median' is not known", "none, mean, moving"}, NULL},
    {"method: async-sgd\noptimizer: sgd\n", {"optimizer: found sgd", "rule sgd", "none"}, NULL},
    {"method: async-sgd\nrule: elastic\nparameters: {alpha: 0.1}\n",
     {"optimizer: found none", "rule elastic", "sgd"},
     NULL},
    {"method: custom\nrule: sgd\n", {"admission: found none", "custom needs"}, NULL},
    {"listen: tcp://0.0.0.0:0\n", {"listen: tcp://0.0.0.0:0", "insecure: true", "loopback"}, NULL},
    {"listen: tcp://localhost.example.org:0\n", {"listen: ", "insecure: true"}, NULL},
    {"listen: tcp://[::1]:5555\n", {NULL}, NULL},
    {"listen: tcp://0.0.0.0:0\ninsecure: true\n", {NULL}, NULL},
    {"listen: pigeon:///tmp/x\n", {"listen: 'pigeon:///tmp/x'", "tcp://HOST:PORT", "ipc://PATH"}, NULL},
    {"listen: ipc:///tmp/x\n", {NULL}, NULL},
    {"listen: ipc://psd-data\n", {NULL}, NULL},
    {"listen: ipc://\n", {"listen: 'ipc://'", "allowed is ipc://PATH"}, NULL},
    {"listen: ipc:///tmp/\n", {"listen: 'ipc:///tmp/'", "allowed is ipc://PATH"}, NULL},
    {"listen: \"ipc://*\"\n", {"listen: 'ipc://*'", "allowed is ipc://PATH"}, NULL},
    {"listen: ipc://@hidden\n", {"listen: 'ipc://@hidden'", "allowed is ipc://PATH"}, NULL},
    {"listen: ipc:///" FORTY FORTY "/123456789012345678901\n", {NULL}, NULL},
    {"listen: ipc:///" FORTY FORTY "/1234567890123456789012345\n",
     {"has 107 bytes", "at most 107", "allowed are 104"},
     NULL},
    {"state_dir: /" FORTY FORTY FORTY "\nlisten: ipc://psd-data\n", {"listen: ", "130 bytes"}, NULL},
    {"listen: ipc://psd-data\nadvertise: head\n", {"advertise: found head", "ipc://psd-data"}, NULL},
    {"listen: tcp://127.0.0.1:65536\n", {"listen: ", "0 to 65535"}, NULL},
    {"status: {http: tcp://0.0.0.0:80}\ninsecure: true\n", {"status.http: ", "loopback"}, NULL},
    {"status: {http: all}\n", {"status.http: 'all'", "or none"}, NULL},
    {"status: {http: \"tcp://[::1]:0\"}\n", {NULL}, NULL},
    {"state_dir: \"\"\n", {"state_dir: ", "empty path"}, NULL},
    {"advertise: tcp://a:1\n", {"advertise: ", "without scheme"}, NULL},
    {"method: async-easgd\nparameters: {alpha: 1.5}\n", {NULL}, "alpha is 1.5"},
    {"method: async-easgd\nparameters: {alpha: 0.97, learning_rate: 0.2}\n", {NULL}, "0.9474"},
    {"method: async-easgd\nparameters: {beta: 1.9, period: 1}\n", {NULL}, "with one worker"},
    {"method: async-easgd\nparameters: {alpha: 0.1, learning_rate: 3}\n", {NULL}, "learning_rate: 3"},
    {"method: original-easgd\nparameters: {alpha: 0.98}\n", {NULL}, "(4 - 2 eta)/(4 - eta) = 0.9744"},
    {"method: sync-easgd\nworkers: 4\nparameters: {alpha: 0.5}\n", {NULL}, "alpha is 0.5 with 4 workers"},
    {"method: sync-easgd\nworkers: 4\nparameters: {alpha: 0.5}\n",
     {NULL},
     "(4 - 2 eta)/(2 (workers + 1) - workers eta) = 0.3958"},
    {"method: sync-easgd\nworkers: 4\nparameters: {beta: 1.5}\n", {NULL}, NULL},
    {"method: sync-easgd\nworkers: 4\nparameters: {beta: 1.6}\n", {NULL}, "alpha is 0.4 with 4 workers"},
    {"method: sync-easgd\nparameters: {alpha: 0.98}\n", {NULL}, "with one worker"},
    {"method: async-sgd\nparameters: {learning_rate: 3}\n", {NULL}, NULL},
};

START_TEST(check_between_keys)
{
    struct psd_config cfg, again;
    struct ps_error err, warning;

    ck_assert_msg(read_text(&cfg, checks[_i].text, &err) == 0, "%s", err.text);
    int rc = psd_config_check(&cfg, &err, &warning);
    if (checks[_i].says[0] == NULL) {
        ck_assert_msg(rc == 0, "%s", err.text);
        ck_assert_int_eq(warning.text[0] != 0, checks[_i].warns != NULL);
        assert_error_says(&warning, checks[_i].warns);
        again = cfg;
        ck_assert_int_eq(psd_config_check(&again, &err, NULL), 0);
        ck_assert_mem_eq(&again, &cfg, sizeof cfg);
        return;
    }
    ck_assert_int_eq(rc, -EINVAL);
    for (size_t i = 0; i < 3; i++)
        assert_error_says(&err, checks[_i].says[i]);
}
END_TEST

START_TEST(parts_make_a_method)
{
    struct psd_config cfg;
    struct ps_error err;

    ck_assert_int_eq(
        read_text(&cfg,
                  "method: custom\nrule: elastic\nadmission: fcfs\noptimizer: sgd\naveraging: none\n"
                  "parameters: {alpha: 0.1}\n",
                  &err),
        0);
    ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
    ck_assert_str_eq(cfg.method, "custom");
    ck_assert_str_eq(cfg.rule, "elastic");

    ck_assert_int_eq(read_text(&cfg, "method: async-sgd\nrule: sgd\n", &err), 0);
    ck_assert_int_eq(psd_config_check(&cfg, &err, NULL), 0);
    ck_assert_str_eq(cfg.method, "async-sgd");
    ck_assert_str_eq(cfg.admission, "fcfs");
    ck_assert_str_eq(cfg.optimizer, "none");
}
END_TEST

/* What a configuration leaves to its method comes from configs/methods; what it says goes over it. */
START_TEST(presets_fill_what_is_left_out)
{
    struct psd_config cfg;
    struct ps_error err;
    for (const struct psd_preset *p = psd_presets; p->name != NULL; p++) {
        psd_config_defaults(&cfg);
        snprintf(cfg.method, sizeof cfg.method, "%s", p->name);
        give_what_a_job_must(&cfg, ps_method_find(p->name));
        ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
        ck_assert_msg(cfg.hyper.schedule.warmup_steps > 0, "%s: these rates diverge without warm-up",
                      p->name);
    }
    ck_assert_int_eq(read_text(&cfg, "parameters: {beta: 0.8, period: 2}\n", &err), 0);
    ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
    ck_assert(isnan(cfg.hyper.alpha));
    ck_assert_double_eq(cfg.hyper.beta, 0.8);
    ck_assert_uint_eq(cfg.hyper.period, 2);
    ck_assert_double_eq(cfg.hyper.learning_rate, 0.1); /* the preset's */
    ck_assert_int_eq(read_text(&cfg, "parameters: {learning_rate: preset}\n", &err), 0);
    ck_assert_int_eq(psd_config_set(&cfg, "learning_rate=0.3", &err), 0);
    ck_assert_int_eq(psd_config_set(&cfg, "learning_rate=preset", &err), 0);
    ck_assert_int_eq(psd_config_check(&cfg, &err, NULL), 0);
    ck_assert_double_eq(cfg.hyper.learning_rate, 0.1);
}
END_TEST

START_TEST(a_job_of_one_clique_keeps_its_parameters)
{
    struct psd_config now, next;
    struct ps_error err;
    ck_assert_int_eq(read_text(&now, "method: d-sync\n", &err), 0);
    ck_assert_int_eq(read_text(&next, "method: d-sync\nparameters: {learning_rate: 0.01}\n", &err), 0);
    ck_assert(psd_config_check(&now, &err, NULL) == 0 && psd_config_check(&next, &err, NULL) == 0);
    ck_assert_int_eq(psd_config_clique_change(&now, &next, &err), -EINVAL);
    assert_says(err.text, "method: found d-sync with other parameters after d-sync; a job whose");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-config-method");
    TCase *tc = tcase_create("method");
    tcase_add_test(tc, preset_files_pass_the_check);
    tcase_add_test(tc, presets_are_the_rows);
    tcase_add_test(tc, unused_keys_are_refused);
    tcase_add_loop_test(tc, schedules_are_read_from_their_lists, 0, sizeof schedules / sizeof *schedules);
    tcase_add_test(tc, mix_keeps_what_it_uses);
    tcase_add_test(tc, json_is_read_again);
    tcase_add_test(tc, json_of_a_clique_in_vectors_mode_is_read_again);
    tcase_add_test(tc, sync_bound_is_where_rounds_grow);
    tcase_add_loop_test(tc, check_between_keys, 0, ROWS(checks));
    tcase_add_test(tc, parts_make_a_method);
    tcase_add_test(tc, presets_fill_what_is_left_out);
    tcase_add_test(tc, a_job_of_one_clique_keeps_its_parameters);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
