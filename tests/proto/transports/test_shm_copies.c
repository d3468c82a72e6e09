/* Bodies in registered buffers that a link of shm sends by link_send: the port copies them to its slots. They
 * arrive as they were sent, whatever becomes of the link and its buffer. And answers that are held where they
 * were received. */
#include "proto/log.h"
#include "proto/transports/shm/shm.h"
#include "tests/proto/transports/transport_fixture.h"

enum { BUFFER_BYTES = WINDOW * CHUNK_BYTES + 1000 };

static const struct ps_transport *shm(void)
{
    return ps_transport_find("shm");
}

/* A client with two buffers, and as it were with links to other ports, so that this one copies. */
struct sender {
    struct rig_client c;
    struct ps_buffer b[2];
};

static void link_to(struct sender *s, const char *url)
{
    struct ps_error err = {""};
    if (rig_link_open(s->c.hub, shm(), url, &rig_limits, &s->c.link, &err) < 0)
        ck_abort_msg("%s", err.text);
}

static void sender_open(struct sender *s, const char *url)
{
    struct ps_error err = {""};
    struct ps_pass pass = rig_pass(0, 1);
    s->c.t = shm();
    ck_assert_int_eq(shm()->hub_create(1, &s->c.hub), 0);
    shm()->hub_pass(s->c.hub, &pass);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ps_buffer_alloc(BUFFER_BYTES, &s->b[i], &err), 0);
        ck_assert_int_eq(shm()->hub_register(s->c.hub, &s->b[i], &err), 0);
    }
    atomic_fetch_add(&s->c.hub->n_links, RIG_CLIENTS);
    s->c.hub->n_cores = UINT32_MAX; /* whatever this machine has */
    link_to(s, url);
}

/* The link is closed. */
static void sender_finish(struct sender *s)
{
    shm()->hub_destroy(s->c.hub);
    for (int i = 0; i < 2; i++)
        ps_buffer_free(&s->b[i]);
}

static unsigned char *bytes_of(const struct sender *s, int buffer)
{
    return s->b[buffer].base;
}

/* Sends the body, and asserts that each byte comes back plus one and is as it was in the buffer. */
static void trip(struct sender *s, uint64_t number, const unsigned char *body, size_t len)
{
    static unsigned char was[CHUNK_BYTES];
    struct ps_message m;
    memcpy(was, body, len);
    rig_send(&s->c, number, body, len);
    ck_assert_int_eq(rig_recv(&s->c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(rig_number(&m), number);
    ck_assert_int_eq(m.ownership, PS_BODY_SHARED);
    ck_assert_uint_eq(m.body_bytes, len);
    for (size_t i = 0; i < len; i++)
        assert_quick(m.body[i] == (unsigned char)(was[i] + 1) && body[i] == was[i]);
    shm()->message_drop(&m);
}

START_TEST(bodies_anywhere_in_a_buffer_arrive)
{
    struct rig_server server;
    struct sender s;
    struct dice dice = {11};
    unsigned char head[PS_FRAME_BYTES] = {0};
    rig_server_open(&server, shm(), NULL, NULL, NULL);
    sender_open(&s, server.url);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < BUFFER_BYTES; k++)
            bytes_of(&s, i)[k] = (unsigned char)dice_bits(&dice);
    for (uint64_t i = 0; i < 300; i++) {
        size_t len = dice_below(&dice, i % 2 == 0 ? 100 : CHUNK_BYTES + 1);
        trip(&s, i, bytes_of(&s, i % 3 == 0) + dice_below(&dice, BUFFER_BYTES - len + 1), len);
    }
    trip(&s, 300, bytes_of(&s, 0), CHUNK_BYTES);
    trip(&s, 301, bytes_of(&s, 1) + BUFFER_BYTES - CHUNK_BYTES, CHUNK_BYTES);
    trip(&s, 302, bytes_of(&s, 1) + BUFFER_BYTES - 10, 20); /* not all of it is in the buffer, but there */
    ck_assert_int_eq(shm()->link_send(s.c.link, head, bytes_of(&s, 0), BUFFER_BYTES), -EMSGSIZE);
    trip(&s, 303, bytes_of(&s, 0), 10);
    shm()->link_close(s.c.link);
    sender_finish(&s);
    rig_server_close(&server);
}
END_TEST

/* What the port receives, of a body that is 7 when it is sent and 8 before the port looks. */
static unsigned received(struct sender *s, struct rig_server *server)
{
    struct ps_message m;
    rig_server_sleeps(server, true);
    memset(s->b[0].base, 7, BUFFER_BYTES);
    rig_send(&s->c, 1, s->b[0].base, 100);
    memset(s->b[0].base, 8, BUFFER_BYTES);
    rig_server_sleeps(server, false);
    ck_assert_int_eq(rig_recv(&s->c, &m, PATIENCE_MS), 0);
    unsigned value = m.body[0] - 1u;
    shm()->message_drop(&m);
    return value;
}

START_TEST(ports_copy_for_those_who_have_more_links_than_they_have_clients)
{
    struct rig_server server;
    struct sender s;
    struct rig_client other;
    rig_server_open(&server, shm(), NULL, NULL, NULL);
    sender_open(&s, server.url);
    ck_assert_uint_eq(received(&s, &server), 8);
    atomic_store(&s.c.hub->n_links, 1);
    ck_assert_uint_eq(received(&s, &server), 7);
    atomic_store(&s.c.hub->n_links, 2);
    ck_assert_uint_eq(received(&s, &server), 8);
    s.c.hub->n_cores = 2;
    ck_assert_uint_eq(received(&s, &server), 7);
    s.c.hub->n_cores = 3;
    ck_assert_uint_eq(received(&s, &server), 8);
    rig_client_open(&other, shm(), server.url, 1);
    rig_server_sleeps(&server, true);
    rig_send(&other, 1, "x", 1);
    rig_send(&s.c, 1, "x", 1);
    rig_server_sleeps(&server, false);
    struct ps_message m;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(rig_recv(i == 0 ? &other : &s.c, &m, PATIENCE_MS), 0);
        shm()->message_drop(&m);
    }
    ck_assert_uint_eq(received(&s, &server), 7);
    shm()->link_close(s.c.link);
    rig_client_close(&other);
    sender_finish(&s);
    rig_server_close(&server);
}
END_TEST

static void nothing(struct rig_server *s, void *arg)
{
    (void)s, (void)arg;
}

/* Of a port that stands still; then another link is opened, whose messages come. */
static void check_taken_back(bool settles)
{
    struct rig_server server;
    struct sender s;
    struct ps_message m;
    const void *cut;
    rig_server_open(&server, shm(), NULL, NULL, NULL);
    sender_open(&s, server.url);
    rig_server_sleeps(&server, true);
    for (uint64_t i = 0; i < WINDOW; i++)
        rig_send(&s.c, i, bytes_of(&s, 0) + i * CHUNK_BYTES, CHUNK_BYTES);
    if (settles) {
        ck_assert_int_eq(shm()->link_settle(s.c.link, &cut), 0);
        memset(s.b[0].base, 40, BUFFER_BYTES);
        rig_server_sleeps(&server, false);
        rig_server_do(&server, nothing, NULL); /* when it has looked at all that is there */
        ck_assert_int_lt(shm()->link_recv(s.c.link, &m), 0);
    }
    shm()->link_close(s.c.link);
    memset(s.b[0].base, 40, BUFFER_BYTES); /* the caller goes on */
    rig_server_sleeps(&server, false);
    link_to(&s, server.url);
    ck_assert_int_eq(atomic_load(&server.served), 0);
    trip(&s, 9, bytes_of(&s, 0), CHUNK_BYTES);
    ck_assert_int_eq(atomic_load(&server.served), 1);
    shm()->link_close(s.c.link);
    sender_finish(&s);
    rig_server_close(&server);
}

START_TEST(what_was_not_copied_is_taken_back)
{
    check_taken_back(false);
    check_taken_back(true);
}
END_TEST

/* Holds its first message. */
struct holder {
    struct ps_message m;
    atomic_bool holds;
};

static void hold(struct rig_server *s, struct ps_message *m, int rc)
{
    struct holder *h = s->arg;
    assert_quick(rc == 0);
    s->t->message_move(&h->m, m);
    atomic_store(&h->holds, true);
}

static void check_held(struct rig_server *s, void *arg)
{
    struct holder *h = arg;
    (void)s;
    assert_quick(h->m.ownership == PS_BODY_SHARED && h->m.body_bytes == CHUNK_BYTES);
    for (size_t i = 0; i < CHUNK_BYTES; i++)
        assert_quick(h->m.body[i] == 7);
}

static void reply_held(struct rig_server *s, void *arg)
{
    s->t->port_reply(s->port, &((struct holder *)arg)->m);
}

/* A lane holds a message back while others are waited for: the worker gives up and uses its memory anew. */
START_TEST(what_was_copied_stays_as_it_was_sent)
{
    struct rig_server server;
    struct holder h = {.holds = false};
    struct sender s;
    const void *cut;
    rig_server_open(&server, shm(), NULL, hold, &h);
    sender_open(&s, server.url);
    memset(s.b[0].base, 7, BUFFER_BYTES);
    rig_send(&s.c, 1, s.b[0].base, CHUNK_BYTES);
    while (!atomic_load(&h.holds))
        unit_nap_ms(1);
    ck_assert_int_eq(shm()->link_settle(s.c.link, &cut), 0); /* nothing to wait for */
    shm()->link_close(s.c.link);
    memset(s.b[0].base, 40, BUFFER_BYTES);
    rig_server_do(&server, check_held, &h);
    sender_finish(&s);
    rig_server_do(&server, check_held, &h);
    rig_server_do(&server, reply_held, &h);
    rig_server_close(&server);
}
END_TEST

/* A device may read so many answers where they are. */
START_TEST(held_answers_leave_room_for_a_window)
{
    struct rig_server server;
    struct sender s;
    struct ps_message held[PS_SHM_SPARE_SLOTS], m;
    void *base;
    size_t bytes;
    rig_server_open(&server, shm(), NULL, NULL, NULL);
    sender_open(&s, server.url);
    shm()->link_memory(s.c.link, &base, &bytes);
    ck_assert_uint_eq(shm()->spare, PS_SHM_SPARE_SLOTS);
    for (uint64_t i = 0; i < PS_SHM_SPARE_SLOTS; i++) {
        rig_send(&s.c, i, bytes_of(&s, 0), CHUNK_BYTES);
        ck_assert_int_eq(rig_recv(&s.c, &m, PATIENCE_MS), 0);
        ck_assert(m.body >= (unsigned char *)base && m.body + CHUNK_BYTES <= (unsigned char *)base + bytes);
        shm()->message_move(&held[i], &m);
    }
    for (uint64_t i = 0; i < WINDOW; i++)
        rig_send(&s.c, 10 + i, bytes_of(&s, 1), CHUNK_BYTES);
    for (uint64_t i = 0; i < WINDOW; i++) {
        ck_assert_int_eq(rig_recv(&s.c, &m, PATIENCE_MS), 0);
        shm()->message_drop(&m);
    }
    for (uint64_t i = 0; i < PS_SHM_SPARE_SLOTS; i++) {
        ck_assert_uint_eq(rig_number(&held[i]), i);
        for (size_t k = 0; k < CHUNK_BYTES; k++)
            assert_quick(held[i].body[k] == 1);
        shm()->message_drop(&held[i]);
    }
    shm()->link_close(s.c.link);
    sender_finish(&s);
    rig_server_close(&server);
}
END_TEST

static unsigned char value_of(uint64_t number)
{
    return (unsigned char)(number * 37 + 1);
}

/* All bytes of a message must be its number's. Takes little more time than the copy. */
static void check_whole(struct rig_server *s, struct ps_message *m, int rc)
{
    assert_quick(rc == 0 && m->body_bytes == CHUNK_BYTES);
    assert_quick(m->body[0] == value_of(rig_number(m)));
    assert_quick(memcmp(m->body, m->body + 1, CHUNK_BYTES - 1) == 0);
    s->t->port_reply(s->port, m);
}

/* Links are closed at any moment of a copy, and the buffer is written at once. In odd rounds the port is
 * certainly awake. */
START_TEST(half_a_copy_is_never_used)
{
    enum { ROUNDS = 500 };
    struct rig_server server;
    struct sender s;
    struct dice dice = {3};
    struct ps_message m;
    rig_server_open(&server, shm(), NULL, check_whole, NULL);
    sender_open(&s, server.url);
    for (uint64_t n = 0; n < ROUNDS; n++) {
        memset(s.b[0].base, value_of(n), BUFFER_BYTES);
        for (uint64_t i = 0; i < WINDOW; i++)
            rig_send(&s.c, n, bytes_of(&s, 0) + i * CHUNK_BYTES, CHUNK_BYTES);
        if (n % 2 == 1) {
            assert_quick(rig_recv(&s.c, &m, PATIENCE_MS) == 0);
            shm()->message_drop(&m);
        }
        for (volatile uint64_t i = dice_below(&dice, 20000); i > 0;)
            i = i - 1;
        shm()->link_close(s.c.link);
        memset(s.b[0].base, 0, BUFFER_BYTES);
        link_to(&s, server.url);
    }
    shm()->link_close(s.c.link);
    sender_finish(&s);
    rig_server_close(&server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-shm-copies");
    TCase *tc = tcase_create("copies");
    ps_log_setup("test", PS_LOG_ERROR);
    tcase_add_test(tc, bodies_anywhere_in_a_buffer_arrive);
    tcase_add_test(tc, ports_copy_for_those_who_have_more_links_than_they_have_clients);
    tcase_add_test(tc, what_was_not_copied_is_taken_back);
    tcase_add_test(tc, what_was_copied_stays_as_it_was_sent);
    tcase_add_test(tc, held_answers_leave_room_for_a_window);
    tcase_add_test(tc, half_a_copy_is_never_used);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
