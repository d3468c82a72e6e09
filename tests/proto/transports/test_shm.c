/* What only the row shm has: its sockets, its wake-ups, what it leaves behind, and vectors that are given
 * back. test_shm_hostile.c has those who mean harm. */
#include <dirent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "proto/log.h"
#include "tests/proto/transports/transport_fixture.h"

static const struct ps_transport *shm(void)
{
    return ps_transport_find("shm");
}

START_TEST(sockets_are_private_and_removed)
{
    struct rig_server s;
    struct ps_hub *hub;
    struct ps_port *port;
    struct ps_error err;
    struct stat st;
    char url[64];
    rig_any_url(shm(), url, sizeof url);
    rig_server_open(&s, shm(), url, NULL, NULL);
    ck_assert_str_eq(s.url, url);
    ck_assert_int_eq(lstat(url + strlen("shm://"), &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(shm()->hub_create(1, &hub), 0);
    ck_assert_int_eq(shm()->port_open(hub, url, &rig_limits, &port, &err), -EADDRINUSE);
    assert_says(err.text, "in use by another process");
    shm()->hub_destroy(hub);
    rig_server_close(&s);
    ck_assert_int_eq(lstat(url + strlen("shm://"), &st), -1);
}
END_TEST

START_TEST(lanes_have_sockets_of_their_own)
{
    char url[64];
    shm()->lane_url("shm:///run/psd/x", 63, url, sizeof url);
    ck_assert_str_eq(url, "shm:///run/psd/x.63");
}
END_TEST

/* The mode keeps others out; should somebody change it, the port still asks who comes. */
START_TEST(another_user_is_refused)
{
    struct rig_server s;
    struct rig_client c;
    struct ps_pass pass = rig_pass(0, 1);
    struct ps_error err = {""};
    int status;
    if (geteuid() != 0)
        return;
    rig_port_open(&s, shm(), NULL);
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig_port_serve(&s);
    }
    ck_assert_int_eq(chmod(s.url + strlen("shm://"), 0666), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        int rc = rig_client_try(&c, shm(), s.url, &rig_limits, &pass, &err);
        _exit(rc == -EHOSTUNREACH ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    rig_port_close(&s);
}
END_TEST

START_TEST(memory_of_its_own_is_not_lent)
{
    unsigned char x[100];
    struct ps_buffer b = {.kind = PS_BUFFER_HOST, .base = x, .bytes = sizeof x, .fd = -1};
    struct ps_error err;
    struct ps_hub *hub;
    ck_assert_int_eq(shm()->hub_create(1, &hub), 0);
    ck_assert_int_eq(shm()->hub_register(hub, &b, &err), -ENOTSUP);
    shm()->hub_destroy(hub);
}
END_TEST

/* Nothing, a short spin or a nap, so that either end is met awake, spinning, falling asleep and asleep. */
static void dawdle(struct dice *dice)
{
    uint64_t what = dice_below(dice, 8);
    if (what < 4)
        for (volatile uint64_t i = dice_below(dice, 20000); what < 3 && i > 0;)
            i = i - 1;
    else if (what == 4)
        nanosleep(&(struct timespec){.tv_nsec = (long)dice_below(dice, 60000)}, NULL);
}

static void answer_at_leisure(struct rig_server *s, struct ps_message *m, int rc)
{
    dawdle(s->arg);
    rig_answer(s, m, rc);
    dawdle(s->arg);
}

/* Both wait without a limit: one wake-up lost, and nothing ever happens again. */
static void *go_back_and_forth(void *arg)
{
    enum { ROUNDS = 10000 };
    struct rig_client *c = arg;
    struct dice dice = {(uint64_t)(uintptr_t)c};
    struct ps_message m;
    unsigned char body[8] = {0};
    int in_flight = 0;
    for (int i = 0; i < ROUNDS;) {
        for (int k = (int)dice_below(&dice, WINDOW) + 1; in_flight < k; in_flight++)
            rig_send(c, (uint64_t)i, body, sizeof body);
        dawdle(&dice);
        int rc = c->t->link_recv(c->link, &m);
        if (rc == 0) {
            c->t->message_drop(&m);
            in_flight--;
            i++;
        } else {
            assert_quick(rc == -EAGAIN);
            assert_quick(c->t->links_wait(&c->link, 1, -1, -1) != -ETIMEDOUT);
        }
    }
    return NULL;
}

START_TEST(wake_ups_are_never_lost)
{
    enum { CLIENTS = 3 };
    struct dice dice = {5};
    struct rig_server s;
    struct rig_client c[CLIENTS];
    pthread_t threads[CLIENTS];
    rig_server_open(&s, shm(), NULL, answer_at_leisure, &dice);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_client_open(&c[i], shm(), s.url, i);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, go_back_and_forth, &c[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CLIENTS; i++)
        rig_client_close(&c[i]);
    rig_server_close(&s);
}
END_TEST

/* One link to each of many lanes, all answered by one port's thread here; whichever answers wakes the wait.
 */
START_TEST(a_wait_hears_every_link)
{
    enum { LINKS = 64 };
    struct rig_server s;
    struct rig_client c[LINKS];
    struct ps_link *links[LINKS];
    struct ps_message m;
    struct dice dice = {3}, theirs = {4};
    rig_server_open(&s, shm(), NULL, answer_at_leisure, &theirs);
    for (uint32_t i = 0; i < LINKS; i++) {
        rig_client_open(&c[i], shm(), s.url, i);
        links[i] = c[i].link;
    }
    for (uint64_t i = 0; i < 3000; i++) {
        size_t which = dice_below(&dice, LINKS);
        rig_send(&c[which], i, "x", 1);
        int rc;
        while ((rc = shm()->link_recv(links[which], &m)) == -EAGAIN)
            assert_quick(shm()->links_wait(links, LINKS, -1, -1) == 0);
        assert_quick(rc == 0 && rig_number(&m) == i);
        shm()->message_drop(&m);
    }
    for (int i = 0; i < LINKS; i++)
        rig_client_close(&c[i]);
    rig_server_close(&s);
}
END_TEST

static unsigned count(const char *path, const char *having)
{
    char line[512];
    unsigned n = 0;
    if (having == NULL) {
        DIR *dir = opendir(path);
        while (dir != NULL && readdir(dir) != NULL)
            n++;
        closedir(dir);
        return n;
    }
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, having) != NULL;
    fclose(f);
    return n;
}

/* Every way to come and go, again and again. */
START_TEST(nothing_is_left_behind)
{
    struct ps_error err;
    struct ps_buffer b;
    unsigned files = count("/proc/self/fd", NULL), regions = count("/proc/self/maps", "memfd:psd");
    ck_assert_uint_eq(regions, 0);
    for (int round = 0; round < 5; round++) {
        struct rig_server s;
        struct rig_client c = {.link = NULL};
        rig_server_open(&s, shm(), NULL, NULL, NULL);
        for (uint32_t i = 0; i < 40; i++) {
            struct ps_pass pass = rig_pass(i, i % 4 == 3 ? 9 : 1);
            ck_assert_int_eq(ps_buffer_alloc(10000, &b, &err), 0);
            ck_assert_int_eq(shm()->hub_create(1, &c.hub), 0);
            c.t = shm();
            shm()->hub_pass(c.hub, &pass);
            ck_assert_int_eq(shm()->hub_register(c.hub, &b, &err), 0);
            ck_assert_int_eq(rig_link_open(c.hub, shm(), s.url, &rig_limits, &c.link, &err),
                             i % 4 == 3 ? -EACCES : 0);
            if (i % 4 == 1)
                rig_trip(&c, i, 1000);
            if (i % 4 != 3)
                shm()->link_close(c.link);
            shm()->hub_destroy(c.hub);
            ps_buffer_free(&b);
        }
        rig_client_open(&c, shm(), s.url, 1); /* and one whose port goes first */
        rig_server_close(&s);
        rig_client_close(&c);
        ck_assert_uint_eq(count("/proc/self/fd", NULL), files);
        ck_assert_uint_eq(count("/proc/self/maps", "memfd:psd"), 0);
    }
}
END_TEST

/* A port, and a link to it that has lent a vector. */
struct lender {
    struct rig_server s;
    struct rig_client c;
    struct ps_buffer b;
    struct ps_message m; /* that the port holds; its thread's */
    bool begun;
    atomic_bool holds, goes_on;
};

enum { VECTOR_BYTES = 10000 };

static void lender_attach(struct lender *l)
{
    struct ps_error err = {""};
    struct ps_pass pass = rig_pass(0, 1);
    l->c = (struct rig_client){.t = shm()};
    ck_assert_int_eq(ps_buffer_alloc(VECTOR_BYTES, &l->b, &err), 0);
    ck_assert_int_eq(shm()->hub_create(1, &l->c.hub), 0);
    shm()->hub_pass(l->c.hub, &pass);
    ck_assert_int_eq(shm()->hub_register(l->c.hub, &l->b, &err), 0);
    ck_assert_msg(rig_link_open(l->c.hub, shm(), l->s.url, &rig_limits, &l->c.link, &err) == 0, "%s",
                  err.text);
}

static void lender_send(struct lender *l)
{
    unsigned char head[PS_FRAME_BYTES];
    rig_head(head, 7);
    ck_assert_int_eq(shm()->link_send_in_place(l->c.link, head, l->b.base, VECTOR_BYTES), 0);
}

static void lender_finish(struct lender *l)
{
    shm()->link_close(l->c.link);
    shm()->hub_destroy(l->c.hub);
    rig_server_close(&l->s);
    ps_buffer_free(&l->b);
}

static void assert_vector(const struct lender *l, unsigned char value)
{
    for (size_t i = 0; i < VECTOR_BYTES; i++)
        assert_quick(((unsigned char *)l->b.base)[i] == value);
}

/* Stands still, as a stopped psd, with one message in its hands and another in the ring; then it works in
 * what it may. */
static void stand_still(struct rig_server *s, struct ps_message *m, int rc)
{
    struct lender *l = s->arg;
    assert_quick(rc == 0 && m->ownership == PS_BODY_IN_PLACE);
    atomic_store(&l->holds, true);
    while (!atomic_load(&l->goes_on))
        unit_nap_ms(1);
    if (!s->t->message_begin(m)) {
        s->t->message_drop(m);
        return;
    }
    memset(m->body, 9, m->body_bytes);
    assert_quick(s->t->message_body(m, 0) == 0);
    s->t->port_reply(s->port, m);
}

static void nothing(struct rig_server *s, void *arg)
{
    (void)s, (void)arg;
}

START_TEST(who_wakes_late_leaves_the_vector_alone)
{
    struct lender l = {.begun = false};
    rig_server_open(&l.s, shm(), NULL, stand_still, &l);
    lender_attach(&l);
    lender_send(&l);
    lender_send(&l);
    while (!atomic_load(&l.holds))
        unit_nap_ms(1);
    shm()->link_close(l.c.link);
    memset(l.b.base, 40, VECTOR_BYTES); /* the caller goes on */
    atomic_store(&l.goes_on, true);
    rig_server_do(&l.s, nothing, NULL); /* when it has served all that is there */
    shm()->hub_destroy(l.c.hub);
    rig_server_close(&l.s);
    assert_vector(&l, 40);
    ps_buffer_free(&l.b);
}
END_TEST

static void hold(struct rig_server *s, struct ps_message *m, int rc)
{
    struct lender *l = s->arg;
    assert_quick(rc == 0 && m->ownership == PS_BODY_IN_PLACE);
    s->t->message_move(&l->m, m);
    atomic_store(&l->holds, true);
}

static void begin(struct rig_server *s, void *arg)
{
    struct lender *l = arg;
    l->begun = s->t->message_begin(&l->m);
}

static void drop(struct rig_server *s, void *arg)
{
    s->t->message_drop(&((struct lender *)arg)->m);
}

static void expel(struct rig_server *s, void *arg)
{
    (void)arg;
    s->t->port_expel(s->port, 0);
}

static void reply(struct rig_server *s, void *arg)
{
    struct lender *l = arg;
    memset(l->m.body, 9, l->m.body_bytes);
    assert_quick(s->t->message_body(&l->m, 0) == 0);
    s->t->port_reply(s->port, &l->m);
}

static void lender_open(struct lender *l)
{
    atomic_store(&l->holds, false);
    rig_server_open(&l->s, shm(), NULL, hold, l);
    lender_attach(l);
    lender_send(l);
    while (!atomic_load(&l->holds))
        unit_nap_ms(1);
}

/* A lane holds a message back while others are waited for. */
START_TEST(what_was_held_back_can_be_taken_back)
{
    struct lender l;
    struct ps_message m;
    const void *cut;
    lender_open(&l);
    ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), 0);
    rig_server_do(&l.s, begin, &l);
    ck_assert(!l.begun);
    rig_server_do(&l.s, drop, &l);
    ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), 0);
    ck_assert_int_lt(shm()->link_recv(l.c.link, &m), 0);
    unsigned char head[PS_FRAME_BYTES] = {0}; /* it is to be closed */
    ck_assert_int_eq(shm()->link_send(l.c.link, head, NULL, 0), -ECONNRESET);
    assert_vector(&l, 0);
    lender_finish(&l);
}
END_TEST

/* What was begun is finished and answered, also where the client has been expelled meanwhile. */
START_TEST(what_was_begun_is_waited_for)
{
    for (int expelled = 0; expelled < 2; expelled++) {
        struct lender l;
        struct ps_message m;
        const void *cut;
        lender_open(&l);
        rig_server_do(&l.s, begin, &l);
        ck_assert(l.begun);
        ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), -EAGAIN);
        if (expelled)
            rig_server_do(&l.s, expel, &l);
        for (int i = 0; i < 200; i++) /* often enough for it to ask whether the port is there */
            ck_assert_int_lt(shm()->link_recv(l.c.link, &m), 0);
        ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), -EAGAIN);
        rig_server_do(&l.s, reply, &l);
        ck_assert_int_eq(shm()->link_recv(l.c.link, &m), 0);
        ck_assert_uint_eq(rig_number(&m), 7);
        ck_assert_int_eq(m.ownership, PS_BODY_IN_PLACE);
        shm()->message_drop(&m);
        ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), 0);
        ck_assert(cut == NULL);
        assert_vector(&l, 9);
        lender_finish(&l);
    }
}
END_TEST

/* Begins and never ends. */
static void begin_only(struct rig_server *s, struct ps_message *m, int rc)
{
    atomic_bool *begun = s->arg;
    assert_quick(rc == 0 && s->t->message_begin(m));
    atomic_store(begun, true);
    pause();
}

START_TEST(who_has_died_is_not_waited_for)
{
    struct lender l;
    const void *cut = NULL;
    atomic_bool *begun = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rig_port_open(&l.s, shm(), NULL);
    l.s.serve = begin_only;
    l.s.arg = begun;
    pid_t server = fork();
    ck_assert_int_ge(server, 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig_port_serve(&l.s);
    }
    lender_attach(&l);
    lender_send(&l);
    while (!atomic_load(begun))
        unit_nap_ms(1);
    ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), -EAGAIN);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    ck_assert_int_eq(shm()->link_settle(l.c.link, &cut), 0);
    ck_assert(cut == l.b.base);
    shm()->link_close(l.c.link);
    shm()->hub_destroy(l.c.hub);
    rig_port_close(&l.s);
    ps_buffer_free(&l.b);
    munmap(begun, 4096);
}
END_TEST

/* A message that a link has received outlives the link. */
START_TEST(answers_outlive_their_link)
{
    struct rig_server s;
    struct rig_client c;
    struct ps_message m;
    rig_server_open(&s, shm(), NULL, NULL, NULL);
    rig_client_open(&c, shm(), s.url, 0);
    rig_send(&c, 1, "abc", 3);
    ck_assert_int_eq(rig_recv(&c, &m, PATIENCE_MS), 0);
    rig_client_close(&c);
    rig_server_close(&s);
    ck_assert(memcmp(m.body, "bcd", 3) == 0);
    shm()->message_drop(&m);
    ck_assert_uint_eq(count("/proc/self/maps", "memfd:psd"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-shm");
    TCase *tc = tcase_create("shm");
    ps_log_setup("test", PS_LOG_ERROR); /* else a line for each refusal */
    tcase_add_test(tc, sockets_are_private_and_removed);
    tcase_add_test(tc, lanes_have_sockets_of_their_own);
    tcase_add_test(tc, another_user_is_refused);
    tcase_add_test(tc, memory_of_its_own_is_not_lent);
    tcase_add_test(tc, wake_ups_are_never_lost);
    tcase_add_test(tc, a_wait_hears_every_link);
    tcase_add_test(tc, nothing_is_left_behind);
    tcase_add_test(tc, who_wakes_late_leaves_the_vector_alone);
    tcase_add_test(tc, what_was_held_back_can_be_taken_back);
    tcase_add_test(tc, what_was_begun_is_waited_for);
    tcase_add_test(tc, who_has_died_is_not_waited_for);
    tcase_add_test(tc, answers_outlive_their_link);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
