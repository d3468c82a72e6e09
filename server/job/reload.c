/* Reads the configuration again, on SIGHUP or POST /reload, and applies the changes of POST /set and /unset
 * on top. Everything is validated before anything changes.
 *
 * The file is read only at the start and by a reload. Settings override it and the options until they are
 * changed or unset; a reload and a resume keep them. */
#include "server/job/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "server/config/check_method.h"

void psd_changes_tell(struct psd_job *job)
{
    enum { AT_ONCE = 100, EVERY_MS = 10000 };
    struct psd_reloader *r = &job->reload;
    uint64_t less = (psd_loop_now_ms(job->loop) - r->told_ms) / EVERY_MS;
    r->told_ms += less * EVERY_MS;
    r->n_told = r->n_told > less ? r->n_told - less : 0;
    r->untold = r->n_told >= AT_ONCE;
    if (r->untold) {
        r->n_untold++;
        return;
    }
    r->n_told++;
    if (r->n_untold > 0)
        ps_log(PS_LOG_WARN, "reload.untold",
               "%" PRIu64 " changes of the configuration are not in the log and the history: they were "
               "requested all the time",
               r->n_untold);
    r->n_untold = 0;
}

/* Applies all keys that do not belong to the method. */
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

/* Some rules have a fixed number of workers, and ranks beyond it may already be taken. */
static int check_ranks(const struct psd_job *job, const struct psd_config *next, struct ps_error *err)
{
    const struct ps_rule_info *rule = ps_rule_find(next->rule);
    for (uint32_t i = next->hyper.workers; i < job->sessions->n_workers_max; i++)
        if ((rule->uses & PS_USES_WORKERS) != 0 && job->sessions->slots[i].state != PSD_SESSION_VACANT)
            return ps_fail(err, -EINVAL,
                           "workers: found %u; rank %u is in the job and rule %s has one vector for each "
                           "worker; allowed is %u or more",
                           next->hyper.workers, i, rule->name, i + 1);
    return 0;
}

/* Libraries that are too old are refused when they join, too. */
static int check_libraries(const struct psd_job *job, const struct psd_config *next, struct ps_error *err)
{
    char overlap[PS_OVERLAP_TEXT];
    for (uint32_t i = 0; i < job->sessions->n_slots && next->hyper.overlap > 1; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state != PSD_SESSION_VACANT && s->at_next_step)
            return ps_fail(
                err, -EINVAL,
                "parameters.overlap: found %s; the library of '%s', rank %u, is older and has only "
                "true and false; allowed are these",
                ps_overlap_text(next->hyper.overlap, overlap), s->name, i);
    }
    return 0;
}

void psd_layers_apply(struct psd_job *job, const struct psd_config_layers *layers,
                      const struct psd_config *next)
{
    take_others(job, next);
    job->reload.layers = *layers;
    job->reload.recorded = psd_journal_put_method(job);
}

int psd_layers_build(struct psd_job *job, const struct psd_config_layers *layers, struct psd_config *next,
                     bool *method, bool *others, struct ps_error *err)
{
    struct ps_error warning;
    *next = layers->base;
    int rc = psd_settings_apply(layers->settings, next, err);
    if (rc < 0 || (rc = psd_config_settle(next, err, &warning)) < 0)
        return rc;
    if (next->lanes == 0)
        next->lanes = job->cfg->lanes; /* auto keeps its value */
    if (next->hyper.schedule.kind == PS_SCHEDULE_PLATEAU)
        next->hyper.schedule.drops = psd_plateau_drops(job, next->hyper.schedule.n_factors);
    if (job->state >= PSD_STATE_DRAINING)
        return ps_fail(err, -EINVAL, "psd is draining: its configuration cannot change");
    if ((rc = psd_config_change(job->cfg, next, method, others, err)) < 0 ||
        (*method && ((rc = psd_config_clique_change(job->cfg, next, err)) < 0 ||
                     (rc = check_ranks(job, next, err)) < 0 || (rc = check_libraries(job, next, err)) < 0)))
        return rc;
    if (warning.text[0] != 0 && !job->reload.untold)
        ps_log(PS_LOG_WARN, "config.warning", "%s", warning.text);
    return 0;
}

/* A file belongs to one server; the head distributes settings to all of them. */
static int check_file_of_one(const struct psd_job *job, bool method, struct ps_error *err)
{
    return !method || job->cfg->servers.count == 1
               ? 0
               : ps_fail(err, -EINVAL,
                         "the method: each of %u servers has its own file, so that a reload cannot change "
                         "it; allowed is psctl set, or psctl method, at the head, or a restart of all "
                         "servers with --resume",
                         job->cfg->servers.count);
}

/* Applies the configuration of the layers, of which the settings or the file are new; nothing changes unless
 * it is valid. */
static int put_in_force(struct psd_job *job, const struct psd_config_layers *layers, bool is_set,
                        struct ps_error *err)
{
    struct psd_config next;
    bool method, others;
    int rc = psd_layers_build(job, layers, &next, &method, &others, err);
    if (rc < 0 || (!is_set && (rc = check_file_of_one(job, method, err)) < 0))
        return rc;
    if (is_set && psd_has_cluster(job->cfg)) {
        rc = psd_method_change_begin_all(job, &next, layers, method, err);
        return rc < 0 ? rc : method || others;
    }
    if (method && (rc = psd_method_change_begin(job, &next, layers, err)) < 0)
        return rc;
    if (!method && psd_method_change_is_closing(job)) {
        job->method_change.again = true;
    } else if (!method) {
        psd_method_change_cancel(job); /* drops a change that has not begun */
        psd_layers_apply(job, layers, &next);
    } else {
        take_others(job, &next);
    }
    return method || others;
}

const char *psd_settings_now(const struct psd_job *job)
{
    return job->method_change.phase != PSD_METHOD_CHANGE_NONE ? job->method_change.layers.settings
                                                              : job->reload.layers.settings;
}

/* Reads the file and the options again, below the settings. */
static int read_again(struct psd_job *job, struct ps_error *err)
{
    struct psd_config_layers layers;
    int rc = psd_config_gather_again(&job->reload.source, &layers.base, err);
    if (rc < 0)
        return rc;
    memcpy(layers.settings, psd_settings_now(job), sizeof layers.settings);
    if ((rc = put_in_force(job, &layers, false, err)) < 0 && layers.settings[0] == 0)
        psd_config_name_line(&job->reload.source, err); /* the key may be a setting's otherwise */
    return rc;
}

/* Ends the sessions of identities that the list no longer contains, or whose rank it no longer allows. */
static void end_the_barred(struct psd_job *job)
{
    char why[160];
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_VACANT || psd_auth_may_stay(job->auth, s))
            continue;
        snprintf(why, sizeof why, "the allow-list no longer allows %s to be %s %u", s->identity,
                 s->observer ? "observer" : "rank", s->client);
        psd_send_error(job->sender, s, PS__CODE__AUTH, true, why);
        psd_job_end(job, s, PS__CODE__AUTH, why);
    }
}

/* Applies the configuration and the allow-list that it names; nothing changes unless both are valid. */
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

void psd_set_conclude(struct psd_job *job, const char *refused)
{
    struct psd_reloader *r = &job->reload;
    if (refused[0] != 0 && r->concluded < r->n_requests) {
        r->refusal.first = r->concluded + 1;
        r->refusal.last = r->n_requests;
        ps_fail(&r->refusal.why, 0, "%s", refused);
    }
    r->concluded = r->n_requests;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->state != PSD_SESSION_VACANT && s->request.incarnation == s->incarnation && s->request.sets &&
            !s->request.done)
            psd_send_done(job->sender, s, refused);
    }
}

/* Counts, stores and logs the result, and answers the worker that waits for it. While a change is in progress
 * both are for the result of that one; a worker that finds psd busy asks again. */
static int conclude(struct psd_job *job, int rc, const struct ps_error *err)
{
    char list[PSD_SETTINGS_BYTES + 400];
    const bool tells = !job->reload.untold;
    if (rc < 0)
        job->reload.n_requests--;
    if (rc == -EBUSY)
        return rc;
    if (job->method_change.phase == PSD_METHOD_CHANGE_NONE) {
        if (rc < 0)
            job->reload.last = *err;
        psd_set_conclude(job, rc < 0 ? err->text : "");
    }
    if (rc < 0) {
        job->reload.n_refused++;
        if (tells)
            ps_log(PS_LOG_ERROR, "reload.refused", "%s; nothing has changed", err->text);
        return rc;
    }
    psd_settings_list(psd_settings_now(job), list, sizeof list);
    if (rc == 0)
        job->reload.n_unchanged++;
    else
        job->reload.n_applied++;
    if (rc == 0 && tells)
        ps_log(PS_LOG_INFO, "reload.unchanged", "the configuration has not changed");
    if (list[0] != 0 && tells)
        ps_log(PS_LOG_INFO, "reload.set", "set while the job runs, overriding file and options: %s", list);
    return rc;
}

/* conclude takes the number back if the request is refused at once. */
static void take_request(struct psd_job *job)
{
    psd_changes_tell(job);
    job->reload.n_requests++;
}

int psd_reload(struct psd_job *job, struct ps_error *err)
{
    take_request(job);
    psd_notify_reloading(&job->notify); /* READY follows when the method has changed: server/psd.c */
    job->reload.last.text[0] = 0;
    return conclude(job, put_all_in_force(job, err), err);
}

/* Adds the request to the history, in one line. */
static void log_lines(struct psd_job *job, const char *what, const char *lines)
{
    char text[300];
    if (job->reload.untold)
        return;
    psd_settings_list(lines, text, sizeof text);
    psd_history_tell(job, PSD_EVENT_METHOD, "%s %s", what, text);
}

static int check_named_method(const struct psd_config_layers *layers, const char *lines, struct ps_error *err)
{
    struct psd_config asked, all = layers->base;
    psd_config_defaults(&asked);
    asked.method[0] = 0;
    int rc = psd_settings_apply(lines, &asked, err);
    if (rc == 0)
        rc = psd_settings_apply(layers->settings, &all, err);
    return rc < 0 ? rc : psd_config_method_by_name(&asked, &all, err);
}

/* adds: lines of KEY=VALUE; else keys to remove. */
static int change_settings(struct psd_job *job, bool adds, const char *lines, struct ps_error *err)
{
    struct psd_config_layers layers =
        job->method_change.phase != PSD_METHOD_CHANGE_NONE ? job->method_change.layers : job->reload.layers;
    char next[PSD_SETTINGS_BYTES];
    if (psd_method_change_is_closing(job))
        return ps_fail(err, -EBUSY, "the method is changing to %s; try again when it has changed",
                       job->method_change.next.method);
    int rc = (adds ? psd_settings_add : psd_settings_remove)(layers.settings, lines, next, err);
    if (rc < 0)
        return rc;
    memcpy(layers.settings, next, sizeof layers.settings);
    if (adds && (rc = check_named_method(&layers, lines, err)) < 0)
        return rc;
    psd_notify_reloading(&job->notify);
    job->reload.last.text[0] = 0;
    return put_in_force(job, &layers, true, err);
}

int psd_set(struct psd_job *job, const char *lines, struct ps_error *err)
{
    take_request(job);
    int rc = conclude(job, change_settings(job, true, lines, err), err);
    if (rc >= 0)
        log_lines(job, "set", lines);
    return rc;
}

int psd_unset(struct psd_job *job, const char *keys, struct ps_error *err)
{
    take_request(job);
    int rc = conclude(job, change_settings(job, false, keys, err), err);
    if (rc >= 0)
        log_lines(job, "unset", keys);
    return rc;
}

int psd_settings_resume(struct psd_job *job, bool from_checkpoint, struct ps_error *err)
{
    const char *kept = job->journal.before.settings;
    struct psd_config next = job->reload.layers.base;
    struct ps_error why, warning;
    char list[400];
    psd_settings_list(kept, list, sizeof list);
    if (!psd_journal_goes_on(job, from_checkpoint) || kept[0] == 0)
        return 0;
    if (psd_settings_apply(kept, &next, &why) < 0 || psd_config_settle(&next, &why, &warning) < 0)
        return ps_fail(err, -EINVAL,
                       "%.300s: this job keeps the settings made while it ran (%.200s), which override the "
                       "configuration; allowed is a configuration that fits them, or --unset to drop them",
                       why.text, list);
    if (next.lanes == 0)
        next.lanes = job->cfg->lanes;
    *job->cfg = next;
    memcpy(job->reload.layers.settings, kept, sizeof job->reload.layers.settings);
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(job->cfg->log_level));
    ps_log(PS_LOG_INFO, "resume.set", "set while the job ran, overriding file and options: %s", list);
    return 0;
}
