#include "server/job/plateau.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "server/job/job.h"

enum { RETRY_MS = 60000 }; /* after a drop that was refused */

bool psd_plateau_observe(struct psd_plateau *p, double loss, uint32_t patience, double threshold)
{
    if (!isfinite(p->best) || loss < p->best - threshold * fabs(p->best)) {
        p->best = loss;
        p->since = 0;
        return false;
    }
    if (++p->since < patience)
        return false;
    p->since = 0;
    return true;
}

static const struct ps_schedule *schedule_of(const struct psd_job *job)
{
    return &job->cfg->hyper.schedule;
}

/* After a change of what is watched: the best of one loss says nothing of the other's. */
static void follow_watch(struct psd_job *job)
{
    if (job->plateau.watch != job->cfg->schedule.watch)
        job->plateau =
            (struct psd_plateau){.watch = job->cfg->schedule.watch, .best = NAN, .drops = job->plateau.drops};
}

/* As checkpoints have it. */
static const char *const watched[] = {[PSD_WATCH_TEST] = "test_loss", [PSD_WATCH_TRAIN] = "train_loss"};

static bool watches(const struct psd_job *job, enum psd_watch what)
{
    return schedule_of(job)->kind == PS_SCHEDULE_PLATEAU && job->cfg->schedule.watch == what &&
           job->state == PSD_STATE_READY;
}

uint32_t psd_plateau_drops(const struct psd_job *job, uint32_t n_factors)
{
    return job->plateau.drops < n_factors ? job->plateau.drops : n_factors;
}

struct psd_saved_plateau psd_plateau_to_save(const struct psd_job *job)
{
    const struct psd_plateau *p = &job->plateau;
    bool has_best = isfinite(p->best);
    struct psd_saved_plateau s = {.known = has_best || p->drops > 0,
                                  .drops = p->drops,
                                  .since = p->since,
                                  .best = has_best ? p->best : DBL_MAX}; /* any loss is better */
    snprintf(s.watch, sizeof s.watch, "%s", watched[p->watch]);
    return s;
}

void psd_plateau_resume(struct psd_job *job)
{
    const struct psd_saved_plateau *was = &job->resumed.plateau;
    struct ps_schedule *s = &job->cfg->hyper.schedule;
    if (s->kind != PS_SCHEDULE_PLATEAU || !was->known)
        return;
    const enum psd_watch watch = job->cfg->schedule.watch;
    const bool same = was->watch[0] == 0 || strcmp(was->watch, watched[watch]) == 0;
    job->plateau = (struct psd_plateau){
        .watch = watch, .best = same ? was->best : NAN, .since = same ? was->since : 0, .drops = was->drops};
    s->drops = psd_plateau_drops(job, s->n_factors);
}

static void observe(struct psd_job *job, double loss)
{
    struct psd_plateau *p = &job->plateau;
    const char *what = job->cfg->schedule.watch == PSD_WATCH_TEST ? "test" : "training";
    if (!psd_plateau_observe(p, loss, job->cfg->schedule.patience, job->cfg->schedule.threshold) ||
        p->drops >= schedule_of(job)->n_factors)
        return;
    p->drops++;
    ps_log(PS_LOG_INFO, "schedule.plateau",
           "the %s loss, %.6g, has not been %.3g better than %.6g in %u observations: the learning rate is "
           "multiplied by "
           "%g (drop %u of %u)",
           what, loss, job->cfg->schedule.threshold, p->best, job->cfg->schedule.patience,
           schedule_of(job)->factors[p->drops - 1], p->drops, schedule_of(job)->n_factors);
    psd_plateau_tick(job);
}

void psd_plateau_reported(struct psd_job *job, double loss)
{
    struct psd_plateau *p = &job->plateau;
    if (!watches(job, PSD_WATCH_TRAIN) || !isfinite(loss))
        return;
    follow_watch(job);
    if (p->n == 0)
        p->begin_ms = psd_loop_now_ms(job->loop);
    p->sum += loss;
    p->n++;
}

void psd_plateau_evaluated(struct psd_job *job, const struct psd_evaluation *e)
{
    if (!watches(job, PSD_WATCH_TEST) || !psd_evaluation_counts(job, e) || e->version == job->plateau.version)
        return;
    follow_watch(job);
    job->plateau.version = e->version;
    observe(job, e->loss);
}

static void end_window(struct psd_job *job)
{
    struct psd_plateau *p = &job->plateau;
    if (p->n == 0 || psd_loop_now_ms(job->loop) - p->begin_ms < (uint64_t)job->cfg->schedule.every_s * 1000)
        return;
    double mean = p->sum / (double)p->n;
    p->sum = 0;
    p->n = 0;
    observe(job, mean);
}

/* If another method change is in progress it finishes first; it includes the drops. */
static void put_in_force(struct psd_job *job)
{
    struct psd_plateau *p = &job->plateau;
    struct psd_config next = *job->cfg;
    struct ps_error err;
    uint64_t now = psd_loop_now_ms(job->loop);
    next.hyper.schedule.drops = psd_plateau_drops(job, schedule_of(job)->n_factors);
    if (next.hyper.schedule.drops == schedule_of(job)->drops ||
        job->method_change.phase != PSD_METHOD_CHANGE_NONE || job->state != PSD_STATE_READY ||
        (p->refused_ms != 0 && now - p->refused_ms < RETRY_MS))
        return;
    job->reload.untold = false;
    if (psd_method_change_begin(job, &next, &job->reload.layers, &err) < 0) {
        p->refused_ms = now;
        ps_log(PS_LOG_WARN, "schedule.plateau", "the learning rate cannot drop yet: %s", err.text);
    }
}

void psd_plateau_tick(struct psd_job *job)
{
    if (schedule_of(job)->kind != PS_SCHEDULE_PLATEAU) {
        job->plateau = (struct psd_plateau){.best = NAN};
        return;
    }
    follow_watch(job);
    if (watches(job, PSD_WATCH_TRAIN))
        end_window(job);
    put_in_force(job);
}
