/* clients.c: many clients of a real psd. The first uses the library and offers the center. The others are
 * connections of this process that send the library's control messages: Hello, Begin, and a heartbeat every
 * second. So this process uses little CPU compared with psd, and no data is transferred. */
#include "tests/bench/clients/clients.h"

#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "client/psclient.h"
#include "proto/clock.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "tests/bench/options.h"
#include "tests/bench/samples.h"
#include "tests/support/system/daemon.h"

const char bench_clients_help[] = "many clients of a real psd: joining, its loop's time, /workers, memory";

static const char usage_text[] =
    "usage: psbench clients [--clients 1000] [--floats 431080] [--seconds 10] [--psd PROGRAM] [--json]\n"
    "  --clients N   number of clients that join at once and send a heartbeat every second\n"
    "  --seconds S   how long the loop's CPU time is measured and /workers requested\n";

enum { BEAT_MS = 1000, HANG_S = 300, MAX_ASKED = 1000 };

struct options {
    size_t clients, floats, seconds;
    const char *psd;
    bool json;
};

struct client {
    void *socket;
    uint32_t client, incarnation;
    bool begun;
};

struct crowd {
    size_t n, begun;
    struct client *clients;
    zmq_pollitem_t *items;
    uint64_t floats, answers;
};

struct result {
    double join_s, loop_share, answers_s, ask_p50_ms, ask_max_ms, kib_a_client;
};

static void send_message(void *socket, int what, void *message)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    m.what_case = (Ps__ToServer__WhatCase)what;
    m.hello = message; /* a union of pointers: sets any member */
    ps_control_send(socket, &m.base);
}

static void say_hello(struct client *c)
{
    Ps__Hello hello = PS__HELLO__INIT;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)"psbench";
    send_message(c->socket, PS__TO_SERVER__WHAT_HELLO, &hello);
}

static void say_begin(struct client *c, uint64_t floats)
{
    Ps__Begin begin = PS__BEGIN__INIT;
    Ps__Tensor tensor = PS__TENSOR__INIT, *list = &tensor;
    tensor.name = (char *)"x";
    tensor.shape = &floats;
    tensor.n_shape = 1;
    begin.client = c->client;
    begin.incarnation = c->incarnation;
    begin.tensors = &list;
    begin.n_tensors = 1;
    send_message(c->socket, PS__TO_SERVER__WHAT_BEGIN, &begin);
}

static void say_heartbeat(const struct client *c)
{
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    beat.client = c->client;
    beat.incarnation = c->incarnation;
    send_message(c->socket, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
}

/* Handles one answer. False if psd refuses. */
static bool take_reply(struct crowd *w, struct client *c, const Ps__ToClient *m)
{
    if (m == NULL || m->what_case == PS__TO_CLIENT__WHAT_ERROR) {
        fprintf(stderr, "psbench clients: psd answered: %s\n", m != NULL ? m->error->sentence : "no message");
        return false;
    }
    if (m->what_case == PS__TO_CLIENT__WHAT_WELCOME) {
        c->client = m->welcome->client;
        c->incarnation = m->welcome->incarnation;
        say_begin(c, w->floats);
    } else if (m->what_case == PS__TO_CLIENT__WHAT_BEGUN && !c->begun) {
        c->begun = true;
        w->begun++;
    } else if (m->what_case == PS__TO_CLIENT__WHAT_ALIVE) {
        w->answers++;
    }
    return true;
}

/* Handles messages for up to `ms` ms. */
static bool hear(struct crowd *w, long ms)
{
    if (zmq_poll(w->items, (int)w->n, ms) < 0)
        return false;
    for (size_t i = 0; i < w->n; i++) {
        if (w->items[i].revents == 0)
            continue;
        zmq_msg_t msg;
        zmq_msg_init(&msg);
        bool fine = true;
        while (fine && zmq_msg_recv(&msg, w->clients[i].socket, ZMQ_DONTWAIT) >= 0) {
            Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
            fine = take_reply(w, &w->clients[i], m);
            if (m != NULL)
                ps_control_free_to_client(m);
        }
        zmq_msg_close(&msg);
        if (!fine)
            return false;
    }
    return true;
}

static bool connect_all(struct crowd *w, void *context, const char *url)
{
    int zero = 0;
    w->clients = calloc(w->n, sizeof *w->clients);
    w->items = calloc(w->n, sizeof *w->items);
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, (int)w->n + 16);
    for (size_t i = 0; i < w->n && w->clients != NULL && w->items != NULL; i++) {
        void *socket = zmq_socket(context, ZMQ_DEALER);
        if (socket == NULL)
            return false;
        w->clients[i].socket = socket;
        w->items[i] = (zmq_pollitem_t){.socket = socket, .events = ZMQ_POLLIN};
        zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
        if (zmq_connect(socket, url) != 0)
            return false;
    }
    return w->clients != NULL && w->items != NULL;
}

static void close_all(struct crowd *w)
{
    for (size_t i = 0; i < w->n && w->clients != NULL; i++)
        if (w->clients[i].socket != NULL)
            zmq_close(w->clients[i].socket);
    free(w->clients);
    free(w->items);
}

/* Times all joins, from the first Hello to the last Begun. */
static bool join_all(struct crowd *w, struct result *r)
{
    double begin = ps_now_s();
    bool fine = true;
    for (size_t i = 0; i < w->n; i++)
        say_hello(&w->clients[i]);
    while (fine && w->begun < w->n && ps_now_s() < begin + HANG_S)
        fine = hear(w, 10);
    r->join_s = ps_now_s() - begin;
    if (w->begun < w->n)
        fprintf(stderr, "psbench clients: %zu of %zu have joined\n", w->begun, w->n);
    return w->begun == w->n;
}

/* CPU seconds of psd's loop, which runs in its first thread. */
static double loop_cpu_s(pid_t pid)
{
    char path[64], text[512] = "";
    unsigned long long ns = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)pid, (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return NAN;
    if (fgets(text, sizeof text, f) == NULL || sscanf(text, "%llu", &ns) != 1)
        ns = 0;
    fclose(f);
    return (double)ns * 1e-9;
}

/* Heartbeats are spread over each second, like those of independent processes. */
static bool live(struct crowd *w, const struct daemon *d, size_t seconds, struct result *r)
{
    static double asked_ms[MAX_ASKED];
    size_t said = 0, asked = 0;
    bool fine = true;
    double begin = ps_now_s(), cpu_s = loop_cpu_s(d->pid), now;
    w->answers = 0;
    while (fine && (now = ps_now_s() - begin) < (double)seconds) {
        for (size_t due = (size_t)(now * (double)w->n * 1000 / BEAT_MS); said < due; said++)
            say_heartbeat(&w->clients[said % w->n]);
        fine = hear(w, 1);
    }
    r->loop_share = (loop_cpu_s(d->pid) - cpu_s) / (ps_now_s() - begin);
    r->answers_s = (double)w->answers / (ps_now_s() - begin);
    for (; fine && asked < 21; asked++) {
        double at = ps_now_s();
        char *body = daemon_ask(d, "GET", "/workers");
        asked_ms[asked] = (ps_now_s() - at) * 1e3;
        fine = body != NULL;
        free(body);
    }
    bench_sort(asked_ms, asked);
    r->ask_p50_ms = asked > 0 ? asked_ms[asked / 2] : NAN;
    r->ask_max_ms = asked > 0 ? asked_ms[asked - 1] : NAN;
    return fine;
}

static bool read_url(const struct daemon *d, char *url, size_t size)
{
    FILE *f = fopen(d->endpoint + 1, "re");
    bool fine = f != NULL && fgets(url, (int)size, f) != NULL;
    if (f != NULL)
        fclose(f);
    url[fine ? strcspn(url, "\n") : 0] = 0;
    return fine;
}

static bool measure(const struct options *opt, const struct daemon *d, struct result *r)
{
    struct crowd w = {.n = opt->clients, .floats = opt->floats};
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {opt->floats}};
    struct psc_options po;
    struct psc *first = NULL;
    char url[320] = "";
    void *context = zmq_ctx_new();
    float *x = calloc(opt->floats, sizeof *x);
    psc_options_init(&po, sizeof po);
    po.server = d->endpoint;
    bool fine = x != NULL && psc_open(&po, &first) == PSC_OK && psc_begin(first, &tensor, 1, x) == PSC_OK;
    if (!fine)
        fprintf(stderr, "psbench clients: %s\n", psc_error(first));
    uint64_t before = daemon_resident_bytes(d->pid);
    fine = fine && read_url(d, url, sizeof url) && connect_all(&w, context, url) && join_all(&w, r) &&
           live(&w, d, opt->seconds, r);
    r->kib_a_client = ((double)daemon_resident_bytes(d->pid) - (double)before) / 1024 / (double)w.n;
    close_all(&w);
    psc_close(first);
    zmq_ctx_term(context);
    free(x);
    return fine;
}

static void print(const struct options *opt, const struct result *r)
{
    printf(opt->json ? "{\"bench\":\"clients\",\"clients\":%zu,\"floats\":%zu,\"join_s\":%.3f,"
                       "\"loop_s_per_s\":%.4f,\"heartbeats_s\":%.0f,\"workers_p50_ms\":%.2f,"
                       "\"workers_max_ms\":%.2f,\"kib_per_client\":%.1f}\n"
                     : "%zu clients, %zu floats: joined in %.2f s; the loop works %.4f s a second at %.0f "
                       "heartbeats; /workers in %.2f ms (at most %.2f); %.1f KiB a client\n",
           opt->clients, opt->floats, r->join_s, r->loop_share, r->answers_s, r->ask_p50_ms, r->ask_max_ms,
           r->kib_a_client);
}

/* 0; 2; -1: help was requested */
static int parse(int argc, char **argv, struct options *opt)
{
    static const struct option longs[] = {{"clients", required_argument, NULL, 'n'},
                                          {"floats", required_argument, NULL, 'f'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"psd", required_argument, NULL, 'p'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        bool fine = letter == 'n'   ? bench_digits("clients", "--clients", optarg, 1, 1023, &opt->clients)
                    : letter == 'f' ? bench_digits("clients", "--floats", optarg, 1, 1000000000, &opt->floats)
                    : letter == 's' ? bench_digits("clients", "--seconds", optarg, 1, 3600, &opt->seconds)
                                    : letter != '?';
        opt->psd = letter == 'p' ? optarg : opt->psd;
        opt->json = opt->json || letter == 'j';
        if (letter == 'h' || !fine)
            fputs(usage_text, letter == 'h' ? stdout : stderr);
        if (letter == 'h' || !fine)
            return letter == 'h' ? -1 : 2;
    }
    if (optind < argc)
        fprintf(stderr, "psbench clients: '%s' is not an option\n", argv[optind]);
    return optind < argc ? 2 : 0;
}

int bench_clients(int argc, char **argv)
{
    static const char *const settings[] = {"method=async-easgd", "limits.clients=1024",
                                           "checkpoint.every_s=0", "chunk_floats=131072", NULL};
    struct options opt = {.clients = 1000, .floats = 431080, .seconds = 10};
    struct result r = {0};
    struct daemon d;
    int rc = parse(argc, argv, &opt);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    if (daemon_prepare(&d, opt.psd, settings) < 0)
        return 1;
    bool fine = daemon_start(&d, NULL) == 0 && measure(&opt, &d, &r);
    daemon_remove(&d);
    if (fine)
        print(&opt, &r);
    return fine ? 0 : 1;
}
