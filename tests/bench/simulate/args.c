/* args.c: the options of psbench plan --simulate, one row each. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/simulate/simulate.h"

const char *const sim_thread_names[SIM_N_THREADS] = {
    [SIM_CALLER] = "caller", [SIM_CLIENT_IO] = "client-io", [SIM_SERVER_IO] = "server-io",
    [SIM_LANE] = "lane",     [SIM_MERGE] = "merge",         [SIM_RING] = "ring",
};

void sim_usage(FILE *out)
{
    fputs(
        "usage: psbench plan --simulate [--method METHOD[:KEY=VALUE,...]]... [--workers 1,2,4,...]\n"
        "                    [--net lenet | --floats N] [--compute-ms MS] [--update-ms MS] [--batch 64]\n"
        "                    [--alpha-us US --gb-s G | --link 1gbit] [--server-gb-s G] [--half-duplex]\n"
        "                    [--sync-us US] [--servers 1] [--lanes 2] [--window 2] [--chunk-floats 131072]\n"
        "                    [--clique 2] [--jitter SIGMA] [--slow-share S --slow-factor F] [--cores N]\n"
        "                    [--exchanges 20] [--pieces 8] [--seed 1] [--json]\n"
        "                    [--check [--steps 100] [--rounds 3]] [--psd PROGRAM] [--seconds 1]\n"
        "  --method M     one of psd's presets, with psd's parameters; may be repeated (all)\n"
        "  --alpha-us, --gb-s  of a client's link; each process then has its own cores. Default: this "
        "machine\n"
        "  --cores N      cores that all processes share; 0: each has its own\n"
        "  --jitter S     the time of a step is lognormal with this sigma\n"
        "  --check        also run real psd and workers, which sleep instead of computing\n"
        "  measured on this machine unless given, microseconds a chunk and GB/s:\n"
        "    --caller US,GB_S --client-io --server-io --lane --merge --ring\n",
        out);
}

enum kind { COUNT, NUMBER, FLAG, COST, METHOD, WORKERS, NET, TEXT, LINK, RATE };

#define AT(member) offsetof(struct sim_options, member)

static const struct row {
    const char *name;
    enum kind kind;
    size_t at;
    double least, most, unit; /* unit: the option's unit in the struct's */
} rows[] = {
    {"simulate", FLAG, 0, 0, 0, 0},
    {"method", METHOD, 0, 0, 0, 0},
    {"workers", WORKERS, 0, 1, 65536, 1},
    {"net", NET, AT(net), 0, 0, 0},
    {"floats", NUMBER, AT(floats), 1, 1e12, 1},
    {"compute-ms", NUMBER, AT(compute_s), 1e-6, 1e7, 1e-3},
    {"update-ms", NUMBER, AT(update_s), 0, 1e7, 1e-3},
    {"batch", COUNT, AT(batch), 1, 65536, 1},
    {"alpha-us", NUMBER, AT(alpha_s), 0, 1e8, 1e-6},
    {"gb-s", RATE, AT(beta_s), 1e-6, 1e6, 1e-9},
    {"link", LINK, AT(beta_s), 0, 0, 0},
    {"server-gb-s", RATE, AT(server_beta_s), 1e-6, 1e6, 1e-9},
    {"sync-us", NUMBER, AT(sync_s), 0, 1e8, 1e-6},
    {"half-duplex", FLAG, AT(half_duplex), 0, 0, 0},
    {"servers", COUNT, AT(servers), 1, 1024, 1},
    {"lanes", COUNT, AT(lanes), 1, 64, 1},
    {"window", COUNT, AT(window), 1, 64, 1},
    {"chunk-floats", COUNT, AT(chunk_floats), 1024, 1048576, 1},
    {"clique", COUNT, AT(clique), 1, 1024, 1},
    {"jitter", NUMBER, AT(jitter), 0, 3, 1},
    {"slow-share", NUMBER, AT(slow_share), 0, 1, 1},
    {"slow-factor", NUMBER, AT(slow_factor), 1, 1000, 1},
    {"cores", COUNT, AT(cores), 0, 65536, 1},
    {"exchanges", COUNT, AT(exchanges), 4, 1000000, 1},
    {"pieces", COUNT, AT(pieces), 1, 65536, 1},
    {"seed", COUNT, AT(seed), 0, 4294967295, 1},
    {"seconds", NUMBER, AT(seconds), 0.05, 600, 1},
    {"steps", COUNT, AT(steps), 8, 1000000, 1},
    {"rounds", COUNT, AT(rounds), 1, 101, 1},
    {"psd", TEXT, AT(psd), 0, 0, 0},
    {"check", FLAG, AT(check), 0, 0, 0},
    {"json", FLAG, AT(json), 0, 0, 0},
    {"caller", COST, AT(costs[SIM_CALLER]), 0, 1e6, 0},
    {"client-io", COST, AT(costs[SIM_CLIENT_IO]), 0, 1e6, 0},
    {"server-io", COST, AT(costs[SIM_SERVER_IO]), 0, 1e6, 0},
    {"lane", COST, AT(costs[SIM_LANE]), 0, 1e6, 0},
    {"merge", COST, AT(costs[SIM_MERGE]), 0, 1e6, 0},
    {"ring", COST, AT(costs[SIM_RING]), 0, 1e6, 0},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static bool number(const struct row *r, const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end != text && *end == 0 && v >= r->least && v <= r->most) {
        *out = v;
        return true;
    }
    fprintf(stderr, "psbench plan: --%s is '%s'; allowed are %g to %.12g\n", r->name, text, r->least,
            r->most);
    return false;
}

static bool count(const struct row *r, const char *text, uint32_t *out)
{
    double v;
    if (!number(r, text, &v))
        return false;
    *out = (uint32_t)v;
    if ((double)*out == v)
        return true;
    fprintf(stderr, "psbench plan: --%s is '%s'; a whole number is needed\n", r->name, text);
    return false;
}

/* "US,GB_S"; "inf" GB/s means no cost per byte. */
static bool cost(const struct row *r, const char *text, struct sim_cost *out)
{
    char *end;
    double us = strtod(text, &end), gb_s = *end == ',' ? strtod(end + 1, &end) : -1;
    if (*end == 0 && us >= r->least && us <= r->most && gb_s > 0) {
        *out = (struct sim_cost){us * 1e-6, 1e-9 / gb_s};
        return true;
    }
    fprintf(
        stderr,
        "psbench plan: --%s is '%s'; allowed are microseconds a chunk and GB/s, as in 12.5,3.1 or 0,inf\n",
        r->name, text);
    return false;
}

static bool workers(const struct row *r, char *text, struct sim_options *o)
{
    char *rest = text;
    for (char *part; (part = strsep(&rest, ",")) != NULL;) {
        if (o->n_workers == SIM_MAX_WORKERS) {
            fprintf(stderr, "psbench plan: --%s has more than %d parts\n", r->name, SIM_MAX_WORKERS);
            return false;
        }
        if (!count(r, part, &o->workers[o->n_workers++]))
            return false;
    }
    return true;
}

static bool method(const struct row *r, const char *text, struct sim_options *o)
{
    if (o->n_methods == SIM_MAX_METHODS) {
        fprintf(stderr, "psbench plan: --%s is given more than %d times\n", r->name, SIM_MAX_METHODS);
        return false;
    }
    o->methods[o->n_methods++] = text;
    return true;
}

static bool net(const struct row *r, const char *text, struct sim_options *o)
{
    o->net = text;
    if (cnn_model_find(text) != NULL)
        return true;
    fprintf(stderr, "psbench plan: --%s is '%s'; allowed are", r->name, text);
    for (const struct cnn_model *const *m = cnn_models; (*m)->name != NULL; m++)
        fprintf(stderr, " %s", (*m)->name);
    fputc('\n', stderr);
    return false;
}

static bool take_value(struct sim_options *o, const struct row *r, char *text)
{
    void *to = (char *)o + r->at;
    double v;
    switch (r->kind) {
    case COUNT:
        return count(r, text, to);
    case FLAG:
        if (r->at != 0)
            *(bool *)to = true;
        return true;
    case COST:
        return cost(r, text, to);
    case METHOD:
        return method(r, text, o);
    case WORKERS:
        return workers(r, text, o);
    case NET:
        return net(r, text, o);
    case TEXT:
        *(const char **)to = text;
        return true;
    case LINK:
        return plan_read_link(r->name, text, to);
    default:
        if (!number(r, text, &v))
            return false;
        *(double *)to = r->kind == RATE ? r->unit / v : v * r->unit;
        return true;
    }
}

static bool is_whole(const struct sim_options *o)
{
    const char *why = NULL;
    if (o->floats > 0 && o->net != NULL)
        why = "--net and --floats both give the number of floats; give one";
    else if (o->floats > 0 && isnan(o->compute_s))
        why = "--floats needs --compute-ms: without a net there is nothing to time";
    else if (isnan(o->alpha_s) != isnan(o->beta_s))
        why = "a link is --alpha-us and --gb-s (or --link): give both, or none for this machine";
    else if (isnan(o->beta_s) && (!isnan(o->server_beta_s) || o->half_duplex))
        why = "--server-gb-s and --half-duplex are of a link: give --alpha-us and --gb-s too";
    else if ((o->slow_share > 0) != (o->slow_factor > 1))
        why = "--slow-share needs --slow-factor, and the other way round";
    else if (o->check && (!isnan(o->beta_s) || o->servers > 1 || o->jitter > 0 || o->slow_share > 0))
        why = "--check is of this machine: it takes no link, servers, jitter or slow workers";
    if (why != NULL)
        fprintf(stderr, "psbench plan: %s\n", why);
    return why == NULL;
}

static void fill(struct sim_options *o)
{
    static const uint32_t few[] = {1, 2, 4, 8};
    static const char *const checked[] = {"async-sgd",      "sync-sgd", "async-easgd", "sync-easgd",
                                          "original-easgd", "ssp-sgd",  "d-sync",      "pipe-sgd"};
    o->named = o->n_methods > 0;
    if (o->n_workers == 0) {
        memcpy(o->workers, few, sizeof few);
        o->n_workers = sizeof few / sizeof *few;
    }
    if (o->named)
        return;
    for (size_t i = 0; o->check && i < sizeof checked / sizeof *checked; i++)
        o->methods[o->n_methods++] = checked[i];
    for (const struct ps_method *m = ps_methods; !o->check && m->name != NULL; m++)
        o->methods[o->n_methods++] = m->name;
}

bool sim_is_asked(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--simulate") == 0 || strcmp(argv[i], "--check") == 0)
            return true;
    return false;
}

int sim_parse(int argc, char **argv, struct sim_options *o)
{
    struct option longs[N_ROWS + 2] = {{"help", no_argument, NULL, 'h'}};
    int found, at = 0;

    for (int i = 0; i < N_ROWS; i++)
        longs[i + 1] =
            (struct option){rows[i].name, rows[i].kind == FLAG ? no_argument : required_argument, NULL, 1};
    *o = (struct sim_options){.batch = 64, .servers = 1, .lanes = 2, .window = 2, .chunk_floats = 131072};
    o->exchanges = 20, o->pieces = 8, o->clique = 2, o->seed = 1, o->steps = 100, o->rounds = 3;
    o->seconds = 1, o->slow_factor = 1;
    o->compute_s = o->update_s = o->alpha_s = o->beta_s = o->server_beta_s = o->sync_s = NAN;
    o->cores = UINT32_MAX;
    for (int i = 0; i < SIM_N_THREADS; i++)
        o->costs[i] = (struct sim_cost){NAN, NAN};
    optind = 0;
    while ((found = getopt_long(argc, argv, "", longs, &at)) != -1) {
        if (found != 1) {
            sim_usage(found == 'h' ? stdout : stderr);
            return found == 'h' ? 1 : -1;
        }
        if (!take_value(o, &rows[at - 1], optarg))
            return -1;
    }
    if (optind < argc) {
        fprintf(stderr, "psbench plan: '%s' is not an option\n", argv[optind]);
        sim_usage(stderr);
        return -1;
    }
    if (!is_whole(o))
        return -1;
    if (o->net == NULL && o->floats == 0)
        o->net = "lenet";
    fill(o);
    return 0;
}
