/* exchange.c: worker processes exchange a vector with a real psd as fast as they can. */
#include "tests/bench/exchange.h"

#include <getopt.h>
#include <signal.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/psclient.h"
#include "tests/bench/ceiling.h"
#include "tests/support/daemon.h"

const char bench_exchange_help[] = "exchanges of workers with a real psd: GB/s, latency, server CPU";

static const char usage_text[] =
    "usage: psbench exchange [--transport tcp|ipc] [--floats 431080] [--workers 1] [--seconds 5] [--count "
    "N]\n"
    "                        [--lanes 2] [--chunk-floats 131072] [--window 2] [--admission fcfs]\n"
    "                        [--psd PROGRAM] [--json]\n"
    "  --transport T  tcp on loopback (default), or ipc: UNIX sockets\n"
    "  --admission A  fcfs (default) or hogwild\n"
    "  --count N      N exchanges of each worker instead of --seconds\n";

enum { MAX_WORKERS = 64, MAX_LATENCIES = 4000000 };

struct options {
    uint64_t floats, workers, count, lanes, chunk_floats, window;
    double seconds;
    const char *transport, *psd, *admission;
    bool json;
};

/* What a worker process sends up its pipe; then its latencies follow. */
struct result {
    uint64_t exchanges, retries, n_latencies;
    double begin_s, end_s;
    int rc;
    char error[256];
};

struct worker {
    pid_t pid;
    int go[2], up[2]; /* parent tells to go; worker tells ready, then its result */
    struct result result;
    double *latencies;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool parse_number(const char *option, const char *text, double min, double max, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (*text != 0 && *end == 0 && v >= min && v <= max) {
        *out = v;
        return true;
    }
    fprintf(stderr, "psbench exchange: %s is '%s'; allowed are %g to %g\n", option, text, min, max);
    return false;
}

static int parse(int argc, char **argv, struct options *opt)
{
    static const struct option longs[] = {{"transport", required_argument, NULL, 't'},
                                          {"floats", required_argument, NULL, 'n'},
                                          {"workers", required_argument, NULL, 'w'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"count", required_argument, NULL, 'c'},
                                          {"lanes", required_argument, NULL, 'l'},
                                          {"chunk-floats", required_argument, NULL, 'k'},
                                          {"window", required_argument, NULL, 'W'},
                                          {"psd", required_argument, NULL, 'p'},
                                          {"admission", required_argument, NULL, 'a'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    struct {
        int letter;
        const char *name;
        double min, max;
        uint64_t *to;
    } numbers[] = {{'n', "--floats", 1, 1e10, &opt->floats},
                   {'w', "--workers", 1, MAX_WORKERS, &opt->workers},
                   {'c', "--count", 1, 1e9, &opt->count},
                   {'l', "--lanes", 1, 64, &opt->lanes},
                   {'k', "--chunk-floats", 1024, 1048576, &opt->chunk_floats},
                   {'W', "--window", 1, 64, &opt->window}};
    int letter;
    double v;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        bool taken = false;
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            if (numbers[i].letter == letter) {
                if (!parse_number(numbers[i].name, optarg, numbers[i].min, numbers[i].max, &v))
                    return 2;
                *numbers[i].to = (uint64_t)v;
                taken = true;
            }
        if (taken)
            continue;
        if (letter == 's' && !parse_number("--seconds", optarg, 0.1, 3600, &opt->seconds))
            return 2;
        if (letter == 't' && strcmp(opt->transport = optarg, "tcp") != 0 && strcmp(optarg, "ipc") != 0) {
            fprintf(stderr, "psbench exchange: --transport is '%s'; allowed are tcp and ipc\n", optarg);
            return 2;
        }
        if (letter == 'p')
            opt->psd = optarg;
        if (letter == 'a')
            opt->admission = optarg;
        if (letter == 'j')
            opt->json = true;
        if (letter == 'h' || letter == '?') {
            fputs(usage_text, letter == 'h' ? stdout : stderr);
            return letter == 'h' ? -1 : 2;
        }
    }
    if (optind < argc)
        fprintf(stderr, "psbench exchange: '%s' is no option\n", argv[optind]);
    return optind < argc ? 2 : 0;
}

static bool write_all(int fd, const void *p, size_t n)
{
    for (const char *at = p; n > 0;) {
        ssize_t k = write(fd, at, n);
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool read_all(int fd, void *p, size_t n)
{
    for (char *at = p; n > 0;) {
        ssize_t k = read(fd, at, n);
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static int join(const struct options *opt, const char *server, struct psc **c, float *x)
{
    struct psc_options po;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {opt->floats}};
    psc_options_init(&po, sizeof po);
    po.server = server;
    int rc = psc_open(&po, c);
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, x) : rc;
}

static void exchange_all(const struct options *opt, struct psc *c, const float *x, float *answer,
                         struct result *r, double *latencies)
{
    double end = now_s() + opt->seconds;
    r->begin_s = now_s();
    while (r->rc == PSC_OK && (opt->count > 0 ? r->exchanges < opt->count : now_s() < end)) {
        double begin = now_s();
        r->rc = psc_exchange(c, x, answer, 1);
        if (r->n_latencies < MAX_LATENCIES)
            latencies[r->n_latencies++] = now_s() - begin;
        r->exchanges++;
    }
    r->end_s = now_s();
}

static void worker_main(const struct options *opt, const char *server, struct worker *w)
{
    struct psc *c = NULL;
    struct result r = {0};
    struct psc_info info = {.size = sizeof info};
    float *x = malloc(opt->floats * sizeof *x), *answer = malloc(opt->floats * sizeof *x);
    double *latencies = malloc(MAX_LATENCIES * sizeof *latencies);
    char byte = 0;

    for (size_t i = 0; i < opt->floats; i++)
        x[i] = (float)(i % 1000) * 1e-3f;
    r.rc = join(opt, server, &c, x);
    for (int i = 0; i < 2 && r.rc == PSC_OK; i++) /* touch every page, warm every buffer */
        r.rc = psc_exchange(c, x, answer, 1);
    if (write_all(w->up[1], &byte, 1) && read_all(w->go[0], &byte, 1))
        exchange_all(opt, c, x, answer, &r, latencies);
    snprintf(r.error, sizeof r.error, "%s", psc_error(c));
    if (psc_info(c, &info) == PSC_OK)
        r.retries = info.retries;
    write_all(w->up[1], &r, sizeof r);
    write_all(w->up[1], latencies, r.n_latencies * sizeof *latencies);
    psc_close(c);
    _exit(0);
}

static bool start_workers(const struct options *opt, const struct daemon *d, struct worker *workers)
{
    char byte;
    for (uint64_t i = 0; i < opt->workers; i++) {
        struct worker *w = &workers[i];
        if (pipe(w->go) != 0 || pipe(w->up) != 0 || (w->pid = fork()) < 0)
            return false;
        if (w->pid == 0)
            worker_main(opt, d->endpoint, w);
        close(w->up[1]);
        close(w->go[0]);
    }
    for (uint64_t i = 0; i < opt->workers; i++)
        if (!read_all(workers[i].up[0], &byte, 1))
            return false;
    return true;
}

static bool collect(const struct options *opt, struct worker *workers)
{
    for (uint64_t i = 0; i < opt->workers; i++) {
        struct worker *w = &workers[i];
        if (!read_all(w->up[0], &w->result, sizeof w->result))
            return false;
        w->latencies = malloc((w->result.n_latencies + 1) * sizeof(double));
        if (!read_all(w->up[0], w->latencies, w->result.n_latencies * sizeof(double)))
            return false;
        waitpid(w->pid, NULL, 0);
        if (w->result.rc != PSC_OK) {
            fprintf(stderr, "psbench exchange: a worker failed: %s: %s\n", psc_result_name(w->result.rc),
                    w->result.error);
            return false;
        }
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct totals {
    double exchanges, seconds, p50_s, p99_s, retries;
};

static struct totals sum(const struct options *opt, const struct worker *workers)
{
    struct totals t = {0};
    double begin = INFINITY, end = 0;
    size_t n = 0, at = 0;
    for (uint64_t i = 0; i < opt->workers; i++)
        n += workers[i].result.n_latencies;
    double *sorted = malloc((n + 1) * sizeof *sorted);
    for (uint64_t i = 0; i < opt->workers; i++) {
        const struct result *r = &workers[i].result;
        memcpy(sorted + at, workers[i].latencies, r->n_latencies * sizeof *sorted);
        at += r->n_latencies;
        t.exchanges += (double)r->exchanges;
        t.retries += (double)r->retries;
        begin = fmin(begin, r->begin_s);
        end = fmax(end, r->end_s);
    }
    qsort(sorted, n, sizeof *sorted, by_value);
    t.seconds = end - begin;
    t.p50_s = n > 0 ? sorted[n / 2] : NAN;
    t.p99_s = n > 0 ? sorted[n - 1 - n / 100] : NAN;
    free(sorted);
    return t;
}

static void report(const struct options *opt, const struct totals *t, double cpu_s, double rss_before,
                   double rss_after)
{
    double up = (double)opt->floats * sizeof(float) * t->exchanges * 1e-9, gb_s = up / t->seconds;
    double tcp = limit_tcp(opt->floats, opt->floats >= 1024 ? (uint32_t)opt->lanes : 1,
                           opt->chunk_floats * sizeof(float), (uint32_t)opt->window, 1.0);
    double tcp_p50 =
        limit_tcp_p50_us(opt->floats * sizeof(float) < 65536 ? opt->floats * sizeof(float) : 65536, 0.5);
    double fused = limit_fused(opt->floats, opt->chunk_floats * sizeof(float), 0.5);
    if (opt->json)
        printf("{\"bench\":\"exchange\",\"transport\":\"%s\",\"floats\":%llu,\"workers\":%llu,\"lanes\":%"
               "llu,\"admission\":\"%s\",\"exchanges\":%.0f,\"exchanges_s\":%.1f,"
               "\"seconds\":%.3f,\"gb_s_both\":%.3f,\"gb_s_up\":%.3f,\"gb_s_down\":%.3f,\"server_cpu_s_per_"
               "gb\":%.3f,"
               "\"p50_us\":%.1f,\"p99_us\":%.1f,\"retries\":%.0f,\"server_rss_mb\":%.1f,\"server_rss_growth_"
               "mb\":%.1f,"
               "\"limit_tcp_gb_s_both\":%.3f,\"limit_tcp_p50_us\":%.1f,\"limit_fused_gb_s\":%.3f}\n",
               opt->transport, (unsigned long long)opt->floats, (unsigned long long)opt->workers,
               (unsigned long long)opt->lanes, opt->admission, t->exchanges, t->exchanges / t->seconds,
               t->seconds, 2 * gb_s, gb_s, gb_s, cpu_s / (2 * up), t->p50_s * 1e6, t->p99_s * 1e6, t->retries,
               rss_after, rss_after - rss_before, isfinite(tcp) ? tcp : 0, isfinite(tcp_p50) ? tcp_p50 : 0,
               fused);
    else
        printf(
            "%llu floats (%.1f MB), %llu worker%s, %s, %llu lanes, %s: %.0f exchanges in %.2f s, %.0f a "
            "second\n"
            "  %.2f GB/s both ways summed; TCP sockets alone %.2f; fused loop alone %.2f\n"
            "  latency p50 %.1f us, p99 %.1f us (a round trip of TCP sockets alone, 64 KB at most: %.1f us); "
            "%.0f chunks sent again\n"
            "  server: %.3f CPU s/GB, %.1f MB resident, %+.1f MB during the run\n",
            (unsigned long long)opt->floats, (double)opt->floats * 4e-6, (unsigned long long)opt->workers,
            opt->workers > 1 ? "s" : "", opt->transport, (unsigned long long)opt->lanes, opt->admission,
            t->exchanges, t->seconds, t->exchanges / t->seconds, 2 * gb_s, tcp, fused, t->p50_s * 1e6,
            t->p99_s * 1e6, tcp_p50, t->retries, cpu_s / (2 * up), rss_after, rss_after - rss_before);
}

static int measure(const struct options *opt, struct daemon *d)
{
    static struct worker workers[MAX_WORKERS];
    if (!start_workers(opt, d, workers))
        return 1;
    double cpu = daemon_cpu_s(d->pid), rss = (double)daemon_resident_bytes(d->pid) * 1e-6;
    for (uint64_t i = 0; i < opt->workers; i++)
        write_all(workers[i].go[1], "", 1);
    if (!collect(opt, workers))
        return 1;
    cpu = daemon_cpu_s(d->pid) - cpu;
    struct totals t = sum(opt, workers);
    double rss_after = (double)daemon_resident_bytes(d->pid) * 1e-6;
    daemon_stop(d, SIGKILL, 5);
    report(opt, &t, cpu, rss, rss_after);
    return 0;
}

int bench_exchange(int argc, char **argv)
{
    struct options opt = {.transport = "tcp",
                          .floats = 431080,
                          .workers = 1,
                          .lanes = 2,
                          .chunk_floats = 131072,
                          .window = 2,
                          .seconds = 5,
                          .admission = "fcfs"};
    char lanes[32], chunk[48], window[48], floats[64], admission[64];
    const char *settings[] = {lanes,
                              chunk,
                              window,
                              floats,
                              admission,
                              "method=async-easgd",
                              "parameters.alpha=0.1",
                              "checkpoint.every_s=0",
                              "limits.memory_gib=64",
                              NULL,
                              NULL};
    struct daemon d;
    int rc = parse(argc, argv, &opt);

    if (rc != 0)
        return rc < 0 ? 0 : rc;
    snprintf(lanes, sizeof lanes, "lanes=%llu", (unsigned long long)opt.lanes);
    snprintf(chunk, sizeof chunk, "chunk_floats=%llu", (unsigned long long)opt.chunk_floats);
    snprintf(window, sizeof window, "window_chunks=%llu", (unsigned long long)opt.window);
    snprintf(admission, sizeof admission, "admission=%s", opt.admission);
    snprintf(floats, sizeof floats, "limits.floats=%llu", (unsigned long long)opt.floats);
    if (strcmp(opt.transport, "ipc") == 0)
        settings[sizeof settings / sizeof *settings - 2] = "listen=ipc://psd-data";
    if (daemon_prepare(&d, opt.psd, settings) < 0 || daemon_start(&d, NULL) < 0)
        return 1;
    rc = measure(&opt, &d);
    daemon_remove(&d);
    return rc;
}
