/* Methods that must do the same, over the tables: bit for bit, since both take the same steps in the same
 * order (momentum with mu = 0 adds a zero, a round of one has a sum of one). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/model/method.h"
#include "tests/theory/job.h"
#include "tests/theory/noise.h"
#include "tests/theory/theory.h"

enum { N = 40000, STEPS = 12, MORE = 6 }; /* two lanes of two chunks */

/* method and more settings; steps 0: STEPS */
struct side {
    const char *method, *more[MORE];
    uint64_t steps;
};

struct twin {
    const char *name;
    unsigned p;
    struct side a, b;
};

/* Where it ended: the center, then the x of each rank, N floats each. */
struct ending {
    unsigned p;
    float *v;
};

static void offer(void *arg, float *x, size_t n)
{
    (void)arg;
    noise_uniform(21, 0, x, n);
}

static void gradient(void *arg, unsigned rank, uint64_t t, const float *x, float *g, size_t n)
{
    (void)arg;
    noise_fill(22, rank, t, g, n);
    for (size_t i = 0; i < n; i++)
        g[i] = x[i] - g[i];
}

static void look(void *arg, uint64_t t, const float *center, const float *average, float *const *x, size_t n)
{
    struct ending *e = arg;
    (void)t;
    (void)average;
    memcpy(e->v, center, n * sizeof *center);
    for (unsigned r = 0; r < e->p; r++)
        memcpy(e->v + (r + 1) * n, x[r], n * sizeof *x[r]);
}

static void run_side(const struct side *side, unsigned p, struct ending *e)
{
    struct settings settings;
    uint64_t steps = side->steps > 0 ? side->steps : STEPS;
    settings_init(&settings, side->method);
    settings_add(&settings, "learning_rate=0.05");
    for (int i = 0; i < MORE && side->more[i] != NULL; i++)
        settings_add(&settings, "%s", side->more[i]);
    *e = (struct ending){p, calloc((p + 1) * N, sizeof *e->v)};
    job_run(&(struct job){.settings = &settings,
                          .p = p,
                          .n = N,
                          .stops = &steps,
                          .n_stops = 1,
                          .arg = e,
                          .offer = offer,
                          .gradient = gradient,
                          .look = look});
}

/* After as many steps each x is the same too. */
static void compare(struct table *table, const struct twin *twin)
{
    struct ending a, b;
    bool all = twin->a.steps == twin->b.steps;
    run_side(&twin->a, twin->p, &a);
    run_side(&twin->b, twin->p, &b);
    table_same(table, a.v, b.v, all ? (twin->p + 1) * N : N, "%s, p=%u", twin->name, twin->p);
    free(a.v);
    free(b.v);
}

/* Under overlap the exchange of step t + 1 has left when step t returns: with tau = 1, 11 steps of it and 12
 * without leave the same center. */
static const struct twin twins[] = {
    {"momentum mu=0 and sgd", 1, {"async-msgd", {"momentum=0"}, 0}, {"async-sgd", {NULL}, 0}},
    {"dc-asgd lambda=0 and sgd",
     1,
     {"dc-asgd", {"compensation=0", "workers=1"}, 0},
     {"async-sgd", {NULL}, 0}},
    {"momentum mu=0 and sgd, rounds",
     4,
     {"async-msgd", {"momentum=0", "admission=sync", "workers=4"}, 0},
     {"sync-sgd", {"workers=4"}, 0}},
    {"sync-easgd with overlap and without",
     4,
     {"sync-easgd", {"beta=0.9", "period=1", "workers=4", "overlap=true"}, STEPS - 1},
     {"sync-easgd", {"beta=0.9", "period=1", "workers=4"}, STEPS}},
    {"sync-easgd tau=3 with overlap and without",
     4,
     {"sync-easgd", {"beta=0.9", "period=3", "workers=4", "overlap=true"}, STEPS - 1},
     {"sync-easgd", {"beta=0.9", "period=3", "workers=4"}, STEPS - 1}},
    {"eamsgd in rounds, tau=2, with overlap and without",
     4,
     {"eamsgd", {"admission=sync", "beta=0.9", "period=2", "workers=4", "overlap=true"}, STEPS - 1},
     {"eamsgd", {"admission=sync", "beta=0.9", "period=2", "workers=4"}, STEPS - 1}},
    {"async-measgd in rounds, tau=2, with overlap and without",
     4,
     {"async-measgd", {"admission=sync", "beta=0.9", "period=2", "workers=4", "overlap=true"}, STEPS - 1},
     {"async-measgd", {"admission=sync", "beta=0.9", "period=2", "workers=4"}, STEPS - 1}},
    {"original-easgd with overlap and without",
     4,
     {"original-easgd", {"alpha=0.3", "period=1", "workers=4", "serial=false", "overlap=true"}, STEPS - 1},
     {"original-easgd", {"alpha=0.3", "period=1", "workers=4", "serial=false"}, STEPS}},
    /* One: several would stop here, and each waits for its next turn. */
    {"original-easgd in turn, with overlap and without",
     1,
     {"original-easgd", {"alpha=0.3", "period=1", "workers=1", "serial=true", "overlap=true"}, STEPS - 1},
     {"original-easgd", {"alpha=0.3", "period=1", "workers=1", "serial=true"}, STEPS}},
};

/* Every rule in rounds of one, and alone. */
static void compare_admissions(struct table *table, const struct ps_rule_info *rule, const char *admission)
{
    char name[80], rule_key[40], admission_key[40];
    static char optimizer[] = "optimizer=sgd", none[] = "optimizer=none";
    struct twin twin = {
        name,
        1,
        {"custom", {rule_key, admission_key, rule->worker_steps ? optimizer : none, "averaging=none"}, 0},
        {"custom", {rule_key, "admission=fcfs", rule->worker_steps ? optimizer : none, "averaging=none"}, 0}};
    snprintf(name, sizeof name, "%s under %s and fcfs", rule->name, admission);
    snprintf(rule_key, sizeof rule_key, "rule=%s", rule->name);
    snprintf(admission_key, sizeof admission_key, "admission=%s", admission);
    const char *more = rule->uses & PS_USES_RATE           ? "alpha=0.3"
                       : rule->uses & PS_USES_COMPENSATION ? "compensation=0.5"
                       : rule->uses & PS_USES_RHO          ? "rho=2.5"
                       : rule->uses & PS_USES_MOMENTUM     ? "momentum=0.9"
                                                           : NULL;
    twin.a.more[4] = twin.b.more[4] = more;
    twin.a.more[5] = twin.b.more[5] = rule->uses & PS_USES_WORKERS ? "workers=1" : NULL;
    compare(table, &twin);
}

/* p = 1, alpha = 0: the worker alone. */
static void compare_plain(struct table *table)
{
    const struct side side = {"async-easgd", {"alpha=0", "period=1"}, 0};
    struct ending e;
    float *x = calloc(N, sizeof *x), *g = calloc(N, sizeof *g);
    run_side(&side, 1, &e);
    offer(NULL, x, N);
    for (uint64_t t = 0; t < STEPS; t++) {
        gradient(NULL, 0, t, x, g, N);
        for (size_t i = 0; i < N; i++)
            x[i] -= 0.05f * g[i];
    }
    table_same(table, x, e.v + N, N, "async-easgd alpha=0 and a plain loop of SGD, p=1");
    offer(NULL, x, N);
    table_same(table, x, e.v, N, "async-easgd alpha=0: the center stays");
    free(e.v);
    free(x);
    free(g);
}

void theory_twins(struct table *table)
{
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        compare(table, &twins[i]);
    for (const struct ps_rule_info *rule = ps_rules; rule->name != NULL; rule++) {
        if (rule->in_clique || rule->half == PS_HALF_CALLER) /* a single client; no psc_step */
            continue;
        if (!rule->fixed_workers && !rule->keeps_seen)
            compare_admissions(table, rule, "sync");
        compare_admissions(table, rule, "round-robin");
    }
    compare_plain(table);
}
