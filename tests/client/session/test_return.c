/* When a client says Hello again: not after ever longer waits alone. And until when. */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "client/psclient.h"
#include "client/session/retry.h"
#include "proto/transports/transport.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

double __wrap_psc_retry_next(struct psc_retry *r, double first, double most);

/* By default as long as a client has never waited: no Hello comes because time has passed. */
static double wait_ms = 1e9;

double __wrap_psc_retry_next(struct psc_retry *r, double first, double most)
{
    (void)r;
    (void)first;
    (void)most;
    return wait_ms;
}

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

static sem_t name_server;
static atomic_int answered;
static atomic_bool names_resolve;

/* A name's answer comes when the test says so. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0)
        return __real_getaddrinfo(host, port, hints, out);
    sem_wait(&name_server);
    atomic_fetch_add(&answered, 1);
    return atomic_load(&names_resolve) ? __real_getaddrinfo("127.0.0.1", port, hints, out) : EAI_AGAIN;
}

static sem_t name_server_of_zmq;
static atomic_int asked_by_zmq;

/* libzmq's, which the linker does not wrap. */
int getaddrinfo(const char *restrict host, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strstr(host, ".invalid") == NULL || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return real(host, port, hints, out);
    atomic_fetch_add(&asked_by_zmq, 1);
    sem_wait(&name_server_of_zmq);
    return atomic_load(&names_resolve) ? real("127.0.0.1", port, hints, out) : EAI_AGAIN;
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

struct follower {
    void *socket;
    char *head_url;
    atomic_bool stop;
};

static void redirect(struct follower *f, zmq_msg_t *id)
{
    Ps__Elsewhere elsewhere = PS__ELSEWHERE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    elsewhere.url = f->head_url;
    m.what_case = PS__TO_CLIENT__WHAT_ELSEWHERE;
    m.elsewhere = &elsewhere;
    zmq_msg_send(id, f->socket, ZMQ_SNDMORE);
    ps_control_send(f->socket, &m.base);
}

static void *follow(void *arg)
{
    struct follower *f = arg;
    zmq_pollitem_t item = {.socket = f->socket, .events = ZMQ_POLLIN};
    zmq_msg_t id;
    while (!atomic_load(&f->stop))
        if (zmq_poll(&item, 1, 10) > 0) {
            take_hello(f->socket, &id);
            redirect(f, &id);
            zmq_msg_close(&id);
        }
    return NULL;
}

/* Of a job with several servers, whose head is down. The others' redirections are no answer of it. */
START_TEST(a_head_that_does_not_answer_is_waited_for_until_the_timeout)
{
    char url[64] = "tcp://127.0.0.1:*", head_url[64] = "tcp://127.0.0.1:*";
    void *context = zmq_ctx_new(), *head = bind_router(context, head_url, sizeof head_url);
    struct follower f = {.socket = bind_router(context, url, sizeof url), .head_url = head_url};
    struct psc_options opt;
    pthread_t thread;
    struct psc *c;
    wait_ms = 50;
    ck_assert_int_eq(pthread_create(&thread, NULL, follow, &f), 0);
    psc_options_init(&opt, sizeof opt);
    opt.server = url;
    opt.timeout_ms = 1000;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EGONE);
    if (zmq_poll(&(zmq_pollitem_t){.socket = head, .events = ZMQ_POLLIN}, 1, 0) >
        0) { /* it was there in time */
        assert_says(psc_error(c), "redirects workers to the job's head at ");
        assert_says(psc_error(c), head_url);
    }
    psc_close(c);
    atomic_store(&f.stop, true);
    pthread_join(thread, NULL);
    zmq_close(f.socket);
    zmq_close(head);
    zmq_ctx_term(context);
}
END_TEST

/* The name server does not answer in time. */
START_TEST(a_name_is_looked_up_until_the_timeout)
{
    struct psc_options opt;
    struct psc *c;
    sem_init(&name_server, 0, 0);
    sem_init(&name_server_of_zmq, 0, 1000);
    wait_ms = 50;
    psc_options_init(&opt, sizeof opt);
    opt.server = "tcp://no-such-host.invalid:1";
    opt.timeout_ms = 1000;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EGONE);
    ck_assert_int_eq(answered, 0);
    assert_says(psc_error(c), "'no-such-host.invalid': no name server answered in time");
    sem_post(&name_server);
    psc_close(c);
    for (double end = unit_now_s() + UNIT_HANG_S; answered == 0; unit_nap_ms(1))
        ck_assert(unit_now_s() < end);
}
END_TEST

static void resolve_from_now_on(void *arg, const char *sentence)
{
    (void)arg;
    if (strstr(sentence, "does not resolve") != NULL)
        atomic_store(&names_resolve, true);
}

static void welcome(void *socket, zmq_msg_t *id)
{
    char lane[] = "tcp://127.0.0.1:1", *lanes[] = {lane};
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    Ps__Method method = PS__METHOD__INIT;
    Ps__Welcome w = PS__WELCOME__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    method.name = "async-sgd", method.rule = "sgd", method.optimizer = "none";
    method.learning_rate = 1, method.period = 1, method.schedule = &schedule;
    w.incarnation = 5, w.workers = 1, w.method = &method, w.transport = "tcp", w.lanes = lanes, w.n_lanes = 1;
    w.chunk_floats = 1024, w.window_chunks = 2, w.silence_ms = 1000;
    m.what_case = PS__TO_CLIENT__WHAT_WELCOME;
    m.welcome = &w;
    zmq_msg_send(id, socket, ZMQ_SNDMORE);
    ps_control_send(socket, &m.base);
}

struct host {
    void *socket;
    atomic_bool is_lost, stop;
};

/* Welcomes whoever says Hello, until it is lost. */
static void *be_host(void *arg)
{
    struct host *h = arg;
    zmq_pollitem_t item = {.socket = h->socket, .events = ZMQ_POLLIN};
    while (!atomic_load(&h->stop)) {
        zmq_msg_t id, body;
        if (zmq_poll(&item, 1, 10) <= 0)
            continue;
        zmq_msg_init(&id);
        zmq_msg_init(&body);
        zmq_msg_recv(&id, h->socket, 0);
        zmq_msg_recv(&body, h->socket, 0);
        Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
        if (m != NULL && m->what_case == PS__TO_SERVER__WHAT_HELLO && !atomic_load(&h->is_lost))
            welcome(h->socket, &id);
        if (m != NULL)
            ps_control_free_to_server(m);
        zmq_msg_close(&body);
        zmq_msg_close(&id);
    }
    return NULL;
}

/* The first wait that is long enough for the host to be found. */
static struct psc *open_in_time(struct psc_options *opt)
{
    struct psc *c;
    double end = unit_now_s() + UNIT_HANG_S;
    for (;; opt->timeout_ms *= 2) {
        atomic_store(&names_resolve, false);
        if (psc_open(opt, &c) == PSC_OK)
            return c;
        ck_assert_msg(unit_now_s() < end, "%s", psc_error(c));
        psc_close(c);
    }
}

/* The name of the host did not resolve when the job began. The host was found then, and is lost much later.
 */
START_TEST(an_end_does_not_name_a_trouble_of_the_beginning)
{
    static const struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {1}};
    char url[64] = "tcp://127.0.0.1:*", named[64];
    void *context = zmq_ctx_new();
    struct host host = {.socket = bind_router(context, url, sizeof url)};
    struct psc_options opt;
    pthread_t thread;
    float x = 0;
    sem_init(&name_server, 0, 1 << 30);
    sem_init(&name_server_of_zmq, 0, 1 << 30);
    wait_ms = 50;
    snprintf(named, sizeof named, "tcp://psd.invalid%s", strrchr(url, ':'));
    psc_options_init(&opt, sizeof opt);
    opt.server = named;
    opt.timeout_ms = 500;
    opt.heartbeat_ms = _i == 0 ? 10 : 1000; /* it looks for the host again, or not, before it gives up */
    opt.log = resolve_from_now_on;
    ck_assert_int_eq(pthread_create(&thread, NULL, be_host, &host), 0);
    struct psc *c = open_in_time(&opt);
    ck_assert(atomic_load(&names_resolve));
    atomic_store(&host.is_lost, true);
    ck_assert_int_eq(psc_begin(c, &tensor, 1, &x), PSC_EGONE);
    assert_says(psc_error(c), "no answer from tcp://psd.invalid");
    ck_assert_msg(strstr(psc_error(c), "resolve") == NULL, "%s", psc_error(c));
    psc_close(c);
    atomic_store(&host.stop, true);
    pthread_join(thread, NULL);
    zmq_close(host.socket);
    zmq_ctx_term(context);
}
END_TEST

/* psc_close does not wait for one that does not answer: a wait would last until Check's limit. */
START_TEST(a_name_server_does_not_hold_up_the_end)
{
    struct psc_options opt;
    struct psc *c;
    sem_init(&name_server, 0, 100);
    sem_init(&name_server_of_zmq, 0, 0);
    wait_ms = 1e9;
    psc_options_init(&opt, sizeof opt);
    opt.server = "tcp://no-such-host.invalid:1";
    opt.timeout_ms = 1000;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EGONE);
    for (double end = unit_now_s() + UNIT_HANG_S; asked_by_zmq == 0; unit_nap_ms(1))
        ck_assert(unit_now_s() < end);
    psc_close(c);
}
END_TEST

/* Nor does the end of an exchange: psd gives its clients the address of its lanes by name, too. */
START_TEST(a_name_server_does_not_hold_up_the_end_of_data_links)
{
    enum { LINKS = 3 };
    static const struct ps_transport_limits limits = {.max_body_bytes = 4096, .window_chunks = 2};
    const struct ps_transport *t = ps_transport_find("tcp");
    char head[PS_FRAME_BYTES] = "", body[4096] = "";
    struct ps_hub *hub;
    struct ps_link *link[LINKS];
    struct ps_error err = {""};
    sem_init(&name_server_of_zmq, 0, 0);
    ck_assert_int_eq(t->hub_create(1, &hub), 0);
    for (int i = 0; i < LINKS; i++) {
        ck_assert_msg(t->link_open(hub, "tcp://no-such-host.invalid:1", &limits, &link[i], &err) == 0, "%s",
                      err.text);
        ck_assert_int_eq(t->link_send(link[i], head, body, sizeof body), 0);
    }
    for (double end = unit_now_s() + UNIT_HANG_S; asked_by_zmq == 0; unit_nap_ms(1))
        ck_assert(unit_now_s() < end);
    for (int i = 0; i < LINKS; i++)
        t->link_close(link[i]);
    t->hub_destroy(hub);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-return");
    TCase *tc = tcase_create("return");
    tcase_add_test(tc, a_server_that_is_back_hears_hello_again);
    tcase_add_test(tc, a_name_is_looked_up_until_the_timeout);
    tcase_add_loop_test(tc, an_end_does_not_name_a_trouble_of_the_beginning, 0, 2);
    tcase_add_test(tc, a_name_server_does_not_hold_up_the_end);
    tcase_add_test(tc, a_name_server_does_not_hold_up_the_end_of_data_links);
    tcase_add_test(tc, a_head_that_does_not_answer_is_waited_for_until_the_timeout);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
