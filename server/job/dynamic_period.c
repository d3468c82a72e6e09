#include "server/job/dynamic_period.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/job/job.h"

#define MOST_PER_SECOND 1e9
#define MOST_OF_MEDIAN  64.0

double psd_dynamic_period_speed(double told)
{
    return told > 0 && told <= MOST_PER_SECOND ? told : 0;
}

static int compare(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

double psd_dynamic_period_fastest(double *speeds, size_t n)
{
    qsort(speeds, n, sizeof *speeds, compare);
    double most = MOST_OF_MEDIAN * speeds[(n - 1) / 2];
    return speeds[n - 1] < most ? speeds[n - 1] : most;
}

uint32_t psd_dynamic_period_period(uint32_t period, uint32_t fewest, double speed, double fastest)
{
    if (!(speed > 0) || speed >= fastest)
        return period;
    double own = round((double)period * (speed / fastest));
    return own > fewest ? (uint32_t)own : fewest;
}

static bool is_live(const struct psd_session *s)
{
    return s->state == PSD_SESSION_ACTIVE && !s->observer;
}

/* The speed reported by an earlier session in the slot does not count. */
static double speed_of(const struct psd_session *s)
{
    return s->speed.incarnation == s->incarnation ? s->speed.steps_per_second : 0;
}

void psd_dynamic_period_plan(struct psd_job *job)
{
    struct psd_session *slots = job->sessions->slots;
    const struct ps_hyper *h = &job->cfg->hyper;
    double *speeds = calloc(job->sessions->n_workers_max, sizeof *speeds);
    size_t n = 0;
    if (speeds == NULL)
        return; /* the periods stay as they are */
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++)
        if (is_live(&slots[i]) && speed_of(&slots[i]) > 0)
            speeds[n++] = speed_of(&slots[i]);
    double fastest = n > 0 ? psd_dynamic_period_fastest(speeds, n) : 0;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++)
        slots[i].speed.period = h->dynamic_period ? psd_dynamic_period_period(h->period, h->fragments,
                                                                              speed_of(&slots[i]), fastest)
                                                  : h->period;
    free(speeds);
}
