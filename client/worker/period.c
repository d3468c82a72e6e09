/* Steps between exchanges, and the worker's step rate.
 *
 * With dynamic_period (Liu et al. 2024, Dynamic Local Updates) a slower worker makes fewer steps between two
 * exchanges, so that all workers exchange about equally often. The server computes the periods from the step
 * rates that workers report. A worker adopts a new period after an exchange, so that every message has as
 * many steps as were planned when it began. */
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "proto/clock.h"

/* A step that took more than this many times the median was delayed (a stopped process, a saved state). */
enum { HELD_UP = 8, FEWEST = 4 };

static uint32_t period_of(const struct psc *c)
{
    return c->worker.hyper.dynamic_period && c->worker.pacing.period > 0 ? c->worker.pacing.period
                                                                         : c->worker.hyper.period;
}

uint32_t psc_pacing_fragments(const struct psc *c)
{
    return c->worker.hyper.fragments > 1 ? c->worker.hyper.fragments : 1;
}

/* A constant period is counted from step 0. Fragment i of n is exchanged after (i + 1) / n of the period's
 * steps, rounded up. */
bool psc_pacing_is_due(const struct psc *c)
{
    const struct psc_pacing *t = &c->worker.pacing;
    uint32_t n = psc_pacing_fragments(c);
    if (!c->worker.hyper.dynamic_period && n == 1)
        return (c->worker.clock + 1) % c->worker.hyper.period == 0;
    return (t->since + 1) * n >= (uint64_t)(t->fragment + 1) * period_of(c);
}

void psc_pacing_restart(struct psc *c)
{
    c->worker.pacing.since = 0;
    c->worker.pacing.fragment = 0;
}

/* The method's period is an upper bound: it is the fastest worker's. */
void psc_pacing_exchanged(struct psc *c)
{
    if (++c->worker.pacing.fragment < psc_pacing_fragments(c)) {
        c->worker.pacing.since++;
        return;
    }
    psc_pacing_restart(c);
    pthread_mutex_lock(&c->session.shared.lock);
    uint32_t told = c->session.shared.period;
    pthread_mutex_unlock(&c->session.shared.lock);
    c->worker.pacing.period = !c->worker.hyper.dynamic_period ? 0
                              : told < c->worker.hyper.period ? told
                                                              : c->worker.hyper.period;
}

void psc_pacing_stepped(struct psc *c)
{
    c->worker.pacing.since++;
}

static int compare(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Steps per second, from the mean of the last ones; none counts as more than HELD_UP times the median. */
static double speed_of(const struct psc_pacing *t)
{
    double took_s[PSC_PACING_STEPS], sum_s = 0;
    size_t n = t->n_took < PSC_PACING_STEPS ? (size_t)t->n_took : PSC_PACING_STEPS;
    memcpy(took_s, t->took_s, sizeof took_s);
    qsort(took_s, n, sizeof *took_s, compare);
    for (size_t i = 0; i < n; i++)
        sum_s += took_s[i] < HELD_UP * took_s[n / 2] ? took_s[i] : HELD_UP * took_s[n / 2];
    return sum_s > 0 ? (double)n / sum_s : 0;
}

/* Measures from the end of one step to the end of the next: the caller's gradient and our own work, without
 * the time spent waiting for exchanges. The 32 values are sorted only once in a few steps. */
void psc_pacing_measure(struct psc *c)
{
    struct psc_pacing *t = &c->worker.pacing;
    double now_s = ps_now_s(), took_s = now_s - t->ended_s - (c->worker.exchange_s - t->waited_s);
    bool first = t->ended_s == 0;
    t->ended_s = now_s;
    t->waited_s = c->worker.exchange_s;
    if (first)
        return;
    t->took_s[t->n_took++ % PSC_PACING_STEPS] = took_s > 0 ? took_s : 0;
    if (t->n_took == FEWEST || t->n_took % (PSC_PACING_STEPS / 4) == 0)
        t->steps_per_second = speed_of(t);
}
