/* Over the rows that clients are attached to: passes, who holds them, and who may not come. Over those that
 * work in place: lent buffers. */
#include <poll.h>

#include "proto/log.h"
#include "tests/proto/transports/transport_fixture.h"

static const struct ps_transport *attached_row(int i)
{
    const struct ps_transport *t = rig_row(i);
    return t != NULL && rig_attaches(t) ? t : NULL;
}

static void admit(struct rig_server *s, void *pass)
{
    ck_assert_int_eq(s->t->port_admit(s->port, pass), 0);
}

static void expel(struct rig_server *s, void *client)
{
    s->t->port_expel(s->port, *(uint32_t *)client);
}

static void expect_refused(struct rig_server *s, const struct ps_pass *pass)
{
    struct ps_error err = {""};
    struct rig_client c;
    ck_assert_int_eq(rig_client_try(&c, s->t, s->url, &rig_limits, pass, &err), -EACCES);
    assert_says(err.text, s->url);
    ck_assert_ptr_null(c.link);
    s->t->hub_destroy(c.hub);
}

static void expect_reset(struct rig_client *c)
{
    struct ps_message m;
    ck_assert_int_eq(rig_recv(c, &m, PATIENCE_MS), -ECONNRESET);
    rig_client_close(c);
}

START_TEST(who_shows_a_wrong_pass_is_refused)
{
    const struct ps_transport *t = attached_row(_i);
    struct rig_server s;
    struct rig_client honest;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&honest, t, s.url, 0);
    for (size_t byte = 0; byte < PS_PASS_TOKEN_BYTES; byte++) {
        struct ps_pass forged = rig_pass(1, 1);
        forged.token[byte] ^= 0x10;
        expect_refused(&s, &forged);
    }
    struct ps_pass stranger = rig_pass(RIG_CLIENTS, 1), other = rig_pass(2, 1), old = rig_pass(1, 1);
    expect_refused(&s, &stranger);
    other.client = 1; /* a good token of somebody else */
    expect_refused(&s, &other);
    old.incarnation = 0;
    expect_refused(&s, &old);
    expect_refused(&s, NULL);
    rig_trip(&honest, 1, 1000);
    rig_client_close(&honest);
    rig_server_close(&s);
}
END_TEST

START_TEST(a_newer_pass_takes_the_place_of_an_older_one)
{
    const struct ps_transport *t = attached_row(_i);
    struct ps_pass first = rig_pass(3, 1), second = rig_pass(3, 2);
    struct ps_error err = {""};
    struct rig_server s;
    struct rig_client old, new, other;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&other, t, s.url, 4);
    rig_client_open(&old, t, s.url, 3);
    rig_server_do(&s, admit, &first); /* as often as one likes */
    rig_trip(&old, 1, 1000);
    rig_server_do(&s, admit, &second);
    expect_reset(&old);
    expect_refused(&s, &first);
    ck_assert_msg(rig_client_try(&new, t, s.url, &rig_limits, &second, &err) == 0, "%s", err.text);
    rig_trip(&new, 2, 1000);
    rig_trip(&other, 3, 1000);
    rig_client_close(&new);
    rig_client_close(&other);
    rig_server_close(&s);
}
END_TEST

START_TEST(a_link_that_is_opened_anew_takes_the_place_of_the_old)
{
    const struct ps_transport *t = attached_row(_i);
    struct rig_server s;
    struct rig_client old, new;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    for (uint64_t i = 0; i < 20; i++) {
        rig_client_open(&old, t, s.url, 3);
        rig_trip(&old, i, 1000);
        rig_client_open(&new, t, s.url, 3);
        rig_trip(&new, i, 1000);
        expect_reset(&old);
        rig_client_close(&new);
    }
    rig_server_close(&s);
}
END_TEST

START_TEST(who_is_expelled_stays_out)
{
    const struct ps_transport *t = attached_row(_i);
    struct rig_server s;
    struct rig_client bad, other;
    struct ps_pass pass = rig_pass(3, 1);
    uint32_t number = 3, nobody = 1000;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_client_open(&bad, t, s.url, number);
    rig_client_open(&other, t, s.url, 4);
    rig_trip(&bad, 1, 100);
    rig_server_do(&s, expel, &nobody);
    rig_server_do(&s, expel, &number);
    rig_server_do(&s, expel, &number);
    expect_reset(&bad);
    expect_refused(&s, &pass);
    rig_trip(&other, 2, 100);
    rig_server_do(&s, admit, &pass);
    rig_client_open(&bad, t, s.url, number);
    rig_trip(&bad, 3, 100);
    rig_client_close(&bad);
    rig_client_close(&other);
    rig_server_close(&s);
}
END_TEST

static void admit_one_too_many(struct rig_server *s, void *arg)
{
    struct ps_pass more = rig_pass(RIG_CLIENTS, 1), known = rig_pass(5, 9);
    uint32_t one = 7;
    (void)arg;
    ck_assert_int_eq(s->t->port_admit(s->port, &more), -ENOSPC);
    ck_assert_int_eq(s->t->port_admit(s->port, &known), 0);
    s->t->port_expel(s->port, one);
    ck_assert_int_eq(s->t->port_admit(s->port, &more), 0);
}

START_TEST(a_port_admits_as_many_as_its_limits_say)
{
    const struct ps_transport *t = attached_row(_i);
    struct rig_server s;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_server_do(&s, admit_one_too_many, NULL);
    rig_server_close(&s);
}
END_TEST

/* Says who sent the message: its body becomes the description. */
static void describe(struct rig_server *s, struct ps_message *m, int rc)
{
    char text[200];
    const struct ps_pass *pass = s->t->message_pass(m);
    assert_quick(rc == 0 && pass != NULL);
    const struct ps_pass want = rig_pass(pass->client, 1);
    assert_quick(pass->client == rig_number(m) && pass->incarnation == 1);
    assert_quick(memcmp(pass->token, want.token, sizeof want.token) == 0);
    assert_quick(s->t->message_sender(m) == want.identity);
    s->t->message_describe(m, text, sizeof text);
    assert_quick(s->t->message_body(m, strlen(text) + 1) == 0);
    memcpy(m->body, text, strlen(text) + 1);
    assert_quick(s->t->port_reply(s->port, m) == 0);
}

START_TEST(messages_tell_who_sent_them)
{
    const struct ps_transport *t = attached_row(_i);
    struct rig_server s;
    struct rig_client c[3];
    struct ps_message m;
    char mine[40];
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, describe, NULL);
    for (uint32_t i = 0; i < 3; i++)
        rig_client_open(&c[i], t, s.url, i);
    for (uint32_t i = 0; i < 3; i++) {
        rig_send(&c[i], i, NULL, 0);
        ck_assert_int_eq(rig_recv(&c[i], &m, PATIENCE_MS), 0);
        snprintf(mine, sizeof mine, "client %u", i);
        assert_says((const char *)m.body, mine);
        t->message_drop(&m);
    }
    for (uint32_t i = 0; i < 3; i++)
        rig_client_close(&c[i]);
    rig_server_close(&s);
}
END_TEST

START_TEST(attaching_to_a_port_that_sleeps_takes_no_longer_than_said)
{
    const struct ps_transport *t = attached_row(_i);
    struct ps_pass pass = rig_pass(0, 1);
    struct ps_error err = {""};
    struct rig_server s;
    struct rig_client c;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    rig_server_sleeps(&s, true);
    ck_assert_int_eq(t->hub_create(1, &c.hub), 0);
    t->hub_pass(c.hub, &pass);
    double begin = unit_now_s();
    ck_assert_int_eq(t->link_open(c.hub, s.url, &rig_limits, &c.link, &err), -ETIMEDOUT);
    ck_assert_double_ge(unit_now_s() - begin, PS_ATTACH_MS * 0.9e-3);
    assert_says(err.text, s.url);
    t->hub_destroy(c.hub);
    rig_server_sleeps(&s, false);
    rig_client_open(&c, t, s.url, 0);
    rig_trip(&c, 1, 100);
    rig_client_close(&c);
    rig_server_close(&s);
}
END_TEST

/* A client with a lent buffer. */
static void lend(struct rig_client *c, struct rig_server *s, const struct ps_buffer *b)
{
    struct ps_pass pass = rig_pass(0, 1);
    struct ps_error err = {""};
    c->t = s->t;
    ck_assert_int_eq(s->t->hub_create(1, &c->hub), 0);
    s->t->hub_pass(c->hub, &pass);
    ck_assert_msg(s->t->hub_register(c->hub, b, &err) == 0, "%s", err.text);
    ck_assert_msg(rig_link_open(c->hub, s->t, s->url, &rig_limits, &c->link, &err) == 0, "%s", err.text);
}

/* Adds 1 to the vector where it lies, or says in a sentence that it does not like it. */
static void work(struct rig_server *s, struct ps_message *m, int rc)
{
    static const char sentence[] = "no";
    assert_quick(rc == 0);
    bool in_place = m->ownership == PS_BODY_IN_PLACE;
    if (m->body_bytes > 0 && m->body[0] == 255) {
        assert_quick(s->t->message_body(m, sizeof sentence) == 0);
        assert_quick(m->ownership == PS_BODY_SHARED && m->body_bytes == sizeof sentence);
        memcpy(m->body, sentence, sizeof sentence);
    } else {
        assert_quick(!in_place || s->t->message_begin(m));
        for (size_t i = 0; i < m->body_bytes; i++)
            m->body[i]++;
        assert_quick(!in_place || s->t->message_body(m, 0) == 0);
        assert_quick((m->ownership == PS_BODY_IN_PLACE) == in_place);
    }
    assert_quick(s->t->port_reply(s->port, m) == 0);
}

static void send_in_place(struct rig_client *c, uint64_t number, void *body, size_t len, int want)
{
    unsigned char head[PS_FRAME_BYTES];
    rig_head(head, number);
    ck_assert_int_eq(c->t->link_send_in_place(c->link, head, body, len), want);
}

static const struct ps_transport *in_place_row(int i)
{
    const struct ps_transport *t = attached_row(i);
    return t != NULL && t->link_send_in_place != NULL ? t : NULL;
}

START_TEST(ports_work_in_the_vector_itself)
{
    const struct ps_transport *t = in_place_row(_i);
    struct ps_error err;
    struct ps_buffer b;
    struct ps_message m;
    struct rig_server s;
    struct rig_client c;
    enum { LEN = 5 * CHUNK_BYTES };
    static unsigned char elsewhere[16];
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, work, NULL);
    ck_assert_int_eq(ps_buffer_alloc(LEN, &b, &err), 0);
    unsigned char *x = b.base;
    lend(&c, &s, &b);
    for (size_t i = 0; i < LEN; i++)
        x[i] = (unsigned char)(i % 100);
    for (uint64_t i = 0; i < 5; i++) { /* at any offset, larger than a slot */
        send_in_place(&c, i, x + i * 7, LEN - i * 31, 0);
        ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
        ck_assert_uint_eq(rig_number(&m), i);
        ck_assert_uint_eq(m.body_bytes, 0);
        t->message_drop(&m);
    }
    for (size_t i = 0; i < LEN; i++) {
        unsigned want = (unsigned)(i % 100);
        for (size_t k = 0; k < 5; k++)
            want += i >= k * 7 && i < k * 7 + LEN - k * 31;
        assert_quick(x[i] == want);
    }
    x[50] = 255; /* an error has a sentence, and leaves the vector alone */
    send_in_place(&c, 9, x + 50, 1000, 0);
    ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(m.body_bytes, 3);
    ck_assert_str_eq((const char *)m.body, "no");
    t->message_drop(&m);
    ck_assert_uint_eq(x[50], 255);
    send_in_place(&c, 10, elsewhere, sizeof elsewhere, -EINVAL);
    send_in_place(&c, 10, x + LEN - 10, 11, -EINVAL);
    send_in_place(&c, 10, x - 1, 10, -EINVAL);
    rig_send(&c, 11, x, 100); /* a copy: x stays */
    unsigned char first = x[0];
    ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(m.body_bytes, 100);
    ck_assert_uint_eq(m.body[0], first + 1);
    ck_assert_uint_eq(x[0], first);
    t->message_drop(&m);
    rig_client_close(&c);
    ps_buffer_free(&b);
    rig_server_close(&s);
}
END_TEST

/* 5 GiB of which few pages are ever touched. */
START_TEST(vectors_above_4_gib_are_worked_in_in_place)
{
    const struct ps_transport *t = in_place_row(_i);
    const size_t len = (size_t)5 << 30, far = ((size_t)4 << 30) + 12345;
    struct ps_error err;
    struct ps_buffer b;
    struct ps_message m;
    struct rig_server s;
    struct rig_client c;
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, work, NULL);
    ck_assert_msg(ps_buffer_alloc(len, &b, &err) == 0, "%s", err.text);
    unsigned char *x = b.base;
    lend(&c, &s, &b);
    memset(x + far, 7, 1000);
    memset(x + far % ((size_t)1 << 32), 50, 1000); /* where an offset of 32 bits would lead */
    send_in_place(&c, 1, x + far, 1000, 0);
    ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
    t->message_drop(&m);
    send_in_place(&c, 2, x + len - 100, 100, 0);
    ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
    t->message_drop(&m);
    for (size_t i = 0; i < 1000; i++)
        ck_assert(x[far + i] == 8 && x[far % ((size_t)1 << 32) + i] == 50);
    ck_assert_uint_eq(x[far - 1], 0);
    ck_assert_uint_eq(x[far + 1000], 0);
    ck_assert_uint_eq(x[len - 1], 1);
    rig_client_close(&c);
    ps_buffer_free(&b);
    rig_server_close(&s);
}
END_TEST

START_TEST(a_hub_takes_so_many_buffers)
{
    const struct ps_transport *t = in_place_row(_i);
    struct ps_error err = {""};
    struct ps_buffer b[PS_MAX_BUFFERS + 1];
    struct ps_message m;
    struct ps_pass pass = rig_pass(0, 1);
    struct rig_server s;
    struct rig_client c = {.t = t};
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, work, NULL);
    ck_assert_int_eq(t->hub_create(1, &c.hub), 0);
    t->hub_pass(c.hub, &pass);
    for (int i = 0; i <= PS_MAX_BUFFERS; i++) {
        ck_assert_int_eq(ps_buffer_alloc(1000 * (size_t)(i + 1), &b[i], &err), 0);
        ck_assert_int_eq(t->hub_register(c.hub, &b[i], &err), i < PS_MAX_BUFFERS ? 0 : -ENOSPC);
    }
    assert_says(err.text, "4 buffers");
    ck_assert_msg(rig_link_open(c.hub, t, s.url, &rig_limits, &c.link, &err) == 0, "%s", err.text);
    for (int i = 0; i < PS_MAX_BUFFERS; i++) {
        unsigned char *x = b[i].base;
        send_in_place(&c, (uint64_t)i, x + 100 * i, 100, 0);
        ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
        t->message_drop(&m);
        ck_assert(x[100 * i] == 1 && x[100 * i + 99] == 1 && x[100 * i + 100] == 0);
    }
    send_in_place(&c, 9, b[PS_MAX_BUFFERS].base, 100, -EINVAL);
    rig_client_close(&c);
    for (int i = 0; i <= PS_MAX_BUFFERS; i++)
        ps_buffer_free(&b[i]);
    rig_server_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-transport-attach");
    TCase *tc = tcase_create("attach"), *place = tcase_create("place");
    ps_log_setup("test", PS_LOG_ERROR); /* else a line for each refusal */
    tcase_add_loop_test(tc, who_shows_a_wrong_pass_is_refused, 0, RIG_ROWS);
    tcase_add_loop_test(tc, a_newer_pass_takes_the_place_of_an_older_one, 0, RIG_ROWS);
    tcase_add_loop_test(tc, a_link_that_is_opened_anew_takes_the_place_of_the_old, 0, RIG_ROWS);
    tcase_add_loop_test(tc, who_is_expelled_stays_out, 0, RIG_ROWS);
    tcase_add_loop_test(tc, a_port_admits_as_many_as_its_limits_say, 0, RIG_ROWS);
    tcase_add_loop_test(tc, messages_tell_who_sent_them, 0, RIG_ROWS);
    tcase_add_loop_test(tc, attaching_to_a_port_that_sleeps_takes_no_longer_than_said, 0, RIG_ROWS);
    tcase_add_loop_test(place, ports_work_in_the_vector_itself, 0, RIG_ROWS);
    tcase_add_loop_test(place, vectors_above_4_gib_are_worked_in_in_place, 0, RIG_ROWS);
    tcase_add_loop_test(place, a_hub_takes_so_many_buffers, 0, RIG_ROWS);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, place);
    return unit_run(suite);
}
