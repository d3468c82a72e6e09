/* The driven clock itself (tests/support/driven_clock.h), that other suites stand on: time stands still until
 * it is advanced, timers fire in order, and who waits wakes at its time and not before. */
#include "proto/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "server/loop/timer.h"
#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

START_TEST(time_stands_still_until_it_is_advanced)
{
    uint64_t ns = ps_now_ns(), wall_us = ps_wall_us();
    uv_loop_t loop;
    unit_nap_ms(20);
    ck_assert_uint_eq(ps_now_ns(), ns);
    ck_assert_uint_eq(ps_wall_us(), wall_us);
    test_clock_advance_ms(1500);
    ck_assert_uint_eq(ps_now_ns(), ns + UINT64_C(1500000000));
    ck_assert_uint_eq(ps_now_us(), ps_now_ns() / 1000);
    ck_assert_uint_eq(ps_now_ms(), ps_now_ns() / 1000000);
    ck_assert_uint_eq(psd_loop_now_ms(&loop), ps_now_ms());
    ck_assert_double_eq_tol(ps_now_s(), 1e-9 * (double)ps_now_ns(), 1e-6);
    ck_assert_uint_eq(ps_wall_us(), wall_us + 1500000);
    ck_assert_uint_eq(ps_ns_after(2.5), ps_now_ns() + UINT64_C(2500000000));
    ck_assert_uint_eq(ps_ns_after(-1), ps_now_ns());
}
END_TEST

/* What fired, and when. */
struct firing {
    const struct psd_timer *timer;
    uint64_t at_ms;
};

static struct book {
    uint64_t begin_ms;
    struct firing firings[32];
    int n;
    struct psd_timer a, b, c;
} book;

static void msg(struct psd_timer *timer)
{
    ck_assert_ptr_eq(timer->data, &book);
    ck_assert_int_lt(book.n, ROWS(book.firings));
    book.firings[book.n++] = (struct firing){timer, ps_now_ms() - book.begin_ms};
}

static void note_and_start_another(struct psd_timer *timer)
{
    msg(timer);
    psd_timer_start(&book.c, msg, 0, 0);
}

static void note_and_stop_another(struct psd_timer *timer)
{
    msg(timer);
    psd_timer_stop(&book.a);
}

static void open_book(uv_loop_t *loop)
{
    book = (struct book){.begin_ms = ps_now_ms()};
    ck_assert_int_eq(uv_loop_init(loop), 0);
    psd_timer_init(loop, &book.a, &book);
    psd_timer_init(loop, &book.b, &book);
    psd_timer_init(loop, &book.c, &book);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    uv_close(handle, NULL);
}

static void close_book(uv_loop_t *loop, bool walk)
{
    if (walk) {
        uv_walk(loop, close_handle, NULL);
    } else {
        psd_timer_close(&book.a, NULL);
        psd_timer_close(&book.b, NULL);
        psd_timer_close(&book.c, NULL);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(loop), 0);
}

static void assert_fired(const struct firing *expected, int n)
{
    ck_assert_int_eq(book.n, n);
    for (int i = 0; i < n; i++) {
        ck_assert_ptr_eq(book.firings[i].timer, expected[i].timer);
        ck_assert_uint_eq(book.firings[i].at_ms, expected[i].at_ms);
    }
}

START_TEST(timers_fire_in_order_at_their_times)
{
    for (int turn = 0; turn < 4; turn++) { /* loops at one address, one after the other */
        uv_loop_t loop;
        open_book(&loop);
        psd_timer_start(&book.b, msg, 70, 0);
        psd_timer_start(&book.a, msg, 30, 20);
        ck_assert(psd_timer_is_active(&book.a) && !psd_timer_is_active(&book.c));
        test_clock_advance_ms(29);
        ck_assert_int_eq(book.n, 0);
        test_clock_advance_ms(61);
        const struct firing first[] = {
            {&book.a, 30}, {&book.a, 50}, {&book.b, 70}, {&book.a, 70}, {&book.a, 90}};
        assert_fired(first, ROWS(first));
        ck_assert_uint_eq(ps_now_ms(), book.begin_ms + 90);
        ck_assert(psd_timer_is_active(&book.a) && !psd_timer_is_active(&book.b));

        book.n = 0; /* what a callback stops does not fire; what it starts does */
        psd_timer_start(&book.b, note_and_stop_another, 20, 0);
        psd_timer_start(&book.a, msg, 20, 0); /* forgets its repetition */
        test_clock_advance_ms(50);
        psd_timer_start(&book.a, note_and_start_another, 5, 0);
        test_clock_advance_ms(100);
        const struct firing then[] = {{&book.b, 110}, {&book.a, 145}, {&book.c, 146}};
        assert_fired(then, ROWS(then));
        book.n = 0;
        psd_timer_start(&book.a, msg, 10, 10); /* still active when its loop is closed */
        close_book(&loop, turn % 2 == 0);
        test_clock_advance_ms(1000);
        ck_assert_int_eq(book.n, 0);
    }
}
END_TEST

/* An active timer keeps its loop running; one that is not does not. */
START_TEST(a_loop_runs_while_a_timer_is_active)
{
    uv_loop_t loop;
    open_book(&loop);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    psd_timer_start(&book.a, msg, 10, 0);
    ck_assert_int_ne(uv_run(&loop, UV_RUN_NOWAIT), 0);
    test_clock_advance_ms(10);
    ck_assert_int_eq(book.n, 1);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    close_book(&loop, true);
}
END_TEST

/* A loop in a thread of its own: its timers fire there. */
struct other {
    _Atomic int n, ready;
    pthread_t thread, fired_in;
    uint64_t at_ms;
};

static void count(struct psd_timer *timer)
{
    struct other *o = timer->data;
    o->fired_in = pthread_self();
    o->at_ms = ps_now_ms();
    if (++o->n == 3)
        psd_timer_close(timer, NULL);
}

static void *run_loop(void *arg)
{
    struct other *o = arg;
    struct psd_timer timer;
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    psd_timer_init(&loop, &timer, o);
    psd_timer_start(&timer, count, 100, 100);
    o->ready = 1;
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return NULL;
}

START_TEST(timers_fire_in_the_thread_of_their_loop)
{
    struct other o = {0};
    uint64_t begin_ms = ps_now_ms();
    pthread_create(&o.thread, NULL, run_loop, &o);
    while (!o.ready)
        unit_nap_ms(1);
    test_clock_advance_ms(99);
    ck_assert_int_eq(o.n, 0);
    test_clock_advance_ms(1);
    ck_assert_int_eq(o.n, 1); /* by then it has */
    ck_assert(pthread_equal(o.fired_in, o.thread));
    ck_assert_uint_eq(o.at_ms, begin_ms + 100);
    test_clock_advance_ms(1000);
    ck_assert_int_eq(o.n, 3);
    ck_assert_uint_eq(o.at_ms, begin_ms + 300);
    pthread_join(o.thread, NULL);
}
END_TEST

/* Somebody who waits 50 ms, in one of the ways. */
struct waiter {
    int way, fds[2];
    pthread_mutex_t lock;
    pthread_cond_t cond;
    _Atomic int rc; /* 77: it still waits */
    pthread_t thread;
};

enum { ASLEEP, FOR_CONDITION, FOR_DESCRIPTOR, WAYS };

static void *wait_50_ms(void *arg)
{
    struct waiter *w = arg;
    struct pollfd fd = {.fd = w->fds[0], .events = POLLIN};
    if (w->way == ASLEEP) {
        ps_sleep_us(50000);
        w->rc = 0;
    } else if (w->way == FOR_DESCRIPTOR) {
        w->rc = ps_poll(&fd, 1, 50);
    } else {
        uint64_t until_ns = ps_ns_after(0.05);
        int rc = 0;
        pthread_mutex_lock(&w->lock);
        while (rc == 0 && w->fds[1] != 0)
            rc = ps_cond_wait_until(&w->cond, &w->lock, until_ns);
        pthread_mutex_unlock(&w->lock);
        w->rc = rc;
    }
    return NULL;
}

static void waiter_start(struct waiter *w, int way)
{
    *w = (struct waiter){.way = way, .rc = 77};
    ck_assert_int_eq(pipe(w->fds), 0);
    pthread_mutex_init(&w->lock, NULL);
    ps_cond_init(&w->cond);
    pthread_create(&w->thread, NULL, wait_50_ms, w);
    test_clock_await_waiters(1);
}

START_TEST(who_waits_wakes_at_its_time)
{
    struct waiter w;
    waiter_start(&w, _i);
    test_clock_advance_ms(49);
    ck_assert_int_eq(test_clock_waiters(), 1);
    ck_assert_int_eq(w.rc, 77);
    test_clock_advance_ms(1);
    ck_assert_int_eq(test_clock_waiters(), 0);
    pthread_join(w.thread, NULL);
    ck_assert_int_eq(w.rc, _i == FOR_CONDITION ? -ETIMEDOUT : 0);
}
END_TEST

START_TEST(what_is_waited_for_wakes_before_its_time)
{
    struct waiter w;
    uint64_t begin_ms = ps_now_ms();
    waiter_start(&w, FOR_DESCRIPTOR);
    ck_assert_int_eq(write(w.fds[1], "x", 1), 1);
    pthread_join(w.thread, NULL);
    ck_assert_int_eq(w.rc, 1);
    waiter_start(&w, FOR_CONDITION);
    pthread_mutex_lock(&w.lock);
    unit_nap_ms(20); /* it looks up meanwhile, and can go on only when it has been woken */
    w.fds[1] = 0;
    ps_cond_wake(&w.cond);
    pthread_mutex_unlock(&w.lock);
    pthread_join(w.thread, NULL);
    ck_assert_int_eq(w.rc, 0);
    ck_assert_uint_eq(ps_now_ms(), begin_ms);
}
END_TEST

/* A limit that has passed is no wait. */
START_TEST(a_time_that_has_passed_is_not_waited_for)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    ps_cond_init(&cond);
    pthread_mutex_lock(&lock);
    ck_assert_int_eq(ps_cond_wait_until(&cond, &lock, ps_now_ns()), -ETIMEDOUT);
    pthread_mutex_unlock(&lock);
    ps_sleep_us(0);
    ck_assert_int_eq(ps_poll(NULL, 0, 0), 0);
    ck_assert_int_eq(test_clock_waiters(), 0);
}
END_TEST

/* Two threads that play ball: each has it for 30 ms, asleep, and waits 100 ms for it, n times; the last who
 * has it keeps it. */
struct player {
    int in, out, n;
    bool begins, was_late;
    uint64_t ended_ms;
    pthread_t thread;
    bool joined;
};

static void *play(void *arg)
{
    struct player *p = arg;
    char ball = 'o';
    for (int i = 0; i < p->n; i++) {
        struct pollfd fd = {.fd = p->in, .events = POLLIN};
        if (i > 0 || !p->begins) {
            p->was_late = ps_poll(&fd, 1, 100) == 0;
            if (p->was_late || read(p->in, &ball, 1) != 1)
                break;
        }
        unit_nap_ms(i % 3 == 0 ? 20 : 0); /* a slow machine */
        ps_sleep_us(30000);
        if (i + 1 < p->n && write(p->out, &ball, 1) != 1)
            break;
    }
    p->ended_ms = ps_now_ms();
    return NULL;
}

static int players(void *arg)
{
    struct player *p = arg;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        p[i].joined = p[i].joined || pthread_tryjoin_np(p[i].thread, NULL) == 0;
        n += !p[i].joined;
    }
    return n;
}

START_TEST(time_goes_on_when_nobody_does_anything)
{
    enum { N = 20 };
    int there[2], back[2];
    uint64_t begin_ms = ps_now_ms();
    ck_assert(pipe(there) == 0 && pipe(back) == 0);
    struct player p[] = {{.in = back[0], .out = there[1], .n = N, .begins = true},
                         {.in = there[0], .out = back[1], .n = N}};
    for (int i = 0; i < 2; i++)
        pthread_create(&p[i].thread, NULL, play, &p[i]);
    test_clock_drive(players, p);
    ck_assert_uint_eq(p[0].ended_ms, begin_ms + (2 * N - 1) * 30);
    ck_assert_uint_eq(p[1].ended_ms, p[0].ended_ms + 70); /* 100 since it gave the ball away */
    ck_assert(!p[0].was_late && p[1].was_late);
    ck_assert_uint_eq(ps_now_ms(), p[1].ended_ms);
}
END_TEST

START_TEST(idle_is_who_waits_for_time_alone)
{
    int there[2], back[2];
    ck_assert(pipe(there) == 0 && pipe(back) == 0);
    struct player p[] = {{.in = back[0], .out = there[1], .n = 3, .begins = true},
                         {.in = there[0], .out = back[1], .n = 3}};
    for (int i = 0; i < 2; i++)
        pthread_create(&p[i].thread, NULL, play, &p[i]);
    test_clock_await_idle(players, p); /* the one asleep with the ball, the other waiting for it */
    ck_assert_int_eq(test_clock_waiters(), 2);
    test_clock_advance_ms(30);
    test_clock_await_idle(players, p); /* the other one has it */
    struct pollfd still_there = {.fd = there[0], .events = POLLIN};
    ck_assert_int_eq(poll(&still_there, 1, 0), 0);
    ck_assert_int_eq(test_clock_waiters(), 2);
    test_clock_drive(players, p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-clock");
    TCase *tc = tcase_create("driven");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, time_stands_still_until_it_is_advanced);
    tcase_add_test(tc, timers_fire_in_order_at_their_times);
    tcase_add_test(tc, a_loop_runs_while_a_timer_is_active);
    tcase_add_test(tc, timers_fire_in_the_thread_of_their_loop);
    tcase_add_loop_test(tc, who_waits_wakes_at_its_time, 0, WAYS);
    tcase_add_test(tc, what_is_waited_for_wakes_before_its_time);
    tcase_add_test(tc, a_time_that_has_passed_is_not_waited_for);
    tcase_add_test(tc, time_goes_on_when_nobody_does_anything);
    tcase_add_test(tc, idle_is_who_waits_for_time_alone);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
