/* client.c: a client between exchanges: steps, and sums of its clique. */
#include <math.h>

#include "tests/bench/simulate/run.h"

double sim_member_step_s(struct sim_client *c, uint32_t member)
{
    const struct sim_load *l = c->sim->load;
    double x = l->jitter > 0 ? exp(l->jitter * sim_dice_normal(&c->dice) - l->jitter * l->jitter / 2) : 1;
    return l->compute_s * c->factors[member] * x;
}

/* The time of the next step of the slowest member. */
static double step_s(struct sim_client *c)
{
    double longest = 0;
    for (uint32_t i = 0; i < c->sim->method->members; i++)
        longest = fmax(longest, sim_member_step_s(c, i));
    return longest;
}

static void begin(void *owner);

static void end_cycle(void *owner)
{
    struct sim_client *c = owner;
    struct sim *s = c->sim;
    double now = s->engine.now_s,
           from = s->method->overlap > 0 ? fmax(c->begun_s, c->computed_s) : c->begun_s;
    c->exchanges++;
    sim_count(s, c, fmax(now - from, 0) + (s->method->period * s->sum_s));
    begin(c);
}

double sim_own_steps_s(const struct sim *s)
{
    const struct sim_load *l = s->load;
    uint32_t n = s->method->period;
    if (!s->method->steps)
        return 0;
    if (s->method->is_clique)
        return l->update_clique_s + (n - 1) * l->update_s;
    return s->method->steps_warm ? l->update_warm_s + (n - 1) * l->update_s : n * l->update_s;
}

/* Runs the period's steps on a core. */
static void make_steps(struct sim_client *c, sim_handler then)
{
    sim_station_enter(&c->caller, &c->task, sim_own_steps_s(c->sim), then, c);
}

static void exchange(void *owner)
{
    struct sim_client *c = owner;
    c->begun_s = c->sim->engine.now_s;
    c->joins = 1;
    sim_exchange_start(c);
}

static void joined(void *owner)
{
    struct sim_client *c = owner;
    if (--c->joins > 0)
        return;
    if (c->sim->method->overlap > 0)
        make_steps(c, end_cycle);
    else
        end_cycle(c);
}

void sim_client_answered(struct sim_client *c)
{
    struct sim *s = c->sim;
    sim_at(&s->engine, s->engine.now_s + s->broadcast_s, joined, c);
}

static void beside_computed(void *owner)
{
    struct sim_client *c = owner;
    c->computed_s = c->sim->engine.now_s;
    c->computes = false;
    if (c->sim->method->serial)
        sim_exchange_go_on(c);
    joined(c);
}

static double steps_s(struct sim_client *c, uint32_t n)
{
    double seconds = 0;
    for (uint32_t i = 0; i < n; i++)
        seconds += step_s(c) + c->sim->sum_s;
    return seconds;
}

/* With overlap the exchange runs during some of the period's steps. */
static void exchange_beside(void *owner)
{
    struct sim_client *c = owner;
    struct sim *s = c->sim;
    c->begun_s = c->computed_s = s->engine.now_s;
    c->joins = 2;
    c->computes = true;
    sim_at(&s->engine, s->engine.now_s + steps_s(c, s->method->overlap), beside_computed, c);
    sim_exchange_start(c);
}

static void computed(void *owner)
{
    make_steps(owner, exchange);
}

static void begin(void *owner)
{
    struct sim_client *c = owner;
    struct sim *s = c->sim;
    uint32_t beside = s->method->overlap;
    sim_at(&s->engine, s->engine.now_s + steps_s(c, s->method->period - beside),
           beside > 0 ? exchange_beside : computed, c);
}

void sim_client_start(struct sim_client *c)
{
    begin(c);
}
