/* Over every row: either end is lost at each step of a message and found again, and what was not answered is
 * said again. The end that dies is a process of its own. */
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/proto/transports/transport_fixture.h"
#include "tests/support/pause.h"

/* What the process that is to die shares with its test. */
struct page {
    char url[300];
    atomic_int ready, held;
};

static struct page *page_make(void)
{
    struct page *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    return p;
}

static void await(atomic_int *n, int least)
{
    double deadline = unit_now_s() + PATIENCE_MS / 1e3;
    while (atomic_load(n) < least && unit_now_s() < deadline)
        unit_nap_ms(1);
    ck_assert_int_ge(atomic_load(n), least);
}

static void end_process(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* Messages that were received and are neither answered nor dropped. */
struct keep {
    struct ps_message m[2 * WINDOW];
    int answers; /* those that come first are answered */
    atomic_int n;
    atomic_int *told; /* how many are kept */
};

static void keep(struct rig_server *s, struct ps_message *m, int rc)
{
    struct keep *k = s->arg;
    assert_quick(rc == 0 && atomic_load(&k->n) < 2 * WINDOW);
    if (k->answers > 0) {
        k->answers--;
        rig_answer(s, m, rc);
        return;
    }
    s->t->message_move(&k->m[atomic_load(&k->n)], m);
    atomic_fetch_add(&k->n, 1);
    if (k->told != NULL)
        atomic_fetch_add(k->told, 1);
}

/* A port in a process of its own. url NULL: any. */
static pid_t start_port(const struct ps_transport *t, struct page *page, int answers)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0) {
        await(&page->ready, 1);
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct keep k = {.answers = answers, .told = &page->held};
    struct rig_server s;
    rig_port_open(&s, t, NULL);
    s.serve = keep;
    s.arg = &k;
    snprintf(page->url, sizeof page->url, "%s", s.url);
    atomic_store(&page->ready, 1);
    rig_port_serve(&s);
    _exit(1);
}

enum { UNREAD, IN_HAND, HALF_ANSWERED, PORT_STEPS };

static void take_answer(struct rig_client *c, uint64_t number)
{
    struct ps_message m;
    ck_assert_int_eq(rig_recv(c, &m, PATIENCE_MS), 0);
    ck_assert_uint_eq(rig_number(&m), number);
    c->t->message_drop(&m);
}

/* The port's process is killed with two messages sent: not received yet, received, one of them answered.
 * Where links attach, what was answered arrives even then; elsewhere the answer may die in the process with
 * ZeroMQ's thread. */
static void port_dies(const struct ps_transport *t, int step)
{
    static unsigned char body[1000];
    struct page *page = page_make();
    struct rig_server again;
    struct rig_client c;
    struct ps_message m;
    char url[300];
    pid_t pid = start_port(t, page, step == HALF_ANSWERED);
    int answered = step == HALF_ANSWERED;

    rig_client_open(&c, t, page->url, 0);
    if (step == UNREAD)
        pause_child(pid);
    rig_send(&c, 1, body, sizeof body);
    rig_send(&c, 2, body, sizeof body);
    if (step != UNREAD)
        await(&page->held, 2 - answered);
    if (answered && !rig_attaches(t))
        take_answer(&c, 1);
    end_process(pid);
    if (answered && rig_attaches(t))
        take_answer(&c, 1);
    ck_assert_int_eq(rig_recv(&c, &m, rig_attaches(t) ? PATIENCE_MS : 20),
                     rig_attaches(t) ? -ECONNRESET : -ETIMEDOUT);
    rig_client_close(&c);

    snprintf(url, sizeof url, "%s", page->url);
    rig_server_open(&again, t, url, NULL, NULL);
    rig_client_open(&c, t, again.url, 0);
    for (uint64_t i = 1 + (uint64_t)answered; i <= 2; i++) /* replay */
        rig_trip(&c, i, sizeof body);
    rig_client_close(&c);
    rig_server_close(&again);
    munmap(page, sizeof *page);
}

/* Each step in a process that has used no transport before: rdma's do not survive fork. */
START_TEST(port_that_dies_is_noticed_at_each_step)
{
    const struct ps_transport *t = rig_row(_i / PORT_STEPS);
    if (t != NULL)
        port_dies(t, _i % PORT_STEPS);
}
END_TEST

enum { SILENT, SENT, RECEIVED, ANSWERED, LINK_STEPS };

/* A client in a process of its own, which waits for the server's URL, sends two messages and reads nothing.
 */
static pid_t start_link(const struct ps_transport *t, struct page *page, int step)
{
    static unsigned char body[1000];
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rig_client c;
    while (atomic_load(&page->ready) == 0)
        unit_nap_ms(1);
    rig_client_open(&c, t, page->url, 1);
    atomic_store(&page->ready, 2);
    while (atomic_load(&page->ready) == 2)
        unit_nap_ms(1);
    if (step != SILENT) {
        rig_send(&c, 1, body, sizeof body);
        rig_send(&c, 2, body, sizeof body);
    }
    atomic_store(&page->ready, 4);
    for (;;)
        pause();
}

/* Replies to all that was kept; expects `want` of each, or anything where want is 1. Then serves so. */
struct replies {
    struct keep *keep;
    int want;
    rig_serve_fn then;
};

static void reply_to_all(struct rig_server *s, void *arg)
{
    const struct replies *r = arg;
    for (int i = atomic_load(&r->keep->n); i-- > 0;) {
        for (size_t at = 0; at < r->keep->m[i].body_bytes; at++) /* its memory is there */
            r->keep->m[i].body[at]++;
        int rc = s->t->port_reply(s->port, &r->keep->m[i]);
        assert_quick(rc == r->want || r->want == 1);
    }
    atomic_store(&r->keep->n, 0);
    s->serve = r->then;
}

/* The server's thread was asleep: what the port's descriptor tells is that the client has gone, or messages
 * of its. */
static void hear_of_the_end(struct rig_server *s, void *arg)
{
    struct pollfd fd = {.fd = s->t->port_fd(s->port), .events = POLLIN};
    struct ps_message m;
    (void)arg;
    assert_quick(poll(&fd, 1, PATIENCE_MS) == 1);
    for (int i = 0; i < 2; i++) /* a port may look at its descriptors at every other call only */
        if (s->t->port_recv(s->port, &m) == 0)
            s->t->message_drop(&m);
}

/* The client's process is killed: attached only, with messages not received yet, received, answered. Another
 * one is served before and after. */
static void link_dies(const struct ps_transport *t, int step)
{
    struct page *page = page_make();
    struct keep kept = {.n = 0};
    struct rig_server s;
    struct rig_client honest;
    pid_t pid = start_link(t, page, step);

    rig_server_open(&s, t, NULL, step == ANSWERED ? rig_answer : keep, &kept);
    snprintf(page->url, sizeof page->url, "%s", s.url);
    atomic_store(&page->ready, 1);
    await(&page->ready, 2);
    rig_server_sleeps(&s, step == SENT);
    atomic_store(&page->ready, 3);
    await(&page->ready, 4);
    if (step == RECEIVED)
        await(&kept.n, 2);
    else if (step == ANSWERED)
        await(&s.served, 2);
    rig_server_sleeps(&s, true);
    end_process(pid);
    if (rig_attaches(t))
        rig_server_do(&s, hear_of_the_end, NULL);
    rig_server_sleeps(&s, false);
    rig_server_do(&s, reply_to_all,
                  &(struct replies){&kept, rig_attaches(t) ? -EHOSTUNREACH : 1, rig_answer});
    rig_client_open(&honest, t, s.url, 2);
    rig_trip(&honest, 7, 5000);
    rig_client_close(&honest);
    rig_client_open(&honest, t, s.url, 1); /* the dead one's number */
    rig_trip(&honest, 8, 5000);
    rig_client_close(&honest);
    rig_server_close(&s);
    munmap(page, sizeof *page);
}

START_TEST(link_that_dies_is_noticed_at_each_step)
{
    const struct ps_transport *t = rig_row(_i / LINK_STEPS);
    if (t != NULL)
        link_dies(t, _i % LINK_STEPS);
}
END_TEST

START_TEST(link_to_nobody)
{
    const struct ps_transport *t = rig_row(_i);
    const struct ps_pass pass = rig_pass(0, 1);
    struct rig_server s;
    struct rig_client c;
    struct ps_error err = {""};
    char url[300];
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    snprintf(url, sizeof url, "%s", s.url);
    rig_server_close(&s);
    int rc = rig_client_try(&c, t, url, &rig_limits, &pass, &err);
    if (rig_attaches(t)) {
        ck_assert_int_eq(rc, -EHOSTUNREACH);
        assert_says(err.text, url);
        ck_assert_ptr_null(c.link);
        t->hub_destroy(c.hub);
        return;
    }
    ck_assert_int_eq(rc, 0);
    unsigned char head[PS_FRAME_BYTES], *body = malloc(CHUNK_BYTES);
    rig_head(head, 0);
    memset(body, 1, CHUNK_BYTES);
    t->link_send(c.link, head, body, CHUNK_BYTES);
    rig_client_close(&c);
    free(body);
}
END_TEST

START_TEST(link_finds_the_server_again)
{
    const struct ps_transport *t = rig_row(_i);
    struct rig_server s;
    struct rig_client c;
    struct ps_message m;
    char url[300];
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, NULL, NULL);
    snprintf(url, sizeof url, "%s", s.url);
    rig_client_open(&c, t, s.url, 0);
    rig_trip(&c, 1, 100);
    rig_server_close(&s);
    if (rig_attaches(t)) {
        ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), -ECONNRESET);
        unsigned char head[PS_FRAME_BYTES] = {0};
        ck_assert_int_eq(t->link_send(c.link, head, NULL, 0), -ECONNRESET);
    }
    rig_server_open(&s, t, url, NULL, NULL);
    rig_client_close(&c);
    rig_client_open(&c, t, s.url, 0);
    rig_trip(&c, 2, 100);
    rig_client_close(&c);
    rig_server_close(&s);
}
END_TEST

/* A link sends nothing to the port that takes the place of its own. */
START_TEST(what_is_queued_for_a_lost_port_reaches_no_other)
{
    static const unsigned char body[1000];
    const struct ps_transport *t = rig_row(_i);
    struct rig_server again;
    struct rig_client c, other;
    struct ps_message m;
    char url[300];
    unsigned char head[PS_FRAME_BYTES];
    if (t == NULL)
        return;
    struct page *page = page_make();
    pid_t pid = start_port(t, page, WINDOW);
    snprintf(url, sizeof url, "%s", page->url);
    rig_client_open(&c, t, url, 0);
    rig_trip(&c, 1, sizeof body);
    end_process(pid);
    for (uint64_t i = 2; i <= 3; i++) {
        rig_head(head, i);
        t->link_send(c.link, head, body, sizeof body);
    }
    rig_server_open(&again, t, url, NULL, NULL);
    rig_client_open(&other, t, again.url, 1);
    rig_trip(&other, 1, sizeof body);
    ck_assert_int_ne(rig_recv(&c, &m, 500),
                     0); /* five times as long as libzmq's pause before it reconnects */
    ck_assert_int_eq(atomic_load(&again.served), 1);
    rig_client_close(&c);
    rig_client_close(&other);
    rig_server_close(&again);
    munmap(page, sizeof *page);
}
END_TEST

/* As a round does: everything waits for long, and the answers come in another order. */
START_TEST(parked_messages_are_answered_in_any_order)
{
    const struct ps_transport *t = rig_row(_i);
    struct keep kept = {.n = 0};
    struct rig_server s;
    struct rig_client c;
    struct ps_message m;
    unsigned char bodies[WINDOW][64];
    if (t == NULL)
        return;
    rig_server_open(&s, t, NULL, keep, &kept);
    rig_client_open(&c, t, s.url, 0);
    for (int round = 0; round < 50; round++) {
        for (uint64_t i = 0; i < WINDOW; i++) {
            memset(bodies[i], (int)i, sizeof bodies[i]);
            rig_send(&c, i, bodies[i], sizeof bodies[i]);
        }
        await(&kept.n, WINDOW);
        rig_server_do(&s, reply_to_all, &(struct replies){&kept, 0, keep});
        for (uint64_t i = WINDOW; i-- > 0;) {
            ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
            ck_assert_uint_eq(rig_number(&m), i);
            ck_assert_uint_eq(m.body[0], i + 1);
            t->message_drop(&m);
        }
    }
    rig_client_close(&c);
    rig_server_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-transport-loss");
    TCase *tc = tcase_create("loss");
    tcase_add_loop_test(tc, port_that_dies_is_noticed_at_each_step, 0, RIG_ROWS * PORT_STEPS);
    tcase_add_loop_test(tc, link_that_dies_is_noticed_at_each_step, 0, RIG_ROWS * LINK_STEPS);
    tcase_add_loop_test(tc, link_to_nobody, 0, RIG_ROWS);
    tcase_add_loop_test(tc, link_finds_the_server_again, 0, RIG_ROWS);
    tcase_add_loop_test(tc, what_is_queued_for_a_lost_port_reaches_no_other, 0, RIG_ROWS);
    tcase_add_loop_test(tc, parked_messages_are_answered_in_any_order, 0, RIG_ROWS);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
