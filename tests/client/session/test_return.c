/* When a client says Hello again: not after ever longer waits alone. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "client/psclient.h"
#include "client/session/retry.h"
#include "proto/wire/control.h"
#include "tests/support/unit.h"

double __wrap_psc_retry_next(struct psc_retry *r, double first, double most);

/* As long as a client has never waited: no Hello comes because time has passed. */
double __wrap_psc_retry_next(struct psc_retry *r, double first, double most)
{
    (void)r;
    (void)first;
    (void)most;
    return 1e9;
}

static void *bind_router(void *context, char *url, size_t size)
{
    int zero = 0;
    void *socket = zmq_socket(context, ZMQ_ROUTER);
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    double end = unit_now_s() + UNIT_HANG_S;
    while (zmq_bind(socket, url) != 0) { /* the socket before may still be closing */
        ck_assert_msg(unit_now_s() < end, "%s: %s", url, zmq_strerror(zmq_errno()));
        unit_nap_ms(1);
    }
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, url, &size);
    return socket;
}

/* Waits for a Hello; of whom. */
static void take_hello(void *socket, zmq_msg_t *id)
{
    zmq_msg_t body;
    int limit_ms = (int)(UNIT_HANG_S * 1e3);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &limit_ms, sizeof limit_ms);
    zmq_msg_init(id);
    zmq_msg_init(&body);
    ck_assert_msg(zmq_msg_recv(id, socket, 0) >= 0, "no Hello comes");
    ck_assert_int_ge(zmq_msg_recv(&body, socket, 0), 0);
    Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
    ck_assert(m != NULL && m->what_case == PS__TO_SERVER__WHAT_HELLO);
    ps_control_free_to_server(m);
    zmq_msg_close(&body);
}

static void refuse(void *socket, zmq_msg_t *id)
{
    Ps__Error error = PS__ERROR__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    error.code = PS__CODE__FULL;
    error.sentence = "heard twice";
    m.what_case = PS__TO_CLIENT__WHAT_ERROR;
    m.error = &error;
    zmq_msg_send(id, socket, ZMQ_SNDMORE);
    ps_control_send(socket, &m.base);
}

static void *open_client(void *arg)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = arg;
    opt.timeout_ms = 1u << 30;
    ck_assert_int_lt(psc_open(&opt, &c), 0);
    assert_says(psc_error(c), "heard twice");
    psc_close(c);
    return NULL;
}

/* A server takes a Hello, dies before it has answered, and comes back at the same address. */
START_TEST(a_server_that_is_back_hears_hello_again)
{
    char url[64] = "tcp://127.0.0.1:*";
    zmq_msg_t id;
    pthread_t client;
    void *context = zmq_ctx_new(), *socket = bind_router(context, url, sizeof url);
    ck_assert_int_eq(pthread_create(&client, NULL, open_client, url), 0);
    for (int life = 0; life < 3; life++) {
        take_hello(socket, &id);
        if (life == 2)
            refuse(socket, &id);
        zmq_msg_close(&id);
        if (life == 2)
            break;
        zmq_close(socket);
        socket = bind_router(context, url, sizeof url);
    }
    pthread_join(client, NULL);
    zmq_close(socket);
    zmq_ctx_term(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-return");
    TCase *tc = tcase_create("return");
    tcase_add_test(tc, a_server_that_is_back_hears_hello_again);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
