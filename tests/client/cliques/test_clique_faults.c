/* What can go wrong in a ring is told to every member, within the deadline, with both sides named. Time is
 * driven: it passes when nobody does anything, so that a deadline is met by whom it concerns and not by a
 * slow machine. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/socket.h>

#include "client/cliques/rendezvous/rendezvous.h"
#include "client/cliques/ring/ring.h"
#include "proto/clock.h"
#include "tests/client/cliques/clique_crowd.h"

/* What rank 1 calls otherwise than the others. */
struct difference {
    int kind; /* of rank 1: 0 allreduce, 1 reduce, 2 broadcast, 3 barrier */
    size_t n;
    int root;
    const char *says[2]; /* the one or the other: who notices may be a call ahead */
};

static const struct difference differences[] = {
    {0, 1001, 0, {"rank 1 allreduce of 1001 floats as raw", "rank 1 allreduce of 1001"}},
    {1, 1000, 2, {"rank 1 reduce of 1000 floats as raw to rank 2", "rank 1 barrier"}},
    {2, 4000, 1, {"rank 1 broadcast of 4000 bytes from rank 1", "rank 1 barrier"}},
    {3, 0, 0, {"rank 1 barrier", "rank 1 barrier"}},
};

static int call(struct psc_clique *q, int kind, float *x, size_t n, int root)
{
    switch (kind) {
    case 0:
        return psc_allreduce(q, x, n, NULL);
    case 1:
        return psc_reduce(q, x, n, root, NULL);
    case 2:
        return psc_broadcast(q, x, n, root);
    default:
        return psc_barrier(q);
    }
}

/* Members notice at different places: rank 1's neighbours compare with it, one of them speaks first. */
static void differ(struct rig_member *m)
{
    const struct difference *d = m->arg;
    float x[2000] = {0};
    int rc = m->rc != PSC_OK ? m->rc /* the others may be ahead, and have found out already */
             : m->index == 1 ? call(m->q, d->kind, x, d->n, d->root)
                             : psc_allreduce(m->q, x, 1000, NULL);
    if (rc == PSC_OK && m->index == 1) /* its call had nothing to wait for */
        rc = psc_barrier(m->q);
    ck_assert_msg(rc == PSC_ECLIQUE, "rank %d: %s: %s", m->index, psc_result_name(rc),
                  psc_clique_error(m->q));
    assert_says(psc_clique_error(m->q), "different");
    assert_says(psc_clique_error(m->q), "rank 1 ");
    ck_assert_msg(strstr(psc_clique_error(m->q), d->says[0]) != NULL ||
                      strstr(psc_clique_error(m->q), d->says[1]) != NULL,
                  "'%s' says neither '%s' nor '%s'", psc_clique_error(m->q), d->says[0], d->says[1]);
}

START_TEST(members_that_call_differently_are_named)
{
    for (int p = 3; p <= 4; p++)
        for (size_t k = 0; k < ROWS(rig_kinds); k++)
            crowd_run(&rig_kinds[k], p, differ, (void *)(uintptr_t)&differences[_i]);
}
END_TEST

/* One call behind. */
static void skip_a_call(struct rig_member *m)
{
    static const char *const says[] = {"rank 0", "call"};
    float x[10] = {0};
    int rc = m->rc;
    for (int k = 0; k < 5 && rc == PSC_OK; k++)
        if (m->index != 0 || k != 0)
            rc = psc_broadcast(m->q, x, sizeof x, k == 0 ? 1 : 0);
    if (rc == PSC_OK)
        rc = psc_barrier(m->q);
    crowd_expect_failure(m, rc, says, 2);
}

START_TEST(a_skipped_call_is_noticed)
{
    crowd_run(&rig_kinds[0], 3, skip_a_call, NULL);
}
END_TEST

/* Rank 1 leaves while the others go on. */
static void leave(struct rig_member *m)
{
    static const char *const says[] = {"rank 1 "};
    float *x = calloc(300000, sizeof *x);
    int rc = PSC_OK;
    uint64_t ticket;
    rig_ok(m, m->rc);
    for (int k = 0; rc == PSC_OK && !(m->index == 1 && k == 5); k++)
        rc = psc_allreduce(m->q, x, 300000, NULL);
    if (m->index == 1 && *(const int *)m->arg == 1) /* in the middle of a call */
        rig_ok(m, psc_allreduce_start(m->q, x, 300000, NULL, &ticket));
    if (m->index != 1)
        crowd_expect_failure(m, rc, says, 1);
    else { /* the array stays until the clique is closed */
        psc_clique_close(m->q);
        m->q = NULL;
    }
    free(x);
}

START_TEST(a_member_that_leaves_is_named_by_all)
{
    int started = _i % 2;
    for (size_t k = 0; k < ROWS(rig_kinds); k++)
        crowd_run(&rig_kinds[k], 2 + _i / 2, leave, &started);
}
END_TEST

/* Rank 1 takes the tree where the others take the ring: nobody sends what another waits for, and nobody is
 * silent. It cannot happen by the options, which are compared. */
static void take_another_way(struct rig_member *m)
{
    static const char *const says[] = {"members make different calls", "by the tree", "by the ring",
                                       "rank 1 "};
    float x[1000] = {0};
    rig_ok(m, m->rc);
    if (m->index == 1)
        crowd_own_ring()->algorithm = PSC_ALGORITHM_TREE;
    else
        crowd_own_ring()->algorithm = PSC_ALGORITHM_RING;
    int reduces = *(const int *)m->arg;
    int rc = reduces ? psc_reduce(m->q, x, 1000, 2, NULL) : psc_allreduce(m->q, x, 1000, NULL);
    if (rc == PSC_OK) /* nothing to wait for in that call */
        rc = psc_barrier(m->q);
    crowd_expect_failure(m, rc, says, 4);
}

START_TEST(calls_of_two_algorithms_end)
{
    static const struct rig_kind kind = {"tree", "unix:", 1, 65536, "tree"};
    int reduces = _i;
    crowd_run(&kind, 4, take_another_way, &reduces);
}
END_TEST

/* The rendezvous. */

static void expect_refusal(struct rig_member *m)
{
    const char *const *says = m->arg;
    ck_assert_msg(m->rc == PSC_ECLIQUE, "%s: %s", psc_result_name(m->rc), psc_clique_error(m->q));
    for (; *says != NULL; says++)
        assert_says(psc_clique_error(m->q), *says);
    ck_assert_int_eq(psc_barrier(m->q), PSC_ECLIQUE);
    ck_assert_int_eq(psc_clique_size(m->q), 0);
    struct psc_local local;
    struct psc_options opt;
    struct psc *c;
    psc_local_init(&local, sizeof local, "d-sync");
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    opt.clique = m->q;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_ECLIQUE); /* it does not train alone */
    assert_says(psc_error(c), "the clique was not opened: ");
    psc_close(c);
}

START_TEST(missing_ranks_are_named)
{
    static const char *const says[] = {"2 of 4 members did not join", "missing ranks 1, 3", "file:", NULL};
    struct rig r;
    rig_init(&r, &rig_kinds[_i], 4, expect_refusal, (void *)(uintptr_t)says);
    r.member[1].opt.rank = 2;
    double begin = ps_now_s();
    for (int i = 0; i < 2; i++) {
        r.member[i].opt.timeout_ms = 1000;
        crowd_start(&r, i);
    }
    crowd_drive();
    ck_assert_double_ge(ps_now_s() - begin, 0.899); /* the leader ends a little early */
    ck_assert_double_lt(ps_now_s() - begin, 1.001);
    rig_finish(&r);
}
END_TEST

static const struct {
    uint32_t members, links, segment_bytes;
    int32_t rank;
    const char *algorithm;
    const char *says[5];
} odd_ones[] = {
    {4, 1, 65536, 2, "ring", {"disagree", "has members ", "rank 2 at", NULL}},
    {2, 1, 65536, 1, "ring", {"disagree", "rank 1 at", "2", "3", NULL}},
    {3, 2, 65536, 2, "ring", {"disagree", "links", "rank 2 at", NULL}},
    {3, 1, 8192, 2, "ring", {"disagree", "segment_bytes", "65536", "8192", NULL}},
    {3, 1, 65536, 1, "ring", {"rank 1 joined twice, at ", "and at", NULL}},
    {3, 1, 65536, 2, "tree", {"disagree", "algorithm", "tree", "ring", NULL}},
};

START_TEST(members_that_disagree_are_named_to_all)
{
    for (int odd = 0; odd < 3; odd += 2) { /* first to come, or last */
        struct rig r;
        rig_init(&r, &rig_kinds[0], 3, expect_refusal, (void *)(uintptr_t)odd_ones[_i].says);
        struct psc_ring_options *o = &r.member[odd].opt;
        r.member[odd == 0 ? 2 : 0].opt.rank = 0;
        r.member[1].opt.rank = 1;
        o->members = odd_ones[_i].members;
        o->links = odd_ones[_i].links;
        o->segment_bytes = odd_ones[_i].segment_bytes;
        o->rank = odd_ones[_i].rank;
        o->algorithm = odd_ones[_i].algorithm;
        for (int i = 0; i < 3; i++) {
            crowd_start(&r, i);
            test_clock_await_idle(crowd_acting, NULL); /* in this order */
        }
        crowd_drive();
        rig_finish(&r);
    }
}
END_TEST

static void take_rank(struct rig_member *m)
{
    int *seen = m->arg;
    rig_ok(m, m->rc);
    ck_assert_int_lt(psc_clique_rank(m->q), m->rig->members);
    __atomic_add_fetch(&seen[psc_clique_rank(m->q)], 1, __ATOMIC_RELAXED);
    rig_ok(m, psc_barrier(m->q));
}

START_TEST(ranks_are_given_to_those_who_want_any)
{
    for (int wanted = -1; wanted < 5; wanted++) { /* one of five may insist */
        int seen[RIG_MAX_MEMBERS] = {0};
        struct rig r;
        rig_init(&r, &rig_kinds[1], 5, take_rank, seen);
        for (int i = 0; i < 5; i++)
            r.member[i].opt.rank = i == 3 ? wanted : -1;
        for (int i = 0; i < 5; i++)
            crowd_start(&r, i);
        crowd_drive();
        for (int i = 0; i < 5; i++)
            ck_assert_int_eq(seen[i], 1);
        rig_finish(&r);
    }
}
END_TEST

/* A listener that is no member: it takes calls and never speaks, or hangs up, or speaks nonsense. */
struct stranger {
    int fd, manner;
    _Atomic bool stop;
    pthread_t thread;
    char address[64];
};

static void *be_strange(void *arg)
{
    struct stranger *s = arg;
    int calls[64], n = 0;
    while (!s->stop) {
        struct pollfd listening = {.fd = s->fd, .events = POLLIN};
        int fd = ps_poll(&listening, 1, 1000) > 0 ? accept(s->fd, NULL, NULL) : -1;
        if (fd < 0)
            continue;
        if (s->manner == 2) {
            char nonsense[2000];
            memset(nonsense, 'x', sizeof nonsense);
            send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL);
        }
        if (s->manner == 0 && n < (int)ROWS(calls))
            calls[n++] = fd;
        else
            close(fd);
    }
    while (n > 0)
        close(calls[--n]);
    return NULL;
}

static void stranger_start(struct stranger *s, int manner)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    *s = (struct stranger){.manner = manner};
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(s->fd, (struct sockaddr *)&at, sizeof at), 0);
    getsockname(s->fd, (struct sockaddr *)&at, &len);
    ck_assert_int_eq(listen(s->fd, 16), 0);
    snprintf(s->address, sizeof s->address, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
    crowd.strangers++;
    pthread_create(&s->thread, NULL, be_strange, s);
}

static void stranger_stop(struct stranger *s)
{
    s->stop = true;
    shutdown(s->fd, SHUT_RDWR); /* ends its wait */
    pthread_join(s->thread, NULL);
    crowd.strangers--;
    close(s->fd);
}

static void leave_file(const struct rig *r, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%.150s.0", r->place + strlen("file:"));
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void meet_all_the_same(struct rig_member *m)
{
    rig_ok(m, m->rc);
    rig_ok(m, psc_barrier(m->q));
}

static void meet_over(const char *text)
{
    struct rig r;
    rig_init(&r, &rig_kinds[0], 3, meet_all_the_same, NULL);
    leave_file(&r, text);
    for (int i = 0; i < 3; i++)
        crowd_start(&r, i);
    crowd_drive();
    rig_finish(&r);
}

START_TEST(what_an_earlier_run_left_fools_nobody)
{
    meet_over("");
    meet_over("rubbish");
    meet_over("psd-ring 0123456789abcdef tcp://127.0.0.1:1\n"); /* nobody listens */
    meet_over("psd-ring 0123456789abcdef unix:nobody-here\n");
    meet_over("psd-ring 0123456789abcdef telegraph\n");
    meet_over("psd-ring 0123456789abcdef tcp://127.0.0.1:1"); /* cut short */
}
END_TEST

START_TEST(an_address_that_went_to_a_stranger_fools_nobody)
{
    for (int manner = 0; manner < 3; manner++) {
        struct stranger s;
        char text[200];
        stranger_start(&s, manner);
        snprintf(text, sizeof text, "psd-ring 0123456789abcdef %s\n", s.address);
        meet_over(text);
        stranger_stop(&s);
    }
}
END_TEST

/* Strangers call the leader while the members gather. */
START_TEST(strangers_at_the_door_hold_nobody_up)
{
    struct rig r;
    char path[200], text[300] = "";
    int fds[40], port = 0;
    rig_init(&r, &rig_kinds[0], 3, meet_all_the_same, NULL);
    crowd_start(&r, 0);
    test_clock_await_idle(crowd_acting, NULL);
    snprintf(path, sizeof path, "%.150s.0", r.place + strlen("file:"));
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    fclose(f);
    ck_assert_int_eq(sscanf(text, "psd-ring %*s tcp://127.0.0.1:%d", &port), 1);
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    for (size_t i = 0; i < ROWS(fds); i++) {
        char bytes[PSC_HELLO_BYTES];
        memset(bytes, (int)i, sizeof bytes);
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&at, sizeof at), 0);
        send(fds[i], bytes, i % 4 == 0 ? 0 : i % 4 == 1 ? 100 : sizeof bytes, MSG_NOSIGNAL);
    }
    crowd_start(&r, 1);
    crowd_start(&r, 2);
    crowd_drive();
    for (size_t i = 0; i < ROWS(fds); i++)
        close(fds[i]);
    rig_finish(&r);
}
END_TEST

static void no_members(struct psc_ring_options *o)
{
    o->members = 0;
}
static void too_many_links(struct psc_ring_options *o)
{
    o->links = 17;
}
static void small_segments(struct psc_ring_options *o)
{
    o->segment_bytes = 4095;
}
static void high_rank(struct psc_ring_options *o)
{
    o->rank = 3;
}
static void no_place(struct psc_ring_options *o)
{
    o->rendezvous = NULL;
}
static void strange_place(struct psc_ring_options *o)
{
    o->rendezvous = "smoke:signals";
}
static void strange_road(struct psc_ring_options *o)
{
    o->listen = "ipc://x";
}
static void slash_in_name(struct psc_ring_options *o)
{
    o->name = "a/b";
}
static void long_name(struct psc_ring_options *o)
{
    o->name = "0123456789012345678901234567890123456789012345678901234567890123";
}
static void no_size(struct psc_ring_options *o)
{
    o->size = 0;
}
static void hasty(struct psc_ring_options *o)
{
    o->timeout_ms = 99;
}

static const struct {
    void (*spoil)(struct psc_ring_options *o);
    const char *says;
} spoilt[] = {{no_members, "members is 0; allowed are 1 to 1024"},
              {too_many_links, "links is 17; allowed are 1 to 16"},
              {small_segments, "segment_bytes is 4095; allowed are 4096 to 4194304"},
              {high_rank, "rank is 3; allowed are 0 to 2"},
              {no_place, "rendezvous is missing"},
              {strange_place, "rendezvous is 'smoke:signals'; allowed are file:"},
              {strange_road, "listen is 'ipc://x'; allowed are tcp://HOST and unix:"},
              {slash_in_name, "name 'a/b'"},
              {long_name, "name has 64 bytes; allowed are 1 to 63"},
              {no_size, "psc_ring_options_init first"},
              {hasty, "timeout_ms is 99"}};

START_TEST(a_bad_option_is_named)
{
    struct psc_ring_options o;
    struct psc_clique *q = NULL;
    psc_ring_options_init(&o, sizeof o);
    o.members = 3;
    o.rendezvous = "file:/tmp/psd-no-ring";
    spoilt[_i].spoil(&o);
    ck_assert_int_eq(psc_ring_open(&o, &q), PSC_EINVAL);
    assert_says(psc_clique_error(q), spoilt[_i].says);
    ck_assert_int_eq(psc_clique_rank(q), -1);
    ck_assert_str_eq(psc_clique_kind(q), "");
    psc_clique_close(q);
}
END_TEST

START_TEST(a_place_that_cannot_be_written_is_named)
{
    struct psc_ring_options o;
    struct psc_clique *q = NULL;
    psc_ring_options_init(&o, sizeof o);
    o.members = 2;
    o.rendezvous = "file:/nowhere/at/all";
    ck_assert_int_eq(psc_ring_open(&o, &q), PSC_ECLIQUE);
    assert_says(psc_clique_error(q), "/nowhere/at/all.0");
    assert_says(psc_clique_error(q), "No such file");
    psc_clique_close(q);
}
END_TEST

/* A member whose bytes are hostile: it meets and connects like any, and then sends these. */
static const struct {
    const char *says;
    size_t len;
    unsigned char bytes[64];
    bool over_beat; /* rather than over a link */
} hostile[] = {
    {"sent bytes that are not a segment of a ring", 48, {"GET / HTTP/1.1"}},
    {"sent a segment of version 9", 48, {'p', 's', 'd', 'R', 9, 0, 1, 0}},
    {"sent a segment of kind 77", 48, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 77, 0}},
    {"sent a beat or error report with 0 bytes", 48, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 3, 0}},
    {"sent a segment of call 200", 48, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 1, 0, 200}},
    {"rank 0 allreduce of 0 floats as raw (call 0), rank 1 allreduce of 100 floats as raw (call 2)",
     48,
     {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 1, 0}},
    {"rank 0 sent a beat over a link", 48, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 2, 0, [24] = 200}},
    {"sent bytes that are not a segment of a ring", 48, {"GET / HTTP/1.1"}, true},
    {"sent a message that is not its own beat", 48, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 1, 0}, true},
    {"sent a message that is not its own beat",
     48,
     {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 2, 0, [12] = 7, [24] = 200},
     true},
    {"sent a beat that tolerates 5 ms", 48, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 2, 0, [24] = 5}, true},
    {"rank 0 is gone", 20, {'p', 's', 'd', 'R', PSC_WIRE_VERSION, 0, 1, 0}},
};

/* The other one has met them: only then does a connection end that says nothing else. */
static sem_t suffered;

static void *be_hostile(void *arg)
{
    struct rig *r = arg;
    struct psc_ring ring = {
        .members = 2, .links = 1, .segment_bytes = 65536, .timeout_ms = 5000, .step_ms = 5000, .stop_fd = -1};
    struct psc_meeting m = {.place = r->place + strlen("file:"),
                            .name = "0",
                            .members = 2,
                            .links = 1,
                            .segment_bytes = 65536,
                            .timeout_ms = 5000,
                            .deadline_s = ps_now_s() + 5,
                            .stop_fd = -1};
    struct psc_collective barrier = {.kind = PSC_BARRIER};
    struct ps_error err;
    const int row = *(const int *)r->member[0].arg;
    strcpy(ring.name, "0");
    ring.link[0].next = ring.link[0].prev = -1;
    psc_beat_init(&ring.beat);
    ck_assert_int_eq(psc_listen("unix:", &m.listen_fd, m.address, &err), 0);
    ck_assert_msg(psc_rendezvous_file.meet(&m, &err) == 0, "%s", err.text);
    ring.rank = (uint32_t)m.own_rank;
    ring.job = m.job;
    ck_assert_msg(psc_ring_join(&ring, m.listen_fd, m.next, m.deadline_s, &err) == PSC_OK, "%s", err.text);
    ck_assert_int_eq(psc_ring_run(&ring, &barrier, &err), PSC_OK);
    int to = hostile[row].over_beat ? ring.beat.peer[PSC_BEAT_NEXT].fd : ring.link[0].next;
    psc_send_all(to, hostile[row].bytes, hostile[row].len, ps_now_s() + 1, -1);
    if (hostile[row].len == 48) {
        crowd.aside++;
        sem_wait(&suffered);
        crowd.aside--;
    }
    close(ring.link[0].next);
    close(ring.link[0].prev);
    for (int i = 0; i < PSC_BEAT_DIRECTIONS; i++)
        close(ring.beat.peer[i].fd);
    psc_beat_finish(&ring.beat);
    close(m.listen_fd);
    return NULL;
}

static void suffer(struct rig_member *m)
{
    float x[100] = {0};
    const int row = *(const int *)m->arg;
    int rc = m->rc == PSC_OK ? psc_allreduce(m->q, x, 100, NULL) : m->rc; /* a beat comes at any time */
    ck_assert_int_eq(rc, PSC_ECLIQUE);
    assert_says(psc_clique_error(m->q), hostile[row].says);
    sem_post(&suffered);
}

START_TEST(hostile_bytes_are_an_error)
{
    struct rig r;
    pthread_t thread;
    int row = _i;
    rig_init(&r, &rig_kinds[1], 2, suffer, &row);
    sem_init(&suffered, 0, 0);
    pthread_create(&thread, NULL, be_hostile, &r);
    crowd_join(thread);
    crowd_start(&r, 1);
    crowd_drive();
    rig_finish(&r);
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        int rows;
    } tests[] = {{members_that_call_differently_are_named, ROWS(differences)},
                 {a_skipped_call_is_noticed, 1},
                 {a_member_that_leaves_is_named_by_all, 2 * 4},
                 {calls_of_two_algorithms_end, 2},
                 {missing_ranks_are_named, ROWS(rig_kinds)},
                 {members_that_disagree_are_named_to_all, ROWS(odd_ones)},
                 {ranks_are_given_to_those_who_want_any, 1},
                 {what_an_earlier_run_left_fools_nobody, 1},
                 {an_address_that_went_to_a_stranger_fools_nobody, 1},
                 {strangers_at_the_door_hold_nobody_up, 1},
                 {a_bad_option_is_named, ROWS(spoilt)},
                 {a_place_that_cannot_be_written_is_named, 1},
                 {hostile_bytes_are_an_error, ROWS(hostile)}};
    Suite *suite = suite_create("clique-faults");
    for (size_t i = 0; i < ROWS(tests); i++) {
        TCase *tcase = tcase_create(tests[i].test->name);
        tcase_set_timeout(tcase, 280);
        tcase_add_loop_test(tcase, tests[i].test, 0, tests[i].rows);
        suite_add_tcase(suite, tcase);
    }
    return unit_run(suite);
}
