/* The method changes as the last chunk of a transfer is answered: the transfer ends well, and the next one is
 * the first of the new method, over the lanes and in the codecs that the server has then. The test is the
 * server, and holds the last answer back until the client has taken the new Welcome. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

enum { N = 5000, CHUNK = 1024, CLIENT_SEQS = 8 };

/* What the server has after the change, and how many lanes before. With the first exchange or a later one,
 * and whether the answer that is held back is lost. */
struct next {
    uint32_t n_lanes;
    const char *codec;
    uint32_t lanes_before;
    bool moves; /* answers in a codec for moves, all the time; messages in raw */
    uint32_t at;
    bool lost;
};

/* A psd whose lanes share one address; one thread runs it. */
struct fake {
    struct next next;
    void *context, *control, *lane;
    char url[64], lane_url[64];
    pthread_t thread;
    atomic_bool stop, released;
    bool changed;         /* the second Welcome was said */
    zmq_msg_t worker;     /* its control connection */
    zmq_msg_t held_name;  /* its data connection, where the answer to the last chunk is held back for it */
    struct ps_frame held; /* that answer; kind 0: there is none */
    uint32_t left;        /* floats that have not come yet until then */
    atomic_int pulled, based; /* chunks */
    atomic_int of_next;       /* chunks that came after the change, over its lanes */
    bool seen[CLIENT_SEQS][N / PS_SHARD_ALIGN + 1];
    float center[N];
};

static struct fake fake;

static void send_control(struct fake *f, int what, void *message)
{
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    zmq_msg_t to;
    m.what_case = (Ps__ToClient__WhatCase)what;
    m.welcome = message; /* a union of pointers */
    zmq_msg_init(&to);
    zmq_msg_copy(&to, &f->worker);
    zmq_msg_send(&to, f->control, ZMQ_SNDMORE);
    ps_control_send(f->control, &m.base);
}

static void welcome(struct fake *f)
{
    Ps__Welcome w = PS__WELCOME__INIT;
    Ps__Method method = PS__METHOD__INIT;
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    char *lanes[] = {f->lane_url, f->lane_url};
    method.name = "async-sgd", method.rule = "sgd", method.optimizer = "none", method.admission = "fcfs";
    method.learning_rate = 1, method.period = 1;
    method.schedule = &schedule;
    method.message_codec = method.answer_codec = (char *)(uintptr_t)(f->changed ? f->next.codec : "raw");
    method.answer_codec = f->next.moves ? (char *)(uintptr_t) "int4" : method.answer_codec;
    w.client = 0, w.incarnation = 5, w.workers = 1, w.method = &method, w.transport = "tcp";
    w.generation = f->changed;
    w.landed_seq = f->changed && f->next.lost ? f->held.seq : 0;
    w.lanes = lanes, w.n_lanes = f->changed ? f->next.n_lanes : f->next.lanes_before;
    w.chunk_floats = CHUNK, w.window_chunks = 2, w.silence_ms = 600000;
    send_control(f, PS__TO_CLIENT__WHAT_WELCOME, &w);
}

static void on_control(struct fake *f)
{
    zmq_msg_t body;
    zmq_msg_init(&body);
    zmq_msg_recv(&f->worker, f->control, 0);
    zmq_msg_recv(&body, f->control, 0);
    Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
    Ps__Begun begun = PS__BEGUN__INIT;
    Ps__Alive alive = PS__ALIVE__INIT;
    begun.offer = true;
    alive.workers = 1;
    alive.generation = f->changed;
    if (m->what_case == PS__TO_SERVER__WHAT_HELLO)
        welcome(f);
    else if (m->what_case == PS__TO_SERVER__WHAT_BEGIN)
        send_control(f, PS__TO_CLIENT__WHAT_BEGUN, &begun);
    else if (m->what_case == PS__TO_SERVER__WHAT_HEARTBEAT)
        send_control(f, PS__TO_CLIENT__WHAT_ALIVE, &alive);
    ps_control_free_to_server(m);
    zmq_msg_close(&body);
}

static void answer(struct fake *f, zmq_msg_t *name, struct ps_frame frame, const char *codec)
{
    unsigned char head[PS_FRAME_BYTES], body[CHUNK * sizeof(float)];
    const struct ps_codec *c = ps_codec_named(codec);
    size_t len = frame.kind == PS_FRAME_OFFER ? 0 : c->payload_bytes(c, frame.count);
    if (len > 0)
        c->encode(c, body, f->center + frame.begin, frame.count);
    frame.codec = len > 0 ? c->id : 0;
    frame.kind = PS_FRAME_ANSWER;
    frame.rate = 1;
    ps_frame_pack(&frame, head);
    zmq_msg_send(name, f->lane, ZMQ_SNDMORE);
    zmq_send(f->lane, head, sizeof head, ZMQ_SNDMORE);
    zmq_send(f->lane, body, len, 0);
}

/* As rule sgd does with a rate of 1, each chunk of an exchange once. */
static void land(struct fake *f, const struct ps_frame *frame, const float *v)
{
    bool *seen = &f->seen[frame->seq % CLIENT_SEQS][frame->begin / PS_SHARD_ALIGN];
    bool first = !*seen;
    if (frame->kind == PS_FRAME_PULL)
        return;
    *seen = true;
    for (uint32_t i = 0; first && i < frame->count; i++)
        f->center[frame->begin + i] =
            frame->kind == PS_FRAME_OFFER ? v[i] : f->center[frame->begin + i] - v[i];
}

static void on_data(struct fake *f)
{
    unsigned char head[PS_FRAME_BYTES], body[CHUNK * sizeof(float)];
    float v[CHUNK];
    struct ps_frame frame;
    zmq_msg_t name;
    zmq_msg_init(&name);
    zmq_msg_recv(&name, f->lane, 0);
    int n = zmq_recv(f->lane, head, sizeof head, 0);
    zmq_recv(f->lane, body, sizeof body, 0);
    assert_quick(ps_frame_parse(&frame, head, (size_t)n, NULL) == 0 && frame.count <= CHUNK);
    ps_codec_find(frame.codec)->decode(ps_codec_find(frame.codec), v, body, frame.count);
    land(f, &frame, v);
    f->left -= frame.kind == PS_FRAME_EXCHANGE && !f->changed ? frame.count : 0;
    if (f->changed)
        atomic_fetch_add(&f->of_next, 1);
    f->pulled += frame.kind == PS_FRAME_PULL;
    assert_quick(frame.kind == PS_FRAME_EXCHANGE || (frame.flags & PS_FLAG_BASED) == 0); /* psd refuses it */
    f->based += (frame.flags & PS_FLAG_BASED) != 0;
    if (frame.kind == PS_FRAME_EXCHANGE && !f->changed && f->left < N && frame.begin + frame.count == N) {
        f->held = frame;
        zmq_msg_move(&f->held_name, &name);
    } else {
        answer(f, &name, frame, f->changed && frame.kind == PS_FRAME_EXCHANGE ? f->next.codec : "raw");
    }
    zmq_msg_close(&name);
    if (f->changed || f->left > 0)
        return;
    f->changed = true;
    welcome(f);
}

static void *server_thread(void *arg)
{
    struct fake *f = arg;
    while (!atomic_load(&f->stop)) {
        zmq_pollitem_t items[] = {{.socket = f->control, .events = ZMQ_POLLIN},
                                  {.socket = f->lane, .events = ZMQ_POLLIN}};
        zmq_poll(items, 2, 1);
        if (items[0].revents)
            on_control(f);
        if (items[1].revents)
            on_data(f);
        if (f->held.kind != 0 && atomic_load(&f->released) && !f->next.lost) {
            answer(f, &f->held_name, f->held, "raw");
            f->held.kind = 0;
        }
    }
    return NULL;
}

int __real_psc_pieces_take(struct psc *c);
int __wrap_psc_pieces_take(struct psc *c);

/* The last chunk's answer may be lost: then the answers to those before it are all that come. */
static bool all_answers_came(const struct psc *c)
{
    enum { BEFORE_THE_LAST = N / CHUNK };
    uint64_t before = (UINT64_C(1) << BEFORE_THE_LAST) - 1;
    return fake.next.lost ? (c->transfer_state.progress[0].answered[0] & before) == before
                          : psc_pieces_all_answered(c);
}

/* The client looks for answers once more before it closes links of the method before: the last comes now. */
int __wrap_psc_pieces_take(struct psc *c)
{
    int rc = __real_psc_pieces_take(c);
    if (!c->transfer_state.swapped || atomic_exchange(&fake.released, true))
        return rc;
    for (double end = unit_now_s() + UNIT_HANG_S; rc == PSC_OK && !all_answers_came(c);) {
        assert_quick(unit_now_s() < end);
        unit_nap_ms(1);
        rc = __real_psc_pieces_take(c);
    }
    return rc;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

/* In this thread: the call that fails, counted from the next one, which is 1; 0: none does. */
static _Thread_local int calloc_fails_at;

void *__wrap_calloc(size_t n, size_t size)
{
    return calloc_fails_at > 0 && --calloc_fails_at == 0 ? NULL : __real_calloc(n, size);
}

static void *bind_router(struct fake *f, char *url, size_t size)
{
    int zero = 0;
    void *socket = zmq_socket(f->context, ZMQ_ROUTER);
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    ck_assert_int_eq(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, url, &size);
    return socket;
}

static void fake_open(struct fake *f, const struct next *next)
{
    memset(f, 0, sizeof *f);
    f->next = *next;
    f->left = N * (next->at > 0 ? next->at : 1);
    zmq_msg_init(&f->worker);
    zmq_msg_init(&f->held_name);
    f->context = zmq_ctx_new();
    f->control = bind_router(f, f->url, sizeof f->url);
    f->lane = bind_router(f, f->lane_url, sizeof f->lane_url);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, server_thread, f), 0);
}

static void fake_close(struct fake *f)
{
    atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
    zmq_msg_close(&f->worker);
    zmq_msg_close(&f->held_name);
    zmq_close(f->control);
    zmq_close(f->lane);
    zmq_ctx_term(f->context);
}

static const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
static float x[N], g[N];

/* Rows: other lanes, as when the method goes to or from hogwild; other codecs over the same lanes; both. */
static const struct next nexts[] = {
    {2, "raw", 1}, {1, "fp16", 1}, {2, "fp16", 1}, {1, "raw", 2}, {1, "fp16", 2}};

static struct psc *join(const struct next *next)
{
    struct psc_options opt;
    struct psc *c;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 100);
        g[i] = (float)(i % 3);
    }
    fake_open(&fake, next);
    psc_options_init(&opt, sizeof opt);
    opt.server = fake.url;
    opt.retry_ms = 1u << 30; /* nothing is sent again because time has passed */
    opt.timeout_ms = 1u << 30;
    opt.heartbeat_ms = 1000;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_begin(c, &model, 1, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

START_TEST(the_next_transfer_is_made_for_the_lanes_that_are)
{
    struct psc *c = join(&nexts[_i]);
    for (int step = 1; step <= 3; step++) {
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "step %d: %s", step, psc_error(c));
        ck_assert_msg(step == 1 || c->transfer_state.shard.n_lanes == nexts[_i].n_lanes, "step %d: %u lanes",
                      step, c->transfer_state.shard.n_lanes);
        for (int i = 0; i < N; i++)
            assert_quick(x[i] == (float)(i % 100) - (float)step * (float)(i % 3));
    }
    ck_assert(atomic_load(&fake.released)); /* that order came about */
    ck_assert_int_ge(atomic_load(&fake.of_next), 2 * ((N + CHUNK - 1) / CHUNK));
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* It has landed whole: what is left of it is pulled, and a pull says nothing of the answers before. */
START_TEST(an_answer_that_is_lost_with_the_change_is_pulled)
{
    struct psc *c = join(&(struct next){1, "raw", 1, .moves = true, .at = 2, .lost = true});
    for (int step = 1; step <= 4; step++) {
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "step %d: %s", step, psc_error(c));
        for (int i = 0; i < N; i++)
            assert_quick(x[i] == (float)(i % 100) - (float)step * (float)(i % 3));
    }
    ck_assert_int_eq(fake.pulled, 1);
    ck_assert_int_gt(fake.based, 0);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* Whichever table of the new lanes has no memory: the step fails, and can be made again. */
START_TEST(lanes_without_memory_are_made_later)
{
    struct psc *c = join(&nexts[_i]);
    int failed = 0, rc = psc_step(c, x, g, 1);
    ck_assert_msg(rc == PSC_OK, "%s", psc_error(c));
    for (rc = PSC_ENOMEM; rc == PSC_ENOMEM; failed += rc == PSC_ENOMEM) {
        calloc_fails_at = failed + 1;
        rc = psc_step(c, x, g, 1);
        calloc_fails_at = 0;
    }
    ck_assert_msg(rc == PSC_OK, "after %d without memory: %s", failed, psc_error(c));
    ck_assert(failed >= 5 * (int)nexts[_i].n_lanes || nexts[_i].n_lanes == nexts[_i].lanes_before);
    for (int i = 0; i < N; i++)
        assert_quick(x[i] == (float)(i % 100) - 2 * (float)(i % 3));
    psc_close(c);
    fake_close(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-answered-last");
    TCase *tc = tcase_create("answered-last");
    tcase_add_loop_test(tc, the_next_transfer_is_made_for_the_lanes_that_are, 0, ROWS(nexts));
    tcase_add_test(tc, an_answer_that_is_lost_with_the_change_is_pulled);
    tcase_add_loop_test(tc, lanes_without_memory_are_made_later, 0, ROWS(nexts));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
