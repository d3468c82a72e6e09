/* The service thread: the control road of one session.
 *
 * Finds the server, says Hello, sends heartbeats and what the caller asks for, takes what comes, and when the
 * server has been silent for a while starts over, on a fresh socket, with the same session. Every wait is
 * bounded. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "client/psc.h"
#include "proto/control.h"

enum { HELLO_WAIT_MS = 1000, SILENT_BEATS = 4, LEAVE_LINGER_MS = 300, SLEPT_MS = 500 };

struct service {
    struct psc *c;
    void *context, *socket;
    uint64_t last_heard_ms, last_beat_ms, hello_ms, looked_ms;
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void psc_say(struct psc *c, const char *sentence)
{
    if (c->opt.log != NULL)
        c->opt.log(c->opt.log_arg, sentence);
}

/* With the lock held: lets everyone who waits look again. */
static void announce(struct psc *c)
{
    pthread_cond_broadcast(&c->shared.changed);
    eventfd_write(c->wake_fd, 1);
}

static void end_session(struct psc *c, int result, const char *sentence)
{
    struct psc_shared *s = &c->shared;
    pthread_mutex_lock(&s->lock);
    if (s->state != PSC_STATE_ENDED) {
        /* A server that drains may go before our last words: that is a good end. */
        s->result = s->draining && result == PSC_EGONE ? PSC_DRAINED : result;
        bool tell = result == PSC_EGONE && s->trouble.text[0] != 0;
        ps_fail(&s->why, 0, "%s%s%s", sentence, tell ? ": " : "", tell ? s->trouble.text : "");
        s->state = PSC_STATE_ENDED;
        announce(c);
    }
    pthread_mutex_unlock(&s->lock);
}

static void close_socket(struct service *v, int linger_ms)
{
    if (v->socket == NULL)
        return;
    zmq_setsockopt(v->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_close(v->socket);
    v->socket = NULL;
}

static int send_message(struct service *v, int what, void *message)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    m.what_case = (Ps__ToServer__WhatCase)what;
    m.hello = message; /* a union of pointers */
    return ps_control_send(v->socket, &m.base);
}

static void send_hello(struct service *v)
{
    struct psc *c = v->c;
    struct psc_shared *s = &c->shared;
    Ps__Hello hello = PS__HELLO__INIT;

    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)(uintptr_t)c->opt.name;
    hello.observer = c->opt.kind == PSC_OBSERVER;
    hello.any_rank = c->opt.rank < 0;
    hello.rank = c->opt.rank < 0 ? 0 : (uint32_t)c->opt.rank;
    hello.token = c->token;
    pthread_mutex_lock(&s->lock);
    if (s->begun) { /* what had not begun starts anew */
        hello.incarnation = s->road.incarnation;
        hello.client = s->road.client;
        hello.manifest_hash = s->manifest->hash;
        hello.center_version = s->center_version;
    }
    pthread_mutex_unlock(&s->lock);
    send_message(v, PS__TO_SERVER__WHAT_HELLO, &hello);
}

/* Why the server cannot even be looked for, or "": told when the wait for it ends. */
static void note_trouble(struct psc *c, const struct ps_error *trouble)
{
    pthread_mutex_lock(&c->shared.lock);
    c->shared.trouble = *trouble;
    pthread_mutex_unlock(&c->shared.lock);
}

/* A fresh socket and a Hello on it. */
static void connect_anew(struct service *v)
{
    char url[512];
    struct ps_error trouble = {""};
    int64_t max_bytes = PS_CONTROL_MAX_BYTES;
    int zero = 0, rc;

    v->hello_ms = now_ms();
    close_socket(v, 0);
    rc = psc_road_find(v->c, url, sizeof url, &trouble);
    note_trouble(v->c, &trouble);
    if (rc < 0 || (v->socket = zmq_socket(v->context, ZMQ_DEALER)) == NULL)
        return;
    zmq_setsockopt(v->socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes);
    zmq_setsockopt(v->socket, ZMQ_LINGER, &zero, sizeof zero);
    if (zmq_connect(v->socket, url) != 0) {
        rc = zmq_errno(); /* closing the socket may set another */
        ps_fail(&trouble, 0, "cannot connect to '%.300s': %s; allowed are tcp://HOST:PORT and ipc://PATH",
                url, zmq_strerror(rc));
        close_socket(v, 0);
        if (rc == EINVAL || rc == EPROTONOSUPPORT || rc == ENAMETOOLONG)
            end_session(v->c, PSC_EINVAL, trouble.text);
        else
            note_trouble(v->c, &trouble);
        return;
    }
    send_hello(v);
}

static void on_welcome(struct service *v, const Ps__ToClient *m)
{
    struct psc *c = v->c;
    struct psc_shared *s = &c->shared;
    struct psc_road road;
    struct ps_error err;
    int rc = psc_road_take(&road, m->welcome, &err);
    if (rc < 0) {
        end_session(c, rc, err.text);
        return;
    }
    pthread_mutex_lock(&s->lock);
    bool again = s->epoch > 0;
    s->road = road;
    s->workers = m->welcome->workers;
    s->center_version = m->welcome->center_version; /* a restart may have set it back */
    s->state = PSC_STATE_JOINED;
    s->waiting_chunks = 0;
    s->epoch++;
    s->reconnects += again;
    s->revivals += m->welcome->revived != 0;
    if (!s->begun)
        s->send_begin = s->manifest != NULL;
    announce(c);
    pthread_mutex_unlock(&s->lock);
    if (again)
        psc_say(c, "the server is back: the session goes on");
}

static void on_parked(struct service *v, const Ps__ToClient *m)
{
    (void)m;
    pthread_mutex_lock(&v->c->shared.lock);
    v->c->shared.parked = true;
    pthread_mutex_unlock(&v->c->shared.lock);
    psc_say(v->c, m->parked->reason);
}

static void on_begun(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->c->shared;
    pthread_mutex_lock(&s->lock);
    s->begun = true;
    s->offer = m->begun->offer;
    s->center_version = m->begun->center_version;
    announce(v->c);
    pthread_mutex_unlock(&s->lock);
}

static void on_alive(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->c->shared;
    pthread_mutex_lock(&s->lock);
    s->workers = m->alive->workers;
    if (m->alive->center_version > s->center_version)
        s->center_version = m->alive->center_version;
    s->draining = s->draining || m->alive->draining;
    s->waiting_seq = m->alive->waiting_seq;
    s->waiting_chunks = m->alive->waiting_chunks;
    pthread_mutex_unlock(&s->lock);
}

static void on_drain(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->c->shared;
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    announce(v->c);
    pthread_mutex_unlock(&s->lock);
    char sentence[300];
    snprintf(sentence, sizeof sentence, "the server is draining (%.200s): finish and leave",
             m->drain->reason);
    psc_say(v->c, sentence);
}

static void on_save(struct service *v, const Ps__ToClient *m)
{
    pthread_mutex_lock(&v->c->shared.lock);
    v->c->shared.save_version = m->save->center_version;
    pthread_mutex_unlock(&v->c->shared.lock);
}

static void go_looking(struct service *v, const char *why)
{
    struct psc_shared *s = &v->c->shared;
    pthread_mutex_lock(&s->lock);
    bool drained = s->draining;
    if (!drained)
        s->state = PSC_STATE_CONNECTING;
    announce(v->c);
    pthread_mutex_unlock(&s->lock);
    if (drained) { /* it said that it would go */
        end_session(v->c, PSC_DRAINED, "the server has drained and is gone");
        return;
    }
    psc_say(v->c, why);
    connect_anew(v);
}

static void on_error(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->c->shared;
    pthread_mutex_lock(&s->lock);
    bool joined = s->state == PSC_STATE_JOINED;
    pthread_mutex_unlock(&s->lock);
    /* A restarted server does not know us yet; one that did not restart does not know the connection that
     * ZeroMQ made when the first one broke. */
    if (m->error->code == PS__CODE__NO_SESSION && joined)
        go_looking(v, "the server does not know this connection: saying Hello again");
    else
        end_session(v->c, psc_result_of_code((uint32_t)m->error->code), m->error->sentence);
}

static void (*const handlers[])(struct service *v, const Ps__ToClient *m) = {
    [PS__TO_CLIENT__WHAT_WELCOME] = on_welcome, [PS__TO_CLIENT__WHAT_PARKED] = on_parked,
    [PS__TO_CLIENT__WHAT_BEGUN] = on_begun,     [PS__TO_CLIENT__WHAT_ALIVE] = on_alive,
    [PS__TO_CLIENT__WHAT_DRAIN] = on_drain,     [PS__TO_CLIENT__WHAT_ERROR] = on_error,
    [PS__TO_CLIENT__WHAT_SAVE] = on_save,
};

static void receive(struct service *v)
{
    while (v->socket != NULL) {
        zmq_msg_t msg;
        zmq_msg_init(&msg);
        if (zmq_msg_recv(&msg, v->socket, ZMQ_DONTWAIT) < 0)
            return;
        Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
        zmq_msg_close(&msg);
        v->last_heard_ms = now_ms();
        if (m == NULL)
            end_session(v->c, PSC_EUNSUPPORTED, "the server sent bytes that are no control message");
        else if ((size_t)m->what_case < sizeof handlers / sizeof *handlers && handlers[m->what_case] != NULL)
            handlers[m->what_case](v, m);
        if (m != NULL)
            ps_control_free_to_client(m);
    }
}

static void send_begin(struct service *v, const struct ps_manifest *manifest, uint32_t client,
                       uint32_t incarnation)
{
    Ps__Begin begin = PS__BEGIN__INIT;
    Ps__Tensor *tensors = calloc(manifest->n_tensors, sizeof *tensors);
    Ps__Tensor **list = calloc(manifest->n_tensors, sizeof(Ps__Tensor *));
    if (tensors != NULL && list != NULL) {
        for (size_t i = 0; i < manifest->n_tensors; i++) {
            const struct ps_tensor *t = &manifest->tensors[i];
            ps__tensor__init(&tensors[i]);
            tensors[i].name = t->name;
            tensors[i].offset = t->offset;
            tensors[i].n_shape = t->n_dims;
            tensors[i].shape = (uint64_t *)(uintptr_t)t->shape;
            tensors[i].role = t->role;
            tensors[i].decay = t->decay;
            list[i] = &tensors[i];
        }
        begin.client = client;
        begin.incarnation = incarnation;
        begin.n_tensors = manifest->n_tensors;
        begin.tensors = list;
        if (send_message(v, PS__TO_SERVER__WHAT_BEGIN, &begin) == -EMSGSIZE)
            end_session(v->c, PSC_EMANIFEST, "the manifest is too large for a control message");
    } else {
        end_session(v->c, PSC_ENOMEM, "no memory to send the manifest");
    }
    free(tensors);
    free(list);
}

static void send_report(struct service *v, const struct psc_metrics *r, uint32_t client, uint32_t incarnation)
{
    Ps__Report report = PS__REPORT__INIT;
    report.client = client;
    report.incarnation = incarnation;
    report.loss = r->loss;
    report.accuracy = r->accuracy;
    report.samples_per_second = r->samples_per_second;
    report.test_loss = r->test_loss;
    report.test_accuracy = r->test_accuracy;
    report.center_version = r->center_version;
    send_message(v, PS__TO_SERVER__WHAT_REPORT, &report);
}

static void send_nonfinite(struct service *v, uint64_t clock, uint64_t index, uint32_t client,
                           uint32_t incarnation)
{
    Ps__NotFinite m = PS__NOT_FINITE__INIT;
    m.client = client;
    m.incarnation = incarnation;
    m.clock = clock;
    m.index = index;
    send_message(v, PS__TO_SERVER__WHAT_NOT_FINITE, &m);
}

/* Does what the caller asked for since the last time; returns true when it wants the thread to end. */
static bool obey(struct service *v)
{
    struct psc_shared *s = &v->c->shared;
    eventfd_t count;
    eventfd_read(v->c->command_fd, &count);

    pthread_mutex_lock(&s->lock);
    bool joined = s->state == PSC_STATE_JOINED && v->socket != NULL, stop = s->stop;
    bool begin = joined && s->send_begin, report = joined && s->has_report, leave = joined && s->send_leave;
    bool nonfinite = joined && s->begun && s->has_nonfinite;
    uint64_t nonfinite_clock = s->nonfinite_clock, nonfinite_index = s->nonfinite_index;
    const struct ps_manifest *manifest = s->manifest;
    struct psc_metrics metrics = s->report;
    uint32_t client = s->road.client, incarnation = s->road.incarnation;
    if (begin)
        s->send_begin = false;
    if (report)
        s->has_report = false;
    if (nonfinite)
        s->has_nonfinite = false;
    pthread_mutex_unlock(&s->lock);

    if (begin)
        send_begin(v, manifest, client, incarnation);
    if (report)
        send_report(v, &metrics, client, incarnation);
    if (nonfinite)
        send_nonfinite(v, nonfinite_clock, nonfinite_index, client, incarnation);
    if (leave) {
        Ps__Leave m = PS__LEAVE__INIT;
        m.client = client;
        m.incarnation = incarnation;
        send_message(v, PS__TO_SERVER__WHAT_LEAVE, &m);
        close_socket(v, LEAVE_LINGER_MS);
    }
    return stop;
}

static void beat(struct service *v)
{
    struct psc_shared *s = &v->c->shared;
    Ps__Heartbeat m = PS__HEARTBEAT__INIT;
    v->last_beat_ms = now_ms();
    pthread_mutex_lock(&s->lock);
    m.client = s->road.client;
    m.incarnation = s->road.incarnation;
    m.clock = s->clock;
    pthread_mutex_unlock(&s->lock);
    send_message(v, PS__TO_SERVER__WHAT_HEARTBEAT, &m);
}

/* A process that was stopped heard nothing meanwhile, and the server was not to blame: what it slept does not
 * count as the server's silence. */
static void forgive_own_sleep(struct service *v)
{
    uint64_t now = now_ms(), slept_ms = now - v->looked_ms;
    v->looked_ms = now;
    if (slept_ms > SLEPT_MS + v->c->opt.heartbeat_ms)
        v->last_heard_ms += slept_ms;
}

/* What is due by the clock. */
static void keep_time(struct service *v, enum psc_state state, bool draining)
{
    const struct psc_options *opt = &v->c->opt;
    uint64_t now = now_ms();
    char sentence[800];

    uint64_t silent_ms = now > v->last_heard_ms ? now - v->last_heard_ms : 0;
    if (state != PSC_STATE_ENDED && silent_ms > opt->timeout_ms) {
        snprintf(sentence, sizeof sentence, "no answer from %s for %.1f s (timeout_ms: %u)", opt->server,
                 (double)silent_ms / 1e3, opt->timeout_ms);
        end_session(v->c, PSC_EGONE, sentence);
    } else if (state != PSC_STATE_ENDED && draining &&
               silent_ms > (uint64_t)SILENT_BEATS * opt->heartbeat_ms) {
        end_session(v->c, PSC_DRAINED, "the server has drained and ended");
    } else if (state == PSC_STATE_JOINED && silent_ms > (uint64_t)SILENT_BEATS * opt->heartbeat_ms) {
        go_looking(v, "the server is silent: connecting anew");
    } else if (state == PSC_STATE_JOINED && now - v->last_beat_ms >= opt->heartbeat_ms) {
        beat(v);
    } else if (state == PSC_STATE_CONNECTING &&
               now - v->hello_ms >= (v->socket != NULL ? HELLO_WAIT_MS : HELLO_WAIT_MS / 10)) {
        connect_anew(v);
    }
}

static void *run(void *arg)
{
    struct psc *c = arg;
    struct service v = {.c = c, .context = zmq_ctx_new()};
    enum psc_state state = PSC_STATE_CONNECTING;

    v.last_heard_ms = v.looked_ms = now_ms();
    if (v.context == NULL)
        end_session(c, PSC_ESYSTEM, "no descriptors for the control socket");
    else
        connect_anew(&v);
    while (!obey(&v)) {
        zmq_pollitem_t items[2] = {{.fd = c->command_fd, .events = ZMQ_POLLIN},
                                   {.socket = v.socket, .events = ZMQ_POLLIN}};
        zmq_poll(items, v.socket != NULL ? 2 : 1,
                 state == PSC_STATE_JOINED ? (long)c->opt.heartbeat_ms / 4 + 1 : 50);
        forgive_own_sleep(&v);
        receive(&v);
        pthread_mutex_lock(&c->shared.lock);
        state = c->shared.state;
        bool draining = c->shared.draining;
        pthread_mutex_unlock(&c->shared.lock);
        keep_time(&v, state, draining);
    }
    close_socket(&v, 0);
    if (v.context != NULL)
        zmq_ctx_term(v.context);
    return NULL;
}

int psc_service_start(struct psc *c)
{
    int rc = pthread_create(&c->service, NULL, run, c);
    c->service_runs = rc == 0;
    return rc == 0 ? PSC_OK : psc_fail(c, PSC_ESYSTEM, "cannot start the service thread: %s", strerror(rc));
}

void psc_service_poke(struct psc *c)
{
    eventfd_write(c->command_fd, 1);
}

void psc_service_stop(struct psc *c)
{
    if (!c->service_runs)
        return;
    pthread_mutex_lock(&c->shared.lock);
    c->shared.send_leave = true;
    c->shared.stop = true;
    pthread_mutex_unlock(&c->shared.lock);
    psc_service_poke(c);
    pthread_join(c->service, NULL);
    c->service_runs = false;
}
