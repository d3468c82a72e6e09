#include "server/job/plateau.h"

#include <inttypes.h>
#include <math.h>

#include "proto/log.h"
#include "server/psd.h"

bool psd_plateau_observe(struct psd_plateau *p, double loss, uint32_t patience, double threshold)
{
    if (isnan(p->best) || loss < p->best - threshold * fabs(p->best)) {
        p->best = loss;
        p->since = 0;
        return false;
    }
    if (++p->since < patience)
        return false;
    p->since = 0;
    return true;
}

static const struct ps_schedule *schedule_of(const struct psd *d)
{
    return &d->cfg.hyper.schedule;
}

static bool watches(const struct psd *d, enum psd_watch what)
{
    return schedule_of(d)->kind == PS_SCHEDULE_PLATEAU && d->cfg.schedule.watch == what &&
           d->state == PSD_STATE_READY;
}

uint32_t psd_plateau_drops(const struct psd *d, uint32_t n_factors)
{
    return d->plateau.drops < n_factors ? d->plateau.drops : n_factors;
}

void psd_plateau_resume(struct psd *d)
{
    const struct psd_saved_plateau *was = &d->resumed.plateau;
    struct ps_schedule *s = &d->cfg.hyper.schedule;
    if (s->kind != PS_SCHEDULE_PLATEAU || !was->known)
        return;
    d->plateau = (struct psd_plateau){.best = was->best, .since = was->since, .drops = was->drops};
    s->drops = psd_plateau_drops(d, s->n_factors);
}

static void observe(struct psd *d, double loss)
{
    struct psd_plateau *p = &d->plateau;
    const char *what = d->cfg.schedule.watch == PSD_WATCH_TEST ? "test" : "training";
    if (!psd_plateau_observe(p, loss, d->cfg.schedule.patience, d->cfg.schedule.threshold) ||
        p->drops >= schedule_of(d)->n_factors)
        return;
    p->drops++;
    ps_log(PS_LOG_INFO, "schedule.plateau",
           "the %s loss, %.6g, has not been %.3g better than %.6g in %u observations: the learning rate is "
           "multiplied by "
           "%g (drop %u of %u)",
           what, loss, d->cfg.schedule.threshold, p->best, d->cfg.schedule.patience,
           schedule_of(d)->factors[p->drops - 1], p->drops, schedule_of(d)->n_factors);
    psd_plateau_tick(d);
}

void psd_plateau_reported(struct psd *d, double loss)
{
    struct psd_plateau *p = &d->plateau;
    if (!watches(d, PSD_WATCH_TRAIN) || !isfinite(loss))
        return;
    if (p->n == 0)
        p->begin_ms = psd_loop_now_ms(&d->loop);
    p->sum += loss;
    p->n++;
}

void psd_plateau_evaluated(struct psd *d, const struct psd_evaluation *e)
{
    if (!watches(d, PSD_WATCH_TEST) || !psd_evaluation_counts(d, e) || e->version == d->plateau.version)
        return;
    d->plateau.version = e->version;
    observe(d, e->loss);
}

static void end_window(struct psd *d)
{
    struct psd_plateau *p = &d->plateau;
    if (p->n == 0 || psd_loop_now_ms(&d->loop) - p->begin_ms < (uint64_t)d->cfg.schedule.every_s * 1000)
        return;
    double mean = p->sum / (double)p->n;
    p->sum = 0;
    p->n = 0;
    observe(d, mean);
}

/* Another change of the method goes first; it takes the drops with it. */
static void put_in_force(struct psd *d)
{
    struct psd_config next = d->cfg;
    struct ps_error err;
    next.hyper.schedule.drops = psd_plateau_drops(d, schedule_of(d)->n_factors);
    if (next.hyper.schedule.drops == schedule_of(d)->drops ||
        d->method_change.phase != PSD_METHOD_CHANGE_NONE || d->state != PSD_STATE_READY)
        return;
    if (psd_method_change_begin(d, &next, &d->reload.recipe, &err) < 0)
        ps_log(PS_LOG_WARN, "schedule.plateau", "the learning rate cannot drop yet: %s", err.text);
}

void psd_plateau_tick(struct psd *d)
{
    if (schedule_of(d)->kind != PS_SCHEDULE_PLATEAU) {
        d->plateau = (struct psd_plateau){.best = NAN};
        return;
    }
    if (watches(d, PSD_WATCH_TRAIN))
        end_window(d);
    put_in_force(d);
}
