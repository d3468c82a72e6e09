/* ring.c: a job that is one clique: the members compute, and sum the results over a ring. If they share
 * cores, each hop of each member is an event. If each has its own core, a sum takes its closed form, and only
 * the arrival of members is simulated. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/bench/simulate/run.h"

static double link_byte_s(const struct sim_machine *m)
{
    return fmax((m->link.half_duplex ? 2 : 1) * m->link.beta_s, m->ring.byte_s);
}

double sim_allreduce_s(const struct sim_machine *m, double n_floats, double members)
{
    const struct plan_codec *c = &m->clique;
    double share = (members - 1) / members, hops = 2 * (members - 1);
    if (members < 2)
        return 0;
    return hops * (m->ring_alpha_s + m->ring.chunk_s) +
           2 * share * n_floats * c->bytes_per_float * link_byte_s(m) +
           share * n_floats * fmax(c->add_s - m->raw_add_s, 0) + n_floats * (c->encode_s + c->decode_s) +
           m->link.sync_s;
}

double sim_reduce_s(const struct sim_machine *m, double n_floats, double members)
{
    const struct plan_codec *c = &m->clique;
    if (members < 2)
        return 0;
    return (members - 1) * (m->ring_alpha_s + m->ring.chunk_s) +
           n_floats * (c->bytes_per_float * link_byte_s(m) + c->encode_s + c->decode_s) + m->link.sync_s;
}

double sim_broadcast_s(const struct sim_machine *m, double n_floats, double members)
{
    if (members < 2)
        return 0;
    return (members - 1) * (m->ring_alpha_s + m->ring.chunk_s) + n_floats * sizeof(float) * link_byte_s(m);
}

static double period_s(struct sim_client *c, uint32_t member)
{
    double seconds = 0;
    for (uint32_t i = 0; i < c->sim->method->period; i++)
        seconds += sim_member_step_s(c, member);
    return seconds;
}

/* Without shared cores. A member continues when it has this sum or, in a pipeline, the previous one. A sum
 * begins when all members have arrived. */
static int run_closed(struct sim *s)
{
    struct sim_client *c = &s->clients[0];
    uint32_t n = s->method->members;
    double sum_s = sim_allreduce_s(s->machine, s->load->n_floats, n), ended = 0;
    double *begins = calloc(n, sizeof *begins);
    if (begins == NULL)
        return -ENOMEM;
    for (; !s->over; s->engine.n_run++) {
        double all = 0, before = ended, waited = 0;
        for (uint32_t i = 0; i < n; i++) {
            double own = begins[i] + period_s(c, i);
            double ready = s->method->pipeline > 1 ? fmax(own, before) + sim_own_steps_s(s) : own;
            begins[i] = ready;
            waited += s->method->pipeline > 1 ? fmax(before - own, 0) : -own;
            all = fmax(all, ready);
        }
        ended = fmax(all, before) + sum_s;
        for (uint32_t i = 0; i < n && s->method->pipeline < 2; i++)
            begins[i] = ended + sim_own_steps_s(s);
        s->engine.now_s = s->method->pipeline > 1 ? all : ended + sim_own_steps_s(s);
        sim_count(s, c, waited / n + (s->method->pipeline > 1 ? 0 : ended));
    }
    free(begins);
    return 0;
}

/* A member on shared cores, whose hops are events. */
struct member {
    struct sim *sim;
    struct member *right;
    struct sim_station thread;
    struct sim_task task, own;
    uint32_t id, hop;             /* completed tasks of the current sum */
    uint64_t arrived;             /* blocks received from the left, of all sums */
    uint64_t sums, ended;         /* sums begun; sums ended */
    bool summing, working, waits; /* working: a hop is running; waits: for the end of a sum */
    double waits_since_s;
};

static uint32_t hops_of(const struct sim *s)
{
    return 2 * (s->method->members - 1);
}

static void hop_done(void *owner);

/* Receives the next block and sends one; the first is only sent, the last only received. */
static void try_hop(struct member *m)
{
    const struct sim *s = m->sim;
    const struct sim_machine *machine = s->machine;
    const struct plan_codec *c = &machine->clique;
    uint32_t hops = hops_of(s);
    uint64_t needs = (m->sums - 1) * hops + m->hop;
    double floats = s->load->n_floats / s->method->members;
    double whole = machine->ring.chunk_s + floats * (c->bytes_per_float * machine->ring.byte_s) +
                   floats * (fmax(c->add_s - machine->raw_add_s, 0) + c->encode_s + c->decode_s) / 2;
    if (!m->summing || m->working || (m->hop > 0 && m->arrived < needs))
        return;
    m->working = true;
    sim_station_enter(&m->thread, &m->task, m->hop == 0 || m->hop == hops ? whole / 2 : whole, hop_done, m);
}

static void block_arrives(void *owner)
{
    struct member *m = owner;
    m->arrived++;
    try_hop(m);
}

static void sum_ended(struct member *m);

static void hop_done(void *owner)
{
    struct member *m = owner;
    struct sim *s = m->sim;
    const struct sim_machine *machine = s->machine;
    double block = s->load->n_floats / s->method->members * machine->clique.bytes_per_float;
    double left_s = fmax(link_byte_s(machine) - machine->ring.byte_s, 0) * block;
    m->working = false;
    if (m->hop < hops_of(s))
        sim_at(&s->engine, s->engine.now_s + machine->ring_alpha_s + left_s, block_arrives, m->right);
    if (m->hop++ < hops_of(s)) {
        try_hop(m);
        return;
    }
    m->summing = false;
    m->ended++;
    sum_ended(m);
}

static void compute(struct member *m);

/* Ends the member's round. The rounds of the first member count as those of the job. */
static void next_round(void *owner)
{
    struct member *m = owner;
    if (m->id == 0)
        sim_count(m->sim, &m->sim->clients[0], m->sim->engine.now_s - m->waits_since_s);
    compute(m);
}

static void begin_sum(void *owner)
{
    struct member *m = owner;
    m->summing = true;
    m->hop = 0;
    m->sums++;
    try_hop(m);
    if (m->sim->method->pipeline > 1)
        next_round(m);
}

static void step_on(struct member *m, sim_handler then)
{
    sim_station_enter(&m->thread, &m->own, sim_own_steps_s(m->sim), then, m);
}

static void sum_ended(struct member *m)
{
    if (m->sim->method->pipeline < 2) {
        step_on(m, next_round);
    } else if (m->waits) {
        m->waits = false;
        step_on(m, begin_sum);
    }
}

static void computed(void *owner)
{
    struct member *m = owner;
    m->waits_since_s = m->sim->engine.now_s;
    if (m->sim->method->pipeline < 2)
        begin_sum(m);
    else if (m->ended == m->sums)
        step_on(m, begin_sum);
    else
        m->waits = true;
}

static void compute(struct member *m)
{
    struct sim *s = m->sim;
    sim_at(&s->engine, s->engine.now_s + period_s(&s->clients[0], m->id), computed, m);
}

static int run_events(struct sim *s)
{
    uint32_t n = s->method->members;
    struct member *members = calloc(n, sizeof *members);
    if (members == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        struct member *m = &members[i];
        *m = (struct member){.sim = s, .right = &members[(i + 1) % n], .id = i};
        sim_station_init(&m->thread, &s->engine, 1, &s->cores);
        compute(m);
    }
    while (!s->over && sim_next(&s->engine))
        continue;
    free(members);
    return s->engine.failed ? -ENOMEM : 0;
}

int sim_ring_run(struct sim *s)
{
    return s->machine->cores > 0 && s->method->members > 1 ? run_events(s) : run_closed(s);
}
