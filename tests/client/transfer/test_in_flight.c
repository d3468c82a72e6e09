/* Fragments follow each other on the wire: those that are due are on their way at once, and each lands once.
 * The test is the server, and decides what it answers, in which order, and when. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "client/internal.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

enum { CHUNK = 1024, FRAGMENTS = 4, PIECES = 2, N = FRAGMENTS * PIECES * CHUNK, MOST_HELD = 64 };

/* A psd of one lane; one thread runs it. */
struct fake {
    uint32_t tracks, window;
    const char *admission;
    const char *codec; /* of messages, with error feedback; NULL: floats */
    bool refuses;      /* exchanges of the first fragment, until one of the second has landed */
    bool holds_last;   /* `holds` is for the last piece of a fragment only */
    bool undivided; /* the method has no fragments; a change of it is also a restart, which has what landed */
    void *context, *control, *lane;
    char url[64], lane_url[64];
    pthread_t thread;
    atomic_bool stop, holds; /* holds: exchanges are not answered */
    atomic_uint change;      /* generation that the test wants */
    atomic_uint change_at;   /* the method changes when so many chunks are held; 0: not by itself */
    atomic_bool drains;      /* the worker is to be told so */
    bool told_to_drain;
    uint32_t generation;
    atomic_uint restarts; /* as often the test wants a psd to have come back from a checkpoint */
    uint32_t restarted;
    atomic_bool lacks;               /* the checkpoint is of before the exchanges that are held */
    bool begun, keeps;               /* keeps: `before` is set */
    uint32_t drops;                  /* bitmap of fragments whose exchanges do not land before the change */
    zmq_msg_t worker;                /* its control connection */
    zmq_msg_t held_name[MOST_HELD];  /* where answers are held back for it */
    struct ps_frame held[MOST_HELD]; /* those answers */
    atomic_uint n_held;
    atomic_ullong exchanged, pulled; /* the number of the last exchange, and of the last pull, that came */
    uint64_t seqs[FRAGMENTS];        /* of the last exchange of each fragment that has landed */
    bool seen[64][N / CHUNK];        /* chunks that have landed, of the exchange with this number */
    atomic_uint most;                /* exchanges that were under way at a time */
    atomic_bool wrapped;             /* a cycle began while parts of the one before were under way */
    float center[N], before[N];      /* before: the center before those that are held */
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
    char *lanes[] = {f->lane_url};
    uint64_t landed[PS_MAX_TRACKS] = {0};
    method.name = "custom", method.rule = "add", method.optimizer = "sgd";
    method.admission = (char *)(uintptr_t)f->admission;
    method.learning_rate = 1, method.period = FRAGMENTS, method.fragments = FRAGMENTS;
    method.overlap = true, method.overlap_steps = FRAGMENTS;
    if (f->undivided)
        method.period = 1, method.fragments = method.overlap_steps = 0, method.overlap = false;
    method.message_codec = (char *)(uintptr_t)(f->codec != NULL ? f->codec : "raw");
    method.error_feedback = f->codec != NULL;
    method.schedule = &schedule;
    w.client = 0, w.incarnation = 5, w.workers = 1, w.method = &method, w.transport = "tcp";
    w.generation = f->generation;
    w.revival = f->restarted;
    for (uint32_t i = 0; i < FRAGMENTS && f->tracks > 0 && !f->undivided; i++)
        if (f->seqs[i] > landed[i % f->tracks])
            landed[i % f->tracks] = f->seqs[i];
    for (uint32_t i = 0; i < PS_MAX_TRACKS; i++)
        w.landed_seq = landed[i] > w.landed_seq ? landed[i] : w.landed_seq;
    w.landed_on_tracks = landed, w.n_landed_on_tracks = f->tracks > 0 ? PS_MAX_TRACKS : 0;
    w.tracks = f->tracks;
    w.lanes = lanes, w.n_lanes = 1;
    w.chunk_floats = CHUNK, w.window_chunks = f->window, w.silence_ms = 600000;
    send_control(f, PS__TO_CLIENT__WHAT_WELCOME, &w);
}

/* The first worker offers x; one that comes later starts from the center, and its exchanges are others. */
static void begin(struct fake *f)
{
    Ps__Begun begun = PS__BEGUN__INIT;
    begun.offer = !f->begun;
    f->begun = true;
    memset(f->seen, 0, sizeof f->seen);
    send_control(f, PS__TO_CLIENT__WHAT_BEGUN, &begun);
}

static void on_control(struct fake *f)
{
    zmq_msg_t body;
    zmq_msg_init(&body);
    zmq_msg_recv(&f->worker, f->control, 0);
    zmq_msg_recv(&body, f->control, 0);
    Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
    Ps__Alive alive = PS__ALIVE__INIT;
    alive.workers = 1;
    alive.generation = f->generation;
    if (m->what_case == PS__TO_SERVER__WHAT_HELLO)
        welcome(f);
    else if (m->what_case == PS__TO_SERVER__WHAT_BEGIN)
        begin(f);
    else if (m->what_case == PS__TO_SERVER__WHAT_HEARTBEAT)
        send_control(f, PS__TO_CLIENT__WHAT_ALIVE, &alive);
    ps_control_free_to_server(m);
    zmq_msg_close(&body);
}

static void answer(struct fake *f, zmq_msg_t *name, struct ps_frame frame)
{
    unsigned char head[PS_FRAME_BYTES];
    size_t len = frame.kind == PS_FRAME_OFFER ? 0 : frame.count * sizeof(float);
    const float *body = f->center + frame.begin;
    frame.kind = PS_FRAME_ANSWER;
    frame.codec = 0;
    frame.flags = 0;
    frame.rate = 1;
    ps_frame_pack(&frame, head);
    zmq_msg_send(name, f->lane, ZMQ_SNDMORE);
    zmq_send(f->lane, head, sizeof head, ZMQ_SNDMORE);
    zmq_send(f->lane, body, len, 0);
}

static void refuse(struct fake *f, zmq_msg_t *name, struct ps_frame frame)
{
    unsigned char head[PS_FRAME_BYTES];
    frame.kind = PS_FRAME_ERROR;
    frame.flags = 0;
    frame.code = PS__CODE__GENERATION;
    ps_frame_pack(&frame, head);
    zmq_msg_send(name, f->lane, ZMQ_SNDMORE);
    zmq_send(f->lane, head, sizeof head, ZMQ_SNDMORE);
    zmq_send(f->lane, "not begun", 9, 0);
}

/* As rule add does, each chunk of an exchange once. */
static void land(struct fake *f, const struct ps_frame *frame, const float *v)
{
    bool *seen = &f->seen[frame->seq % 64][frame->begin / CHUNK], first = !*seen;
    if (frame->kind == PS_FRAME_PULL)
        return;
    *seen = true;
    if (frame->kind == PS_FRAME_EXCHANGE)
        f->seqs[frame->code] = frame->seq;
    for (uint32_t i = 0; first && i < frame->count; i++)
        f->center[frame->begin + i] =
            frame->kind == PS_FRAME_OFFER ? v[i] : f->center[frame->begin + i] + v[i];
}

static void hold(struct fake *f, zmq_msg_t *name, const struct ps_frame *frame)
{
    uint32_t n = atomic_load(&f->n_held), under_way = 1;
    assert_quick(n < MOST_HELD);
    f->held[n] = *frame;
    zmq_msg_init(&f->held_name[n]);
    zmq_msg_move(&f->held_name[n], name);
    for (uint32_t i = 0; i < n; i++) {
        bool is_new = f->held[i].kind != 0 && f->held[i].seq != frame->seq;
        for (uint32_t k = 0; k < i; k++)
            is_new = is_new && f->held[k].seq != f->held[i].seq;
        under_way += is_new;
        if (f->held[i].kind != 0 && f->held[i].code > frame->code)
            atomic_store(&f->wrapped, true);
    }
    if (under_way > atomic_load(&f->most))
        atomic_store(&f->most, under_way);
    assert_quick(ps_flags_behind(frame->flags) + 1 >= under_way);
    atomic_store(&f->n_held, n + 1);
}

static void decode(const struct fake *f, const struct ps_frame *frame, const float *body, float *v)
{
    struct ps_codec codec = *ps_codec_find(0);
    if (frame->codec != 0)
        assert_quick(ps_codec_of(f->codec, &codec) == NULL && codec.id == frame->codec);
    codec.decode(&codec, v, body, frame->count);
}

static bool is_held(struct fake *f, const struct ps_frame *frame)
{
    bool last = frame->begin / CHUNK % PIECES == PIECES - 1;
    return frame->kind == PS_FRAME_EXCHANGE && atomic_load(&f->holds) && (last || !f->holds_last);
}

static void on_data(struct fake *f)
{
    unsigned char head[PS_FRAME_BYTES];
    static float body[CHUNK], v[CHUNK];
    struct ps_frame frame;
    zmq_msg_t name;
    zmq_msg_init(&name);
    zmq_msg_recv(&name, f->lane, 0);
    int n = zmq_recv(f->lane, head, sizeof head, 0);
    zmq_recv(f->lane, body, sizeof body, 0);
    assert_quick(ps_frame_parse(&frame, head, (size_t)n, NULL) == 0 && frame.count <= CHUNK);
    decode(f, &frame, body, v);
    bool of_rule = frame.kind == PS_FRAME_EXCHANGE, old = frame.generation != f->generation;
    atomic_store(of_rule ? &f->exchanged : &f->pulled, frame.seq);
    if (of_rule && (old || (f->generation == 0 && (f->drops >> frame.code & 1) != 0))) {
        if (!old)
            f->held[atomic_fetch_add(&f->n_held, 1)].kind = 0; /* it came */
        zmq_msg_close(&name);
        return;
    }
    if (of_rule && f->refuses && frame.code == 0 && f->seqs[1] == 0) {
        refuse(f, &name, frame);
        zmq_msg_close(&name);
        return;
    }
    if (of_rule && atomic_load(&f->holds) && !f->keeps) {
        memcpy(f->before, f->center, sizeof f->before);
        f->keeps = true;
    }
    land(f, &frame, v);
    if (is_held(f, &frame))
        hold(f, &name, &frame);
    else
        answer(f, &name, frame);
    zmq_msg_close(&name);
}

/* The last that came first. */
static void release(struct fake *f)
{
    for (uint32_t i = atomic_exchange(&f->n_held, 0); i-- > 0;)
        if (f->held[i].kind != 0) {
            answer(f, &f->held_name[i], f->held[i]);
            zmq_msg_close(&f->held_name[i]);
            f->held[i].kind = 0;
        }
}

/* What was held back never comes. */
static void forget(struct fake *f)
{
    for (uint32_t i = atomic_exchange(&f->n_held, 0); i-- > 0;)
        if (f->held[i].kind != 0) {
            zmq_msg_close(&f->held_name[i]);
            f->held[i].kind = 0;
        }
}

/* psd was killed, and is back from its checkpoint. */
static void restart(struct fake *f)
{
    f->restarted = atomic_load(&f->restarts);
    forget(f);
    atomic_store(&f->holds, false);
    if (atomic_load(&f->lacks)) {
        memcpy(f->center, f->before, sizeof f->center);
        memset(f->seqs, 0, sizeof f->seqs);
        memset(f->seen, 0, sizeof f->seen);
    }
    welcome(f);
}

static void drain(struct fake *f)
{
    Ps__Drain told = PS__DRAIN__INIT;
    told.reason = "the test wants it";
    f->told_to_drain = true;
    send_control(f, PS__TO_CLIENT__WHAT_DRAIN, &told);
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
        if (f->undivided && atomic_load(&f->n_held) == f->window && atomic_load(&f->holds)) {
            f->restarted++;
            atomic_store(&f->restarts, f->restarted);
            atomic_store(&f->change, 1);
        }
        if (atomic_load(&f->drains) && !f->told_to_drain)
            drain(f);
        if (atomic_load(&f->change_at) != 0 && atomic_load(&f->n_held) == atomic_load(&f->change_at))
            atomic_store(&f->change, 1);
        if (atomic_load(&f->change) != f->generation) {
            f->generation = atomic_load(&f->change);
            forget(f);
            atomic_store(&f->holds, false);
            welcome(f);
        }
        if (atomic_load(&f->restarts) != f->restarted)
            restart(f);
        if (!atomic_load(&f->holds))
            release(f);
    }
    forget(f);
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

/* With a codec nothing is refused, and only the last piece of a fragment is held. */
static void fake_start(struct fake *f, uint32_t tracks, const char *admission, uint32_t drops,
                       uint32_t window, const char *codec)
{
    memset(f, 0, sizeof *f);
    f->undivided = tracks == 1;
    f->tracks = tracks;
    f->window = window;
    f->codec = codec;
    f->holds_last = codec != NULL;
    f->refuses = codec == NULL && window < MOST_HELD && !f->undivided;
    f->admission = admission;
    f->drops = drops;
    zmq_msg_init(&f->worker);
    f->context = zmq_ctx_new();
    f->control = bind_router(f, f->url, sizeof f->url);
    f->lane = bind_router(f, f->lane_url, sizeof f->lane_url);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, server_thread, f), 0);
}

static void fake_open(struct fake *f, uint32_t tracks, const char *admission, uint32_t drops)
{
    fake_start(f, tracks, admission, drops, MOST_HELD, NULL);
}

static void fake_close(struct fake *f)
{
    atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
    zmq_msg_close(&f->worker);
    zmq_close(f->control);
    zmq_close(f->lane);
    zmq_ctx_term(f->context);
}

static const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
static float x[N], g[N];
static uint64_t t;

static struct psc *open_and_begin(void)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = fake.url;
    opt.retry_ms = 1u << 30; /* nothing is sent again because time has passed */
    opt.timeout_ms = 1u << 30;
    opt.heartbeat_ms = 1000;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_begin(c, &model, 1, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

static struct psc *join(void)
{
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 100);
        g[i] = (float)(i % 3);
    }
    t = 0;
    return open_and_begin();
}

/* A worker alone gets what it has sent. An exchange that is lost, or lands twice, shows in x. */
static void step(struct psc *c)
{
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK && psc_error(c)[0] == 0, "step %d: %s", (int)t,
                  psc_error(c));
    t++;
    for (int i = 0; i < N; i++)
        if (x[i] != (float)(i % 100) - (float)t * (float)(i % 3))
            ck_abort_msg("step %d, [%d]: %g, not %g", (int)t, i, (double)x[i],
                         (double)(i % 100) - (double)t * (double)(i % 3));
}

static void await_held(uint32_t chunks)
{
    double end = unit_now_s() + UNIT_HANG_S;
    while (atomic_load(&fake.n_held) < chunks) {
        ck_assert_msg(unit_now_s() < end, "%u chunks came, not %u", atomic_load(&fake.n_held), chunks);
        unit_nap_ms(1);
    }
}

struct row {
    const char *admission;
    uint32_t tracks, most; /* most: exchanges under way at a time */
};
static const struct row rows[] = {
    {"fcfs", 4, 4}, {"sync", 4, 4}, {"fcfs", 2, 2}, {"fcfs", 0, 1}, {"fcfs", 8, 4}};

/* The server is silent: as many of the fragments that are due as it allows are on their way all the same. */
START_TEST(fragments_that_are_due_are_on_their_way)
{
    const struct row *row = &rows[_i];
    fake_open(&fake, row->tracks, row->admission, 0);
    struct psc *c = join();
    atomic_store(&fake.holds, true);
    for (int i = 0; i < FRAGMENTS; i++)
        step(c); /* none waits */
    await_held(row->most * PIECES);
    ck_assert_uint_eq(atomic_load(&fake.most), row->most);
    atomic_store(&fake.holds, false); /* answers them in the reverse order */
    for (int i = 0; i < 3 * FRAGMENTS; i++)
        step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    ck_assert_uint_eq(atomic_load(&fake.most), row->most);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* In rounds the first fragment of a cycle waits for the cycle before; else it does not. */
START_TEST(a_cycle_of_a_round_begins_alone)
{
    static const char *const admissions[] = {"sync", "fcfs"};
    fake_open(&fake, 8, admissions[_i], 0);
    struct psc *c = join();
    step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK); /* the first fragment is there, */
    atomic_store(&fake.holds, true);
    for (int i = 1; i < FRAGMENTS; i++)
        step(c);
    step(c); /* and goes again, behind the three others */
    await_held((_i == 0 ? FRAGMENTS - 1 : FRAGMENTS) * PIECES);
    atomic_store(&fake.holds, false);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    ck_assert(atomic_load(&fake.wrapped) == (_i == 1));
    for (int i = 0; i < 2 * FRAGMENTS; i++)
        step(c);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* The method changes with four on their way. Those of the bitmap have not landed: the worker owes them. */
START_TEST(each_that_has_landed_is_kept_over_a_change)
{
    fake_open(&fake, FRAGMENTS, "fcfs", (uint32_t)_i);
    struct psc *c = join();
    atomic_store(&fake.holds, true);
    for (int i = 0; i < FRAGMENTS; i++)
        step(c);
    await_held(FRAGMENTS * PIECES);
    atomic_store(&fake.change, 1);
    for (int i = 0; i < 3 * FRAGMENTS; i++)
        step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    ck_assert_uint_eq(c->generation, 1);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* While the method is about to change an exchange that has not begun is refused, as often as it is sent, and
 * one behind it may have begun: the server waits for that one. Here two chunks fill the window. */
START_TEST(what_is_refused_holds_nothing_back)
{
    fake_start(&fake, FRAGMENTS, "fcfs", 0, PIECES, NULL);
    struct psc *c = join();
    for (int i = 0; i < 2 * FRAGMENTS; i++)
        step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* Steps until a fragment that is not the first is on its way, of which psd holds the answers back. */
static struct psc *join_with_one_held(uint32_t fragment)
{
    struct psc *c = join();
    for (uint32_t i = 0; i < fragment; i++)
        step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    atomic_store(&fake.holds, true);
    step(c);
    await_held(PIECES);
    return c;
}

/* psd is killed when the last fragment of a cycle has landed and its answers have not arrived. If its
 * checkpoint has that cycle, the worker takes the answers; else it owes the fragment. */
START_TEST(what_a_checkpoint_has_is_not_owed)
{
    fake_open(&fake, FRAGMENTS, "sync", 0);
    struct psc *c = join_with_one_held(FRAGMENTS - 1);
    atomic_store(&fake.lacks, _i == 1);
    atomic_store(&fake.restarts, 1);
    for (int i = 0; i < 3 * FRAGMENTS; i++)
        step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* psd is killed when it has answered one of the two pieces of a fragment, and its checkpoint lacks both. What
 * topk has lost of that piece is a part of the message that is owed: x ends where the steps end. */
START_TEST(what_is_owed_is_owed_once)
{
    enum { HELD = 2, STEPS = 6, MORE = 16 * FRAGMENTS };
    fake_start(&fake, FRAGMENTS, "sync", 0, 1,
               "topk:0.25"); /* the second piece comes when the first is answered */
    struct psc *c = join();
    for (int i = 0; i < STEPS + MORE; i++) {
        if (i == HELD) {
            ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
            atomic_store(&fake.holds, true);
        }
        if (i == STEPS)
            memset(g, 0, sizeof g);
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "step %d: %s", i, psc_error(c));
        if (i == HELD) {
            await_held(1);
            atomic_store(&fake.lacks, true);
            atomic_store(&fake.restarts, 1);
        }
    }
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    for (int i = 0; i < N;
         i++) /* each value has travelled a few times, each time with an error of 1 in 254 */
        if (fabsf(x[i] - (float)(i % 100 - STEPS * (i % 3))) > 0.01f)
            ck_abort_msg("[%d]: %g, not %d", i, (double)x[i], i % 100 - STEPS * (i % 3));
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* psd is killed with an exchange in its checkpoint in part, and comes back with another method. The worker
 * owes the rest of it. */
START_TEST(what_landed_in_part_lands_once_although_the_method_changes)
{
    fake_start(&fake, 1, "fcfs", 0, 3, NULL);
    struct psc *c = join();
    step(c);
    atomic_store(&fake.holds, true);
    for (int i = 0; i < 3; i++)
        step(c);
    ck_assert_uint_eq(c->generation, 1);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

/* The method changes with four on their way that have not landed, and the worker saves before its next step.
 */
START_TEST(a_state_has_what_a_change_has_refused)
{
    char dir[] = "/tmp/psd-in-flight-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/state", dir);
    fake_open(&fake, FRAGMENTS, "fcfs", (1 << FRAGMENTS) - 1);
    struct psc *c = join();
    atomic_store(&fake.holds, true);
    for (int i = 0; i < FRAGMENTS; i++)
        step(c);
    await_held(FRAGMENTS * PIECES);
    atomic_store(&fake.change, 1);
    ck_assert_msg(psc_save(c, path, x, NULL, 0) == PSC_OK, "%s", psc_error(c));
    if (_i == 1) {
        psc_close(c);
        c = open_and_begin();
        ck_assert_msg(psc_load(c, path, x, NULL, 0, NULL) == PSC_OK, "%s", psc_error(c));
    }
    for (int i = 0; i < 3 * FRAGMENTS; i++)
        step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    psc_close(c);
    fake_close(&fake);
    ck_assert_int_eq(unlink(path) | rmdir(dir), 0);
}
END_TEST

/* A change sends all that the worker has not sent, and it alone moves the center. */
static void assert_all_landed(void)
{
    for (int i = 0; i < N; i++)
        if (fake.center[i] != (float)(i % 100) - (float)t * (float)(i % 3))
            ck_abort_msg("center[%d]: %g after %d steps, not %g", i, (double)fake.center[i], (int)t,
                         (double)(i % 100) - (double)t * (double)(i % 3));
}

/* The method changes with four on their way, and the worker ends: those of the bitmap have not landed. */
START_TEST(a_wait_for_all_sends_what_a_change_has_refused)
{
    fake_open(&fake, FRAGMENTS, "fcfs", (uint32_t)_i);
    struct psc *c = join();
    atomic_store(&fake.holds, true);
    for (int i = 0; i < FRAGMENTS; i++)
        step(c);
    await_held(FRAGMENTS * PIECES);
    atomic_store(&fake.change, 1);
    ck_assert_msg(psc_wait(c, PSC_ALL) == PSC_OK && psc_error(c)[0] == 0, "%s", psc_error(c));
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    psc_close(c);
    fake_close(&fake);
    assert_all_landed();
}
END_TEST

/* The method changes while a worker that was told to drain waits for three. */
START_TEST(a_change_while_a_drain_is_awaited_loses_nothing)
{
    double end = unit_now_s() + UNIT_HANG_S;
    fake_open(&fake, FRAGMENTS, "fcfs", (uint32_t)_i);
    struct psc *c = join();
    atomic_store(&fake.holds, true);
    for (int i = 0; i < FRAGMENTS - 2; i++)
        step(c);
    await_held((FRAGMENTS - 2) * PIECES);
    atomic_store(&fake.drains, true);
    for (bool told = false; !told; unit_nap_ms(1)) {
        ck_assert(unit_now_s() < end);
        pthread_mutex_lock(&c->session.shared.lock);
        told = c->session.shared.draining;
        pthread_mutex_unlock(&c->session.shared.lock);
    }
    atomic_store(&fake.change_at, (FRAGMENTS - 1) * PIECES);
    int rc = psc_step(c, x, g, 1);
    ck_assert_msg(rc == PSC_DRAINED && psc_error(c)[0] == 0, "%d: %s", rc, psc_error(c));
    t++;
    ck_assert_uint_eq(c->generation, 1);
    for (int i = 0; i < N; i++)
        ck_assert_msg(x[i] == (float)(i % 100) - (float)t * (float)(i % 3), "[%d]: %g", i, (double)x[i]);
    psc_close(c);
    fake_close(&fake);
    assert_all_landed();
}
END_TEST

/* psd compares the numbers of what lands, so that a worker may pull as often as it likes in between. */
START_TEST(pulls_take_no_numbers_of_what_lands)
{
    static float y[N];
    fake_open(&fake, 0, "fcfs", 0);
    struct psc *c = join();
    step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    uint64_t last = atomic_load(&fake.exchanged), before = 0;
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(psc_pull(c, NULL, y) == PSC_OK, "%s", psc_error(c));
        uint64_t pulled = atomic_load(&fake.pulled);
        ck_assert(pulled != before && pulled > last + UINT32_MAX); /* a late answer is no other's */
        before = pulled;
    }
    pthread_mutex_lock(&c->session.shared.lock);
    ck_assert_uint_eq(c->session.shared.ended, last); /* for heartbeats */
    pthread_mutex_unlock(&c->session.shared.lock);
    step(c);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_OK);
    ck_assert_uint_eq(atomic_load(&fake.exchanged), last + 1);
    psc_close(c);
    fake_close(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-in-flight");
    TCase *tc = tcase_create("in-flight");
    tcase_add_loop_test(tc, fragments_that_are_due_are_on_their_way, 0, ROWS(rows));
    tcase_add_loop_test(tc, a_cycle_of_a_round_begins_alone, 0, 2);
    tcase_add_loop_test(tc, each_that_has_landed_is_kept_over_a_change, 0, 1 << FRAGMENTS);
    tcase_add_test(tc, what_is_refused_holds_nothing_back);
    tcase_add_loop_test(tc, what_a_checkpoint_has_is_not_owed, 0, 2);
    tcase_add_test(tc, what_is_owed_is_owed_once);
    tcase_add_test(tc, what_landed_in_part_lands_once_although_the_method_changes);
    tcase_add_test(tc, pulls_take_no_numbers_of_what_lands);
    tcase_add_loop_test(tc, a_state_has_what_a_change_has_refused, 0, 2);
    tcase_add_loop_test(tc, a_wait_for_all_sends_what_a_change_has_refused, 1, 1 << FRAGMENTS);
    tcase_add_loop_test(tc, a_change_while_a_drain_is_awaited_loses_nothing, 1, 1 << (FRAGMENTS - 1));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
