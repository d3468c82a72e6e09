/* The configuration, read again by SIGHUP or POST /reload, and what POST /set and /unset change above it. It
 * is checked whole before anything changes.
 *
 * The file is read at the start and by a reload alone. What is set stands above it and above the options,
 * until it is set otherwise or unset: a reload and a resume keep it. */
#include "server/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "server/config/check_method.h"

/* What takes effect by itself: everything that is not the method's. */
static void take_others(struct psd_job *job, const struct psd_config *next)
{
    job->cfg->checkpoint = next->checkpoint;
    job->cfg->stop = next->stop;
    job->cfg->limits.silence_s = next->limits.silence_s;
    job->cfg->limits.step_s = next->limits.step_s;
    job->cfg->limits.drain_s = next->limits.drain_s;
    memcpy(job->cfg->log_level, next->log_level, sizeof job->cfg->log_level);
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(job->cfg->log_level));
}

/* Some rules have a place for each of a number of workers, and these may be taken by others already. */
static int check_ranks(const struct psd_job *job, const struct psd_config *next, struct ps_error *err)
{
    const struct ps_rule_info *rule = ps_rule_find(next->rule);
    for (uint32_t i = next->hyper.workers; i < job->sessions->n_workers_max; i++)
        if ((rule->uses & PS_USES_WORKERS) != 0 && job->sessions->slots[i].state != PSD_SESSION_VACANT)
            return ps_fail(
                err, -EINVAL,
                "workers: found %u; rank %u is in the job and rule %s has a place for each of that "
                "number; allowed is %u or more",
                next->hyper.workers, i, rule->name, i + 1);
    return 0;
}

void psd_recipe_take(struct psd_job *job, const struct psd_recipe *recipe, const struct psd_config *next)
{
    take_others(job, next);
    job->reload.recipe = *recipe;
    job->reload.recorded = psd_journal_put_method(job);
}

int psd_recipe_cook(struct psd_job *job, const struct psd_recipe *recipe, struct psd_config *next,
                    bool *method, bool *others, struct ps_error *err)
{
    struct ps_error warning;
    *next = recipe->base;
    int rc = psd_settings_apply(recipe->settings, next, err);
    if (rc < 0 || (rc = psd_config_settle(next, err, &warning)) < 0)
        return rc;
    if (next->lanes == 0)
        next->lanes = job->cfg->lanes; /* auto is what it was */
    if (next->hyper.schedule.kind == PS_SCHEDULE_PLATEAU)
        next->hyper.schedule.drops = psd_plateau_drops(job, next->hyper.schedule.n_factors);
    if (job->state >= PSD_STATE_DRAINING)
        return ps_fail(err, -EINVAL, "psd is draining: its configuration stays as it is");
    if ((rc = psd_config_change(job->cfg, next, method, others, err)) < 0 ||
        (*method && ((rc = psd_config_clique_change(job->cfg, next, err)) < 0 ||
                     (rc = check_ranks(job, next, err)) < 0)))
        return rc;
    if (warning.text[0] != 0)
        ps_log(PS_LOG_WARN, "config.warning", "%s", warning.text);
    return 0;
}

/* The method that a file gives is one server's; what is set, the head gives to all. */
static int check_file_of_one(const struct psd_job *job, bool method, struct ps_error *err)
{
    return !method || job->cfg->servers.count == 1
               ? 0
               : ps_fail(err, -EINVAL,
                         "the method: of %u servers each has a file of its own, so that a reload does not "
                         "change it; allowed is psctl set, or psctl method, at the head, or a restart of all "
                         "of them with --resume",
                         job->cfg->servers.count);
}

/* What is made of the recipe, whose settings are new or whose file; nothing changes unless it is valid. */
static int put_in_force(struct psd_job *job, const struct psd_recipe *recipe, bool is_set,
                        struct ps_error *err)
{
    struct psd_config next;
    bool method, others;
    int rc = psd_recipe_cook(job, recipe, &next, &method, &others, err);
    if (rc < 0 || (!is_set && (rc = check_file_of_one(job, method, err)) < 0))
        return rc;
    if (is_set && psd_has_cluster(job->cfg)) {
        rc = psd_method_change_begin_all(job, &next, recipe, method, err);
        return rc < 0 ? rc : method || others;
    }
    if (method && (rc = psd_method_change_begin(job, &next, recipe, err)) < 0)
        return rc;
    if (!method && psd_method_change_is_closing(job)) {
        job->method_change.again = true;
    } else if (!method) {
        psd_method_change_cancel(job); /* back to the method in force before another had begun */
        psd_recipe_take(job, recipe, &next);
    } else {
        take_others(job, &next);
    }
    return method || others;
}

const char *psd_settings_now(const struct psd_job *job)
{
    return job->method_change.phase != PSD_METHOD_CHANGE_NONE ? job->method_change.recipe.settings
                                                              : job->reload.recipe.settings;
}

/* The file and the options as they are now, under what is set. */
static int read_again(struct psd_job *job, struct ps_error *err)
{
    struct psd_recipe recipe;
    int rc = psd_config_check_file(&job->reload.source, err);
    if (rc < 0 || (rc = psd_config_gather(&job->reload.source, &recipe.base, err)) < 0)
        return rc;
    memcpy(recipe.settings, psd_settings_now(job), sizeof recipe.settings);
    return put_in_force(job, &recipe, false, err);
}

/* The sessions of those who are not in the list any more, or may not have their rank, end. */
static void end_the_barred(struct psd_job *job)
{
    char why[160];
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_VACANT || psd_auth_may_stay(job->auth, s))
            continue;
        snprintf(why, sizeof why, "the allow-list does not let %s be %s %u any more", s->identity,
                 s->observer ? "observer" : "rank", s->client);
        psd_send_error(job->sender, s, PS__CODE__AUTH, true, why);
        psd_job_end(job, s, PS__CODE__AUTH, why);
    }
}

/* The configuration, and the allow-list that it names: nothing changes unless both are valid. */
static int put_all_in_force(struct psd_job *job, struct ps_error *err)
{
    struct psd_allow list;
    int rc = psd_auth_reread(job->auth, &list, err);
    if (rc < 0)
        return rc;
    if ((rc = read_again(job, err)) < 0) {
        psd_allow_finish(&list);
        return rc;
    }
    if (!psd_auth_take(job->auth, &list))
        return rc;
    end_the_barred(job);
    return 1;
}

/* Counts, keeps and logs how it went. */
static int conclude(struct psd_job *job, int rc, const struct ps_error *err)
{
    char list[PSD_SETTINGS_BYTES + 400];
    if (rc < 0) {
        job->reload.last = *err;
        job->reload.n_refused++;
        ps_log(PS_LOG_ERROR, "reload.refused", "%s; nothing has changed", err->text);
        return rc;
    }
    psd_settings_list(psd_settings_now(job), list, sizeof list);
    if (rc == 0) {
        job->reload.n_unchanged++;
        ps_log(PS_LOG_INFO, "reload.unchanged", "the configuration is what it was");
    } else {
        job->reload.n_applied++;
    }
    if (list[0] != 0)
        ps_log(PS_LOG_INFO, "reload.set", "set while the job runs, above file and options: %s", list);
    return rc;
}

int psd_reload(struct psd_job *job, struct ps_error *err)
{
    psd_notify_reloading(&job->notify); /* READY again when the method has changed: server/psd.c */
    job->reload.last.text[0] = 0;
    return conclude(job, put_all_in_force(job, err), err);
}

/* One line for the history: what was asked for. */
static void log_lines(struct psd_job *job, const char *what, const char *lines)
{
    char text[300];
    psd_settings_list(lines, text, sizeof text);
    psd_history_tell(job, PSD_EVENT_METHOD, "%s %s", what, text);
}

static int change_settings(struct psd_job *job,
                           int (*change)(const char *now, const char *lines, char *next,
                                         struct ps_error *err),
                           const char *lines, struct ps_error *err)
{
    struct psd_recipe recipe =
        job->method_change.phase != PSD_METHOD_CHANGE_NONE ? job->method_change.recipe : job->reload.recipe;
    char next[PSD_SETTINGS_BYTES];
    if (psd_method_change_is_closing(job))
        return ps_fail(err, -EBUSY, "the method is changing to %s just now: ask again when it has",
                       job->method_change.next.method);
    int rc = change(recipe.settings, lines, next, err);
    if (rc < 0)
        return rc;
    memcpy(recipe.settings, next, sizeof recipe.settings);
    psd_notify_reloading(&job->notify);
    job->reload.last.text[0] = 0;
    return put_in_force(job, &recipe, true, err);
}

int psd_set(struct psd_job *job, const char *lines, struct ps_error *err)
{
    int rc = conclude(job, change_settings(job, psd_settings_add, lines, err), err);
    if (rc >= 0)
        log_lines(job, "set", lines);
    return rc;
}

int psd_unset(struct psd_job *job, const char *keys, struct ps_error *err)
{
    int rc = conclude(job, change_settings(job, psd_settings_remove, keys, err), err);
    if (rc >= 0)
        log_lines(job, "unset", keys);
    return rc;
}

int psd_settings_resume(struct psd_job *job, bool from_checkpoint, struct ps_error *err)
{
    const char *kept = job->journal.before.settings;
    struct psd_config next = job->reload.recipe.base;
    struct ps_error why, warning;
    char list[400];
    psd_settings_list(kept, list, sizeof list);
    if (!psd_journal_goes_on(job, from_checkpoint) || kept[0] == 0)
        return 0;
    if (psd_settings_apply(kept, &next, &why) < 0 || psd_config_settle(&next, &why, &warning) < 0)
        return ps_fail(err, -EINVAL,
                       "%.300s: this job goes on with what was set while it ran (%.200s), above the "
                       "configuration; allowed is a configuration that goes with it, or --unset to go on "
                       "without it",
                       why.text, list);
    if (next.lanes == 0)
        next.lanes = job->cfg->lanes;
    *job->cfg = next;
    memcpy(job->reload.recipe.settings, kept, sizeof job->reload.recipe.settings);
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(job->cfg->log_level));
    ps_log(PS_LOG_INFO, "resume.set", "set while the job ran, above file and options: %s", list);
    return 0;
}
