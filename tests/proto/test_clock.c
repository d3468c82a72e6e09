/* The real clock. The driven one, that stands in its place, is tests/server/loop/test_clock.c's. */
#include "proto/clock.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/unit.h"

START_TEST(all_units_are_of_one_clock)
{
    uint64_t ns = ps_now_ns(), us = ps_now_us(), ms = ps_now_ms();
    double s = ps_now_s();
    ck_assert_uint_ge(us, ns / 1000);
    ck_assert_uint_ge(ms, us / 1000);
    ck_assert_double_ge(s, 1e-3 * (double)ms);
    ck_assert_uint_ge(ps_now_ns(), (uint64_t)(1e9 * s) - 1000);
    /* And it is the system's. */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ck_assert_uint_le(ns, (uint64_t)t.tv_sec * PS_NS_PER_S + (uint64_t)t.tv_nsec);
    ck_assert_uint_ge(ps_now_ns(), (uint64_t)t.tv_sec * PS_NS_PER_S + (uint64_t)t.tv_nsec);
}
END_TEST

START_TEST(the_wall_clock_is_unix_time)
{
    time_t before = time(NULL); /* it may be a tick behind */
    uint64_t us = ps_wall_us();
    time_t after = time(NULL);
    ck_assert_uint_ge(us / 1000000 + 1, (uint64_t)before);
    ck_assert_uint_le(us / 1000000, (uint64_t)after + 1);
}
END_TEST

START_TEST(an_end_lies_ahead_and_never_wraps)
{
    uint64_t now = ps_now_ns();
    ck_assert_uint_ge(ps_ns_after(2.5), now + UINT64_C(2500000000));
    ck_assert_uint_ge(ps_ns_after(INFINITY), now + UINT64_C(1000000000) * PS_NS_PER_S);
    now = ps_now_ns();
    uint64_t before = ps_ns_after(-5);
    ck_assert_uint_ge(before, now);
    ck_assert_uint_le(before, ps_now_ns());
}
END_TEST

START_TEST(a_sleep_is_not_short)
{
    uint64_t begin = ps_now_ns();
    ps_sleep_us(30000);
    ck_assert_uint_ge(ps_now_ns() - begin, UINT64_C(30000000));
}
END_TEST

START_TEST(a_condition_is_waited_for_until_its_time)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    ps_cond_init(&cond);
    uint64_t until = ps_ns_after(0.03);
    pthread_mutex_lock(&lock);
    int rc = 0;
    while (rc == 0)
        rc = ps_cond_wait_until(&cond, &lock, until);
    pthread_mutex_unlock(&lock);
    ck_assert_int_eq(rc, -ETIMEDOUT);
    ck_assert_uint_ge(ps_now_ns(), until);
    pthread_cond_destroy(&cond);
}
END_TEST

struct ball {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool thrown;
};

static void *throw_it(void *arg)
{
    struct ball *b = arg;
    pthread_mutex_lock(&b->lock);
    b->thrown = true;
    ps_cond_wake(&b->cond);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* With an end that never comes: the signal alone ends it. */
START_TEST(a_signal_ends_the_wait)
{
    struct ball b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    ps_cond_init(&b.cond);
    pthread_mutex_lock(&b.lock);
    ck_assert_int_eq(pthread_create(&thread, NULL, throw_it, &b), 0);
    while (!b.thrown)
        ck_assert_int_eq(ps_cond_wait_until(&b.cond, &b.lock, ps_ns_after(INFINITY)), 0);
    pthread_mutex_unlock(&b.lock);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_descriptor_is_waited_for)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    struct pollfd fd = {.fd = fds[0], .events = POLLIN};
    uint64_t begin = ps_now_ms();
    ck_assert_int_eq(ps_poll(&fd, 1, 30), 0);
    ck_assert_uint_ge(ps_now_ms() - begin, 29);
    ck_assert_int_eq(write(fds[1], "x", 1), 1);
    ck_assert_int_eq(ps_poll(&fd, 1, -1), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tc = tcase_create("real");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, all_units_are_of_one_clock);
    tcase_add_test(tc, the_wall_clock_is_unix_time);
    tcase_add_test(tc, an_end_lies_ahead_and_never_wraps);
    tcase_add_test(tc, a_sleep_is_not_short);
    tcase_add_test(tc, a_condition_is_waited_for_until_its_time);
    tcase_add_test(tc, a_signal_ends_the_wait);
    tcase_add_test(tc, a_descriptor_is_waited_for);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
