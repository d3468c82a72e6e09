/* exchange.c: worker processes exchange a vector with a real psd at full speed. */
#include "proto/clock.h"
#include "tests/bench/exchange/exchange.h"

#include <signal.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclient.h"
#include "proto/model/shard.h"
#include "proto/security/curve.h"
#include "tests/bench/exchange/args.h"
#include "tests/bench/exchange/ceiling.h"
#include "tests/bench/samples.h"
#include "tests/support/system/servers.h"

const char bench_exchange_help[] = "exchanges of workers with a real psd: GB/s, latency, server CPU";

enum { MAX_LATENCIES = 4000000 };

/* The result that a worker process writes to its pipe, followed by its latencies. */
struct result {
    uint64_t exchanges, retries, n_latencies;
    uint64_t sent, received; /* payload bytes of the counted exchanges */
    double begin_s, end_s;
    int rc;
    char error[256];
};

struct worker {
    pid_t pid;
    int go[2], up[2]; /* the parent's start signal; the worker's ready signal and result */
    struct result result;
    double *latencies;
};

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

/* *x: memory of psc_alloc with --in-place or on a device, otherwise of malloc. *other, the answer or the
 * gradient, is zeros. */
static int make_vectors(const struct bench_exchange_options *opt, struct psc *c, float **x, float **other)
{
    bool on_device = strcmp(opt->memory, "host") != 0;
    float *values = malloc(opt->floats * sizeof *values);
    *x = NULL;
    *other = on_device ? NULL : calloc(opt->floats, sizeof **other);
    int rc = opt->in_place || on_device ? psc_alloc(c, opt->floats, x) : PSC_OK;
    if (rc == PSC_OK && on_device)
        rc = psc_alloc(c, opt->floats, other);
    if (rc == PSC_OK && *x == NULL)
        *x = malloc(opt->floats * sizeof **x);
    for (size_t i = 0; i < opt->floats; i++)
        values[i] = (float)(i % 1000) * 1e-3f;
    rc = rc == PSC_OK ? psc_write(c, *x, values, opt->floats) : rc;
    free(values);
    return rc;
}

static int join(const struct bench_exchange_options *opt, const char *server, struct psc **c, float **x,
                float **other)
{
    struct psc_options po;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {opt->floats}};
    psc_options_init(&po, sizeof po);
    po.server = server;
    po.key_file = opt->curve ? opt->key : NULL;
    po.transport = opt->transport;
    po.memory = opt->memory;
    int rc = psc_open(&po, c);
    if (rc == PSC_OK)
        rc = make_vectors(opt, *c, x, other);
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, *x) : rc;
}

static void compute(double ms)
{
    for (double end = ps_now_s() + ms * 1e-3; ms > 0 && ps_now_s() < end;)
        ;
}

/* Makes one exchange with psc_exchange; with --in-place with psc_step. *took_s: its time, without the
 * optimizer. */
static int exchange(const struct bench_exchange_options *opt, struct psc *c, float *x, float *other,
                    double *took_s)
{
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    double begin = ps_now_s();
    if (!opt->in_place) {
        int rc = psc_exchange(c, x, other, 1);
        *took_s = ps_now_s() - begin;
        return rc;
    }
    psc_info(c, &before);
    int rc = psc_step(c, x, other, 1);
    psc_info(c, &after);
    *took_s = after.exchange_seconds - before.exchange_seconds;
    return rc;
}

static void exchange_all(const struct bench_exchange_options *opt, struct psc *c, float *x, float *other,
                         struct result *r, double *latencies)
{
    double end = ps_now_s() + opt->seconds, took_s, busy_s = 0;
    r->begin_s = ps_now_s();
    while (r->rc == PSC_OK && (opt->count > 0 ? r->exchanges < opt->count : ps_now_s() < end)) {
        compute(opt->compute_ms);
        r->rc = exchange(opt, c, x, other, &took_s);
        busy_s += took_s;
        if (r->n_latencies < MAX_LATENCIES)
            latencies[r->n_latencies++] = took_s;
        r->exchanges++;
    }
    r->end_s = opt->in_place || opt->compute_ms > 0 ? r->begin_s + busy_s : ps_now_s();
}

static void worker_main(const struct bench_exchange_options *opt, const char *server, struct worker *w)
{
    struct psc *c = NULL;
    struct result r = {0};
    struct psc_info info = {.size = sizeof info};
    float *x = NULL, *other = NULL;
    double *latencies = malloc(MAX_LATENCIES * sizeof *latencies);
    uint64_t sent = 0, received = 0;
    double took_s;
    char byte = 0;

    r.rc = join(opt, server, &c, &x, &other);
    for (int i = 0; i < 2 && r.rc == PSC_OK; i++) /* warm-up: touches every page and buffer */
        r.rc = exchange(opt, c, x, other, &took_s);
    if (psc_info(c, &info) == PSC_OK)
        sent = info.bytes_sent, received = info.bytes_received;
    if (write_all(w->up[1], &byte, 1) && read_all(w->go[0], &byte, 1))
        exchange_all(opt, c, x, other, &r, latencies);
    snprintf(r.error, sizeof r.error, "%s", psc_error(c));
    if (psc_info(c, &info) == PSC_OK)
        r.retries = info.retries, r.sent = info.bytes_sent - sent,
        r.received = info.bytes_received - received;
    write_all(w->up[1], &r, sizeof r);
    write_all(w->up[1], latencies, r.n_latencies * sizeof *latencies);
    psc_close(c);
    _exit(0);
}

static bool start_workers(const struct bench_exchange_options *opt, const struct daemon *d,
                          struct worker *workers)
{
    const pid_t parent = getpid();
    char byte;
    for (uint64_t i = 0; i < opt->workers; i++) {
        struct worker *w = &workers[i];
        if (pipe(w->go) != 0 || pipe(w->up) != 0 || (w->pid = fork()) < 0)
            return false;
        if (w->pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent)
                worker_main(opt, d->endpoint, w);
            _exit(1);
        }
        close(w->up[1]);
        close(w->go[0]);
    }
    for (uint64_t i = 0; i < opt->workers; i++)
        if (!read_all(workers[i].up[0], &byte, 1))
            return false;
    return true;
}

static bool collect(const struct bench_exchange_options *opt, struct worker *workers)
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

struct totals {
    double exchanges, seconds, p50_s, p99_s, retries;
    double wire_up, wire_down; /* payload bytes of an exchange */
};

static struct totals sum(const struct bench_exchange_options *opt, const struct worker *workers)
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
        t.wire_up += (double)r->sent;
        t.wire_down += (double)r->received;
        begin = fmin(begin, r->begin_s);
        end = fmax(end, r->end_s);
    }
    bench_sort(sorted, n);
    t.seconds = end - begin;
    t.wire_up /= fmax(t.exchanges, 1);
    t.wire_down /= fmax(t.exchanges, 1);
    t.p50_s = n > 0 ? sorted[n / 2] : NAN;
    t.p99_s = n > 0 ? sorted[n - 1 - n / 100] : NAN;
    free(sorted);
    return t;
}

/* Lanes of all servers that have a part of the vector. */
static uint32_t lanes_used(const struct bench_exchange_options *opt)
{
    uint64_t each = opt->floats / opt->servers;
    const struct ps_shard s = {
        each > 0 ? each : 1, (uint32_t)opt->lanes, (uint32_t)opt->chunk_floats, 0, {0}};
    return (uint32_t)opt->servers * ps_shard_lanes_met(&s, ps_shard_whole(&s));
}

/* What the bus carries, of vectors of a device; 0: not measured. */
static void report_bus(const struct bench_exchange_options *opt, double seconds)
{
    const struct limit_bus bus = limit_bus(opt->memory, opt->floats, seconds);
    const bool is_known = isfinite(bus.both_s);
    const double down = is_known ? bus.down_s * 1e3 : 0, up = is_known ? bus.up_s * 1e3 : 0,
                 both = is_known ? bus.both_s * 1e3 : 0;

    if (opt->json)
        printf(",\"bus_ms_down\":%.3f,\"bus_ms_up\":%.3f,\"bus_ms_both\":%.3f", down, up, both);
    else
        printf("  the bus alone: %.3f ms down, %.3f ms up, %.3f ms both at the same time\n", down, up, both);
}

static void report(const struct bench_exchange_options *opt, const struct totals *t, double cpu_s,
                   double rss_before, double rss_after)
{
    double up = (double)opt->floats * sizeof(float) * t->exchanges * 1e-9, gb_s = up / t->seconds;
    double tcp = limit_tcp(opt->floats, lanes_used(opt), opt->chunk_floats * sizeof(float),
                           (uint32_t)opt->window, 1.0);
    double tcp_p50 =
        limit_tcp_p50_us(opt->floats * sizeof(float) < 65536 ? opt->floats * sizeof(float) : 65536, 0.5);
    double fused = limit_fused(opt->floats, opt->chunk_floats * sizeof(float), 0.5);
    double loop = limit_elastic(opt->floats, 0.5);
    if (opt->json)
        printf(
            "{\"bench\":\"exchange\",\"transport\":\"%s\",\"memory\":\"%s\",\"in_place\":%s,\"curve\":%s,"
            "\"floats\":%llu,"
            "\"workers\":%llu,"
            "\"servers\":%llu,\"lanes\":%"
            "llu,\"admission\":\"%s\",\"codec\":\"%s\",\"answer_codec\":\"%s\",\"wire_mb_up\":%.4f,\"wire_mb_"
            "down\":%.4f,\"exchanges\":%.0f,\"exchanges_s\":%.1f,"
            "\"seconds\":%.3f,\"gb_s_both\":%.3f,\"gb_s_up\":%.3f,\"gb_s_down\":%.3f,\"server_cpu_s_per_"
            "gb\":%.3f,"
            "\"p50_us\":%.1f,\"p99_us\":%.1f,\"retries\":%.0f,\"server_rss_mb\":%.1f,\"server_rss_growth_"
            "mb\":%.1f,"
            "\"limit_tcp_gb_s_both\":%.3f,\"limit_tcp_p50_us\":%.1f,\"limit_fused_gb_s\":%.3f,\"limit_loop_"
            "gb_s_both\":%.3f",
            opt->transport, opt->memory, opt->in_place ? "true" : "false", opt->curve ? "true" : "false",
            (unsigned long long)opt->floats, (unsigned long long)opt->workers,
            (unsigned long long)opt->servers, (unsigned long long)opt->lanes, opt->admission, opt->codec,
            opt->answer_codec, t->wire_up * 1e-6, t->wire_down * 1e-6, t->exchanges,
            t->exchanges / t->seconds, t->seconds, 2 * gb_s, gb_s, gb_s, cpu_s / (2 * up), t->p50_s * 1e6,
            t->p99_s * 1e6, t->retries, rss_after, rss_after - rss_before, isfinite(tcp) ? tcp : 0,
            isfinite(tcp_p50) ? tcp_p50 : 0, fused, loop);
    else
        printf(
            "%llu floats (%.1f MB) of the %s, %llu worker%s, %s%s%s, %llu server%s of %llu lanes, %s, codecs "
            "%s and %s "
            "(%.3f and %.3f MB "
            "an "
            "exchange): %.0f exchanges in %.2f s, %.0f a "
            "second\n"
            "  %.2f GB/s both ways summed; TCP sockets alone %.2f; one thread's plain loop of both halves "
            "%.2f; "
            "the server's half in memory %.2f (one way)\n"
            "  latency p50 %.1f us, p99 %.1f us (a round trip of TCP sockets alone, 64 KB at most: %.1f us); "
            "%.0f chunks sent again\n"
            "  server: %.3f CPU s/GB, %.1f MB resident, %+.1f MB during the run\n",
            (unsigned long long)opt->floats, (double)opt->floats * 4e-6,
            strcmp(opt->memory, "host") == 0 ? "host" : "device", (unsigned long long)opt->workers,
            opt->workers > 1 ? "s" : "", opt->transport, opt->in_place ? " in place" : "",
            opt->curve ? " encrypted" : "", (unsigned long long)opt->servers, opt->servers > 1 ? "s" : "",
            (unsigned long long)opt->lanes, opt->admission, opt->codec, opt->answer_codec, t->wire_up * 1e-6,
            t->wire_down * 1e-6, t->exchanges, t->seconds, t->exchanges / t->seconds, 2 * gb_s, tcp, loop,
            fused, t->p50_s * 1e6, t->p99_s * 1e6, tcp_p50, t->retries, cpu_s / (2 * up), rss_after,
            rss_after - rss_before);
    if (strcmp(opt->memory, "host") != 0)
        report_bus(opt, 0.3);
    if (opt->json)
        puts("}");
}

/* CPU seconds, and resident MB, of all servers. */
static double cpu_of(const struct servers *s)
{
    double cpu = 0;
    for (int i = 0; i < s->n; i++)
        cpu += daemon_cpu_s(s->d[i].pid);
    return cpu;
}

static double resident_of(const struct servers *s)
{
    double bytes = 0;
    for (int i = 0; i < s->n; i++)
        bytes += (double)daemon_resident_bytes(s->d[i].pid);
    return bytes * 1e-6;
}

static int measure(const struct bench_exchange_options *opt, struct servers *s)
{
    static struct worker workers[BENCH_MAX_WORKERS];
    if (!start_workers(opt, &s->d[0], workers))
        return 1;
    double cpu = cpu_of(s), rss = resident_of(s);
    for (uint64_t i = 0; i < opt->workers; i++)
        write_all(workers[i].go[1], "", 1);
    if (!collect(opt, workers))
        return 1;
    cpu = cpu_of(s) - cpu;
    struct totals t = sum(opt, workers);
    double rss_after = resident_of(s);
    servers_kill(s);
    report(opt, &t, cpu, rss, rss_after);
    return 0;
}

/* Creates a key pair for psd and one for all workers, in psd's directory. */
static int make_keys(struct bench_exchange_options *opt, const struct daemon *d, char key[256],
                     char allow[256])
{
    struct ps_curve_pair psd, workers;
    struct ps_error err;
    char path[128];
    snprintf(path, sizeof path, "%s/psd.key", d->dir);
    snprintf(opt->key, sizeof opt->key, "%s/worker.key", d->dir);
    if (ps_curve_generate("center", &psd, &err) < 0 || ps_curve_generate("worker", &workers, &err) < 0 ||
        ps_curve_write(path, &psd, &err) < 0 || ps_curve_write(opt->key, &workers, &err) < 0) {
        fprintf(stderr, "psbench exchange: %s\n", err.text);
        return -1;
    }
    snprintf(key, 256, "auth.key=%s", path);
    snprintf(path, sizeof path, "%s/allow", d->dir);
    snprintf(allow, 256, "auth.allow=%s", path);
    FILE *f = fopen(path, "we");
    bool ok = f != NULL && fprintf(f, "%s worker\n", workers.public_key) > 0;
    return f != NULL && fclose(f) == 0 && ok ? 0 : -1;
}

int bench_exchange(int argc, char **argv)
{
    struct bench_exchange_options opt = {.transport = "tcp",
                                         .floats = 431080,
                                         .workers = 1,
                                         .servers = 1,
                                         .lanes = 2,
                                         .chunk_floats = 131072,
                                         .window = 2,
                                         .seconds = 5,
                                         .admission = "fcfs",
                                         .memory = "host",
                                         .codec = "raw",
                                         .answer_codec = "raw"};
    char lanes[32], chunk[48], window[48], floats[64], admission[64], message[32], answer[32];
    char key[256], allow[256], transport[32];
    const char *settings[] = {lanes,
                              chunk,
                              window,
                              floats,
                              admission,
                              message,
                              answer,
                              "method=async-easgd",
                              "parameters.alpha=0.1",
                              "checkpoint.every_s=0",
                              "limits.memory_gib=64",
                              transport,
                              "parameters.period=1",
                              NULL,
                              NULL,
                              NULL,
                              NULL};
    size_t n = sizeof settings / sizeof *settings - 4; /* the first unused entry */
    struct servers servers;
    int rc = bench_exchange_parse(argc, argv, &opt);

    if (rc != 0)
        return rc < 0 ? 0 : rc;
    snprintf(lanes, sizeof lanes, "lanes=%llu", (unsigned long long)opt.lanes);
    snprintf(chunk, sizeof chunk, "chunk_floats=%llu", (unsigned long long)opt.chunk_floats);
    snprintf(window, sizeof window, "window_chunks=%llu", (unsigned long long)opt.window);
    snprintf(admission, sizeof admission, "admission=%s", opt.admission);
    snprintf(message, sizeof message, "codec.message=%s", opt.codec);
    snprintf(answer, sizeof answer, "codec.answer=%s", opt.answer_codec);
    snprintf(floats, sizeof floats, "limits.floats=%llu", (unsigned long long)opt.floats);
    snprintf(transport, sizeof transport, "transport=%s", opt.transport);
    if (strcmp(opt.transport, "ipc") == 0)
        settings[n++] = "listen=ipc://psd-data";
    if (opt.curve) {
        settings[n++] = key;
        settings[n++] = allow;
    }
    if (servers_prepare(&servers, (int)opt.servers, opt.psd, settings) < 0 ||
        (opt.curve && make_keys(&opt, &servers.d[0], key, allow) < 0) || servers_start(&servers) < 0)
        return 1;
    rc = measure(&opt, &servers);
    servers_remove(&servers);
    return rc;
}
