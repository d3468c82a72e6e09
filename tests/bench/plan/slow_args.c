#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net.h"
#include "tests/bench/plan/numbers.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/plan/slow.h"

void slow_usage(FILE *out)
{
    fputs(
        "   or: psbench plan --slow --link RATE|FILE --step-ms MS [--net lenet | --floats N] [--workers 4]\n"
        "                    [--delay-ms 0] [--up RATE] [--server-link RATE] [--period 32,64,128]\n"
        "                    [--codec raw,fp16,int8,int4,topk:0.03] [--fragments 1,2,4,8] [--target 95]\n"
        "                    [--method diloco | async-local-sgd] [--lanes 2] [--window W]\n"
        "                    [--chunk-floats 131072] [--json]\n"
        "                    [--cores C [--per-machine 1] [--step-cores 0] [--server-cores N | --together]\n"
        "                     [--cpu-ns OWN,OTHERS,PSD]]\n"
        "  --link RATE|FILE   a worker's link, such as 50mbit, or the output of psbench link --json\n"
        "  --up RATE          from the worker to psd, where that differs\n"
        "  --delay-ms MS      there and back\n"
        "  --step-ms MS       a step of a worker: gradient and local update\n"
        "  --window W         chunks in flight to each lane; by default as many as the link needs\n"
        "  --target PERCENT   share of time not waiting that is enough\n"
        "  --cores C          of a machine with workers: CPU time counts\n"
        "  --per-machine W    workers on it\n"
        "  --step-cores Q     cores that a step of a worker keeps busy\n"
        "  --server-cores N   of psd's machine; by default enough\n"
        "  --together         psd is on the workers' machine\n"
        "  --cpu-ns X,A,Y     CPU nanoseconds of a value: in a worker's own thread, in its others, in psd "
        "for a\n"
        "                     worker; by default measured here for each codec\n",
        out);
}

bool slow_is_asked(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--slow") == 0)
            return true;
    return false;
}

/* For every codec. */
static bool read_costs(struct slow_options *o, const char *option, const char *text)
{
    double ns[3];
    int end = 0;
    bool fine = sscanf(text, "%lf,%lf,%lf%n", &ns[0], &ns[1], &ns[2], &end) == 3 && text[end] == 0;
    for (int k = 0; k < 3; k++)
        fine = fine && ns[k] >= 0 && ns[k] <= 1e6;
    if (!fine) {
        fprintf(stderr, "psbench plan: %s is '%s'; allowed are three numbers of 0 to 1e6: OWN,OTHERS,PSD\n",
                option, text);
        return false;
    }
    for (size_t i = 0; i < SLOW_MAX_LIST; i++)
        o->costs[i] = (struct slow_cost){ns[0] * 1e-9, ns[1] * 1e-9, ns[2] * 1e-9};
    return o->costs_given = true;
}

static bool refuse_codec(const char *option, const char *part, const char *why)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    fprintf(stderr, "psbench plan: %s names '%s': %s; allowed are", option, part, why);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, " %s%s", rows[i]->name, rows[i]->fraction_ppm > 0 ? ":FRACTION" : "");
    fputc('\n', stderr);
    return false;
}

static bool read_codecs(struct slow_options *o, const char *option, const char *text)
{
    char part[32];
    bool wrong = false;
    const char *at = text, *why;
    for (o->n_codecs = 0; plan_next_part(&at, part, &wrong); o->n_codecs++) {
        if (o->n_codecs == SLOW_MAX_LIST)
            return plan_refuse_list(option, text, SLOW_MAX_LIST);
        if ((why = ps_codec_of(part, &o->codecs[o->n_codecs])) != NULL)
            return refuse_codec(option, part, why);
    }
    return wrong ? plan_refuse_list(option, text, SLOW_MAX_LIST) : true;
}

static bool read_net(struct slow_options *o, const char *text)
{
    struct cnn_model model;
    struct ps_error err = {""};
    if (cnn_model_read(text, &model, &err) != 0) {
        fprintf(stderr, "psbench plan: --net: %s\n", err.text);
        return false;
    }
    o->job.n_floats = (double)cnn_model_n_floats(&model);
    return true;
}

static bool read_method(struct slow_options *o, const char *text)
{
    static const struct {
        const char *name;
        bool in_rounds;
    } methods[] = {{"diloco", true}, {"async-local-sgd", false}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, text) == 0) {
            o->job.method = methods[i].name;
            o->job.in_rounds = methods[i].in_rounds;
            return true;
        }
    fprintf(stderr, "psbench plan: --method is '%s'; allowed with --slow are diloco and async-local-sgd\n",
            text);
    return false;
}

/* The number after "name": in the text. */
static bool find_number(const char *text, const char *name, double *out)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(text, quoted);
    char *end;
    if (at == NULL)
        return false;
    at += strlen(quoted);
    *out = strtod(at, &end);
    return end != at && isfinite(*out);
}

/* The output of psbench link --json. -1 with a message on stderr. */
static int read_link_file(const char *path, struct slow_link *link)
{
    char text[4096];
    double up, down, delay;
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        fprintf(stderr, "psbench plan: --link: '%s' is neither a rate such as 50mbit nor a file: %s\n", path,
                strerror(errno));
        return -1;
    }
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    if (!find_number(text, "up_mbit_s", &up) || !find_number(text, "down_mbit_s", &down) ||
        !find_number(text, "delay_ms", &delay) || !(up > 0) || !(down > 0) || !(delay >= 0)) {
        fprintf(
            stderr,
            "psbench plan: --link: %s lacks up_mbit_s and down_mbit_s above 0 and delay_ms of at least 0; "
            "write it with psbench link --json\n",
            path);
        return -1;
    }
    link->up_s = 8e-6 / up;
    link->down_s = 8e-6 / down;
    link->delay_s = delay * 1e-3;
    return 0;
}

/* A rate begins with a digit, or with a point and one; "./3mbit" is a file. */
static bool read_link(struct slow_options *o, const char *text)
{
    if (strspn(text, "0123456789.") == 0 || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0)
        return read_link_file(text, &o->link) == 0;
    if (!plan_read_link("link", text, &o->link.down_s))
        return false;
    o->link.up_s = o->link.down_s;
    return true;
}

/* What is read after the loop: it replaces a part of --link, wherever that stands. */
struct later {
    const char *up, *delay;
};

/* 0; 1: there is no such option; -1: a bad value. */
static int take_number(struct slow_options *o, const char *name, const char *text)
{
    struct slow_job *j = &o->job;
    const struct {
        const char *name;
        double most;
        uint32_t *to;
    } counts[] = {
        {"--workers", 1024, &j->workers}, {"--lanes", 1024, &j->lanes}, {"--window", 64, &j->window}};
    const struct {
        const char *name;
        double least, most;
        double *to;
    } numbers[] = {{"--floats", 1, 1e12, &j->n_floats},
                   {"--chunk-floats", 1024, 1e9, &j->chunk_floats},
                   {"--step-ms", 1e-3, 1e7, &j->step_s},
                   {"--target", 1, 100, &o->target},
                   {"--cores", 1, 4096, &j->machines.cores},
                   {"--per-machine", 1, 1024, &j->machines.per_machine},
                   {"--step-cores", 0, 4096, &j->machines.step_cores},
                   {"--server-cores", 1, 4096, &j->machines.server_cores}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(counts[i].name, name) == 0)
            return plan_count(name, text, counts[i].most, counts[i].to) ? 0 : -1;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name) == 0)
            return plan_number(name, text, numbers[i].least, numbers[i].most, numbers[i].to) ? 0 : -1;
    return 1;
}

static int take_value(struct slow_options *o, struct later *later, const char *name, const char *text)
{
    if (strcmp(name, "--link") == 0)
        return read_link(o, text) ? 0 : -1;
    if (strcmp(name, "--server-link") == 0)
        return plan_read_link("server-link", text, &o->link.server_byte_s) ? 0 : -1;
    if (strcmp(name, "--net") == 0)
        return read_net(o, text) ? 0 : -1;
    if (strcmp(name, "--method") == 0)
        return read_method(o, text) ? 0 : -1;
    if (strcmp(name, "--cpu-ns") == 0)
        return read_costs(o, name, text) ? 0 : -1;
    if (strcmp(name, "--codec") == 0)
        return read_codecs(o, name, text) ? 0 : -1;
    if (strcmp(name, "--period") == 0)
        return plan_counts(name, text, 1000000, SLOW_MAX_LIST, o->periods, &o->n_periods) ? 0 : -1;
    if (strcmp(name, "--fragments") == 0)
        return plan_counts(name, text, 1024, SLOW_MAX_LIST, o->fragments, &o->n_fragments) ? 0 : -1;
    if (strcmp(name, "--up") == 0 || strcmp(name, "--delay-ms") == 0) {
        *(name[2] == 'u' ? &later->up : &later->delay) = text;
        return 0;
    }
    return take_number(o, name, text);
}

static int by_count(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* What is said of CPUs belongs together. */
static bool check_machines(const struct slow_options *o)
{
    const struct slow_machines *m = &o->job.machines;
    bool said =
        m->step_cores > 0 || m->server_cores > 0 || m->together || m->per_machine > 1 || o->costs_given;
    const char *wrong =
        m->cores <= 0 && said ? "--cores is missing: without it CPU time is not counted"
        : m->together && m->server_cores > 0
            ? "--together and --server-cores: psd has the cores of the workers' machine, or its own"
        : m->per_machine > o->job.workers ? "--per-machine is above --workers"
                                          : NULL;
    if (wrong != NULL)
        fprintf(stderr, "psbench plan: %s\n", wrong);
    return wrong == NULL;
}

static int finish(struct slow_options *o, const struct later *later)
{
    double delay_ms = o->link.delay_s * 1e3;
    if ((later->up != NULL && !plan_read_link("up", later->up, &o->link.up_s)) ||
        (later->delay != NULL && !plan_number("--delay-ms", later->delay, 0, 1e6, &delay_ms)))
        return -1;
    o->link.delay_s = delay_ms * 1e-3;
    o->job.step_s *= 1e-3;
    o->target /= 100;
    qsort(o->periods, o->n_periods, sizeof *o->periods, by_count);
    qsort(o->fragments, o->n_fragments, sizeof *o->fragments, by_count);
    if (!(o->link.down_s > 0) || !(o->job.step_s > 0)) {
        fprintf(stderr, "psbench plan: --slow needs %s\n",
                o->link.down_s > 0 ? "--step-ms, the time of a worker's step"
                                   : "--link: a rate such as 50mbit, or the output of psbench link --json");
        return -1;
    }
    return check_machines(o) ? 0 : -1;
}

int slow_parse(int argc, char **argv, struct slow_options *o)
{
    struct later later = {NULL, NULL};
    *o = (struct slow_options){
        .job = {.chunk_floats = 131072, .workers = 4, .lanes = 2, .machines.per_machine = 1}, .target = 95};
    plan_counts("--period", "32,64,128", 1e6, SLOW_MAX_LIST, o->periods, &o->n_periods);
    plan_counts("--fragments", "1,2,4,8", 1024, SLOW_MAX_LIST, o->fragments, &o->n_fragments);
    read_codecs(o, "--codec", "raw,fp16,int8,int4,topk:0.03");
    read_net(o, "lenet");
    read_method(o, "diloco");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            slow_usage(stdout);
            return 1;
        }
        if (strcmp(argv[i], "--slow") == 0 || strcmp(argv[i], "--json") == 0 ||
            strcmp(argv[i], "--together") == 0) {
            o->json = o->json || argv[i][2] == 'j';
            o->job.machines.together = o->job.machines.together || argv[i][2] == 't';
            continue;
        }
        int rc = i + 1 < argc ? take_value(o, &later, argv[i], argv[i + 1]) : 1;
        if (rc > 0)
            fprintf(stderr, "psbench plan: '%s': no such option with --slow, or no value\n", argv[i]);
        if (rc != 0)
            return -1;
        i++;
    }
    return finish(o, &later);
}
