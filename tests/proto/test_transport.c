/* One suite for every row of the transports' table, both ends of the road in threads of their own; then what
 * only raw sockets can do to a port. */
#include "proto/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/frame.h"
#include "proto/unix_socket.h"
#include "tests/support/unit.h"

enum { CHUNK_BYTES = 65536, WINDOW = 4, PATIENCE_MS = 5000, MAX_ROWS = 4 };

static const struct ps_road_limits limits = {.max_body_bytes = CHUNK_BYTES, .window_chunks = WINDOW};

static const struct ps_transport *row(int i)
{
    size_t n;
    const struct ps_transport *const *rows = ps_transport_rows(&n);
    ck_assert_uint_le(n, MAX_ROWS);
    return (size_t)i < n ? rows[i] : NULL;
}

/* A server in a thread: answers every message by itself, with its body's bytes plus one. */
struct server {
    const struct ps_transport *t;
    struct ps_hub *hub;
    struct ps_port *port;
    char url[300];
    pthread_t thread;
    bool runs;
    atomic_bool stop, asleep; /* asleep: reads nothing */
    atomic_int served, malformed, again, unreachable;
};

static void serve_one(struct server *s, struct ps_message *m, int rc)
{
    if (rc == -EBADMSG) {
        atomic_fetch_add(&s->malformed, 1);
        ck_assert_int_eq(s->t->message_body(m, 3), 0);
        ck_assert_uint_eq(m->head_bytes, PS_FRAME_BYTES);
        ck_assert_uint_eq(m->body_bytes, 3);
        memcpy(m->body, "bad", 3);
    } else {
        atomic_fetch_add(&s->served, 1);
        for (size_t i = 0; i < m->body_bytes; i++)
            m->body[i]++;
    }
    rc = s->t->port_reply(s->port, m);
    atomic_fetch_add(&s->again, rc == -EAGAIN);
    atomic_fetch_add(&s->unreachable, rc == -EHOSTUNREACH);
}

static void *serve(void *arg)
{
    struct server *s = arg;
    struct pollfd fd = {.fd = s->t->port_fd(s->port), .events = POLLIN};
    struct ps_message m;
    int rc;
    while (!atomic_load(&s->stop)) {
        while (!atomic_load(&s->asleep) && ((rc = s->t->port_recv(s->port, &m)) == 0 || rc == -EBADMSG))
            serve_one(s, &m, rc);
        poll(&fd, atomic_load(&s->asleep) ? 0 : 1, 2);
    }
    return NULL;
}

static void server_open(struct server *s, const struct ps_transport *t, const char *url)
{
    struct ps_error err = {""};
    *s = (struct server){.t = t};
    ck_assert_int_eq(t->hub_create(1, &s->hub), 0);
    for (int i = 0; i < 100; i++) { /* an address may take a moment to be free again */
        if (t->port_open(s->hub, url, &limits, &s->port, &err) == 0)
            break;
        unit_nap_ms(20);
    }
    ck_assert_msg(s->port != NULL, "%s", err.text);
    snprintf(s->url, sizeof s->url, "%s", t->port_url(s->port));
    ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_close(struct server *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    s->t->port_close(s->port);
    s->t->hub_destroy(s->hub);
}

static void any_url(const struct ps_transport *t, char *url, size_t size)
{
    static atomic_int made;
    if (strcmp(t->name, "ipc") == 0)
        snprintf(url, size, "ipc:///tmp/psd-test-road-%d.%d", (int)getpid(), atomic_fetch_add(&made, 1));
    else
        snprintf(url, size, "%s://127.0.0.1:0", t->name);
}

/* The client's end. */
struct client {
    const struct ps_transport *t;
    struct ps_hub *hub;
    struct ps_link *link;
};

static void client_open(struct client *c, const struct ps_transport *t, const char *url,
                        size_t max_body_bytes)
{
    struct ps_error err = {""};
    struct ps_road_limits mine = {max_body_bytes, WINDOW};
    c->t = t;
    ck_assert_int_eq(t->hub_create(1, &c->hub), 0);
    ck_assert_msg(t->link_open(c->hub, url, &mine, &c->link, &err) == 0, "%s", err.text);
}

static void client_close(struct client *c)
{
    c->t->link_close(c->link);
    c->t->hub_destroy(c->hub);
}

static void head_of(unsigned char *head, uint64_t number)
{
    memset(head, 0xaa, PS_FRAME_BYTES);
    memcpy(head + 8, &number, sizeof number);
}

static uint64_t number_of(const struct ps_message *m)
{
    uint64_t number;
    ck_assert_uint_eq(m->head_bytes, PS_FRAME_BYTES);
    memcpy(&number, m->head + 8, sizeof number);
    return number;
}

/* 0, or -ETIMEDOUT. */
static int client_recv(struct client *c, struct ps_message *m, int patience_ms)
{
    double deadline = unit_now_s() + patience_ms / 1e3;
    int rc;
    while ((rc = c->t->link_recv(c->link, m)) == -EAGAIN) {
        if (unit_now_s() > deadline)
            return -ETIMEDOUT;
        c->t->links_wait(&c->link, 1, -1, 5);
    }
    return rc;
}

static void client_send(struct client *c, uint64_t number, const void *body, size_t len)
{
    unsigned char head[PS_FRAME_BYTES];
    head_of(head, number);
    ck_assert_int_eq(c->t->link_send(c->link, head, body, len), 0);
}

/* One message there and back. */
static void check_trip(struct client *c, uint64_t number, size_t len)
{
    unsigned char *body = malloc(len + 1);
    struct ps_message m;
    ck_assert_ptr_nonnull(body);
    for (size_t i = 0; i < len; i++)
        body[i] = (unsigned char)(i * 7 + number);
    client_send(c, number, body, len);
    ck_assert_int_eq(client_recv(c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(number_of(&m), number);
    ck_assert_uint_eq(m.body_bytes, len);
    for (size_t i = 0; i < len; i++)
        ck_assert_uint_eq(m.body[i], (unsigned char)(i * 7 + number + 1));
    c->t->message_drop(&m);
    free(body);
}

static void setup(int i, struct server *s, const char *url)
{
    char any[64];
    any_url(row(i), any, sizeof any);
    server_open(s, row(i), url != NULL ? url : any);
}

START_TEST(rows_are_found_by_name_and_url)
{
    const struct ps_transport *t = row(_i);
    char url[64];
    if (t == NULL)
        return;
    any_url(t, url, sizeof url);
    ck_assert_ptr_eq(ps_transport_find(t->name), t);
    ck_assert_ptr_eq(ps_transport_of_url(url), t);
    ck_assert_ptr_null(ps_transport_of_url(t->name));
    ck_assert_ptr_null(ps_transport_of_url("pigeon://127.0.0.1:1"));
    ck_assert_ptr_null(ps_transport_find("pigeon"));
}
END_TEST

START_TEST(sizes_from_nothing_to_a_chunk)
{
    static const size_t sizes[] = {
        0, 1, 3, 4, 63, 64, 65, 255, 256, 4095, 4096, 8191, 8192, 8193, 65535, CHUNK_BYTES, CHUNK_BYTES - 7};
    struct server s;
    struct client c;
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    client_open(&c, s.t, s.url, CHUNK_BYTES);
    for (size_t i = 0; i < ROWS(sizes); i++)
        check_trip(&c, i, sizes[i]);
    client_send(&c, 99, NULL, 0); /* a pull has no body */
    struct ps_message m;
    ck_assert_int_eq(client_recv(&c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(m.body_bytes, 0);
    c.t->message_drop(&m);
    client_close(&c);
    server_close(&s);
    ck_assert_int_eq(s.served, (int)ROWS(sizes) + 1);
    ck_assert_int_eq(s.malformed, 0);
}
END_TEST

START_TEST(answers_come_in_the_order_of_their_requests)
{
    enum { N = 2000 };
    static unsigned char bodies[WINDOW][512];
    struct server s;
    struct client c;
    struct ps_message m;
    uint64_t sent = 0;
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    client_open(&c, s.t, s.url, CHUNK_BYTES);
    for (uint64_t got = 0; got < N; got++) {
        while (sent < N && sent - got < WINDOW) {
            client_send(&c, sent, bodies[sent % WINDOW], sent % sizeof bodies[0]);
            sent++;
        }
        ck_assert_int_eq(client_recv(&c, &m, PATIENCE_MS), 0);
        ck_assert_uint_eq(number_of(&m), got);
        ck_assert_uint_eq(m.body_bytes, got % sizeof bodies[0]);
        c.t->message_drop(&m);
    }
    client_close(&c);
    server_close(&s);
}
END_TEST

START_TEST(answers_go_to_who_asked)
{
    enum { CLIENTS = 3 };
    struct server s;
    struct client c[CLIENTS];
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    for (int i = 0; i < CLIENTS; i++)
        client_open(&c[i], s.t, s.url, CHUNK_BYTES);
    for (uint64_t n = 0; n < 50; n++)
        for (uint64_t i = 0; i < CLIENTS; i++)
            check_trip(&c[i], n * CLIENTS + i, (size_t)(i * 100 + n));
    for (int i = 0; i < CLIENTS; i++)
        client_close(&c[i]);
    server_close(&s);
}
END_TEST

START_TEST(body_over_the_limit_ends_its_connection_only)
{
    static unsigned char big[CHUNK_BYTES + 1];
    struct server s;
    struct client honest, rude;
    struct ps_message m;
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    client_open(&honest, s.t, s.url, CHUNK_BYTES);
    client_open(&rude, s.t, s.url, sizeof big);
    check_trip(&honest, 1, 100);
    check_trip(&rude, 2, 100);
    client_send(&rude, 3, big, sizeof big);
    ck_assert_int_eq(client_recv(&rude, &m, 300), -ETIMEDOUT);
    check_trip(&honest, 4, CHUNK_BYTES);
    ck_assert_int_eq(s.served, 3);
    client_close(&rude); /* returns although its message was never taken */
    client_close(&honest);
    server_close(&s);
}
END_TEST

/* A peer that sends and never reads: its answers meet -EAGAIN, and the others are served. */
START_TEST(slow_reader_is_told_apart)
{
    static unsigned char body[CHUNK_BYTES];
    struct server s;
    struct client slow, honest;
    unsigned char head[PS_FRAME_BYTES];
    double deadline = unit_now_s() + PATIENCE_MS / 1e3;
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    client_open(&slow, s.t, s.url, CHUNK_BYTES);
    client_open(&honest, s.t, s.url, CHUNK_BYTES);
    head_of(head, 0);
    while (s.again == 0 && unit_now_s() < deadline)
        if (slow.t->link_send(slow.link, head, body, sizeof body) == -EAGAIN)
            unit_nap_ms(1);
    ck_assert_int_gt(s.again, 0);
    check_trip(&honest, 1, 1000);
    client_close(&slow);
    check_trip(&honest, 2, 1000);
    client_close(&honest);
    server_close(&s);
}
END_TEST

/* The window is full when the server does not read; then link_close gives all bodies back at once. */
START_TEST(link_close_returns_while_the_server_never_reads)
{
    struct server s;
    struct client c;
    unsigned char head[PS_FRAME_BYTES], *body = malloc(CHUNK_BYTES);
    int sent = 0, rc = 0;
    if (row(_i) == NULL) {
        free(body);
        return;
    }
    setup(_i, &s, NULL);
    s.asleep = true;
    client_open(&c, s.t, s.url, CHUNK_BYTES);
    head_of(head, 0);
    memset(body, 1, CHUNK_BYTES);
    for (double end = unit_now_s() + PATIENCE_MS / 1e3; unit_now_s() < end && sent < 10000;) {
        rc = c.t->link_send(c.link, head, body, CHUNK_BYTES);
        sent += rc == 0;
        if (rc == -EAGAIN) { /* full now, and still full when the I/O thread had time */
            unit_nap_ms(50);
            if ((rc = c.t->link_send(c.link, head, body, CHUNK_BYTES)) == -EAGAIN)
                break;
            sent += rc == 0;
        }
    }
    ck_assert_int_eq(rc, -EAGAIN);
    ck_assert_int_ge(sent, WINDOW);
    double begin = unit_now_s();
    client_close(&c);
    memset(body, 2, CHUNK_BYTES);
    free(body); /* the address sanitizer sees who still reads it */
    ck_assert_double_lt(unit_now_s() - begin, 2.0);
    unit_nap_ms(20);
    s.asleep = false;
    server_close(&s);
}
END_TEST

START_TEST(link_close_returns_when_nobody_listens)
{
    const struct ps_transport *t = row(_i);
    struct server s;
    struct client c;
    char url[300];
    if (t == NULL)
        return;
    setup(_i, &s, NULL);
    snprintf(url, sizeof url, "%s", s.url);
    server_close(&s);
    client_open(&c, t, url, CHUNK_BYTES);
    unsigned char head[PS_FRAME_BYTES], *body = malloc(CHUNK_BYTES);
    head_of(head, 0);
    memset(body, 1, CHUNK_BYTES);
    c.t->link_send(c.link, head, body, CHUNK_BYTES);
    client_close(&c);
    free(body);
}
END_TEST

START_TEST(link_finds_the_server_again)
{
    struct server s;
    struct client c;
    char url[300];
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    snprintf(url, sizeof url, "%s", s.url);
    client_open(&c, s.t, s.url, CHUNK_BYTES);
    check_trip(&c, 1, 100);
    server_close(&s);
    setup(_i, &s, url);
    client_close(&c);
    client_open(&c, s.t, s.url, CHUNK_BYTES);
    check_trip(&c, 2, 100);
    client_close(&c);
    server_close(&s);
}
END_TEST

START_TEST(reply_to_one_who_has_gone_is_told)
{
    struct server s;
    struct client c;
    struct ps_message m;
    struct ps_error err;
    static unsigned char body[100];
    char url[64];
    const struct ps_transport *t = row(_i);
    if (t == NULL)
        return;
    any_url(t, url, sizeof url);
    s = (struct server){.t = t};
    ck_assert_int_eq(t->hub_create(1, &s.hub), 0);
    ck_assert_int_eq(t->port_open(s.hub, url, &limits, &s.port, &err), 0);
    client_open(&c, t, t->port_url(s.port), CHUNK_BYTES);
    client_send(&c, 1, body, sizeof body);
    int rc = -EAGAIN;
    for (double end = unit_now_s() + PATIENCE_MS / 1e3; rc == -EAGAIN && unit_now_s() < end;) {
        struct pollfd fd = {.fd = t->port_fd(s.port), .events = POLLIN};
        rc = t->port_recv(s.port, &m);
        if (rc == -EAGAIN)
            poll(&fd, 1, 10);
    }
    ck_assert_int_eq(rc, 0);
    client_close(&c);
    for (int i = 0; i < 200; i++) { /* until the port has noticed */
        struct ps_message none;
        if (t->port_recv(s.port, &none) == 0)
            t->message_drop(&none);
        unit_nap_ms(1);
    }
    ck_assert_int_eq(t->port_reply(s.port, &m), -EHOSTUNREACH);
    t->port_close(s.port);
    t->hub_destroy(s.hub);
}
END_TEST

START_TEST(messages_can_be_dropped_and_get_other_bodies)
{
    static unsigned char body[100];
    const struct ps_transport *t = row(_i);
    struct server s = {.t = t};
    struct client c;
    struct ps_message m;
    struct ps_error err;
    char url[64];
    if (t == NULL)
        return;
    any_url(t, url, sizeof url);
    ck_assert_int_eq(t->hub_create(1, &s.hub), 0);
    ck_assert_int_eq(t->port_open(s.hub, url, &limits, &s.port, &err), 0);
    client_open(&c, t, t->port_url(s.port), CHUNK_BYTES);
    for (uint64_t i = 0; i < 20; i++) {
        int rc;
        client_send(&c, i, body, sizeof body);
        while ((rc = t->port_recv(s.port, &m)) == -EAGAIN)
            unit_nap_ms(1);
        ck_assert_int_eq(rc, 0);
        if (i % 2 == 0) {
            t->message_drop(&m);
            continue;
        }
        ck_assert_int_eq(t->message_body(&m, (size_t)i * 3000), 0);
        ck_assert_uint_eq(m.body_bytes, i * 3000);
        memset(m.body, (int)i, m.body_bytes);
        ck_assert_int_eq(t->port_reply(s.port, &m), 0);
        ck_assert_int_eq(client_recv(&c, &m, PATIENCE_MS), 0);
        ck_assert_uint_eq(number_of(&m), i); /* the dropped ones are not answered */
        ck_assert_uint_eq(m.body_bytes, i * 3000);
        ck_assert_uint_eq(m.body[i * 3000 - 1], i);
        c.t->message_drop(&m);
    }
    client_close(&c);
    t->port_close(s.port);
    t->hub_destroy(s.hub);
}
END_TEST

START_TEST(bad_urls_are_named)
{
    const struct ps_transport *t = row(_i);
    char url[200];
    struct ps_hub *hub;
    struct ps_port *port = NULL;
    struct ps_link *link = NULL;
    struct ps_error err = {""};
    if (t == NULL)
        return;
    snprintf(url, sizeof url, "%s://%s/%0*d", t->name, "no-such-host.invalid", PS_UNIX_PATH_MAX, 7);
    ck_assert_int_eq(t->hub_create(1, &hub), 0);
    ck_assert_int_lt(t->port_open(hub, url, &limits, &port, &err), 0);
    assert_says(err.text, strstr(url, "://") + 3);
    ck_assert_int_lt(t->link_open(hub, url, &limits, &link, &err), 0);
    assert_says(err.text, url);
    ck_assert(port == NULL && link == NULL);
    t->port_close(NULL);
    t->link_close(NULL);
    t->hub_destroy(hub);
    t->hub_destroy(NULL);
}
END_TEST

START_TEST(waiting_ends_with_time_or_the_extra_descriptor)
{
    struct server s;
    struct client c;
    struct ps_link *links[2] = {NULL, NULL};
    int fds[2];
    if (row(_i) == NULL)
        return;
    setup(_i, &s, NULL);
    client_open(&c, s.t, s.url, CHUNK_BYTES);
    links[1] = c.link; /* an empty lane has no link */
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(c.t->links_wait(links, 2, fds[0], 10), -ETIMEDOUT);
    ck_assert_int_eq((int)write(fds[1], "x", 1), 1);
    ck_assert_int_eq(c.t->links_wait(links, 2, fds[0], PATIENCE_MS), 0);
    client_send(&c, 1, "abc", 3);
    ck_assert_int_eq(c.t->links_wait(links, 2, -1, PATIENCE_MS), 0);
    close(fds[0]);
    close(fds[1]);
    client_close(&c);
    server_close(&s);
}
END_TEST

static void raw_file(char *path, size_t size)
{
    any_url(ps_transport_find("ipc"), path, size);
    memmove(path, path + strlen("ipc://"), strlen(path + strlen("ipc://")) + 1);
}

START_TEST(ipc_sockets_are_private_and_removed)
{
    const struct ps_transport *t = ps_transport_find("ipc");
    struct server s, second = {.t = t};
    struct ps_error err;
    struct stat st;
    char url[64];

    any_url(t, url, sizeof url);
    server_open(&s, t, url);
    const char *path = s.url + strlen("ipc://");
    ck_assert_str_eq(s.url, url);
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    /* A live one is not taken. */
    ck_assert_int_eq(t->hub_create(1, &second.hub), 0);
    ck_assert_int_eq(t->port_open(second.hub, url, &limits, &second.port, &err), -EADDRINUSE);
    assert_says(err.text, path);
    assert_says(err.text, "in use by another process");
    t->hub_destroy(second.hub);
    ck_assert_int_eq(lstat(path, &st), 0);
    server_close(&s);
    ck_assert_int_eq(lstat(path, &st), -1);
}
END_TEST

START_TEST(ipc_replaces_a_stale_socket_and_no_other_file)
{
    const struct ps_transport *t = ps_transport_find("ipc");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct server s;
    struct client c;
    struct ps_error err;
    char url[120];

    raw_file(at.sun_path, sizeof at.sun_path);
    snprintf(url, sizeof url, "ipc://%s", at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd); /* as a killed psd leaves it */
    ck_assert_int_eq(access(at.sun_path, F_OK), 0);
    server_open(&s, t, url);
    client_open(&c, t, url, CHUNK_BYTES);
    check_trip(&c, 1, 100);
    client_close(&c);
    server_close(&s);

    fd = open(at.sun_path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    s = (struct server){.t = t};
    ck_assert_int_eq(t->hub_create(1, &s.hub), 0);
    ck_assert_int_eq(t->port_open(s.hub, url, &limits, &s.port, &err), -EEXIST);
    assert_says(err.text, "a file that is no socket is there");
    t->hub_destroy(s.hub);
    ck_assert_int_eq(unlink(at.sun_path), 0);
}
END_TEST

START_TEST(lanes_listen_beside_the_control_road)
{
    char url[64];
    ps_transport_find("ipc")->lane_url("ipc:///run/psd/x.sock", 63, url, sizeof url);
    ck_assert_str_eq(url, "ipc:///run/psd/x.sock.63");
    ps_transport_find("tcp")->lane_url("tcp://[::1]:5555", 1, url, sizeof url);
    ck_assert_str_eq(url, "tcp://[::1]:*");
}
END_TEST

/* Messages of another number of parts, over a raw socket. Each is answered, and the next one is read whole.
 */
START_TEST(malformed_part_counts_do_not_disturb)
{
    struct server s;
    struct client honest;
    void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_DEALER);
    int zero = 0, patience = PATIENCE_MS;
    unsigned char head[PS_FRAME_BYTES] = {1}, buffer[256];

    setup(0, &s, NULL);
    client_open(&honest, s.t, s.url, CHUNK_BYTES);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_RCVTIMEO, &patience, sizeof patience);
    ck_assert_int_eq(zmq_connect(raw, s.url), 0);
    for (int parts = 1; parts <= 6; parts++)
        for (size_t len = 0; len <= sizeof head; len += 32) {
            for (int i = 0; i < parts; i++)
                ck_assert_int_ge(zmq_send(raw, head, i == 0 ? len : 5, i + 1 < parts ? ZMQ_SNDMORE : 0), 0);
            int head_bytes = zmq_recv(raw, buffer, sizeof buffer, 0);
            ck_assert_int_eq(head_bytes, parts == 2 ? (int)len : PS_FRAME_BYTES);
            int body_bytes = zmq_recv(raw, buffer, sizeof buffer, 0);
            ck_assert_int_eq(body_bytes, parts == 2 ? 5 : 3);
            int more;
            size_t size = sizeof more;
            zmq_getsockopt(raw, ZMQ_RCVMORE, &more, &size);
            ck_assert_int_eq(more, 0);
            check_trip(&honest, (uint64_t)parts, 77);
        }
    ck_assert_int_eq(s.malformed, 5 * 3);
    zmq_close(raw);
    zmq_ctx_term(context);
    client_close(&honest);
    server_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-transport");
    TCase *tc = tcase_create("rows"), *tcp = tcase_create("tcp"), *ipc = tcase_create("ipc");
    tcase_set_timeout(tc, 60);
    tcase_set_timeout(tcp, 60);
    tcase_add_loop_test(tc, rows_are_found_by_name_and_url, 0, MAX_ROWS);
    tcase_add_loop_test(tc, sizes_from_nothing_to_a_chunk, 0, MAX_ROWS);
    tcase_add_loop_test(tc, answers_come_in_the_order_of_their_requests, 0, MAX_ROWS);
    tcase_add_loop_test(tc, answers_go_to_who_asked, 0, MAX_ROWS);
    tcase_add_loop_test(tc, body_over_the_limit_ends_its_connection_only, 0, MAX_ROWS);
    tcase_add_loop_test(tc, slow_reader_is_told_apart, 0, MAX_ROWS);
    tcase_add_loop_test(tc, link_close_returns_while_the_server_never_reads, 0, MAX_ROWS);
    tcase_add_loop_test(tc, link_close_returns_when_nobody_listens, 0, MAX_ROWS);
    tcase_add_loop_test(tc, link_finds_the_server_again, 0, MAX_ROWS);
    tcase_add_loop_test(tc, reply_to_one_who_has_gone_is_told, 0, MAX_ROWS);
    tcase_add_loop_test(tc, messages_can_be_dropped_and_get_other_bodies, 0, MAX_ROWS);
    tcase_add_loop_test(tc, bad_urls_are_named, 0, MAX_ROWS);
    tcase_add_loop_test(tc, waiting_ends_with_time_or_the_extra_descriptor, 0, MAX_ROWS);
    tcase_add_test(ipc, ipc_sockets_are_private_and_removed);
    tcase_add_test(ipc, ipc_replaces_a_stale_socket_and_no_other_file);
    tcase_add_test(ipc, lanes_listen_beside_the_control_road);
    suite_add_tcase(suite, ipc);
    tcase_add_test(tcp, malformed_part_counts_do_not_disturb);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, tcp);
    return unit_run(suite);
}
