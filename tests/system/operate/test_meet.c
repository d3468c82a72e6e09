/* Rings whose members find each other through a real psd. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/suite.h"

enum { MAX = 8, FLOATS = 1000 };

struct result {
    int rc, rank, size;
    float sum;
    char error[600];
};

/* What psd says of each who comes, and of those it takes for silent. */
static const char *const telling[] = {"log_level=debug", NULL};

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
    opt.timeout_ms = (uint32_t)(1000 * test_slow_s(TEST_HANG_S));
    return opt;
}

/* Opens, adds up (rank + 1) once round the ring, closes. */
static void live(const struct psc_ring_options *opt, struct result *r)
{
    struct psc_clique *q = NULL;
    float x[FLOATS];

    r->rc = psc_ring_open(opt, &q);
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
    ck_assert_int_eq(daemon_prepare(d, NULL, telling), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    snprintf(place, size, "psd:%s", d->endpoint);
}

/* Until psd's log has so many lines with the text, or the member has ended before. */
static bool await(const struct daemon *d, const char *text, unsigned lines, const struct member *m)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    siginfo_t ended = {.si_pid = 0};
    while (daemon_logged(d, text) < lines) {
        ck_assert_msg(test_now_s() < deadline, "psd has not said '%s' %u times", text, lines);
        if (m != NULL && waitid(P_PID, (id_t)m->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            ended.si_pid != 0)
            return false;
        test_nap_s(0.002);
    }
    return true;
}

/* psd has made nobody a client, and ends well. */
static void psd_end(struct daemon *d)
{
    ck_assert_double_eq(daemon_workers(d), 0);
    ck_assert_double_eq(daemon_number(d, "/status", "center.version"), 0);
    ck_assert_uint_eq(daemon_logged(d, "session."), 0);
    ck_assert_int_eq(daemon_stop(d, SIGTERM, TEST_HANG_S), 0);
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

/* A member is to be told something before its timeout_ms is up, by a psd that knows of others: on a slow
 * machine they miss each other. Each of these tests tries again with twice the time, as often as this. */
enum { FIRST_MS = 1000, TRIES = 7 };

static bool is_told(const struct member *m, const char *a, const char *b)
{
    return m->result->rc == PSC_ECLIQUE && strstr(m->result->error, a) != NULL &&
           strstr(m->result->error, b) != NULL;
}

static bool two_of_four_are_told(const char *place, uint32_t timeout_ms, struct member *m)
{
    for (int i = 0; i < 2; i++) {
        struct psc_ring_options opt = options(place, 4, i == 0 ? 2 : -1);
        opt.timeout_ms = timeout_ms;
        start(&m[i], &opt);
    }
    for (int i = 0; i < 2; i++)
        end(&m[i]);
    return is_told(&m[0], "2 of 4 members connected", "missing: ranks 1, 3") &&
           is_told(&m[1], "2 of 4 members connected", "missing: ranks 1, 3");
}

/* psd says it before the members' own time is up. */
START_TEST(missing_ranks_are_named)
{
    struct daemon d = {0};
    struct member m[2];
    char place[200];
    bool told = false;
    psd_start(&d, place, sizeof place);
    for (int i = 0; i < TRIES && !told; i++)
        told = two_of_four_are_told(place, FIRST_MS << i, m);
    ck_assert_msg(told, "%s; %s", m[0].result->error, m[1].result->error);
    psd_end(&d);
}
END_TEST

/* While a first waits, three come that do not fit to it. They are told so at once, and not that their time is
 * up; the first, who is missing and who did not fit. */
static bool disagreeing_are_told(const struct daemon *d, const char *place, uint32_t timeout_ms,
                                 struct member *m)
{
    unsigned came = daemon_logged(d, "meeting.came");
    struct psc_ring_options opt = options(place, 3, 1);
    opt.timeout_ms = timeout_ms;
    start(&m[0], &opt);
    await(d, "meeting.came", came + 1, &m[0]);
    opt.members = 4, opt.rank = 0;
    start(&m[1], &opt);
    opt.members = 3, opt.rank = 1;
    start(&m[2], &opt);
    opt.rank = 2, opt.links = 2;
    start(&m[3], &opt);
    for (int i = 0; i < 4; i++)
        end(&m[i]);
    return is_told(&m[0], "missing: ranks 0, 2; ", "") &&
           is_told(&m[1], "says members: 3, tcp://127.0.0.1:", "") &&
           is_told(&m[2], "rank 1 is taken by tcp://127.0.0.1:", "") &&
           is_told(&m[3], "says links: 1, tcp://127.0.0.1:", "");
}

START_TEST(members_that_disagree_are_refused)
{
    struct daemon d = {0};
    struct member m[4];
    char place[200];
    bool told = false;
    psd_start(&d, place, sizeof place);
    for (int i = 0; i < TRIES && !told; i++)
        told = disagreeing_are_told(&d, place, FIRST_MS << i, m);
    ck_assert_msg(told, "%s; %s; %s; %s", m[0].result->error, m[1].result->error, m[2].result->error,
                  m[3].result->error);
    psd_end(&d);
}
END_TEST

/* A member dies while it waits; another takes its rank as soon as it has been silent. A last word of the dead
 * may reach psd late: then the rank is taken for a while longer. */
START_TEST(a_member_that_died_is_replaced)
{
    struct daemon d = {0};
    struct member m[3];
    char place[200];
    struct psc_ring_options opt;
    unsigned came = 2;
    ck_assert_int_eq(daemon_prepare(&d, NULL, telling), 0);
    struct shim_page *page = shim_set(PSD_SHIM, d.dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    shim_unset();
    snprintf(place, sizeof place, "psd:%s", d.endpoint);
    for (int i = 0; i < 2; i++) {
        opt = options(place, 3, i);
        start(&m[i], &opt);
    }
    ck_assert(await(&d, "meeting.came", came, NULL));
    kill(m[1].pid, SIGKILL);
    waitpid(m[1].pid, NULL, 0);
    opt = options(place, 3, 1);
    do {
        ck_assert(shim_leap(page, &d, 3)); /* more than half of what psd takes for silence */
        came = daemon_logged(&d, "number 2 of 3");
        start(&m[1], &opt);
    } while (!await(&d, "number 2 of 3", came + 1, &m[1]) && end(&m[1])->rc == PSC_ECLIQUE);
    opt = options(place, 3, 2);
    start(&m[2], &opt);
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
    ck_assert_int_eq(daemon_prepare(&d, NULL, telling), 0);
    snprintf(place, sizeof place, "psd:%s", d.endpoint);
    opt = options(place, 3, -1);
    start(&m[0], &opt);
    test_nap_s(0.2); /* it looks in vain; a slow machine's may not have looked yet */
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    start(&m[1], &opt);
    ck_assert(await(&d, "number 2 of 3", 1, NULL));
    daemon_stop(&d, SIGKILL, TEST_HANG_S);
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
        {"psd:tcp://127.0.0.1:1", "did not answer within 200 ms"},
        {"psd:@/nowhere/endpoint", "endpoint file '/nowhere/endpoint'"},
        {"psd:udp://127.0.0.1:1", "cannot connect to 'udp://127.0.0.1:1'"},
        {"tcp://127.0.0.1:1", "psd:..."},
    };
    struct member m;
    struct psc_ring_options opt = options(rows[_i].place, 2, -1);
    opt.timeout_ms = 200;
    start(&m, &opt);
    const struct result *r = end(&m);
    ck_assert_int_lt(r->rc, 0);
    ck_assert_msg(strstr(r->error, rows[_i].says) != NULL, "%s", r->error);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system-meet");
    TCase *tc = tcase_create("meet");
    tcase_set_timeout(tc, test_slow_s(10 * TEST_HANG_S));
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
