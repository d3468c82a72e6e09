/* The configuration, read again by SIGHUP or POST /reload. It is checked whole before anything changes. */
#include "server/psd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "server/config/check_method.h"

/* What takes effect by itself: everything that is not the method's. */
static void take_others(struct psd *d, const struct psd_config *next)
{
    d->cfg.checkpoint = next->checkpoint;
    d->cfg.stop = next->stop;
    d->cfg.limits.silence_s = next->limits.silence_s;
    d->cfg.limits.step_s = next->limits.step_s;
    d->cfg.limits.drain_s = next->limits.drain_s;
    memcpy(d->cfg.log_level, next->log_level, sizeof d->cfg.log_level);
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(d->cfg.log_level));
}

/* Some rules have a place for each of a number of workers, and these may be taken by others already. */
static int check_ranks(const struct psd *d, const struct psd_config *next, struct ps_error *err)
{
    const struct ps_rule_info *rule = ps_rule_find(next->rule);
    for (uint32_t i = next->hyper.workers; i < d->sessions.n_workers_max; i++)
        if ((rule->uses & PS_USES_WORKERS) != 0 && d->sessions.slots[i].state != PSD_SESSION_VACANT)
            return ps_fail(
                err, -EINVAL,
                "workers: found %u; rank %u is in the job and rule %s has a place for each of that "
                "number; allowed is %u or more",
                next->hyper.workers, i, rule->name, i + 1);
    return 0;
}

static int put_in_force(struct psd *d, struct ps_error *err)
{
    struct psd_config next;
    struct ps_error warning;
    bool method, others;
    int rc = psd_config_check_file(&d->reload.source, err);
    if (rc < 0 || (rc = psd_config_load(&d->reload.source, &next, err, &warning)) < 0)
        return rc;
    if (next.lanes == 0)
        next.lanes = d->cfg.lanes; /* auto is what it was */
    if (next.hyper.schedule.kind == PS_SCHEDULE_PLATEAU)
        next.hyper.schedule.drops = psd_plateau_drops(d, next.hyper.schedule.n_factors);
    if (d->state >= PSD_STATE_DRAINING)
        return ps_fail(err, -EINVAL, "psd is draining: its configuration stays as it is");
    if ((rc = psd_config_change(&d->cfg, &next, &method, &others, err)) < 0 ||
        (method &&
         ((rc = psd_config_clique_change(&d->cfg, &next, err)) < 0 || (rc = check_ranks(d, &next, err)) < 0)))
        return rc;
    if (method && d->cfg.servers.count > 1)
        return ps_fail(
            err, -EINVAL,
            "the method: with %u servers it cannot change while the job runs; allowed is a checkpoint "
            "and a restart of all of them with --resume",
            d->cfg.servers.count);
    if (warning.text[0] != 0)
        ps_log(PS_LOG_WARN, "config.warning", "%s", warning.text);
    if (method && (rc = psd_swap_begin(d, &next, err)) < 0)
        return rc;
    if (!method && !psd_swap_is_closing(d))
        psd_swap_cancel(d); /* back to the method in force before another had begun */
    else if (!method)
        d->swap.again = true;
    if (others)
        take_others(d, &next);
    return method || others;
}

/* The sessions of those who are not in the list any more, or may not have their rank, end. */
static void end_the_barred(struct psd *d)
{
    char why[160];
    for (uint32_t i = 0; i < d->sessions.n_slots; i++) {
        struct psd_session *s = &d->sessions.slots[i];
        if (s->state == PSD_SESSION_VACANT || psd_auth_may_stay(d, s))
            continue;
        snprintf(why, sizeof why, "the allow-list does not let %s be %s %u any more", s->identity,
                 s->observer ? "observer" : "rank", s->client);
        psd_control_error(d, s, PS__CODE__AUTH, true, why);
        psd_job_end(d, s, PS__CODE__AUTH, why);
    }
}

/* The configuration, and the allow-list that it names: nothing changes unless both are valid. */
static int put_all_in_force(struct psd *d, struct ps_error *err)
{
    struct psd_allow list;
    int rc = psd_auth_reread(d, &list, err);
    if (rc < 0)
        return rc;
    if ((rc = put_in_force(d, err)) < 0) {
        psd_allow_finish(&list);
        return rc;
    }
    if (!psd_auth_take(d, &list))
        return rc;
    end_the_barred(d);
    return 1;
}

int psd_reload(struct psd *d, struct ps_error *err)
{
    psd_notify_reloading(&d->notify); /* READY again when the method has changed: server/psd.c */
    int rc = put_all_in_force(d, err);
    d->reload.last.text[0] = 0;
    if (rc < 0) {
        d->reload.last = *err;
        d->reload.n_refused++;
        ps_log(PS_LOG_ERROR, "reload.refused", "%s; nothing has changed", err->text);
    } else if (rc == 0) {
        d->reload.n_unchanged++;
        ps_log(PS_LOG_INFO, "reload.unchanged", "the configuration is what it was");
    } else {
        d->reload.n_applied++;
    }
    return rc;
}
