/* The handler that decides who comes in, asked by libzmq itself. */
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/security/curve.h"
#include "proto/security/socket_monitor.h"
#include "server/auth/zap.h"
#include "tests/support/unit.h"

#define PATIENCE_S 60 /* ends a hang */

/* A server's socket with its loop, and who may come. */
struct door {
    uv_loop_t loop;
    struct psd_zap zap;
    void *context, *socket;
    char url[64];
    struct ps_curve_pair pair, allowed;
    unsigned char key[PS_CURVE_KEY_BYTES];
    unsigned n_asked;
    char address[64];
};

static bool decide(void *arg, const char *address, const unsigned char *key, const char **name, uint64_t *id)
{
    struct door *d = arg;
    d->n_asked++;
    snprintf(d->address, sizeof d->address, "%s", address);
    ck_assert_ptr_nonnull(key);
    *name = "somebody";
    *id = UINT64_C(18446744073709551615);
    return memcmp(key, d->key, sizeof d->key) == 0;
}

static void open_door(struct door *d, bool asks)
{
    struct ps_error err;
    size_t size = sizeof d->url;
    memset(d, 0, sizeof *d);
    ck_assert_int_eq(ps_curve_generate("server", &d->pair, &err), 0);
    ck_assert_int_eq(ps_curve_generate("client", &d->allowed, &err), 0);
    zmq_z85_decode(d->key, d->allowed.public_key);
    uv_loop_init(&d->loop);
    d->context = zmq_ctx_new();
    d->socket = zmq_socket(d->context, ZMQ_ROUTER);
    if (asks)
        ck_assert_msg(psd_zap_open(&d->zap, &d->loop, d->context, decide, d, &err) == 0, "%s", err.text);
    ck_assert_int_eq(ps_curve_serve(d->socket, &d->pair), 0);
    ck_assert_int_eq(zmq_bind(d->socket, "tcp://127.0.0.1:*"), 0);
    ck_assert_int_eq(zmq_getsockopt(d->socket, ZMQ_LAST_ENDPOINT, d->url, &size), 0);
}

static void close_door(struct door *d)
{
    zmq_close(d->socket);
    psd_zap_close(&d->zap);
    psd_zap_close(&d->zap); /* once is enough */
    zmq_ctx_term(d->context);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&d->loop), 0);
}

struct guest {
    void *context, *socket, *watch;
};

static void knock(struct guest *g, const struct door *d, const struct ps_curve_pair *pair)
{
    int zero = 0;
    g->context = zmq_ctx_new();
    g->socket = zmq_socket(g->context, ZMQ_DEALER);
    zmq_setsockopt(g->socket, ZMQ_LINGER, &zero, sizeof zero);
    ck_assert_int_eq(ps_curve_connect(g->socket, pair, d->pair.public_key), 0);
    ck_assert_int_eq(ps_watch_open(g->context, g->socket, &g->watch), 0);
    ck_assert_int_eq(zmq_connect(g->socket, d->url), 0);
    ck_assert_int_eq(zmq_send(g->socket, "hello", 5, ZMQ_DONTWAIT), 5);
}

static void go(struct guest *g)
{
    ps_watch_close(g->socket, g->watch);
    zmq_close(g->socket);
    zmq_ctx_term(g->context);
}

/* The message and its two properties; false when none comes. */
static bool hear(struct door *d, char *name, char *id, double seconds)
{
    zmq_msg_t from, body;
    double deadline = unit_now_s() + seconds;
    bool got = false;
    zmq_msg_init(&from);
    zmq_msg_init(&body);
    do {
        uv_run(&d->loop, UV_RUN_NOWAIT);
        got = zmq_msg_recv(&from, d->socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_recv(&body, d->socket, 0) >= 0;
        if (!got && seconds > 0)
            unit_nap_ms(2);
    } while (!got && unit_now_s() < deadline);
    const char *said_name = got ? zmq_msg_gets(&body, "User-Id") : NULL;
    const char *said_id = got ? zmq_msg_gets(&body, PS_CURVE_ID_PROPERTY) : NULL;
    snprintf(name, 32, "%s", said_name != NULL ? said_name : "-");
    snprintf(id, 32, "%s", said_id != NULL ? said_id : "-");
    zmq_msg_close(&from);
    zmq_msg_close(&body);
    return got;
}

START_TEST(messages_say_whose_they_are)
{
    struct door d;
    struct guest g;
    char name[32], id[32];
    open_door(&d, true);
    knock(&g, &d, &d.allowed);
    ck_assert(hear(&d, name, id, PATIENCE_S));
    ck_assert_str_eq(name, "somebody");
    ck_assert_str_eq(id, "18446744073709551615");
    ck_assert_str_eq(d.address, "127.0.0.1");
    ck_assert_uint_eq(d.n_asked, 1); /* of a connection, not of a message */
    ck_assert_int_eq(zmq_send(g.socket, "again", 5, ZMQ_DONTWAIT), 5);
    ck_assert(hear(&d, name, id, PATIENCE_S));
    ck_assert_str_eq(id, "18446744073709551615");
    ck_assert_uint_eq(d.n_asked, 1);
    go(&g);
    close_door(&d);
}
END_TEST

START_TEST(who_is_refused_is_told)
{
    struct door d;
    struct guest g, honest;
    struct ps_curve_pair other;
    struct ps_watch_event e = {PS_WATCH_OPEN, 0};
    struct ps_error err;
    char name[32], id[32];
    open_door(&d, true);
    ck_assert_int_eq(ps_curve_generate("other", &other, &err), 0);
    knock(&g, &d, &other);
    double deadline = unit_now_s() + PATIENCE_S;
    while (e.kind != PS_WATCH_REFUSED && unit_now_s() < deadline) {
        uv_run(&d.loop, UV_RUN_NOWAIT);
        while (e.kind != PS_WATCH_REFUSED && ps_watch_take(g.watch, &e) == 0)
            ;
        unit_nap_ms(2);
    }
    ck_assert_int_eq(e.kind, PS_WATCH_REFUSED);
    ck_assert_uint_eq(e.value, 400);
    knock(&honest, &d, &d.allowed);
    ck_assert(hear(&d, name, id, PATIENCE_S));
    ck_assert(!hear(&d, name, id, 0)); /* of the two messages one came */
    go(&honest);
    go(&g);
    close_door(&d);
}
END_TEST

/* What psd relies on: whoever libzmq lets in unasked has no number. */
START_TEST(without_a_handler_nobody_has_a_number)
{
    struct door d;
    struct guest g;
    char name[32], id[32];
    open_door(&d, false);
    knock(&g, &d, &d.allowed);
    if (hear(&d, name, id, 1))
        ck_assert_str_eq(id, "-");
    go(&g);
    close_door(&d);
}
END_TEST

START_TEST(many_are_answered)
{
    enum { N = 40 };
    struct door d;
    struct guest g[N];
    char name[32], id[32];
    open_door(&d, true);
    for (int i = 0; i < N; i++)
        knock(&g[i], &d, &d.allowed);
    for (int i = 0; i < N; i++)
        ck_assert_msg(hear(&d, name, id, PATIENCE_S), "guest %d", i);
    ck_assert_uint_eq(d.n_asked, N);
    for (int i = 0; i < N; i++)
        go(&g[i]);
    close_door(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zap");
    TCase *c = tcase_create("zap");
    tcase_add_test(c, messages_say_whose_they_are);
    tcase_add_test(c, who_is_refused_is_told);
    tcase_add_test(c, without_a_handler_nobody_has_a_number);
    tcase_add_test(c, many_are_answered);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
