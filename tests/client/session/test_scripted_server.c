/* The library against a server that the test scripts: what a real psd would not say, or say wrong. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "client/psclient.h"
#include "proto/codecs/codec.h"
#include "proto/model/method.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

enum { N = 5000, CHUNK = 1024 };

/* What the server does wrong. */
struct script {
    void (*spoil)(Ps__Welcome *w);
    uint32_t hello_error;  /* Ps__Code: answers Hello with an error */
    bool garbage;          /* answers Hello with bytes that are no message */
    int lose;              /* loses every lose-th answer of the lane; 0: none */
    bool shift;            /* sends stray answers of odd sizes first, so that bodies lie at odd addresses */
    uint16_t data_error;   /* answers exchanges with this code */
    int stale;             /* so many chunks of exchanges get STALE first, and land nothing */
    bool short_answers;    /* answers lack a float */
    bool restarts;         /* comes back from a checkpoint in the middle of an exchange: on_life */
    int before_restart;    /* chunks of exchanges that it answers before; 0: 2 */
    float alpha;           /* its answers' rate, and its center stays as it was offered; 0: as rule sgd */
    uint32_t heartbeat_ms; /* 0: a loaded machine must not look like a lost server */
    const char *codec;     /* of messages, with error feedback; NULL: raw */
    int strange;       /* so many chunks of exchanges are answered as by a control socket, and land nothing */
    bool strange_once; /* after Begun comes what is no control message */
    void (*other)(
        Ps__Welcome *w); /* knows no client any more at the first exchange, and is another one then */
};

/* What a ROUTER calls a connection. */
struct name {
    unsigned char bytes[64];
    size_t n;
};

struct fake {
    struct script script;
    void *context, *control, *lane;
    char url[64], lane_url[64];
    pthread_t thread;
    atomic_bool stop;
    atomic_int hellos, requests, landed;
    _Atomic uint64_t ended;        /* as the last heartbeat said */
    atomic_int n_stale, n_strange; /* answered so */
    bool seen[3][16];              /* by seq, chunk: what landed */
    float center[N];
    float message[3][N]; /* by seq: the last that came of an exchange */
    /* Of a server that restarts. */
    int life;                    /* Hellos so far */
    bool gone;                   /* says and hears nothing until the next Hello */
    int answered;                /* chunks of the exchange in this life */
    bool has_answer[16];         /* by chunk, since it came back: the client knows */
    int asked_again;             /* chunks that came once more though the client has their answer */
    struct name control_name;    /* of the connection that said Hello last */
    float saved[N];              /* the checkpoint: the center as it was offered */
    struct name link, dead_link; /* data connections: the newest; that of the run before */
};

static struct name name_of(zmq_msg_t *id)
{
    struct name name = {.n = zmq_msg_size(id)};
    ck_assert_uint_le(name.n, sizeof name.bytes);
    memcpy(name.bytes, zmq_msg_data(id), name.n);
    return name;
}

static bool is_same(const struct name *a, const struct name *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static void send_control(struct fake *f, zmq_msg_t *id, int what, void *message)
{
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    m.what_case = (Ps__ToClient__WhatCase)what;
    m.welcome = message; /* a union of pointers */
    zmq_msg_send(id, f->control, ZMQ_SNDMORE);
    ps_control_send(f->control, &m.base);
}

/* The first Hello begins the session. The second comes to the server's next run, and its Welcome is lost: the
 * third's names that run, and so does the fourth's, to a client that knows. False: no Welcome. */
static bool restart_server(struct fake *f, zmq_msg_t *id, Ps__Welcome *w)
{
    (void)id;
    f->life++;
    f->answered = 0;
    f->gone = f->life == 2;
    f->dead_link = f->link;
    w->revival = f->life > 2 ? 77 : 0;
    return !f->gone;
}

/* What its client's connection ends with. */
static void forget_client(struct fake *f)
{
    Ps__Error error = PS__ERROR__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    error.code = PS__CODE__NO_SESSION;
    error.sentence = "no such session";
    m.what_case = PS__TO_CLIENT__WHAT_ERROR;
    m.error = &error;
    f->gone = true;
    zmq_send(f->control, f->control_name.bytes, f->control_name.n, ZMQ_SNDMORE);
    ps_control_send(f->control, &m.base);
}

/* Whether this chunk of an exchange is taken. The run before the restart answers two, which it then forgets;
 * after it a connection ends when three are answered. */
static bool on_life(struct fake *f, const struct ps_frame *frame)
{
    uint32_t k = frame->begin / (CHUNK - 64);
    int first = f->script.before_restart > 0 ? f->script.before_restart : 2;
    f->asked_again += f->life > 3 && f->has_answer[k];
    if (f->answered == (f->life == 1 ? first : f->life == 3 ? 3 : 16)) {
        forget_client(f);
        if (f->life == 1) {
            memcpy(f->center, f->saved, sizeof f->center);
            memset(f->seen[frame->seq % 3], 0, sizeof f->seen[0]);
        }
        return false;
    }
    f->has_answer[k] = f->life > 1 && f->answered < 2; /* of a window of two: it has sent the fourth */
    f->answered++;
    return true;
}

static void on_hello(struct fake *f, zmq_msg_t *id)
{
    Ps__Welcome w = PS__WELCOME__INIT;
    Ps__Method method = PS__METHOD__INIT;
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    Ps__Error error = PS__ERROR__INIT;
    char *lanes[] = {f->lane_url};
    atomic_fetch_add(&f->hellos, 1);
    f->control_name = name_of(id);
    if (f->script.restarts && !restart_server(f, id, &w))
        return;
    if (f->script.garbage) {
        zmq_msg_send(id, f->control, ZMQ_SNDMORE);
        zmq_send(f->control, "\xff\xff\xff", 3, 0);
        return;
    }
    if (f->script.hello_error != 0) {
        error.code = (Ps__Code)f->script.hello_error;
        error.sentence = "protocol version 1; this psd speaks 99";
        error.fatal = true;
        send_control(f, id, PS__TO_CLIENT__WHAT_ERROR, &error);
        return;
    }
    method.name = "async-sgd", method.rule = "sgd", method.optimizer = "none";
    method.learning_rate = 1, method.period = 1;
    method.schedule = &schedule;
    if (f->script.restarts) /* exchanges wait for each other: the one that was cut comes again whole */
        method.admission = "sync";
    if (f->script.codec != NULL)
        method.message_codec = (char *)(uintptr_t)f->script.codec, method.error_feedback = true;
    w.client = 0, w.incarnation = 5, w.workers = 1, w.method = &method, w.transport = "tcp";
    w.lanes = lanes, w.n_lanes = 1, w.chunk_floats = CHUNK, w.window_chunks = 2, w.silence_ms = 1000;
    if (f->script.spoil != NULL)
        f->script.spoil(&w);
    if (f->script.other != NULL && f->gone)
        f->script.other(&w);
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
    if (m->what_case == PS__TO_SERVER__WHAT_HELLO)
        on_hello(f, &id);
    else if (m->what_case == PS__TO_SERVER__WHAT_BEGIN) {
        zmq_msg_t again;
        zmq_msg_init(&again);
        zmq_msg_copy(&again, &id);
        send_control(f, &id, PS__TO_CLIENT__WHAT_BEGUN, &begun);
        if (f->script.strange_once) {
            zmq_msg_send(&again, f->control, ZMQ_SNDMORE);
            zmq_send(f->control, "\xff\xff\xff", 3, 0);
        }
        zmq_msg_close(&again);
    } else if (m->what_case == PS__TO_SERVER__WHAT_HEARTBEAT) {
        atomic_store(&f->ended, m->heartbeat->ended);
        send_control(f, &id, PS__TO_CLIENT__WHAT_ALIVE, &alive);
    }
    ps_control_free_to_server(m);
    zmq_msg_close(&id);
    zmq_msg_close(&body);
}

static void send_data(struct fake *f, zmq_msg_t *id, const struct ps_frame *frame, const void *body,
                      size_t len)
{
    unsigned char head[PS_FRAME_BYTES];
    zmq_msg_t copy;
    zmq_msg_init(&copy);
    zmq_msg_copy(&copy, id);
    ps_frame_pack(frame, head);
    zmq_msg_send(&copy, f->lane, ZMQ_SNDMORE);
    zmq_send(f->lane, head, sizeof head, ZMQ_SNDMORE);
    zmq_send(f->lane, body, len, 0);
}

/* Moves the center as rule sgd does with a rate of 1, each chunk of an exchange once. */
static void land(struct fake *f, const struct ps_frame *frame, const float *body)
{
    float decoded[CHUNK];
    struct ps_codec codec;
    bool *seen = &f->seen[frame->seq % 3][frame->begin / (CHUNK - 64)];
    if (frame->kind == PS_FRAME_PULL || *seen)
        return;
    *seen = true;
    atomic_fetch_add(&f->landed, 1);
    if (frame->codec != 0 && ps_codec_of(f->script.codec, &codec) == NULL) {
        codec.decode(&codec, decoded, body, frame->count);
        body = decoded;
    }
    if (frame->kind == PS_FRAME_EXCHANGE && f->script.alpha > 0) {
        memcpy(f->message[frame->seq % 3] + frame->begin, body, frame->count * sizeof *body);
        return;
    }
    for (uint32_t i = 0; i < frame->count; i++)
        f->center[frame->begin + i] = frame->kind == PS_FRAME_OFFER || frame->kind == PS_FRAME_SET
                                          ? body[i]
                                          : f->center[frame->begin + i] - body[i];
}

static void on_data(struct fake *f)
{
    unsigned char head[PS_FRAME_BYTES];
    float body[CHUNK];
    struct ps_frame frame;
    zmq_msg_t id;
    zmq_msg_init(&id);
    zmq_msg_recv(&id, f->lane, 0);
    int head_bytes = zmq_recv(f->lane, head, sizeof head, 0);
    zmq_recv(f->lane, body, sizeof body, 0);
    int n = atomic_fetch_add(&f->requests, 1) + 1;
    f->link = name_of(&id);
    bool late = is_same(&f->link, &f->dead_link); /* a server that was restarted would not get it */
    if (!late && ps_frame_parse(&frame, head, (size_t)head_bytes, NULL) == 0) {
        bool offer = frame.kind == PS_FRAME_OFFER, exchange = frame.kind == PS_FRAME_EXCHANGE,
             set = frame.kind == PS_FRAME_SET;
        if (f->script.other != NULL && exchange && !f->gone)
            forget_client(f);
        if (f->gone || (f->script.restarts && (exchange || set) && !on_life(f, &frame))) {
            zmq_msg_close(&id);
            return;
        }
        bool stale = exchange && atomic_load(&f->n_stale) < f->script.stale;
        bool strange = exchange && atomic_load(&f->n_strange) < f->script.strange;
        if (!stale && !strange)
            land(f, &frame, body);
        if (offer)
            memcpy(f->saved, f->center, sizeof f->saved);
        struct ps_frame stray = {.kind = PS_FRAME_ANSWER, .count = 1};
        if (f->script.shift)
            send_data(f, &id, &stray, "0123456789", (size_t)n % 8);
        frame.kind = PS_FRAME_ANSWER;
        frame.codec = 0;
        frame.rate = f->script.alpha > 0 ? f->script.alpha : 1;
        size_t len =
            offer || set ? 0 : frame.count * sizeof(float) - (f->script.short_answers ? sizeof(float) : 0);
        if (strange) {
            static const char sentence[] = "a control message has one part (MALFORMED)";
            atomic_fetch_add(&f->n_strange, 1);
            zmq_msg_send(&id, f->lane, ZMQ_SNDMORE);
            zmq_send(f->lane, sentence, sizeof sentence, 0);
        } else if (stale) {
            atomic_fetch_add(&f->n_stale, 1);
            frame.kind = PS_FRAME_ERROR;
            frame.code = PS__CODE__STALE;
            send_data(f, &id, &frame, "another job's incarnation", 25);
        } else if (exchange && f->script.data_error != 0) {
            frame.kind = PS_FRAME_ERROR;
            frame.code = f->script.data_error;
            send_data(f, &id, &frame, "the fake says no", 16);
        } else if (f->script.lose == 0 || n % f->script.lose != 0) {
            send_data(f, &id, &frame, f->center + frame.begin, len);
        }
    }
    zmq_msg_close(&id);
}

static void *server_thread(void *arg)
{
    struct fake *f = arg;
    while (!atomic_load(&f->stop)) {
        zmq_pollitem_t items[] = {{.socket = f->control, .events = ZMQ_POLLIN},
                                  {.socket = f->lane, .events = ZMQ_POLLIN}};
        zmq_poll(items, 2, 10);
        if (items[0].revents)
            on_control(f);
        if (items[1].revents)
            on_data(f);
    }
    return NULL;
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

static void fake_open(struct fake *f, const struct script *script)
{
    memset(f, 0, sizeof *f);
    f->script = *script;
    f->context = zmq_ctx_new();
    f->control = bind_router(f, f->url, sizeof f->url);
    f->lane = bind_router(f, f->lane_url, sizeof f->lane_url);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, server_thread, f), 0);
}

static void fake_close(struct fake *f)
{
    atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
    zmq_close(f->control);
    zmq_close(f->lane);
    zmq_ctx_term(f->context);
}

static int join(struct fake *f, struct psc **c)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = f->url;
    opt.retry_ms = f->script.restarts ? 60000 : 50;
    opt.heartbeat_ms = f->script.heartbeat_ms > 0 ? f->script.heartbeat_ms : 10000;
    return psc_open(&opt, c);
}

static const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
static float x[N], g[N];
static struct fake fake;

static struct psc *begin(const struct script *script)
{
    struct psc *c;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 100);
        g[i] = (float)(i % 3);
    }
    fake_open(&fake, script);
    ck_assert_msg(join(&fake, &c) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_begin(c, &model, 1, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

START_TEST(other_protocol_version_is_told)
{
    struct psc *c;
    fake_open(&fake, &(struct script){.hello_error = PS__CODE__VERSION});
    ck_assert_int_eq(join(&fake, &c), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "protocol version 1; this psd speaks 99");
    psc_close(c);
    fake_close(&fake);
}
END_TEST

START_TEST(bytes_that_are_no_message_end_the_session)
{
    struct psc *c;
    fake_open(&fake, &(struct script){.garbage = true});
    ck_assert_int_eq(join(&fake, &c), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "not a control message");
    psc_close(c);
    fake_close(&fake);
}
END_TEST

static void without_method(Ps__Welcome *w)
{
    w->method = NULL;
}

static void without_schedule(Ps__Welcome *w)
{
    w->method->schedule = NULL;
}

static void without_lanes(Ps__Welcome *w)
{
    w->n_lanes = 0;
}

static void without_window(Ps__Welcome *w)
{
    w->window_chunks = 0;
}

static void without_incarnation(Ps__Welcome *w)
{
    w->incarnation = 0;
}

static void without_period(Ps__Welcome *w)
{
    w->method->period = 0;
}

static void with_schedule(Ps__Welcome *w)
{
    w->method->schedule->kind = 77;
}

static void with_rule(Ps__Welcome *w)
{
    w->method->rule = "quantum";
}

static void with_optimizer(Ps__Welcome *w)
{
    w->method->optimizer = "quantum";
}

static void with_transport(Ps__Welcome *w)
{
    w->transport = "pigeon";
}

static void with_codec(Ps__Welcome *w)
{
    w->method->message_codec = "zip";
}

static void with_answer_codec(Ps__Welcome *w)
{
    w->method->answer_codec = "fp8";
}

static void with_overlap(Ps__Welcome *w)
{
    w->method->overlap = true;
    w->method->overlap_steps = w->method->period + 1;
}

static void with_clock(Ps__Welcome *w)
{
    w->clock = UINT64_MAX; /* and a step more is 0 */
}

static void with_clock_too_far(Ps__Welcome *w)
{
    w->clock = PS_MAX_STEPS + 1;
}

static void (*const spoilers[])(Ps__Welcome *w) = {
    without_method, without_schedule,  without_lanes, without_window, without_incarnation,
    without_period, with_schedule,     with_rule,     with_optimizer, with_transport,
    with_codec,     with_answer_codec, with_overlap,  with_clock,     with_clock_too_far};

START_TEST(welcome_that_cannot_be_worked_with_is_refused)
{
    struct psc *c;
    fake_open(&fake, &(struct script){.spoil = spoilers[_i]});
    ck_assert_int_eq(join(&fake, &c), PSC_EUNSUPPORTED);
    ck_assert_uint_gt(strlen(psc_error(c)), 10);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

static void with_admm_overlapped(Ps__Welcome *w)
{
    w->method->rule = "admm";
    w->method->rho = 1;
    w->method->overlap = true;
}

/* What admm sends needs the gradient of the same step: nothing could travel meanwhile. */
START_TEST(overlap_that_cannot_be_is_refused)
{
    struct psc *c;
    fake_open(&fake, &(struct script){.spoil = with_admm_overlapped});
    ck_assert_int_eq(join(&fake, &c), PSC_OK);
    ck_assert_int_eq(psc_begin(c, &model, 1, x), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "rule admm cannot exchange while the worker computes; allowed: overlap: false");
    psc_close(c);
    fake_close(&fake);
}
END_TEST

static void with_gradients_of_many_steps(Ps__Welcome *w)
{
    w->method->rule = "sgd";
    w->method->period = 4;
    w->method->overlap = true;
    w->method->overlap_steps = 4;
}

START_TEST(overlap_of_many_steps_is_refused_where_the_next_step_wants_the_answer)
{
    struct psc *c;
    fake_open(&fake, &(struct script){.spoil = with_gradients_of_many_steps});
    ck_assert_int_eq(join(&fake, &c), PSC_OK);
    ck_assert_int_eq(psc_begin(c, &model, 1, x), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "rule sgd takes its answer at the next step; allowed: overlap: true and false");
    psc_close(c);
    fake_close(&fake);
}
END_TEST

static void with_odd_chunks(Ps__Welcome *w)
{
    w->chunk_floats = 1000;
}

static void with_huge_chunks(Ps__Welcome *w)
{
    w->chunk_floats = UINT32_MAX;
}

static void (*const bad_cuts[])(Ps__Welcome *w) = {with_odd_chunks, with_huge_chunks};

START_TEST(lane_map_that_is_not_possible_is_refused)
{
    struct psc *c;
    fake_open(&fake, &(struct script){.spoil = bad_cuts[_i]});
    ck_assert_int_eq(join(&fake, &c), PSC_OK);
    ck_assert_int_eq(psc_begin(c, &model, 1, x), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "lane map is not valid");
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* Under the undefined behaviour sanitizer this shows a float read where none may be. */
START_TEST(answers_may_lie_at_odd_addresses)
{
    struct psc *c = begin(&(struct script){.shift = true});
    for (int step = 1; step <= 2; step++) {
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
        for (int i = 0; i < N; i++)
            ck_assert_float_eq(x[i], (float)(i % 100) - (float)step * (float)(i % 3));
    }
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* Every third answer is lost: what is not answered is sent again under the same name, until all is. */
START_TEST(lost_answers_are_asked_for_again)
{
    struct psc *c = begin(&(struct script){.lose = 3});
    struct psc_info info = {.size = sizeof info};
    for (int step = 1; step <= 2; step++) {
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
        for (int i = 0; i < N; i++)
            ck_assert_float_eq(x[i], (float)(i % 100) - (float)step * (float)(i % 3));
    }
    ck_assert_int_eq(psc_info(c, &info), PSC_OK);
    ck_assert_uint_gt(info.retries, 0);
    ck_assert_int_eq(fake.landed, 3 * 5); /* the offer and two exchanges of five chunks, each once */
    psc_close(c);
    fake_close(&fake);
}
END_TEST

static const struct {
    uint16_t code;
    int want;
} data_errors[] = {{PS__CODE__RANGE, PSC_EREFUSED},     {PS__CODE__VALUE, PSC_EEVICTED},
                   {PS__CODE__EVICTED, PSC_EEVICTED},   {PS__CODE__DRAINING, PSC_DRAINED},
                   {PS__CODE__CODEC, PSC_EUNSUPPORTED}, {999, PSC_EREFUSED}};

/* After a transfer that failed no byte of the caller's vector is read any more: the address sanitizer looks.
 */
START_TEST(refused_exchange_gives_the_vector_back)
{
    struct psc *c = begin(&(struct script){.data_error = data_errors[_i].code});
    float *mine = malloc(sizeof g);
    memcpy(mine, g, sizeof g);
    ck_assert_int_eq(psc_step(c, x, mine, 1), data_errors[_i].want);
    free(mine);
    assert_says(psc_error(c), "the fake says no");
    assert_says(psc_error(c), "floats 0 +");
    ck_assert_uint_eq(psc_clock(c), 0);
    unit_nap_ms(20); /* for the sanitizer to see who still reads, if anybody does */
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* Where psd was, on a port that the system has given away since, another job's may listen now: to that one
 * the incarnation is stale. Only the control connection says what became of the session. */
START_TEST(who_was_taken_for_another_sends_again)
{
    struct psc *c = begin(&(struct script){.stale = 5});
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(x[i], (float)(i % 100) - (float)(i % 3));
    ck_assert_int_eq(fake.n_stale, 5);
    ck_assert_int_eq(fake.landed, 2 * 5);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* The Welcome that comes first after a restart is lost with its connection: the next says so again. Else the
 * chunks that had been answered would be missing in the round. Who knows sends nothing again. */
START_TEST(who_misses_the_first_welcome_hears_of_the_restart_and_counts_it_once)
{
    struct psc *c = begin(&(struct script){.restarts = true});
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    psc_close(c);
    fake_close(&fake);
    ck_assert_int_eq(fake.life, 4);
    ck_assert_int_eq(fake.asked_again, 0);
    for (int i = 0; i < N; i++) {
        ck_assert_float_eq(fake.center[i], (float)(i % 100) - (float)(i % 3));
        ck_assert_float_eq(x[i], fake.center[i]);
    }
}
END_TEST

/* By it psd knows that nothing more comes of an exchange that is open there. */
START_TEST(heartbeats_say_which_transfers_have_ended)
{
    struct psc *c = begin(&(struct script){.heartbeat_ms = 200});
    for (uint64_t step = 1; step <= 3; step++) {
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
        for (double end = unit_now_s() + UNIT_HANG_S; fake.ended < 1 + step;
             unit_nap_ms(1)) /* the offer's is 1 */
            ck_assert_msg(unit_now_s() < end, "after step %d: %d", (int)step, (int)fake.ended);
        ck_assert_uint_eq(fake.ended, 1 + step);
    }
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* Else the center would be in part what was set, and in part what the checkpoint has. */
START_TEST(what_is_set_is_set_whole_over_a_restart)
{
    struct psc *c = begin(&(struct script){.restarts = true});
    ck_assert_msg(psc_init(c, NULL, g) == PSC_OK, "%s", psc_error(c));
    psc_close(c);
    fake_close(&fake);
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(fake.center[i], (float)(i % 3));
}
END_TEST

/* What a chunk leaves out is sent later, once, also of the chunks that the server has forgotten: two
 * exchanges of which each carries half of the values end where one that carries all of them does. */
START_TEST(what_is_left_out_is_sent_once_after_a_restart)
{
    static const float zeros[N];
    struct psc *c = begin(&(struct script){.restarts = true, .codec = "topk:0.5"});
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_step(c, x, zeros, 1) == PSC_OK, "%s", psc_error(c));
    psc_close(c);
    fake_close(&fake);
    ck_assert_int_eq(fake.life, 4);
    for (int i = 0; i < N; i++) {
        double moved = i % 100 - (double)fake.center[i], step = 2.0 / 127; /* of the payload's int8 */
        ck_assert_msg(fabs(moved - i % 3) <= step, "value %d: %g of %d has moved", i, moved, i % 3);
    }
}
END_TEST

static void with_elastic(Ps__Welcome *w)
{
    w->method->rule = "elastic";
    w->method->optimizer = "sgd";
    w->method->alpha = 0.5;
}

static void with_elastic_overlapped(Ps__Welcome *w)
{
    with_elastic(w);
    w->method->overlap = true;
    w->method->overlap_steps = 1;
}

static void with_elastic_of_momentum(Ps__Welcome *w)
{
    with_elastic_overlapped(w);
    w->method->optimizer = "nesterov";
}

static void with_mix(Ps__Welcome *w)
{
    w->method->rule = "add";
    w->method->optimizer = "sgd";
    w->method->mix = 0.5;
}

static void with_admm(Ps__Welcome *w)
{
    w->method->rule = "admm";
    w->method->learning_rate = w->method->rho = 1;
}

/* Rules whose answer moves x towards the center. x begins 8 from it. */
static const struct {
    void (*method)(Ps__Welcome *w);
    int before_restart, steps;
    float sent, x; /* of the exchange that the restart cuts; after the last step. From the center */
    bool whole;    /* the message is x, not its distance */
} moving[] = {
    {with_elastic, 2, 1, 8, 4, true},
    {with_elastic_overlapped, 5 + 2, 2, 4, 2, true},
    {with_elastic_of_momentum, 5 + 2, 2, 4, 2, true},
    {with_mix, 2, 1, 8, 4, false},
};

/* Whatever was answered before the restart and is answered again after it: x moves once, and what is sent
 * again is what was sent. */
START_TEST(x_moves_once_over_a_restart)
{
    static const float zeros[N];
    struct psc *c = begin(&(struct script){.restarts = true,
                                           .spoil = moving[_i].method,
                                           .alpha = 0.5f,
                                           .before_restart = moving[_i].before_restart});
    for (int i = 0; i < N; i++)
        x[i] += 8;
    for (int k = 0; k < moving[_i].steps; k++)
        ck_assert_msg(psc_step(c, x, zeros, 1) == PSC_OK, "%s", psc_error(c));
    psc_close(c);
    fake_close(&fake);
    ck_assert_int_eq(fake.life, 4);
    int cut = (2 + (moving[_i].before_restart > 5)) % 3; /* the offer is the first */
    for (int i = 0; i < N; i++) {
        float center = (float)(i % 100);
        ck_assert_msg(x[i] == center + moving[_i].x, "x[%d] is %g from the center; expected %g", i,
                      (double)(x[i] - center), (double)moving[_i].x);
        ck_assert_float_eq(fake.message[cut][i], moving[_i].sent + (moving[_i].whole ? center : 0));
    }
}
END_TEST

/* lambda <- lambda - (x - center), x <- (x + lambda + center) / 2: g is 0, eta rho is 1. x begins 8 from the
 * center, lambda at 0. */
START_TEST(multipliers_move_once_over_a_restart)
{
    static const float zeros[N], expected[] = {0, -4, -4};
    struct psc *c = begin(&(struct script){.restarts = true, .spoil = with_admm, .alpha = 1});
    for (int i = 0; i < N; i++)
        x[i] += 8;
    for (int k = 0; k < 3; k++) {
        ck_assert_msg(psc_step(c, x, zeros, 1) == PSC_OK, "%s", psc_error(c));
        for (int i = 0; i < N; i++)
            ck_assert_msg(x[i] == (float)(i % 100) + expected[k], "step %d: x[%d] is %g from the center", k,
                          i, (double)x[i] - i % 100);
    }
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* The same when psd itself has come back there with another of its sockets. */
START_TEST(what_is_no_lane_is_left_for_ours)
{
    struct psc *c = begin(&(struct script){.strange = 3});
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(x[i], (float)(i % 100) - (float)(i % 3));
    ck_assert_int_eq(fake.n_strange, 3);
    ck_assert_int_eq(fake.landed, 2 * 5);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

START_TEST(what_is_no_control_road_is_left_for_ours)
{
    struct psc *c = begin(&(struct script){.strange_once = true});
    for (double end = unit_now_s() + UNIT_HANG_S; fake.hellos < 2; unit_nap_ms(1))
        ck_assert_msg(unit_now_s() < end, "it says Hello no more: %s", psc_error(c));
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    psc_close(c);
    fake_close(&fake);
}
END_TEST

static void with_two_lanes(Ps__Welcome *w)
{
    static char *lanes[2];
    lanes[0] = lanes[1] = w->lanes[0];
    w->lanes = lanes;
    w->n_lanes = 2;
}

static void with_larger_chunks(Ps__Welcome *w)
{
    w->chunk_floats = 8 * CHUNK;
}

static void with_other_rule(Ps__Welcome *w)
{
    w->method->rule = "add";
}

static void with_other_codec(Ps__Welcome *w)
{
    w->method->message_codec = "fp16";
}

static void (*const others[])(Ps__Welcome *w) = {with_two_lanes, with_larger_chunks, with_other_rule,
                                                 with_other_codec};

/* Its tables and its rule are those of the server before: a second call must not use them for this one. */
START_TEST(server_that_came_back_as_another_is_refused_every_time)
{
    struct psc *c = begin(&(struct script){.other = others[_i]});
    uint64_t tickets[2];
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EEVICTED);
        assert_says(psc_error(c), "the server came back with");
    }
    for (int k = 0; k < 2; k++) /* what is queued behind one that failed runs by itself */
        ck_assert_int_eq(psc_push_start(c, NULL, g, 1, &tickets[k]), PSC_OK);
    for (int k = 0; k < 2; k++)
        ck_assert_int_eq(psc_wait(c, tickets[k]), PSC_EEVICTED);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

START_TEST(answer_of_another_length_is_refused)
{
    struct psc *c = begin(&(struct script){.short_answers = true});
    ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "lane 0 answered floats 0 +");
    psc_close(c);
    fake_close(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-fake");
    TCase *tc = tcase_create("fake");
    tcase_add_test(tc, other_protocol_version_is_told);
    tcase_add_test(tc, bytes_that_are_no_message_end_the_session);
    tcase_add_loop_test(tc, welcome_that_cannot_be_worked_with_is_refused, 0, ROWS(spoilers));
    tcase_add_test(tc, overlap_that_cannot_be_is_refused);
    tcase_add_test(tc, overlap_of_many_steps_is_refused_where_the_next_step_wants_the_answer);
    tcase_add_loop_test(tc, lane_map_that_is_not_possible_is_refused, 0, ROWS(bad_cuts));
    tcase_add_test(tc, answers_may_lie_at_odd_addresses);
    tcase_add_test(tc, lost_answers_are_asked_for_again);
    tcase_add_loop_test(tc, refused_exchange_gives_the_vector_back, 0, ROWS(data_errors));
    tcase_add_test(tc, who_was_taken_for_another_sends_again);
    tcase_add_test(tc, who_misses_the_first_welcome_hears_of_the_restart_and_counts_it_once);
    tcase_add_test(tc, heartbeats_say_which_transfers_have_ended);
    tcase_add_test(tc, what_is_set_is_set_whole_over_a_restart);
    tcase_add_test(tc, what_is_left_out_is_sent_once_after_a_restart);
    tcase_add_loop_test(tc, x_moves_once_over_a_restart, 0, ROWS(moving));
    tcase_add_test(tc, multipliers_move_once_over_a_restart);
    tcase_add_test(tc, what_is_no_lane_is_left_for_ours);
    tcase_add_test(tc, what_is_no_control_road_is_left_for_ours);
    tcase_add_loop_test(tc, server_that_came_back_as_another_is_refused_every_time, 0, ROWS(others));
    tcase_add_test(tc, answer_of_another_length_is_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
