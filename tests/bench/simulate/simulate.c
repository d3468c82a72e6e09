/* simulate.c: psbench plan --simulate. */
#include "tests/bench/simulate/simulate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct simulation {
    struct sim_options opt;
    struct sim_machine machine;
    struct sim_load load;
};

/* mpi-* methods use cliques of --clique members, unless they set members. */
static const char *with_members(const struct sim_options *o, const char *text, uint32_t workers, char *room,
                                size_t size)
{
    if (strncmp(text, "mpi-", 4) != 0 || strstr(text, "members=") != NULL || workers % o->clique != 0)
        return text;
    snprintf(room, size, "%s%smembers=%u", text, strchr(text, ':') != NULL ? "," : ":", o->clique);
    return room;
}

/* Whether each given method can be simulated for at least one number of workers; with --check, for each
 * number, as single workers or as one clique. False with a message on stderr. */
static bool methods_fit(const struct sim_options *o)
{
    struct sim_method m;
    struct sim_codecs codecs;
    struct ps_error err;
    char room[300];
    for (size_t i = 0; i < o->n_methods && (o->named || o->check); i++) {
        size_t fit = 0;
        for (size_t w = 0; w < o->n_workers; w++) {
            uint32_t workers = o->workers[w];
            int rc = sim_method_read(with_members(o, o->methods[i], workers, room, sizeof room), workers, &m,
                                     &codecs, &err);
            if (rc == 0 && o->check && m.members > 1 && !m.is_clique)
                rc =
                    ps_fail(&err, -EINVAL, "%s: cliques that share cores with psd are not simulated", m.name);
            fit += rc == 0;
        }
        if (fit == 0 || (o->check && fit < o->n_workers)) {
            fprintf(stderr, "psbench plan: --method %s\n", err.text);
            return false;
        }
    }
    return true;
}

static int simulate(struct simulation *s, const char *text, uint32_t workers, struct sim_result *out,
                    struct ps_error *err)
{
    struct sim_machine machine = s->machine;
    struct sim_load load = s->load;
    struct sim_method m;
    struct sim_codecs codecs;
    char room[300];
    int rc;
    load.workers = workers;
    if ((rc = sim_method_read(with_members(&s->opt, text, workers, room, sizeof room), workers, &m, &codecs,
                              err)) < 0)
        return rc;
    if (sim_measure_codecs(&s->opt, &codecs, &machine) < 0)
        return ps_fail(err, -1, "%s: its codecs cannot be measured", text);
    return sim_run(&m, &machine, &load, out, err);
}

static double efficiency(const struct sim_result *one, const struct sim_result *r)
{
    return r->samples_s / r->workers / (one->samples_s / one->workers);
}

static double of_alone(const struct simulation *s, const struct sim_result *r)
{
    return r->samples_s * r->alone_s / ((double)r->workers * s->load.batch);
}

static void print_row(const struct simulation *s, const char *text, const struct sim_result *one,
                      const struct sim_result *r)
{
    if (s->opt.json)
        printf(
            "{\"bench\":\"plan\",\"simulated\":true,\"method\":\"%s\",\"workers\":%u,\"clients\":%u,"
            "\"iteration_ms\":%.6f,\"exchanges_s\":%.6g,\"samples_s\":%.6g,\"staleness_mean\":%.3f,"
            "\"staleness_p99\":%.0f,\"efficiency\":%.6f,\"of_alone\":%.6f,\"waited\":%.6f,\"dropped\":%.6f,"
            "\"lanes_busy\":%.6f,\"nic_busy\":%.6f,\"cores_busy\":%.6f,\"events\":%llu}\n",
            text, r->workers, r->clients, r->iteration_s * 1e3, r->exchanges_s, r->samples_s,
            r->staleness_mean, r->staleness_p99, efficiency(one, r), of_alone(s, r), r->waited, r->dropped,
            r->lanes_busy, r->nic_busy, r->cores_busy, (unsigned long long)r->n_events);
    else
        printf("  %-28s %7u %12.3f %12.5g %12.5g %9.1f %6.0f %10.3f %8.3f %7.3f %6.3f %6.3f %6.3f\n", text,
               r->workers, r->iteration_s * 1e3, r->exchanges_s, r->samples_s, r->staleness_mean,
               r->staleness_p99, efficiency(one, r), of_alone(s, r), r->waited, r->lanes_busy, r->nic_busy,
               r->cores_busy);
    fflush(stdout);
}

static void print_reason(const struct simulation *s, const char *text, uint32_t workers, const char *why)
{
    char line[600];
    size_t n = 0;
    for (; *why != 0 && n + 2 < sizeof line; why++) {
        if (*why == '"' || *why == '\\')
            line[n++] = '\\';
        line[n++] = *why;
    }
    line[n] = 0;
    if (s->opt.json)
        printf("{\"bench\":\"plan\",\"simulated\":false,\"method\":\"%s\",\"workers\":%u,\"why\":\"%s\"}\n",
               text, workers, line);
    else
        printf("  %-28s %7u not simulated: %s\n", text, workers, line);
}

static bool run_method(struct simulation *s, const char *text)
{
    struct sim_result one = {0}, r = {0};
    struct ps_error err;
    bool any = false;
    for (size_t w = 0; w < s->opt.n_workers; w++) {
        uint32_t workers = s->opt.workers[w];
        if (simulate(s, text, workers, &r, &err) < 0) {
            print_reason(s, text, workers, err.text);
            continue;
        }
        if (!any && simulate(s, text, 1, &one, &err) < 0)
            one = r; /* with a given clique size one worker may be impossible: the first result is the
                        reference then */
        print_row(s, text, &one, &r);
        any = true;
    }
    return any;
}

/* Prints the rows of each method, or the reasons why there are none. */
static bool run_all(struct simulation *s)
{
    bool any = false;
    for (size_t i = 0; i < s->opt.n_methods; i++)
        any = run_method(s, s->opt.methods[i]) || any;
    return any;
}

static void print_inputs(const struct simulation *s)
{
    const struct sim_machine *m = &s->machine;
    if (s->opt.json)
        return;
    printf(
        "%.0f floats, batch %u: compute %.3f ms, update %.3f ms a step; %u server%s of %u lanes, window %u\n",
        s->load.n_floats, s->load.batch, s->load.compute_s * 1e3, s->load.update_s * 1e3, m->servers,
        m->servers == 1 ? "" : "s", m->link.lanes, m->window);
    if (m->link.beta_s > 0)
        printf("link: %.2f us, %.3f GB/s one way%s; psd's own %.3f GB/s; ", m->link.alpha_s * 1e6,
               1e-9 / m->link.beta_s, m->link.half_duplex ? " or the other" : "",
               1e-9 / m->link.server_beta_s);
    else
        printf("this machine: %.2f us each way, %.2f us a hop of a ring; ", m->link.alpha_s * 1e6,
               m->ring_alpha_s * 1e6);
    if (m->cores > 0)
        printf("%u cores for all\n", m->cores);
    else
        puts("separate cores for all");
    printf("microseconds a chunk, GB/s:");
    for (int i = 0; i < SIM_N_THREADS; i++)
        printf(" --%s %.3g,%.3g", sim_thread_names[i], s->opt.costs[i].chunk_s * 1e6,
               1e-9 / s->opt.costs[i].byte_s);
    putchar('\n');
}

static void print_head(void)
{
    printf("  %-28s %7s %12s %12s %12s %9s %6s %10s %8s %7s %6s %6s %6s\n", "method", "workers",
           "iteration ms", "exchanges/s", "samples/s", "staleness", "p99", "efficiency", "of alone", "waited",
           "lanes", "nic", "cores");
}

static void print_summary(const struct simulation *s)
{
    const struct sim_machine *m = &s->machine;
    printf("{\"bench\":\"plan\",\"simulated\":true,\"summary\":true,\"floats\":%.0f,\"batch\":%u,"
           "\"compute_ms\":%.6f,\"update_ms\":%.6f,\"update_warm_ms\":%.6f,\"update_clique_ms\":%.6f,\"alpha_"
           "us\":%.4f,"
           "\"ring_alpha_us\":%.4f,",
           s->load.n_floats, s->load.batch, s->load.compute_s * 1e3, s->load.update_s * 1e3,
           s->load.update_warm_s * 1e3, s->load.update_clique_s * 1e3, m->link.alpha_s * 1e6,
           m->ring_alpha_s * 1e6);
    if (m->link.beta_s > 0)
        printf("\"gb_s\":%.6f,\"server_gb_s\":%.6f,", 1e-9 / m->link.beta_s, 1e-9 / m->link.server_beta_s);
    else
        printf("\"gb_s\":null,\"server_gb_s\":null,");
    printf("\"servers\":%u,\"lanes\":%u,\"window\":%u,\"cores\":%u,\"jitter\":%g,\"slow_share\":%g,"
           "\"slow_factor\":%g,\"seed\":%u",
           m->servers, m->link.lanes, m->window, m->cores, s->load.jitter, s->load.slow_share,
           s->load.slow_factor, s->opt.seed);
    for (int i = 0; i < SIM_N_THREADS; i++)
        printf(",\"%s_ns_byte\":%.6f,\"%s_us_chunk\":%.4f", sim_thread_names[i], s->opt.costs[i].byte_s * 1e9,
               sim_thread_names[i], s->opt.costs[i].chunk_s * 1e6);
    puts("}");
}

struct sim_load sim_load_of(const struct sim_options *o)
{
    return (struct sim_load){.jitter = o->jitter,
                             .slow_share = o->slow_share,
                             .slow_factor = o->slow_factor,
                             .batch = o->batch,
                             .exchanges = o->exchanges,
                             .pieces = o->pieces,
                             .seed = o->seed};
}

int bench_simulate(int argc, char **argv)
{
    struct simulation s = {0};
    int rc = sim_parse(argc, argv, &s.opt);

    if (rc != 0)
        return rc > 0 ? 0 : 2;
    if (!methods_fit(&s.opt))
        return 2;
    if (s.opt.check)
        return sim_check(&s.opt);
    s.load = sim_load_of(&s.opt);
    if (sim_measure_costs(&s.opt, &s.machine, &s.load) < 0)
        return 1;
    print_inputs(&s);
    if (!s.opt.json)
        print_head();
    rc = !run_all(&s);
    if (rc == 0 && s.opt.json)
        print_summary(&s);
    return rc;
}
