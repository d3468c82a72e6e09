/* One suite for every row of the transports' table, both ends of the transport in threads of their own:
 * messages and their bodies, windows, many clients. test_transport_loss.c has what is lost and found again.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "tests/proto/transports/transport_fixture.h"

START_TEST(rows_are_found_by_name_and_url)
{
    const struct ps_transport *t = rig_row(_i);
    char url[64];
    if (t == NULL)
        return;
    rig_any_url(t, url, sizeof url);
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
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client c;
    struct ps_message m;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&c, t, s.url, 0);
    for (size_t i = 0; i < ROWS(sizes); i++)
        rig_trip(&c, i, sizes[i]);
    rig_send(&c, 99, NULL, 0); /* a pull has no body */
    ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(m.body_bytes, 0);
    c.t->message_drop(&m);
    rig_client_close(&c);
    rig_server_close(&s);
    ck_assert_int_eq(s.served, (int)ROWS(sizes) + 1);
    ck_assert_int_eq(s.malformed, 0);
}
END_TEST

START_TEST(answers_come_in_the_order_of_their_requests)
{
    enum { N = 20000 };
    static unsigned char bodies[WINDOW][512];
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client c;
    struct ps_message m;
    uint64_t sent = 0;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&c, t, s.url, 0);
    for (uint64_t got = 0; got < N; got++) {
        while (sent < N && sent - got < WINDOW) {
            rig_send(&c, sent, bodies[sent % WINDOW], sent % sizeof bodies[0]);
            sent++;
        }
        assert_quick(rig_recv(&c, &m, PATIENCE_MS) == 0);
        assert_quick(rig_number(&m) == got);
        assert_quick(m.body_bytes == got % sizeof bodies[0]);
        c.t->message_drop(&m);
    }
    rig_client_close(&c);
    rig_server_close(&s);
}
END_TEST

/* In threads of their own, all at once. They connect one by one: while 63 others make an emulated machine
 * busy, a port may not answer in PS_ATTACH_MS. */
struct walker {
    struct rig_server *s;
    pthread_mutex_t *turn;
    pthread_barrier_t *all;
    uint32_t number;
    pthread_t thread;
    int wrong;
};

static void *walk(void *arg)
{
    struct walker *w = arg;
    struct rig_client c;
    pthread_mutex_lock(w->turn);
    rig_client_open(&c, w->s->t, w->s->url, w->number);
    pthread_mutex_unlock(w->turn);
    pthread_barrier_wait(w->all);
    for (uint64_t n = 0; n < 50; n++)
        w->wrong += !rig_trip_is_right(&c, n * RIG_CLIENTS + w->number, (size_t)(w->number * 100 + n));
    rig_client_close(&c);
    return NULL;
}

START_TEST(sixty_four_clients_get_their_own_answers)
{
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct walker w[RIG_CLIENTS];
    pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_barrier_t all;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    pthread_barrier_init(&all, NULL, RIG_CLIENTS);
    for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
        w[i] = (struct walker){.s = &s, .turn = &turn, .all = &all, .number = i};
        ck_assert_int_eq(pthread_create(&w[i].thread, NULL, walk, &w[i]), 0);
    }
    for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
        pthread_join(w[i].thread, NULL);
        ck_assert_int_eq(w[i].wrong, 0);
    }
    ck_assert_int_eq(s.served, RIG_CLIENTS * 50);
    pthread_barrier_destroy(&all);
    rig_server_close(&s);
}
END_TEST

/* As rig_answer; counts bodies over the limit. */
static void count_large(struct rig_server *s, struct ps_message *m, int rc)
{
    atomic_fetch_add((atomic_int *)s->arg, m->body_bytes > CHUNK_BYTES);
    rig_answer(s, m, rc);
}

START_TEST(body_over_the_limit_harms_its_sender_only)
{
    static unsigned char big[1 << 20];
    const struct ps_transport_limits rude_limits = {.max_body_bytes = sizeof big, .window_chunks = WINDOW};
    const struct ps_transport *t = rig_row(_i);
    struct ps_pass pass = rig_pass(1, 1);
    unsigned char head[PS_FRAME_BYTES];
    struct rig_server s;
    struct rig_client honest, rude;
    struct ps_error err = {""};
    atomic_int large = 0;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, count_large, &large);
    rig_client_open(&honest, t, s.url, 0);
    ck_assert_msg(rig_client_try(&rude, t, s.url, &rude_limits, &pass, &err) == 0, "%s", err.text);
    rig_trip(&honest, 1, 100);
    rig_trip(&rude, 2, 100);
    rig_head(head, 3);
    int rc = t->link_send(rude.link, head, big, sizeof big);
    if (rig_attaches(t)) { /* the link knows how large a slot is */
        ck_assert_int_eq(rc, -EMSGSIZE);
        rig_trip(&rude, 4, 100);
    } else {
        ck_assert_int_eq(rc, 0); /* its connection ends */
        rig_client_close(&rude);
        ck_assert_int_eq(rig_client_try(&rude, t, s.url, &rude_limits, &pass, &err), 0);
        rig_trip(&rude, 4, 100);
    }
    rig_trip(&honest, 5, CHUNK_BYTES);
    rig_client_close(&rude);
    rig_client_close(&honest);
    rig_server_close(&s);
    ck_assert_int_eq(large, 0);
    ck_assert_int_eq(s.malformed, 0);
    if (rig_attaches(t))
        ck_assert_int_eq(s.served, 4);
}
END_TEST

/* A peer that sends and never reads: its window is full (transports with slots), or its answers meet -EAGAIN;
 * and the others are served. */
START_TEST(slow_reader_is_told_apart)
{
    static unsigned char body[CHUNK_BYTES];
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client slow, honest;
    unsigned char head[PS_FRAME_BYTES];
    double deadline = unit_now_s() + PATIENCE_MS / 1e3;
    int sent = 0;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&slow, t, s.url, 0);
    rig_client_open(&honest, t, s.url, 1);
    rig_head(head, 0);
    while (s.again == 0 && unit_now_s() < deadline) {
        int rc = t->link_send(slow.link, head, body, sizeof body);
        sent += rc == 0;
        if (rc == -EAGAIN && rig_attaches(t) && s.served == sent)
            break;
        if (rc == -EAGAIN)
            unit_nap_ms(1);
    }
    if (rig_attaches(t))
        ck_assert_int_eq(sent, WINDOW);
    else
        ck_assert_int_gt(s.again, 0);
    rig_trip(&honest, 1, 1000);
    rig_client_close(&slow);
    rig_trip(&honest, 2, 1000);
    rig_client_close(&honest);
    rig_server_close(&s);
}
END_TEST

/* The window is full when the server does not read; then link_close gives all bodies back, before the server
 * reads again: one that waited for it would never return. */
START_TEST(link_close_returns_while_the_server_never_reads)
{
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client c;
    unsigned char head[PS_FRAME_BYTES], *body;
    int sent = 0, rc = 0;
    if (t == NULL)
        return;
    body = malloc(CHUNK_BYTES);
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&c, t, s.url, 0);
    rig_server_sleeps(&s, true);
    rig_head(head, 0);
    memset(body, 1, CHUNK_BYTES);
    for (double end = unit_now_s() + PATIENCE_MS / 1e3; unit_now_s() < end && sent < 10000;) {
        rc = t->link_send(c.link, head, body, CHUNK_BYTES);
        sent += rc == 0;
        if (rc == -EAGAIN) { /* full now, and still full when an I/O thread had time */
            unit_nap_ms(10);
            if ((rc = t->link_send(c.link, head, body, CHUNK_BYTES)) == -EAGAIN)
                break;
            sent += rc == 0;
        }
    }
    ck_assert_int_eq(rc, -EAGAIN);
    ck_assert_int_ge(sent, WINDOW);
    rig_client_close(&c);
    memset(body, 2, CHUNK_BYTES);
    free(body); /* the address sanitizer sees who still reads it */
    rig_server_sleeps(&s, false);
    rig_server_close(&s);
}
END_TEST

/* Every other message is dropped; the others get bodies of other lengths. */
static void change(struct rig_server *s, struct ps_message *m, int rc)
{
    uint64_t i = rig_number(m);
    assert_quick(rc == 0);
    if (i % 2 == 0) {
        s->t->message_drop(m);
        return;
    }
    assert_quick(s->t->message_body(m, (size_t)i * 3000) == 0);
    assert_quick(m->body_bytes == i * 3000);
    memset(m->body, (int)i, m->body_bytes);
    assert_quick(s->t->port_reply(s->port, m) == 0);
}

START_TEST(messages_can_be_dropped_and_get_other_bodies)
{
    static unsigned char body[100];
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client c;
    struct ps_message m;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, change, NULL);
    rig_client_open(&c, t, s.url, 0);
    for (uint64_t i = 0; i < 20; i++) {
        rig_send(&c, i, body, sizeof body);
        if (i % 2 == 0)
            continue;
        ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
        ck_assert_uint_eq(rig_number(&m), i); /* the dropped ones are not answered */
        ck_assert_uint_eq(m.body_bytes, i * 3000);
        ck_assert_uint_eq(m.body[i * 3000 - 1], i);
        t->message_drop(&m);
    }
    rig_client_close(&c);
    rig_server_close(&s);
}
END_TEST

START_TEST(bad_urls_are_named)
{
    const struct ps_transport *t = rig_row(_i);
    char url[200];
    struct ps_hub *hub;
    struct ps_port *port = NULL;
    struct ps_link *link = NULL;
    struct ps_error err = {""};
    if (t == NULL)
        return;
    snprintf(url, sizeof url, "%s://%s/%0*d", t->name, "no-such-host.invalid", PS_UNIX_PATH_MAX, 7);
    ck_assert_int_eq(t->hub_create(1, &hub), 0);
    ck_assert_int_lt(t->port_open(hub, url, &rig_limits, &port, &err), 0);
    assert_says(err.text, strstr(url, "://") + 3);
    ck_assert_int_lt(t->link_open(hub, url, &rig_limits, &link, &err), 0);
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
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client c;
    struct ps_link *links[2] = {NULL, NULL};
    int fds[2];
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&c, t, s.url, 0);
    links[1] = c.link; /* an empty lane has no link */
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(t->links_wait(links, 2, fds[0], 10), -ETIMEDOUT);
    ck_assert_int_eq(t->links_wait(links, 2, fds[0], 0), -ETIMEDOUT);
    ck_assert_int_eq((int)write(fds[1], "x", 1), 1);
    ck_assert_int_eq(t->links_wait(links, 2, fds[0], PATIENCE_MS), 0);
    rig_send(&c, 1, "abc", 3);
    ck_assert_int_eq(t->links_wait(links, 2, -1, PATIENCE_MS), 0);
    close(fds[0]);
    close(fds[1]);
    rig_client_close(&c);
    rig_server_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-transport");
    TCase *tc = tcase_create("rows");
    tcase_add_loop_test(tc, rows_are_found_by_name_and_url, 0, RIG_ROWS);
    tcase_add_loop_test(tc, sizes_from_nothing_to_a_chunk, 0, RIG_ROWS);
    tcase_add_loop_test(tc, answers_come_in_the_order_of_their_requests, 0, RIG_ROWS);
    tcase_add_loop_test(tc, sixty_four_clients_get_their_own_answers, 0, RIG_ROWS);
    tcase_add_loop_test(tc, body_over_the_limit_harms_its_sender_only, 0, RIG_ROWS);
    tcase_add_loop_test(tc, slow_reader_is_told_apart, 0, RIG_ROWS);
    tcase_add_loop_test(tc, link_close_returns_while_the_server_never_reads, 0, RIG_ROWS);
    tcase_add_loop_test(tc, messages_can_be_dropped_and_get_other_bodies, 0, RIG_ROWS);
    tcase_add_loop_test(tc, bad_urls_are_named, 0, RIG_ROWS);
    tcase_add_loop_test(tc, waiting_ends_with_time_or_the_extra_descriptor, 0, RIG_ROWS);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
