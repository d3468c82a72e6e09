/* Cliques of threads: what goes wrong, in a time that the test drives; and that sums take the order of a
 * tree. */
#include <pthread.h>
#include <stdbool.h>

#include "client/psclique.h"
#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

enum { MEMBERS = 3, N = 5000 };

struct member {
    struct psc_clique *q;
    float *x;
    int rc;
    pthread_t thread;
    _Atomic bool ended;
};

static struct member members[MEMBERS];
static void open_all(uint32_t step_ms)
{
    struct psc_clique *q[MEMBERS];
    struct psc_threads_options opt;
    psc_threads_options_init(&opt, sizeof opt);
    ck_assert_uint_eq(opt.step_ms, 3600000);
    opt.members = MEMBERS;
    opt.step_ms = step_ms;
    ck_assert_int_eq(psc_threads_open(&opt, q), PSC_OK);
    for (int i = 0; i < MEMBERS; i++) {
        members[i].q = q[i];
        members[i].x = calloc(N, sizeof *members[i].x);
        ck_assert_str_eq(psc_clique_kind(q[i]), "threads");
    }
}

static void close_all(void)
{
    for (int i = 0; i < MEMBERS; i++) {
        psc_clique_close(members[i].q);
        free(members[i].x);
        members[i].q = NULL;
    }
}

static void *sum(void *arg)
{
    struct member *m = arg;
    m->rc = psc_allreduce(m->q, m->x, N, NULL);
    m->ended = true;
    return NULL;
}

static void start(int i)
{
    members[i].ended = false;
    ck_assert_int_eq(pthread_create(&members[i].thread, NULL, sum, &members[i]), 0);
}

static void join(int i)
{
    pthread_join(members[i].thread, NULL);
}

/* Floats whose sum depends on the order in which they are added. */
START_TEST(sums_take_the_order_of_a_tree)
{
    static const float values[MEMBERS] = {1, 0x1p-24f, 0x1p-24f};
    open_all(60000);
    for (int i = 0; i < MEMBERS; i++)
        for (int k = 0; k < N; k++)
            members[i].x[k] = values[i];
    for (int i = 0; i < MEMBERS; i++)
        start(i);
    for (int i = 0; i < MEMBERS; i++) {
        join(i);
        ck_assert_int_eq(members[i].rc, PSC_OK);
        for (int k = 0; k < N; k++) /* 1 + (2^-24 + 2^-24): from left to right it would be 1 */
            assert_quick(members[i].x[k] == 1 + 0x1p-23f);
    }
    close_all();
}
END_TEST

/* Who does not come is named, by everybody, and the clique stays broken. */
START_TEST(a_member_that_does_not_come_is_named)
{
    open_all(5000);
    start(0);
    start(2);
    test_clock_await_waiters(2);
    test_clock_advance_ms(4900);
    ck_assert(!members[0].ended && !members[2].ended);
    test_clock_advance_ms(200);
    for (int i = 0; i < MEMBERS; i += 2) {
        join(i);
        ck_assert_int_eq(members[i].rc, PSC_ECLIQUE);
        assert_says(psc_clique_error(members[i].q), "rank 1 did not join the call within 5 s");
    }
    sum(&members[1]);
    ck_assert_int_eq(members[1].rc, PSC_ECLIQUE);
    assert_says(psc_clique_error(members[1].q), "rank 1 did not join");
    close_all();
}
END_TEST

START_TEST(a_member_that_leaves_is_named)
{
    open_all(60000);
    start(0);
    start(1);
    test_clock_await_waiters(2);
    psc_clique_close(members[2].q);
    members[2].q = NULL;
    for (int i = 0; i < 2; i++) {
        join(i);
        ck_assert_int_eq(members[i].rc, PSC_ECLIQUE);
        assert_says(psc_clique_error(members[i].q), "rank 2 has left the clique");
    }
    close_all();
}
END_TEST

/* What was started is abandoned by a close, in the clique's own thread, too. */
START_TEST(a_close_abandons_what_was_started)
{
    open_all(60000);
    ck_assert_int_eq(psc_allreduce_start(members[0].q, members[0].x, N, NULL, NULL), PSC_OK);
    test_clock_await_waiters(1);
    psc_clique_close(members[0].q);
    members[0].q = NULL;
    ck_assert_int_eq(psc_barrier(members[1].q), PSC_ECLIQUE);
    assert_says(psc_clique_error(members[1].q), "rank 0 has left the clique");
    close_all();
}
END_TEST

START_TEST(members_that_disagree_are_told_how)
{
    open_all(60000);
    start(0);
    start(1);
    test_clock_await_waiters(2);
    ck_assert_int_eq(psc_broadcast(members[2].q, members[2].x, 16, 1), PSC_ECLIQUE);
    for (int i = 0; i < MEMBERS; i++) {
        if (i < 2)
            join(i);
        assert_says(
            psc_clique_error(members[i].q),
            "rank 0 calls allreduce of 5000 floats with root 0, rank 2 broadcast of 16 bytes with root 1");
    }
    close_all();
}
END_TEST

START_TEST(options_are_checked)
{
    struct psc_clique *q[MEMBERS] = {NULL};
    struct psc_threads_options opt;
    psc_threads_options_init(&opt, sizeof opt);
    ck_assert_int_eq(psc_threads_open(&opt, q), PSC_EINVAL); /* no members */
    opt.members = 1025;
    ck_assert_int_eq(psc_threads_open(&opt, q), PSC_EINVAL);
    opt.members = MEMBERS;
    opt.step_ms = 99;
    ck_assert_int_eq(psc_threads_open(&opt, q), PSC_EINVAL);
    opt.size = 2;
    ck_assert_int_eq(psc_threads_open(&opt, q), PSC_EINVAL);
    ck_assert_ptr_null(q[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tc = tcase_create("threads");
    tcase_add_test(tc, sums_take_the_order_of_a_tree);
    tcase_add_test(tc, a_member_that_does_not_come_is_named);
    tcase_add_test(tc, a_member_that_leaves_is_named);
    tcase_add_test(tc, a_close_abandons_what_was_started);
    tcase_add_test(tc, members_that_disagree_are_told_how);
    tcase_add_test(tc, options_are_checked);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
