/* costs.c: the costs of this machine per byte, measured with real jobs of one worker that sleeps instead of
 * computing: CPU time of threads, and the latency for which the simulated exchange takes as long as the real
 * one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/codecs/codec.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/simulate/real.h"
#include "tests/bench/simulate/simulate.h"

/* The vector's limit is large enough to show the cost of large vectors; the sleep is the default time of
 * computing. */
enum { MOST_FLOATS = 1 << 24, REPEATS = 3 };
#define SLEEP_S 0.005
/* Bisection steps for the latency: precise to less than a microsecond. */
enum { HALVINGS = 24 };
#define MOST_ALPHA_S 0.1

/* Runs several times. Returns the k-th run in order of iteration time. */
static int run_some(const struct sim_real_job *job, int which, struct sim_real_times *out)
{
    struct sim_real_times runs[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        if (sim_real_run(job, &runs[i]) < 0)
            return -1;
        for (int k = i; k > 0 && runs[k].iteration_s < runs[k - 1].iteration_s; k--) {
            struct sim_real_times t = runs[k];
            runs[k] = runs[k - 1];
            runs[k - 1] = t;
        }
    }
    *out = runs[which];
    return 0;
}

static int run_median(const struct sim_real_job *job, struct sim_real_times *out)
{
    return run_some(job, REPEATS / 2, out);
}

/* Sets a cost unless it was given. */
static void take_cost(struct sim_options *o, enum sim_thread thread, double seconds, double bytes)
{
    if (isnan(o->costs[thread].chunk_s))
        o->costs[thread] = (struct sim_cost){0, fmax(seconds, 0) / bytes};
}

static bool lacks(const struct sim_options *o, int from, int to)
{
    bool any = false;
    for (int i = from; i <= to; i++)
        any = any || isnan(o->costs[i].chunk_s);
    return any;
}

static void fill(const struct sim_options *o, struct sim_machine *m)
{
    m->caller = o->costs[SIM_CALLER];
    m->client_io = o->costs[SIM_CLIENT_IO];
    m->server_io = o->costs[SIM_SERVER_IO];
    m->lane = o->costs[SIM_LANE];
    m->merge = o->costs[SIM_MERGE];
    m->ring = o->costs[SIM_RING];
}

/* Fits the local link's latency, so that the simulated iteration takes as long as the real one. *alpha_s: the
 * field of the machine to fit. */
static int fit_alpha(const char *method, struct sim_machine *machine, struct sim_load load, uint32_t workers,
                     double iteration_s, double *alpha_s)
{
    double low = 0, high = MOST_ALPHA_S;
    struct sim_method m;
    struct sim_codecs codecs;
    struct sim_result r;
    struct ps_error err;
    load.workers = workers;
    load.exchanges = 4;
    load.pieces = UINT32_MAX;
    if (sim_method_read(method, workers, &m, &codecs, &err) < 0)
        return -1;
    for (int i = 0; i < HALVINGS; i++) {
        *alpha_s = (low + high) / 2;
        if (sim_run(&m, machine, &load, &r, &err) < 0) {
            fprintf(stderr, "psbench plan: %s\n", err.text);
            return -1;
        }
        if (r.iteration_s > iteration_s)
            high = *alpha_s;
        else
            low = *alpha_s;
    }
    return 0;
}

static struct sim_real_job job_of(const struct sim_options *o, const struct sim_load *load,
                                  const char *method)
{
    double floats = fmin(load->n_floats, MOST_FLOATS);
    return (struct sim_real_job){.psd = o->psd,
                                 .method = method,
                                 .n_floats = (uint64_t)floats,
                                 .sleep_s = load->compute_s > 0 && o->check ? load->compute_s : SLEEP_S,
                                 .workers = 1,
                                 .lanes = o->lanes,
                                 .window = o->window,
                                 .chunk_floats = o->chunk_floats,
                                 .steps = o->steps};
}

/* One worker of async-sgd gives the costs of all threads except for merges and rings; sync-sgd gives the
 * lane's cost in a round. */
static int measure_exchange(struct sim_options *o, struct sim_machine *m, const struct sim_load *load,
                            bool local)
{
    struct sim_real_job job = job_of(o, load, "async-sgd");
    double bytes = (double)job.n_floats * sizeof(float);
    struct sim_real_times t;
    struct sim_load same = *load;

    if (lacks(o, SIM_CALLER, SIM_LANE) || local) {
        if (run_median(&job, &t) < 0)
            return -1;
        take_cost(o, SIM_CALLER, t.caller_s, 2 * bytes);
        take_cost(o, SIM_CLIENT_IO, t.client_io_s, 2 * bytes);
        take_cost(o, SIM_SERVER_IO, t.server_io_s, 2 * bytes);
        take_cost(o, SIM_LANE, t.lane_s, bytes);
        same.n_floats = (double)job.n_floats;
        same.compute_s = t.slept_s;
        fill(o, m);
        if (local && fit_alpha(job.method, m, same, 1, t.iteration_s, &m->link.alpha_s) < 0)
            return -1;
    }
    job.method = "sync-sgd";
    if (lacks(o, SIM_MERGE, SIM_MERGE)) {
        if (run_median(&job, &t) < 0)
            return -1;
        take_cost(o, SIM_MERGE, t.lane_s, bytes);
    }
    return 0;
}

/* Two workers of d-sync, each of which sends and receives its vector once. The caller's cost besides sums is
 * that of a single worker. Uses the fastest runs: a hop's latency is a small part of the time, and there are
 * many hops. */
static int measure_ring(struct sim_options *o, struct sim_machine *m, struct sim_load *load, bool local)
{
    struct sim_real_job job = job_of(o, load, "d-sync");
    double bytes = (double)job.n_floats * sizeof(float);
    struct sim_real_times one, two;
    struct sim_load same = *load;

    if (!lacks(o, SIM_RING, SIM_RING) && !local)
        return 0;
    if (run_some(&job, 0, &one) < 0)
        return -1;
    job.workers = 2;
    if (run_some(&job, 0, &two) < 0)
        return -1;
    take_cost(o, SIM_RING, two.caller_s + two.client_io_s - one.caller_s - one.client_io_s, bytes);
    fill(o, m);
    same.n_floats = (double)job.n_floats;
    same.compute_s = two.slept_s;
    same.update_clique_s = one.iteration_s - one.slept_s;
    if (isnan(o->update_s))
        load->update_clique_s = same.update_clique_s * load->n_floats / same.n_floats;
    return local ? fit_alpha(job.method, m, same, 2, two.iteration_s, &m->ring_alpha_s) : 0;
}

/* Measures the worker's own step, and how much longer a sleep takes than requested. */
static int measure_steps(const struct sim_options *o, struct sim_load *load)
{
    struct sim_real_job job = job_of(o, load, "async-easgd:period=1000000");
    double scale = load->n_floats / (double)job.n_floats;
    struct sim_real_times apart, warm;

    load->update_s = load->update_warm_s = load->update_clique_s = o->update_s;
    if (!isnan(o->update_s) && !o->check)
        return 0;
    if (run_median(&job, &apart) < 0)
        return -1;
    job.method = "async-easgd:period=1";
    if (run_median(&job, &warm) < 0)
        return -1;
    if (isnan(o->update_s)) {
        load->update_s = (apart.iteration_s - apart.slept_s) * scale;
        load->update_warm_s = warm.update_s * scale;
        load->update_clique_s = load->update_s;
    }
    if (o->check)
        load->compute_s = apart.slept_s;
    return 0;
}

static int measure_net(const struct sim_options *o, struct sim_load *load)
{
    struct plan_options p = {.net = o->net, .batch = o->batch, .threads = 1, .seconds = o->seconds};
    double update_s;
    p.floats = o->floats;
    p.compute_s = o->compute_s;
    p.update_s = o->update_s;
    load->n_floats = plan_n_floats(&p);
    return plan_measure_compute(&p, &load->compute_s, &update_s);
}

int sim_measure_costs(struct sim_options *o, struct sim_machine *m, struct sim_load *load)
{
    bool local = isnan(o->beta_s);
    long here = sysconf(_SC_NPROCESSORS_ONLN);
    struct plan_options quick = {.seconds = o->seconds};
    struct plan_codec raw;

    if (measure_net(o, load) < 0 || plan_measure_codec(&quick, ps_codec_named("raw"), &raw) < 0)
        return -1;
    m->cores = o->cores != UINT32_MAX ? o->cores : local ? (uint32_t)here : 0;
    m->raw_add_s = raw.add_s;
    m->message = m->answer = m->clique = raw;
    m->link.lanes = o->lanes;
    m->link.half_duplex = o->half_duplex;
    m->link.sync_s = isnan(o->sync_s) ? 0 : o->sync_s;
    m->link.alpha_s = m->ring_alpha_s = local ? 0 : o->alpha_s;
    m->link.beta_s = local ? 0 : o->beta_s;
    m->link.server_beta_s = isnan(o->server_beta_s) ? m->link.beta_s : o->server_beta_s;
    m->servers = o->servers;
    m->window = o->window;
    m->chunk_floats = o->chunk_floats;
    if (measure_steps(o, load) < 0 || measure_exchange(o, m, load, local) < 0 ||
        measure_ring(o, m, load, local) < 0)
        return -1;
    fill(o, m);
    return 0;
}

static int measure_codec(const struct sim_options *o, const char *name, const struct plan_codec *known,
                         size_t n_known, struct plan_codec *out)
{
    struct plan_options quick = {.seconds = o->seconds};
    for (size_t i = 0; i < n_known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i];
            return 0;
        }
    struct ps_codec codec;
    return ps_codec_of(name, &codec) == NULL ? plan_measure_codec(&quick, &codec, out) : -1;
}

int sim_measure_codecs(const struct sim_options *o, const struct sim_codecs *names, struct sim_machine *m)
{
    struct plan_codec known[] = {m->message, m->answer, m->clique, {0}};
    if (measure_codec(o, names->message, known, 3, &m->message) < 0)
        return -1;
    known[3] = m->message;
    if (measure_codec(o, names->answer, known, 4, &m->answer) < 0)
        return -1;
    return measure_codec(o, names->clique, known, 4, &m->clique);
}
