#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nets/net.h"
#include "proto/codecs/codec.h"
#include "tests/bench/plan/numbers.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/plan/cores.h"
#include "tests/bench/plan/slow.h"
#include "tests/bench/simulate/simulate.h"

static void usage(FILE *out)
{
    fputs(
        "usage: psbench plan [--net lenet | --floats N] [--workers 1,2,4,8] [--clique 2] [--codec raw,...]\n"
        "                    [--batch 64] [--threads 1] [--backend NAME] [--period 10] [--seconds 1] "
        "[--json]\n"
        "  measured on this machine unless given:\n"
        "    --compute-ms MS    forward and backward; needed with --floats\n"
        "    --update-ms MS     the local step\n"
        "    --alpha-us US      a message's latency\n"
        "    --gb-s G           of a link one way, or --link 1gbit, 100mbit\n"
        "    --gamma-ns NS      adding one float\n"
        "  and\n"
        "    --sync-us US       synchronisation cost of an allreduce (0, or fitted)\n"
        "    --server-gb-s G    psd's link, one way (that of the workers)\n"
        "    --half-duplex      both directions share a link\n"
        "    --lanes N          of psd (2); --chunk-floats N (131072)\n",
        out);
    sim_usage(out);
    slow_usage(out);
    cores_usage(out);
}

static bool read_number(const char *name, const char *text, double least, double most, double *out)
{
    char option[40];
    snprintf(option, sizeof option, "--%s", name);
    return plan_number(option, text, least, most, out);
}

static bool read_count(const char *name, const char *text, double most, uint32_t *out)
{
    char option[40];
    snprintf(option, sizeof option, "--%s", name);
    return plan_count(option, text, most, out);
}

/* Calls `take` for each part of "a,b,c". */
static bool read_list(const char *name, const char *text,
                      bool (*take)(struct plan_options *o, const char *name, const char *part),
                      struct plan_options *o)
{
    char part[64];
    for (;;) {
        size_t len = strcspn(text, ",");
        if (len == 0 || len >= sizeof part) {
            fprintf(stderr,
                    "psbench plan: --%s has an empty or too long part; allowed is a list as in 2,4,8\n",
                    name);
            return false;
        }
        memcpy(part, text, len);
        part[len] = 0;
        if (!take(o, name, part))
            return false;
        if (text[len] == 0)
            return true;
        text += len + 1;
    }
}

static bool has_room(const char *name, size_t n, size_t max)
{
    if (n < max)
        return true;
    fprintf(stderr, "psbench plan: --%s has more than %zu parts\n", name, max);
    return false;
}

static bool take_workers(struct plan_options *o, const char *name, const char *part)
{
    return has_room(name, o->n_workers, PLAN_MAX_LIST) &&
           read_count(name, part, 65536, &o->workers[o->n_workers]) && o->n_workers++ < PLAN_MAX_LIST;
}

static bool take_clique(struct plan_options *o, const char *name, const char *part)
{
    return has_room(name, o->n_cliques, PLAN_MAX_LIST) &&
           read_count(name, part, 1024, &o->cliques[o->n_cliques]) && o->n_cliques++ < PLAN_MAX_LIST;
}

static bool take_codec(struct plan_options *o, const char *name, const char *part)
{
    const struct ps_codec *codec = ps_codec_named_for_values(part);
    size_t n;
    if (codec == NULL) {
        const struct ps_codec *const *rows = ps_codec_value_rows(&n);
        fprintf(stderr, "psbench plan: --%s names '%s'; allowed are", name, part);
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, " %s", rows[i]->name);
        fputc('\n', stderr);
        return false;
    }
    if (!has_room(name, o->n_codecs, PLAN_MAX_CODECS))
        return false;
    o->codecs[o->n_codecs++] = codec;
    return true;
}

bool plan_read_link(const char *name, const char *text, double *beta_s)
{
    static const struct {
        const char *unit;
        double bits_s;
    } units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    char *end;
    double v = strtod(text, &end);

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != text && v > 0 && v <= 1e6 && strcasecmp(end, units[i].unit) == 0) {
            *beta_s = 8 / (v * units[i].bits_s);
            return true;
        }
    fprintf(stderr, "psbench plan: --%s is '%s'; allowed is a rate such as 1gbit, 100mbit or 64kbit\n", name,
            text);
    return false;
}

static bool take_net(struct plan_options *o, const char *text)
{
    struct cnn_model model;

    if (cnn_model_read(text, &model, NULL) == 0) {
        o->net = text;
        return true;
    }
    fprintf(stderr, "psbench plan: --net is '%s'; allowed are", text);
    for (const struct cnn_model *const *m = cnn_models; (*m)->name != NULL; m++)
        fprintf(stderr, " %s", (*m)->name);
    fputc('\n', stderr);
    return false;
}

static bool read_scaled(const char *name, const char *text, double least, double most, double unit,
                        double *out)
{
    if (!read_number(name, text, least, most, out))
        return false;
    *out *= unit;
    return true;
}

static bool read_rate(const char *name, const char *text, double *beta_s)
{
    double gb_s;
    if (!read_number(name, text, 1e-6, 1e6, &gb_s))
        return false;
    *beta_s = 1e-9 / gb_s;
    return true;
}

static const struct option names[] = {
    {"net", 1, NULL, 'n'},          {"floats", 1, NULL, 'f'},      {"workers", 1, NULL, 'w'},
    {"clique", 1, NULL, 'q'},       {"codec", 1, NULL, 'c'},       {"batch", 1, NULL, 'b'},
    {"threads", 1, NULL, 't'},      {"backend", 1, NULL, 'B'},     {"period", 1, NULL, 'p'},
    {"seconds", 1, NULL, 's'},      {"json", 0, NULL, 'j'},        {"compute-ms", 1, NULL, 'C'},
    {"update-ms", 1, NULL, 'U'},    {"alpha-us", 1, NULL, 'A'},    {"gb-s", 1, NULL, 'G'},
    {"link", 1, NULL, 'L'},         {"gamma-ns", 1, NULL, 'g'},    {"sync-us", 1, NULL, 'S'},
    {"server-gb-s", 1, NULL, 'V'},  {"half-duplex", 0, NULL, 'H'}, {"lanes", 1, NULL, 'l'},
    {"chunk-floats", 1, NULL, 'k'}, {"help", 0, NULL, 'h'},        {NULL, 0, NULL, 0},
};

static bool take_figure(struct plan_options *o, int found, const char *name)
{
    switch (found) {
    case 'C':
        return read_scaled(name, optarg, 1e-6, 1e7, 1e-3, &o->compute_s);
    case 'U':
        return read_scaled(name, optarg, 0, 1e7, 1e-3, &o->update_s);
    case 'A':
        return read_scaled(name, optarg, 0, 1e8, 1e-6, &o->alpha_s);
    case 'S':
        return read_scaled(name, optarg, 0, 1e8, 1e-6, &o->sync_s);
    case 'g':
        return read_scaled(name, optarg, 0, 1e6, 1e-9, &o->gamma_s);
    case 'G':
        return read_rate(name, optarg, &o->beta_s);
    case 'V':
        return read_rate(name, optarg, &o->server_beta_s);
    case 'L':
        return plan_read_link(name, optarg, &o->beta_s);
    case 's':
        return read_number(name, optarg, 0.05, 600, &o->seconds);
    default:
        return read_number(name, optarg, 1, 1e12, &o->floats);
    }
}

static bool take_option(struct plan_options *o, int found, const char *name)
{
    switch (found) {
    case 'n':
        return take_net(o, optarg);
    case 'w':
        return read_list(name, optarg, take_workers, o);
    case 'q':
        return read_list(name, optarg, take_clique, o);
    case 'c':
        return read_list(name, optarg, take_codec, o);
    case 'b':
        return read_count(name, optarg, 65536, &o->batch);
    case 't':
        return read_count(name, optarg, 1024, &o->threads);
    case 'p':
        return read_count(name, optarg, 1e9, &o->period);
    case 'l':
        return read_count(name, optarg, 1024, &o->lanes);
    case 'k':
        return read_count(name, optarg, 1e9, &o->chunk_floats);
    case 'B':
        o->backend = optarg;
        return true;
    case 'j':
        return o->json = true;
    case 'H':
        return o->half_duplex = true;
    default:
        return take_figure(o, found, name);
    }
}

static void fill_lists(struct plan_options *o)
{
    static const uint32_t workers[] = {1, 2, 4, 8};
    size_t n;

    for (size_t i = 0; o->n_workers == 0 && i < sizeof workers / sizeof *workers; i++)
        o->workers[i] = workers[i];
    o->n_workers = o->n_workers > 0 ? o->n_workers : sizeof workers / sizeof *workers;
    if (o->n_cliques == 0)
        o->cliques[o->n_cliques++] = 2;
    if (o->n_codecs > 0)
        return;
    const struct ps_codec *const *rows = ps_codec_value_rows(&n);
    for (size_t i = 0; i < n && i < PLAN_MAX_CODECS; i++)
        o->codecs[o->n_codecs++] = rows[i];
}

/* Checks conflicts and dependencies between options. */
static bool is_whole(const struct plan_options *o)
{
    if (o->floats > 0 && o->net != NULL)
        fputs("psbench plan: --net and --floats both give the number of floats; give one\n", stderr);
    else if (o->floats > 0 && isnan(o->compute_s))
        fputs("psbench plan: --floats needs --compute-ms: without a net there is nothing to time\n", stderr);
    else
        return true;
    return false;
}

int plan_parse(int argc, char **argv, struct plan_options *o)
{
    int found, at = 0;

    *o = (struct plan_options){.batch = 64, .threads = 1, .period = 10, .lanes = 2, .chunk_floats = 131072};
    o->seconds = 1;
    o->compute_s = o->update_s = o->alpha_s = o->beta_s = o->gamma_s = o->sync_s = o->server_beta_s = NAN;
    optind = 0;
    while ((found = getopt_long(argc, argv, "", names, &at)) != -1) {
        if (found == 'h') {
            usage(stdout);
            return 1;
        }
        if (found == '?') {
            usage(stderr);
            return -1;
        }
        if (!take_option(o, found, names[at].name))
            return -1;
    }
    if (optind < argc) {
        fprintf(stderr, "psbench plan: '%s' is not an option\n", argv[optind]);
        usage(stderr);
        return -1;
    }
    if (!is_whole(o))
        return -1;
    if (o->net == NULL && o->floats == 0)
        o->net = "lenet";
    fill_lists(o);
    return 0;
}
