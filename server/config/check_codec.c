/* Which messages may travel in a codec for moves, which brings later what it leaves out now. */
#include <errno.h>

#include "proto/codecs/codec.h"
#include "server/config/check_method.h"

static int check_rule(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    char allowed[100];
    if (rule->message == PS_MESSAGE_GRADIENT || rule->message == PS_MESSAGE_DELTA)
        return 0;
    ps_codec_list_for_values(allowed, sizeof allowed);
    return ps_fail(
        err, -EINVAL,
        "codec.message: found %s; the message of rule %s is a vector itself and no move of it, so that "
        "what the codec leaves out is lost with the next one; allowed are %s, or rules that send moves "
        "or gradients (add, outer-nesterov, delayed-nesterov, sgd)",
        cfg->codec.message, rule->name, allowed);
}

/* Each worker's message has its own few values: a median of them is 0. */
static int check_merge(const struct psd_config *cfg, const struct ps_codec *c, struct ps_error *err)
{
    if (c->fraction_ppm == 0 || cfg->hyper.merge != PS_MERGE_TRIMMED_MEAN)
        return 0;
    return ps_fail(
        err, -EINVAL,
        "codec.message: found %s; parameters.merge: trimmed_mean compares the workers value by value, and "
        "of most each sends none; allowed with it is int4, or merge: mean or clip_norm",
        cfg->codec.message);
}

bool psd_config_answers_moves(const struct psd_config *cfg)
{
    struct ps_codec c;
    return ps_codec_of(cfg->codec.answer, &c) == NULL && c.for_moves;
}

/* psd keeps for each worker what it has, so that it can answer with what has changed. */
static int check_answer(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    char allowed[100];
    ps_codec_list_for_values(allowed, sizeof allowed);
    if (rule->half != PS_HALF_ADOPT || rule->keeps_seen)
        return ps_fail(
            err, -EINVAL,
            "codec.answer: found %s; what a worker of rule %s needs is a vector itself, exact or in one of "
            "%s; "
            "allowed are these, or rules whose workers go on from the center (add, outer-nesterov, "
            "delayed-nesterov, sgd)",
            cfg->codec.answer, rule->name, allowed);
    if (cfg->hyper.workers == 0)
        return ps_fail(
            err, -EINVAL,
            "workers: found any; with codec.answer %s psd keeps what each worker has, so allowed is 1 to "
            "1024",
            cfg->codec.answer);
    return 0;
}

static int check_message(const struct psd_config *cfg, const struct ps_rule_info *rule, struct ps_error *err)
{
    struct ps_codec c;
    ps_codec_of(cfg->codec.message, &c); /* the key takes nothing else */
    if (!c.for_moves)
        return 0;
    int rc = check_rule(cfg, rule, err);
    if (rc == 0)
        rc = check_merge(cfg, &c, err);
    if (rc < 0 || c.fraction_ppm == 0 || cfg->codec.error_feedback)
        return rc;
    return ps_fail(
        err, -EINVAL,
        "codec.error_feedback: found false; with codec.message %s most values do not travel, and are "
        "lost unless later messages bring them, so allowed is true",
        cfg->codec.message);
}

int psd_config_codec_check(const struct psd_config *cfg, const struct ps_rule_info *rule,
                           struct ps_error *err)
{
    int rc = check_message(cfg, rule, err);
    return rc == 0 && psd_config_answers_moves(cfg) ? check_answer(cfg, rule, err) : rc;
}
