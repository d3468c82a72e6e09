/* Elastic exchanges in place over shared memory, against lanes that the test scripts: what was taken back,
 * what was begun, and lanes that go and come back. x and the center move towards each other, each by a
 * quarter of the way, each float once, whatever happens meanwhile. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "client/psclient.h"
#include "client/internal.h"
#include "proto/log.h"
#include "proto/transports/shm/shm.h"
#include "proto/unix_socket.h"
#include "proto/wire/control.h"
#include "tests/support/unit.h"

enum { CHUNK = 1024, N = 2 * CHUNK, WINDOW = 4, HELD = 2, NO_RETRY_MS = 30000 };

/* A psd of one lane; one thread runs it. */
struct fake {
    void (*on_exchange)(struct fake *f, struct ps_message *m, const struct ps_frame *frame);
    void (*on_turn)(struct fake *f); /* now and then */
    void *context, *control;
    struct ps_hub *hub;
    struct ps_port *port;
    char url[64], lane_url[100];
    pthread_t thread;
    atomic_bool stop;
    struct ps_message held[HELD];
    struct ps_frame frames[HELD];
    int n_held, n_tries;
    struct ps_unix_socket stand_in;
    const char *admission; /* NULL: fcfs */
    uint32_t retry_ms;     /* of the client; 0: 50 */
    bool under_way;        /* as its last Hello said */
    int n_hellos;          /* the second and later ones find a psd that has come back from its checkpoint */
    unsigned char name[64];
    size_t name_bytes; /* of the connection that said Hello last */
    bool landed[N / CHUNK];
    atomic_int in_place, staged, stage;
    float center[N];
};

static const struct ps_transport *shm(void)
{
    return ps_transport_find("shm");
}

static void send_control(struct fake *f, zmq_msg_t *id, int what, void *message)
{
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    m.what_case = (Ps__ToClient__WhatCase)what;
    m.welcome = message; /* a union of pointers */
    zmq_msg_send(id, f->control, ZMQ_SNDMORE);
    ps_control_send(f->control, &m.base);
}

/* As psd, which makes a new pass for each Hello, and whose lanes know none when they are opened. */
static void admit(struct fake *f)
{
    const struct ps_pass pass = {.client = 0, .incarnation = 5, .token = {(unsigned char)f->n_hellos}};
    if (f->port != NULL)
        assert_quick(shm()->port_admit(f->port, &pass) == 0);
}

static void on_hello(struct fake *f, zmq_msg_t *id)
{
    Ps__Welcome w = PS__WELCOME__INIT;
    Ps__Method method = PS__METHOD__INIT;
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    Ps__Road road = PS__ROAD__INIT, *roads[] = {&road};
    unsigned char token[PS_PASS_TOKEN_BYTES] = {(unsigned char)(f->n_hellos + 1)};
    char *lanes[] = {f->lane_url}, *plain[] = {"tcp://127.0.0.1:1"};
    method.name = "async-easgd", method.rule = "elastic", method.optimizer = "sgd", method.admission = "fcfs";
    method.learning_rate = 1, method.period = 1, method.alpha = 0.25;
    method.schedule = &schedule;
    if (f->admission != NULL)
        method.admission = (char *)(uintptr_t)f->admission;
    f->name_bytes = zmq_msg_size(id) < sizeof f->name ? zmq_msg_size(id) : 0;
    memcpy(f->name, zmq_msg_data(id), f->name_bytes);
    w.revival = ++f->n_hellos > 1 ? 77 : 0;
    road.transport = "shm", road.lanes = lanes, road.n_lanes = 1, road.window_chunks = WINDOW;
    w.client = 0, w.incarnation = 5, w.workers = 1, w.method = &method, w.transport = "tcp";
    w.lanes = plain, w.n_lanes = 1, w.chunk_floats = CHUNK, w.window_chunks = WINDOW, w.silence_ms = 1000;
    w.roads = roads, w.n_roads = 1;
    w.pass.data = token, w.pass.len = sizeof token;
    admit(f);
    send_control(f, id, PS__TO_CLIENT__WHAT_WELCOME, &w);
}

static void on_control(struct fake *f)
{
    zmq_msg_t id, body;
    zmq_msg_init(&id);
    zmq_msg_init(&body);
    zmq_msg_recv(&id, f->control, 0);
    zmq_msg_recv(&body, f->control, 0);
    Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
    Ps__Begun begun = PS__BEGUN__INIT;
    Ps__Alive alive = PS__ALIVE__INIT;
    begun.offer = true;
    alive.workers = 1;
    if (m->what_case == PS__TO_SERVER__WHAT_HELLO) {
        f->under_way = m->hello->under_way != 0;
        on_hello(f, &id);
    } else if (m->what_case == PS__TO_SERVER__WHAT_BEGIN)
        send_control(f, &id, PS__TO_CLIENT__WHAT_BEGUN, &begun);
    else if (m->what_case == PS__TO_SERVER__WHAT_HEARTBEAT)
        send_control(f, &id, PS__TO_CLIENT__WHAT_ALIVE, &alive);
    ps_control_free_to_server(m);
    zmq_msg_close(&id);
    zmq_msg_close(&body);
}

static void answer(struct fake *f, struct ps_message *m, struct ps_frame frame, const float *body)
{
    frame.kind = PS_FRAME_ANSWER;
    frame.rate = 0.25f;
    assert_quick(shm()->message_body(m, body != NULL ? frame.count * sizeof *body : 0) == 0);
    if (body != NULL)
        memcpy(m->body, body, frame.count * sizeof *body);
    ps_frame_pack(&frame, m->head);
    shm()->port_reply(f->port, m);
}

/* As a lane: the rule once, both halves of it in place. The floats of a chunk have one value. */
static void serve_exchange(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    float before[CHUNK], *x = (float *)(void *)m->body, *center = f->center + frame->begin;
    bool in_place = m->ownership == PS_BODY_IN_PLACE, *landed = &f->landed[frame->begin / CHUNK];
    memcpy(before, center, frame->count * sizeof *before);
    atomic_fetch_add(in_place ? &f->in_place : &f->staged, 1);
    for (uint32_t i = 0; !*landed && i < frame->count; i++) {
        float apart = x[i] - center[i];
        center[i] += 0.25f * apart;
        if (in_place)
            x[i] -= 0.25f * apart;
    }
    *landed = true;
    answer(f, m, *frame, in_place ? NULL : before);
}

static void on_data(struct fake *f, struct ps_message *m)
{
    struct ps_frame frame;
    assert_quick(ps_frame_parse(&frame, m->head, m->head_bytes, NULL) == 0);
    if (frame.kind == PS_FRAME_OFFER) {
        memset(f->center + frame.begin, 0, frame.count * sizeof *f->center);
        answer(f, m, frame, NULL);
    } else {
        f->on_exchange(f, m, &frame);
    }
}

static void open_lane(struct fake *f)
{
    static const struct ps_transport_limits limits = {CHUNK * sizeof(float) + PS_MAX_SENTENCE, WINDOW, 1};
    struct ps_error err = {""};
    assert_quick(shm()->hub_create(1, &f->hub) == 0);
    assert_quick(shm()->port_open(f->hub, f->lane_url, &limits, &f->port, &err) == 0);
}

static void close_lane(struct fake *f)
{
    shm()->port_close(f->port);
    shm()->hub_destroy(f->hub);
    f->port = NULL;
}

static void *writer_thread(void *arg)
{
    struct fake *f = arg;
    struct ps_message m;
    while (!atomic_load(&f->stop)) {
        zmq_pollitem_t item = {.socket = f->control, .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, 1);
        if (item.revents)
            on_control(f);
        while (f->port != NULL && shm()->port_recv(f->port, &m) == 0)
            on_data(f, &m);
        if (f->on_turn != NULL)
            f->on_turn(f);
    }
    return NULL;
}

static void fake_open(struct fake *f)
{
    size_t size = sizeof f->url;
    int zero = 0;
    f->context = zmq_ctx_new();
    f->control = zmq_socket(f->context, ZMQ_ROUTER);
    zmq_setsockopt(f->control, ZMQ_LINGER, &zero, sizeof zero);
    ck_assert_int_eq(zmq_bind(f->control, "tcp://127.0.0.1:*"), 0);
    zmq_getsockopt(f->control, ZMQ_LAST_ENDPOINT, f->url, &size);
    snprintf(f->lane_url, sizeof f->lane_url, "shm:///tmp/psd-test-in-place-%d", (int)getpid());
    open_lane(f);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, writer_thread, f), 0);
}

/* From then on what it had is this thread's to look at. */
static void fake_stop(struct fake *f)
{
    if (!atomic_exchange(&f->stop, true))
        pthread_join(f->thread, NULL);
}

static void fake_close(struct fake *f)
{
    fake_stop(f);
    if (f->port != NULL)
        close_lane(f);
    zmq_close(f->control);
    zmq_ctx_term(f->context);
}

static const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
static const float g[N];

static int open_only(struct fake *f, const char *transport, uint32_t timeout_ms, struct psc **c)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = f->url;
    opt.transport = transport;
    opt.timeout_ms = timeout_ms;
    opt.retry_ms = f->retry_ms > 0 ? f->retry_ms : 50;
    opt.heartbeat_ms = timeout_ms / 20;
    return psc_open(&opt, c);
}

static int join(struct fake *f, uint32_t timeout_ms, struct psc **c, float **x)
{
    int rc = open_only(f, "shm", timeout_ms, c);
    if (rc == PSC_OK)
        rc = psc_alloc(*c, N, x);
    if (rc == PSC_OK)
        rc = psc_begin(*c, &model, 1, *x);
    for (int i = 0; rc == PSC_OK && i < N; i++)
        (*x)[i] = 8;
    return rc;
}

/* The first, once, of x = 8 and center = 0. */
static void assert_moved_once(const struct fake *f, const float *x)
{
    for (int i = 0; i < N; i++)
        ck_assert_msg(x[i] == 6 && f->center[i] == 2, "x[%d] is %g, the center's %g", i, (double)x[i],
                      (double)f->center[i]);
}

/* Keeps the two chunks of the first attempt, the first of them begun. */
static void keep(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    if (f->n_held == HELD && m->ownership == PS_BODY_IN_PLACE && !shm()->message_begin(m)) {
        shm()->message_drop(m); /* it took so long that the client sends it again */
        return;
    }
    if (f->n_held == HELD) {
        serve_exchange(f, m, frame);
        return;
    }
    if (f->n_held == 0)
        assert_quick(shm()->message_begin(m));
    f->frames[f->n_held] = *frame;
    shm()->message_move(&f->held[f->n_held++], m);
}

static bool is_taken_back(const struct ps_message *m)
{
    const struct ps_shm_held *held = ps_shm_held_of(m);
    return atomic_load(&held->client->region.claims[held->slot].state) == PS_SHM_TAKEN_BACK;
}

/* The client waits no longer: now the lane goes on. */
static void go_on_late(struct fake *f)
{
    if (atomic_load(&f->stage) != 0 || f->n_held < HELD || !is_taken_back(&f->held[1]))
        return;
    atomic_store(&f->stage, 1);
    serve_exchange(f, &f->held[0], &f->frames[0]);
    assert_quick(!shm()->message_begin(&f->held[1]));
    shm()->message_drop(&f->held[1]);
}

/* One chunk was begun, and is done though its answer is late; the other was taken back and is sent again. */
START_TEST(each_float_moves_once_whatever_stood_still)
{
    struct fake f = {.on_exchange = keep, .on_turn = go_on_late};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join(&f, 60000, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    fake_stop(&f);
    assert_moved_once(&f, x);
    ck_assert_int_eq(f.in_place, 1);
    ck_assert_int_ge(f.staged, 1);
    psc_close(c);
    fake_close(&f);
}
END_TEST

static void write_late(struct fake *f)
{
    if (atomic_load(&f->stage) != 1)
        return;
    memset(f->held[0].body, 0x7f, f->held[0].body_bytes);
    for (int i = 0; i < HELD; i++)
        shm()->message_drop(&f->held[i]);
    atomic_store(&f->stage, 2);
}

/* A lane that stays in the vector for longer than the call waits: what it writes then is not in x. */
START_TEST(a_vector_is_left_to_who_does_not_let_go)
{
    struct fake f = {.on_exchange = keep, .on_turn = write_late};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join(&f, 2000, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EGONE);
    atomic_store(&f.stage, 1);
    while (atomic_load(&f.stage) != 2)
        unit_nap_ms(1);
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(x[i], 8);
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    psc_info(c, &before);
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    psc_info(c, &after);
    fake_stop(&f);
    assert_moved_once(&f, x);
    if (after.retries == before.retries) /* in place again, unless it took longer than retry_ms */
        ck_assert_int_eq(f.in_place, 2);
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* The lane refuses floats that are not there for not being finite. */
static void refuse_too_many(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    struct ps_frame refusal = *frame;
    refusal.kind = PS_FRAME_ERROR;
    refusal.code = PS__CODE__VALUE;
    refusal.begin = 0;
    refusal.count = UINT32_MAX;
    assert_quick(shm()->message_body(m, 0) == 0);
    ps_frame_pack(&refusal, m->head);
    shm()->port_reply(f->port, m);
}

START_TEST(a_refusal_of_floats_that_are_not_there_is_no_place_to_look)
{
    struct fake f = {.on_exchange = refuse_too_many};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join(&f, 60000, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EEVICTED);
    assert_says(psc_error(c), "the server refused floats 0 +4294967295");
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* The lane goes with the first chunk in its hands, as a psd that is killed; others then hear its address. */
static void die(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    struct ps_error err;
    if (atomic_load(&f->stage) == 2) {
        assert_quick(shm()->message_begin(m) || m->ownership != PS_BODY_IN_PLACE);
        serve_exchange(f, m, frame);
        return;
    }
    shm()->message_drop(m);
    close_lane(f);
    atomic_store(&f->stage, 1);
    assert_quick(ps_unix_socket_listen(f->lane_url + strlen("shm://"), "stand-in", &f->stand_in, &err) == 0);
}

static void take_place(struct fake *f)
{
    ps_unix_socket_remove(&f->stand_in);
    close(f->stand_in.fd);
    atomic_store(&f->stage, 2);
    open_lane(f);
}

/* Hangs up on whoever comes, as often as it is told to; then the lane is there again. */
static void restart_server(struct fake *f)
{
    int fd = atomic_load(&f->stage) == 1 ? accept(f->stand_in.fd, NULL, NULL) : -1;
    if (fd < 0)
        return;
    close(fd);
    if (++f->n_tries < 3)
        return;
    take_place(f);
    admit(f); /* the client says no other Hello: its lanes were away, and not psd */
}

/* A restart of psd is waited for, whatever transport is asked for. */
START_TEST(lanes_that_come_back_are_waited_for)
{
    struct fake f = {.on_exchange = die, .on_turn = restart_server};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join(&f, 60000, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    fake_stop(&f);
    assert_moved_once(&f, x);
    ck_assert_int_eq(f.n_tries, 3);
    psc_close(c);
    fake_close(&f);
}
END_TEST

static void forget_client(struct fake *f)
{
    Ps__Error error = PS__ERROR__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    error.code = PS__CODE__NO_SESSION;
    error.sentence = "no such session";
    m.what_case = PS__TO_CLIENT__WHAT_ERROR;
    m.error = &error;
    zmq_send(f->control, f->name, f->name_bytes, ZMQ_SNDMORE);
    ps_control_send(f->control, &m.base);
}

/* As a psd that is killed when it has answered the first chunk and has begun to move the second, and that
 * comes back from a checkpoint without either. */
static void die_within(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    bool in_place = m->ownership == PS_BODY_IN_PLACE;
    assert_quick(shm()->message_begin(m) || !in_place);
    if (f->n_hellos > 1 || !f->landed[0]) {
        serve_exchange(f, m, frame);
        return;
    }
    assert_quick(in_place);
    memset(m->body, 0, m->body_bytes / 2);
    shm()->message_drop(m);
    close_lane(f);
    memset(f->center, 0, sizeof f->center);
    memset(f->landed, 0, sizeof f->landed);
    open_lane(f);
    forget_client(f);
}

/* Where exchanges wait for each other, one that was cut is sent again whole. */
START_TEST(what_was_moved_in_place_moves_once_over_a_restart)
{
    struct fake f = {.on_exchange = die_within, .admission = "round-robin", .retry_ms = 5000};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join(&f, 60000, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    fake_stop(&f);
    assert_moved_once(&f, x);
    ck_assert_int_gt(f.n_hellos, 1);
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* As the kernel ends a killed process's connections: without an answer to the message that it has. */
static void vanish(struct fake *f, struct ps_message *m)
{
    shm()->message_move(&f->held[0], m);
    shutdown(ps_shm_held_of(&f->held[0])->client->socket, SHUT_RDWR);
    close_lane(f);
    memset(f->center, 0, sizeof f->center);
    memset(f->landed, 0, sizeof f->landed);
}

/* The same in the middle of the second chunk. Its clients learn of it from their links, and some time later
 * that there is another psd. */
static void vanish_within(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    struct ps_error err;
    float *x = (float *)(void *)m->body;
    assert_quick(shm()->message_begin(m) || m->ownership != PS_BODY_IN_PLACE);
    if (f->n_hellos > 1 || !f->landed[0]) {
        serve_exchange(f, m, frame);
        return;
    }
    assert_quick(m->ownership == PS_BODY_IN_PLACE);
    for (int i = 0; i < CHUNK / 2; i++)
        x[i] = 6;
    vanish(f, m);
    atomic_store(&f->stage, 1);
    assert_quick(ps_unix_socket_listen(f->lane_url + strlen("shm://"), "stand-in", &f->stand_in, &err) == 0);
}

static void return_late(struct fake *f)
{
    bool away = f->port == NULL;
    restart_server(f);
    if (away && f->port != NULL)
        forget_client(f);
}

static void step_over_restart(struct fake *f, struct psc **c, float **x)
{
    fake_open(f);
    ck_assert_msg(join(f, 60000, c, x) == PSC_OK, "%s", psc_error(*c));
    ck_assert_msg(psc_step(*c, *x, g, 1) == PSC_OK, "%s", psc_error(*c));
}

static void end(struct fake *f, struct psc *c)
{
    psc_close(c);
    shm()->message_drop(&f->held[0]);
    fake_close(f);
}

START_TEST(what_was_moved_in_place_moves_once_when_psd_is_back_later)
{
    struct fake f = {.on_exchange = vanish_within,
                     .on_turn = return_late,
                     .admission = "round-robin",
                     .retry_ms = NO_RETRY_MS};
    struct psc *c = NULL;
    float *x;
    step_over_restart(&f, &c, &x);
    fake_stop(&f);
    assert_moved_once(&f, x);
    ck_assert_int_gt(f.n_hellos, 1);
    end(&f, c);
}
END_TEST

/* Elsewhere nothing is kept. What psd had moved when it was killed is not sent again: the center lacks it, as
 * the chunk that was answered. The next exchange is of all of x. */
START_TEST(what_was_moved_in_part_does_not_move_again)
{
    struct fake f = {.on_exchange = vanish_within, .on_turn = return_late, .retry_ms = NO_RETRY_MS};
    struct psc *c = NULL;
    float *x;
    step_over_restart(&f, &c, &x);
    for (int i = 0; i < N; i++)
        ck_assert_msg(x[i] == (i < CHUNK + CHUNK / 2 ? 6 : 8), "x[%d] is %g", i, (double)x[i]);
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    fake_stop(&f);
    for (int i = 0; i < N; i++) {
        float was = i < CHUNK + CHUNK / 2 ? 6 : 8;
        ck_assert_msg(x[i] == 0.75f * was && f.center[i] == 0.25f * was, "x[%d] is %g, the center's %g", i,
                      (double)x[i], (double)f.center[i]);
    }
    end(&f, c);
}
END_TEST

/* The test says when. */
static void return_when_told(struct fake *f)
{
    if (atomic_load(&f->stage) != 3)
        return;
    take_place(f);
    forget_client(f);
}

/* psd counts it among the exchanges that are lost, although the worker has ended it. */
START_TEST(what_was_lost_with_psd_is_told_to_the_next)
{
    struct fake f = {.on_exchange = vanish_within, .on_turn = return_when_told, .retry_ms = NO_RETRY_MS};
    struct psc *c = NULL;
    struct psc_info info = {.size = sizeof info};
    float *x;
    step_over_restart(&f, &c, &x);
    atomic_store(&f.stage, 3);
    while (info.reconnects == 0) {
        psc_info(c, &info);
        unit_nap_ms(1);
    }
    fake_stop(&f);
    ck_assert(f.under_way);
    end(&f, c);
}
END_TEST

/* They do not come back: the call ends when its time is up, and says for what it waited. */
static void die_for_good(struct fake *f, struct ps_message *m, const struct ps_frame *frame)
{
    (void)frame;
    shm()->message_drop(m);
    close_lane(f);
}

START_TEST(lanes_that_stay_away_end_the_wait)
{
    struct fake f = {.on_exchange = die_for_good};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join(&f, 2000, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EGONE);
    assert_says(psc_error(c), "(timeout_ms: 2000); shm: ");
    assert_says(psc_error(c), "this user can reach no lane there");
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* Nobody has ever been there, and the server lives: it is on another machine. */
START_TEST(lanes_that_never_were_are_not_waited_for)
{
    struct fake f = {.on_exchange = die_for_good};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    strcat(f.lane_url, "-elsewhere");
    ck_assert_int_eq(join(&f, 60000, &c, &x), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "options.transport is 'shm'; the server offers shm, tcp: shm: ");
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* The same as join, but x is allocated when the links are open. */
static int join_first(struct fake *f, struct psc **c, float **x)
{
    static float start[N];
    int rc = open_only(f, "shm", 60000, c);
    if (rc == PSC_OK)
        rc = psc_begin(*c, &model, 1, start);
    if (rc == PSC_OK)
        rc = psc_alloc(*c, N, x);
    for (int i = 0; rc == PSC_OK && i < N; i++)
        (*x)[i] = 8;
    return rc;
}

/* The lane cannot reach the vector, and gets a copy at once: sent in place, it would leave only after
 * retry_ms, over new links. */
START_TEST(memory_that_came_after_the_links_is_copied)
{
    struct fake f = {.on_exchange = serve_exchange, .retry_ms = NO_RETRY_MS};
    struct psc *c = NULL;
    float *x;
    fake_open(&f);
    ck_assert_msg(join_first(&f, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    fake_stop(&f);
    assert_moved_once(&f, x);
    ck_assert_int_eq(f.in_place, 0);
    ck_assert_int_ge(f.staged, N / CHUNK);
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* The next links know it. */
START_TEST(memory_that_came_after_the_links_is_reached_over_the_next)
{
    struct fake f = {.on_exchange = die, .on_turn = restart_server};
    struct psc *c = NULL;
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    float *x;
    fake_open(&f);
    ck_assert_msg(join_first(&f, &c, &x) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    ck_assert_int_eq(f.in_place, 0);
    psc_info(c, &before);
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    psc_info(c, &after);
    fake_stop(&f);
    if (after.retries == before.retries) { /* else it took longer than retry_ms */
        ck_assert_int_eq(f.in_place, N / CHUNK);
        assert_moved_once(&f, x);
    }
    psc_close(c);
    fake_close(&f);
}
END_TEST

/* No transport of ours reaches a GPU's memory, and nobody copies from there. */
START_TEST(a_devices_memory_is_never_copied_from)
{
    static const char *const ways[] = {"auto", "shm", "tcp"};
    struct fake f = {.on_exchange = die_for_good};
    fake_open(&f);
    for (size_t i = 0; i < ROWS(ways); i++) {
        struct psc *c = NULL;
        float *x;
        ck_assert_int_eq(open_only(&f, ways[i], 60000, &c), PSC_OK);
        ck_assert_int_eq(psc_alloc(c, N, &x), PSC_OK);
        c->buffers[PSC_BUFFER_OWN + 1].kind = PS_BUFFER_DEVICE;
        ck_assert_int_eq(psc_begin(c, &model, 1, x), i == 0 ? PSC_ESYSTEM : PSC_EUNSUPPORTED);
        assert_says(psc_error(c), "does not reach");
        psc_close(c);
    }
    fake_close(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-in-place");
    TCase *tc = tcase_create("in-place");
    ps_log_setup("test", PS_LOG_ERROR);
    tcase_add_test(tc, each_float_moves_once_whatever_stood_still);
    tcase_add_test(tc, a_vector_is_left_to_who_does_not_let_go);
    tcase_add_test(tc, a_refusal_of_floats_that_are_not_there_is_no_place_to_look);
    tcase_add_test(tc, lanes_that_come_back_are_waited_for);
    tcase_add_test(tc, what_was_moved_in_place_moves_once_over_a_restart);
    tcase_add_test(tc, what_was_moved_in_place_moves_once_when_psd_is_back_later);
    tcase_add_test(tc, what_was_moved_in_part_does_not_move_again);
    tcase_add_test(tc, what_was_lost_with_psd_is_told_to_the_next);
    tcase_add_test(tc, lanes_that_stay_away_end_the_wait);
    tcase_add_test(tc, lanes_that_never_were_are_not_waited_for);
    tcase_add_test(tc, memory_that_came_after_the_links_is_copied);
    tcase_add_test(tc, memory_that_came_after_the_links_is_reached_over_the_next);
    tcase_add_test(tc, a_devices_memory_is_never_copied_from);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
