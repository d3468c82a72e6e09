/* Rings whose members find each other through a real psd. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/support/daemon.h"
#include "tests/support/suite.h"

enum { MAX = 8, FLOATS = 1000 };

struct result {
    int rc, rank, size;
    float sum;
    char error[600];
    double seconds;
};

struct member {
    pid_t pid;
    struct result *result; /* shared with the process */
};

static struct psc_ring_options options(const char *place, uint32_t members, int32_t rank)
{
    struct psc_ring_options opt;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = members;
    opt.rank = rank;
    opt.rendezvous = place;
    opt.timeout_ms = (uint32_t)(1000 * test_slow_s(5));
    return opt;
}

/* Opens, adds up (rank + 1) once round the ring, closes. */
static void live(const struct psc_ring_options *opt, struct result *r)
{
    struct psc_clique *q = NULL;
    float x[FLOATS];
    double begin = test_now_s();

    r->rc = psc_ring_open(opt, &q);
    r->seconds = test_now_s() - begin;
    if (r->rc == PSC_OK) {
        r->rank = psc_clique_rank(q);
        r->size = psc_clique_size(q);
        for (int i = 0; i < FLOATS; i++)
            x[i] = (float)(r->rank + 1);
        r->rc = psc_allreduce(q, x, FLOATS, NULL);
        r->sum = x[FLOATS - 1];
    }
    snprintf(r->error, sizeof r->error, "%s", psc_clique_error(q));
    psc_clique_close(q);
}

static void start(struct member *m, const struct psc_ring_options *opt)
{
    pid_t parent = getpid();
    m->result = mmap(NULL, sizeof *m->result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(m->result, MAP_FAILED);
    m->result->rc = 1000;
    m->pid = fork();
    ck_assert_int_ge(m->pid, 0);
    if (m->pid > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        live(opt, m->result);
    _exit(0);
}

static const struct result *end(struct member *m)
{
    int status;
    ck_assert_int_eq(waitpid(m->pid, &status, 0), m->pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    return m->result;
}

static void ring_of(struct member *m, const char *place, uint32_t members, const int32_t *ranks)
{
    for (uint32_t i = 0; i < members; i++) {
        struct psc_ring_options opt = options(place, members, ranks != NULL ? ranks[i] : -1);
        start(&m[i], &opt);
    }
}

/* All met, each has a rank of its own (the wanted one), and the sum is right. */
static void assert_ring(struct member *m, uint32_t members, const int32_t *ranks)
{
    unsigned seen = 0;
    for (uint32_t i = 0; i < members; i++) {
        const struct result *r = end(&m[i]);
        ck_assert_msg(r->rc == PSC_OK, "member %u: %d, %s", i, r->rc, r->error);
        ck_assert_uint_eq((unsigned)r->size, members);
        ck_assert(ranks == NULL || ranks[i] < 0 || ranks[i] == r->rank);
        ck_assert_float_eq(r->sum, (float)(members * (members + 1) / 2));
        seen |= 1u << r->rank;
    }
    ck_assert_uint_eq(seen, (1u << members) - 1);
}

static void psd_start(struct daemon *d, char *place, size_t size)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, NULL), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    snprintf(place, size, "psd:%s", d->endpoint);
}

/* psd has made nobody a client, and ends well. */
static void psd_end(struct daemon *d)
{
    ck_assert_double_eq(daemon_number(d, "/status", "workers.active"), 0);
    ck_assert_double_eq(daemon_number(d, "/status", "center.version"), 0);
    ck_assert_uint_eq(daemon_logged(d, "session."), 0);
    ck_assert_int_eq(daemon_stop(d, SIGTERM, test_slow_s(20)), 0);
    daemon_remove(d);
}

START_TEST(members_meet_through_psd)
{
    static const int32_t mixed[] = {-1, 3, 0, -1};
    struct daemon d = {0};
    struct member m[4];
    char place[200];
    psd_start(&d, place, sizeof place);
    ring_of(m, place, 4, NULL);
    assert_ring(m, 4, NULL);
    ring_of(m, place, 4, mixed); /* at once again, under the same name */
    assert_ring(m, 4, mixed);
    ring_of(m, place, 3, NULL);
    assert_ring(m, 3, NULL);
    ck_assert_uint_eq(daemon_logged(&d, "meeting.complete"), 3);
    psd_end(&d);
}
END_TEST

START_TEST(two_cliques_of_two_names_meet_at_once)
{
    struct daemon d = {0};
    struct member m[4];
    char place[200];
    psd_start(&d, place, sizeof place);
    for (int i = 0; i < 4; i++) {
        struct psc_ring_options opt = options(place, 2, -1);
        opt.name = i % 2 ? "odd" : "even";
        start(&m[i], &opt);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(end(&m[i])->rc, PSC_OK);
        ck_assert_float_eq(m[i].result->sum, 3);
    }
    psd_end(&d);
}
END_TEST

/* Within the deadline, with the ranks named: psd says it before the members' own time is up. */
START_TEST(missing_ranks_are_named)
{
    struct daemon d = {0};
    struct member m[2];
    char place[200];
    psd_start(&d, place, sizeof place);
    for (int i = 0; i < 2; i++) {
        struct psc_ring_options opt = options(place, 4, i == 0 ? 2 : -1);
        opt.timeout_ms = 2000;
        start(&m[i], &opt);
    }
    for (int i = 0; i < 2; i++) {
        const struct result *r = end(&m[i]);
        ck_assert_int_eq(r->rc, PSC_ECLIQUE);
        ck_assert_msg(strstr(r->error, "2 of 4 members came") != NULL &&
                          strstr(r->error, "missing: ranks 1, 3") != NULL,
                      "%s", r->error);
        ck_assert_double_lt(r->seconds, test_slow_s(3));
    }
    psd_end(&d);
}
END_TEST

START_TEST(members_that_disagree_are_refused)
{
    struct daemon d = {0};
    struct member first, m[3];
    char place[200];
    psd_start(&d, place, sizeof place);
    struct psc_ring_options opt = options(place, 3, 1);
    start(&first, &opt);
    test_nap_s(1); /* it is there before the others */
    opt = options(place, 4, 0);
    start(&m[0], &opt);
    opt = options(place, 3, 1);
    start(&m[1], &opt);
    opt = options(place, 3, 2);
    opt.links = 2;
    start(&m[2], &opt);
    static const char *const says[] = {
        "says members: 3, tcp://127.0.0.1:", "rank 1 is taken by tcp://127.0.0.1:",
        "says links: 1, tcp://127.0.0.1:"};
    for (int i = 0; i < 3; i++) {
        const struct result *r = end(&m[i]);
        ck_assert_int_eq(r->rc, PSC_ECLIQUE);
        ck_assert_msg(strstr(r->error, says[i]) != NULL, "%s", r->error);
        ck_assert_double_lt(r->seconds, test_slow_s(2)); /* at once */
    }
    const struct result *r = end(&first);
    ck_assert_int_eq(r->rc, PSC_ECLIQUE);
    ck_assert_msg(strstr(r->error, "missing: ranks 0, 2; ") != NULL, "%s",
                  r->error); /* and who did not fit */
    psd_end(&d);
}
END_TEST

/* A member dies while it waits; another takes its rank as soon as it has been silent. */
START_TEST(a_member_that_died_is_replaced)
{
    struct daemon d = {0};
    struct member m[3];
    char place[200];
    struct psc_ring_options opt;
    psd_start(&d, place, sizeof place);
    for (int i = 0; i < 2; i++) {
        opt = options(place, 3, i);
        opt.timeout_ms = 30000;
        start(&m[i], &opt);
    }
    test_nap_s(1);
    kill(m[1].pid, SIGKILL);
    waitpid(m[1].pid, NULL, 0);
    test_nap_s(3); /* more than half of what psd takes for silence */
    for (int i = 1; i < 3; i++) {
        opt = options(place, 3, i);
        start(&m[i], &opt);
    }
    assert_ring(m, 3, (int32_t[]){0, 1, 2});
    psd_end(&d);
}
END_TEST

/* The endpoint file is not there yet, and then psd is another one at another port. */
START_TEST(members_wait_for_psd_and_follow_it)
{
    struct daemon d = {0};
    struct member m[3];
    char place[200];
    struct psc_ring_options opt;
    ck_assert_int_eq(daemon_prepare(&d, NULL, NULL), 0);
    snprintf(place, sizeof place, "psd:%s", d.endpoint);
    opt = options(place, 3, -1);
    opt.timeout_ms = (uint32_t)(1000 * test_slow_s(30));
    start(&m[0], &opt);
    test_nap_s(1);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    start(&m[1], &opt);
    test_nap_s(2);
    daemon_stop(&d, SIGKILL, test_slow_s(20));
    unlink(d.endpoint + 1);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    start(&m[2], &opt);
    assert_ring(m, 3, NULL);
    psd_end(&d);
}
END_TEST

START_TEST(without_psd_it_says_so_in_time)
{
    static const struct {
        const char *place, *says;
    } rows[] = {
        {"psd:tcp://127.0.0.1:1", "did not answer within 1000 ms"},
        {"psd:@/nowhere/endpoint", "endpoint file '/nowhere/endpoint'"},
        {"psd:udp://127.0.0.1:1", "cannot connect to 'udp://127.0.0.1:1'"},
        {"tcp://127.0.0.1:1", "psd:..."},
    };
    struct member m;
    struct psc_ring_options opt = options(rows[_i].place, 2, -1);
    opt.timeout_ms = 1000;
    start(&m, &opt);
    const struct result *r = end(&m);
    ck_assert_int_lt(r->rc, 0);
    ck_assert_msg(strstr(r->error, rows[_i].says) != NULL, "%s", r->error);
    ck_assert_double_lt(r->seconds, test_slow_s(2));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system-meet");
    TCase *tc = tcase_create("meet");
    tcase_set_timeout(tc, test_slow_s(60));
    tcase_add_test(tc, members_meet_through_psd);
    tcase_add_test(tc, two_cliques_of_two_names_meet_at_once);
    tcase_add_test(tc, missing_ranks_are_named);
    tcase_add_test(tc, members_that_disagree_are_refused);
    tcase_add_test(tc, a_member_that_died_is_replaced);
    tcase_add_test(tc, members_wait_for_psd_and_follow_it);
    tcase_add_loop_test(tc, without_psd_it_says_so_in_time, 0, 4);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
