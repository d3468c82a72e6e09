/* center.c: a real psd with a large center under rule adam, measured from outside, so that any version of psd
 * can be measured. One worker offers the center; its pages are untouched and need no memory here. The worker
 * then exchanges a small tensor of each lane's slice in turn: its longest wait is the longest stop of a lane.
 * A thread polls the status socket: its longest wait is the longest stop of the loop. */
#include "tests/bench/center/center.h"

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/psclient.h"
#include "proto/clock.h"
#include "tests/bench/options.h"
#include "tests/support/system/daemon.h"

const char bench_center_help[] = "a large center: until it is ready, its loop and its lanes at a checkpoint";

static const char usage_text[] =
    "usage: psbench center [--floats 50000000] [--lanes 2] [--seconds 3] [--psd PROGRAM] [--json]\n"
    "  --floats N   of the center; psd takes 24 bytes for each: x, two vectors of adam's state, and a copy "
    "of all "
    "three\n"
    "  --seconds S  how long the worker exchanges before the checkpoint\n";

enum { MAX_LANES = 64, SMALL = 1024, BEFORE = 4096, BYTES_A_FLOAT = 24, SPARE_MIB = 1024, SAVE_S = 600 };

struct options {
    size_t floats, lanes, seconds;
    const char *psd;
    bool json;
};

/* The phases of the measurement. */
enum phase { STARTING, STEADY, SAVING, N_PHASES };

struct watch {
    const struct daemon *d;
    pthread_t thread;
    _Atomic int phase;
    atomic_bool stop;
    double longest_ms[N_PHASES];
};

struct result {
    double ready_s, save_s, resident_gb;
    double loop_ms[N_PHASES], lane_ms[N_PHASES];
    double told_ms; /* psd_lane_longest_stop_seconds after the checkpoint; NaN: this psd lacks the metric */
};

/* An answer counts for the phase in which its request was sent. */
static void *watch_loop(void *arg)
{
    struct watch *w = arg;
    while (!atomic_load(&w->stop)) {
        int phase = atomic_load(&w->phase);
        double begin = ps_now_s();
        char *body = daemon_ask(w->d, "GET", "/healthz");
        double ms = (ps_now_s() - begin) * 1e3;
        if (body != NULL && ms > w->longest_ms[phase])
            w->longest_ms[phase] = ms;
        free(body);
        ps_sleep_us(500);
    }
    return NULL;
}

struct names {
    char small[MAX_LANES][24], before[MAX_LANES][24], rest[MAX_LANES][24];
};

/* Divides each lane's slice into a small tensor, not at its edge, and the rest. */
static size_t make_model(const struct options *opt, struct names *names, struct psc_tensor *tensors)
{
    uint64_t each = opt->floats / opt->lanes, at = 0;
    size_t n = 0;
    for (size_t i = 0; i < opt->lanes; i++) {
        const uint64_t counts[] = {BEFORE, SMALL, each - BEFORE - SMALL};
        char *const texts[] = {names->before[i], names->small[i], names->rest[i]};
        static const char *const formats[] = {"before-%zu", "small-%zu", "rest-%zu"};
        for (int k = 0; k < 3; k++) {
            snprintf(texts[k], sizeof names->small[i], formats[k], i);
            tensors[n++] =
                (struct psc_tensor){.name = texts[k], .offset = at, .n_dims = 1, .shape = {counts[k]}};
            at += counts[k];
        }
    }
    return n;
}

/* Makes one exchange with every lane. Returns the longest time. */
static bool exchange_all(struct psc *c, const struct options *opt, const struct names *names,
                         double *longest_ms)
{
    static const float g[SMALL];
    static float answer[SMALL];
    for (size_t i = 0; i < opt->lanes; i++) {
        double begin = ps_now_s();
        if (psc_pushpull(c, names->small[i], g, answer, 1) != PSC_OK) {
            fprintf(stderr, "psbench center: %s\n", psc_error(c));
            return false;
        }
        double ms = (ps_now_s() - begin) * 1e3;
        *longest_ms = ms > *longest_ms ? ms : *longest_ms;
    }
    return true;
}

static double lane_stop_ms(const struct daemon *d)
{
    static const char name[] = "\npsd_lane_longest_stop_seconds{";
    double longest = NAN;
    char *text = daemon_ask(d, "GET", "/metrics"), *at = text;
    while (at != NULL && (at = strstr(at, name)) != NULL) {
        at = strchr(at, ' ');
        double s = at != NULL ? strtod(at, NULL) : 0;
        longest = isnan(longest) || s * 1e3 > longest ? s * 1e3 : longest;
    }
    free(text);
    return longest;
}

static bool save(struct psc *c, const struct options *opt, const struct names *names, const struct daemon *d,
                 struct result *r)
{
    double begin = ps_now_s(), looked = begin;
    char *started = daemon_ask(d, "POST", "/checkpoint");
    bool fine = started != NULL, written = false;
    free(started);
    while (fine && !written) {
        fine = exchange_all(c, opt, names, &r->lane_ms[SAVING]) && ps_now_s() < begin + SAVE_S;
        if (ps_now_s() > looked + 0.1) {
            written = daemon_logged(d, "checkpoint.written") > 0;
            looked = ps_now_s();
        }
    }
    r->save_s = ps_now_s() - begin;
    if (!written)
        fprintf(stderr, "psbench center: no checkpoint was written\n");
    return written;
}

static bool measure(const struct options *opt, const struct daemon *d, struct watch *w, float *x,
                    struct result *r)
{
    static struct names names;
    struct psc_tensor tensors[3 * MAX_LANES] = {0};
    size_t n = make_model(opt, &names, tensors);
    struct psc_options po;
    struct psc *c = NULL;
    psc_options_init(&po, sizeof po);
    po.server = d->endpoint;
    po.transport = "tcp";
    po.timeout_ms = SAVE_S * 1000;
    bool fine = psc_open(&po, &c) == PSC_OK;
    double begin = ps_now_s();
    fine = fine && psc_begin(c, tensors, n, x) == PSC_OK;
    r->ready_s = ps_now_s() - begin;
    if (!fine)
        fprintf(stderr, "psbench center: %s\n", psc_error(c));
    atomic_store(&w->phase, STEADY);
    for (double end = ps_now_s() + (double)opt->seconds; fine && ps_now_s() < end;)
        fine = exchange_all(c, opt, &names, &r->lane_ms[STEADY]);
    atomic_store(&w->phase, SAVING);
    fine = fine && save(c, opt, &names, d, r);
    r->told_ms = lane_stop_ms(d);
    r->resident_gb = (double)daemon_resident_bytes(d->pid) / 1e9;
    psc_close(c);
    return fine;
}

static void print_ms(const char *format, double ms)
{
    if (isnan(ms))
        printf("null");
    else
        printf(format, ms);
}

static void print(const struct options *opt, const struct result *r)
{
    if (!opt->json) {
        printf(
            "a center of %.2f GB, %.2f GB with adam's state and the copy: ready in %.2f s\n"
            "the loop's longest silence: %.1f ms until then, %.1f ms with exchanges, %.1f ms at the "
            "checkpoint\n"
            "a lane's longest silence: %.2f ms with exchanges, %.2f ms at the checkpoint, which took %.1f s",
            4e-9 * (double)opt->floats, r->resident_gb, r->ready_s, r->loop_ms[STARTING], r->loop_ms[STEADY],
            r->loop_ms[SAVING], r->lane_ms[STEADY], r->lane_ms[SAVING], r->save_s);
        if (!isnan(r->told_ms))
            printf("; psd reports %.2f ms", r->told_ms);
        putchar('\n');
        return;
    }
    printf(
        "{\"bench\":\"center\",\"floats\":%zu,\"lanes\":%zu,\"resident_gb\":%.3f,\"ready_s\":%.3f,"
        "\"loop_start_ms\":%.2f,\"loop_steady_ms\":%.2f,\"loop_checkpoint_ms\":%.2f,\"lane_steady_ms\":%.3f,"
        "\"lane_checkpoint_ms\":%.3f,\"checkpoint_s\":%.3f,\"lane_longest_stop_ms\":",
        opt->floats, opt->lanes, r->resident_gb, r->ready_s, r->loop_ms[STARTING], r->loop_ms[STEADY],
        r->loop_ms[SAVING], r->lane_ms[STEADY], r->lane_ms[SAVING], r->save_s);
    print_ms("%.3f", r->told_ms);
    printf("}\n");
}

/* Whether this machine has enough memory; psd does not check. */
static bool has_room(const struct options *opt)
{
    char line[128];
    unsigned long long kib = 0, want_mib = opt->floats * BYTES_A_FLOAT / (1 << 20) + SPARE_MIB;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && sscanf(line, "MemAvailable: %llu", &kib) != 1)
        ;
    if (f != NULL)
        fclose(f);
    if (kib / 1024 >= want_mib)
        return true;
    fprintf(stderr, "psbench center: --floats %zu takes %llu MiB; this machine has %llu free\n", opt->floats,
            want_mib, kib / 1024);
    return false;
}

/* 0; 2; -1: help was requested */
static int parse(int argc, char **argv, struct options *opt)
{
    static const struct option longs[] = {{"floats", required_argument, NULL, 'f'},
                                          {"lanes", required_argument, NULL, 'l'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"psd", required_argument, NULL, 'p'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        bool fine = letter == 'f'
                        ? bench_digits("center", "--floats", optarg, 1000000, 10000000000, &opt->floats)
                    : letter == 'l' ? bench_digits("center", "--lanes", optarg, 1, MAX_LANES, &opt->lanes)
                    : letter == 's' ? bench_digits("center", "--seconds", optarg, 1, 3600, &opt->seconds)
                                    : letter != '?';
        opt->psd = letter == 'p' ? optarg : opt->psd;
        opt->json = opt->json || letter == 'j';
        if (letter == 'h' || !fine)
            fputs(usage_text, letter == 'h' ? stdout : stderr);
        if (letter == 'h' || !fine)
            return letter == 'h' ? -1 : 2;
    }
    if (optind < argc)
        fprintf(stderr, "psbench center: '%s' is not an option\n", argv[optind]);
    opt->floats -= opt->floats % opt->lanes;
    return optind < argc ? 2 : 0;
}

static bool run(const struct options *opt, struct daemon *d, struct result *r)
{
    struct watch w = {.d = d};
    size_t bytes = opt->floats * sizeof(float);
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED || daemon_start(d, NULL) != 0)
        return false;
    bool watched = pthread_create(&w.thread, NULL, watch_loop, &w) == 0;
    bool fine = watched && measure(opt, d, &w, x, r);
    atomic_store(&w.stop, true);
    if (watched)
        pthread_join(w.thread, NULL);
    memcpy(r->loop_ms, w.longest_ms, sizeof r->loop_ms);
    munmap(x, bytes);
    return fine;
}

int bench_center(int argc, char **argv)
{
    struct options opt = {.floats = 50000000, .lanes = 2, .seconds = 3};
    struct result r = {0};
    struct daemon d;
    int rc = parse(argc, argv, &opt);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    char lanes[32], memory[48], floats[48];
    snprintf(lanes, sizeof lanes, "lanes=%zu", opt.lanes);
    snprintf(memory, sizeof memory, "limits.memory_gib=%.2f",
             (double)opt.floats * BYTES_A_FLOAT / (1 << 30) + 1);
    snprintf(floats, sizeof floats, "limits.floats=%zu", opt.floats);
    const char *const settings[] = {"method=async-sgd",
                                    "rule=adam",
                                    "transport=tcp",
                                    "limits.clients=8",
                                    "checkpoint.every_s=0",
                                    lanes,
                                    memory,
                                    floats,
                                    NULL};
    if (!has_room(&opt) || daemon_prepare(&d, opt.psd, settings) < 0)
        return 1;
    bool fine = run(&opt, &d, &r);
    daemon_remove(&d);
    if (fine)
        print(&opt, &r);
    return fine ? 0 : 1;
}
