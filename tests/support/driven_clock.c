#include "tests/support/driven_clock.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>

#include "proto/clock.h"
#include "server/loop/timer.h"
#include "tests/support/unit.h"

/* BEGIN_S: nonzero, so that an unset time differs from now. A thread whose wait something else can end checks
 * the clock every SLICE_MS of real time. */
enum { BEGIN_S = 1000000, MAX_WAITERS = 256, MAX_LOOPS = 64, MAX_TIMERS = 256, SLICE_MS = 1, HANG_S = 250 };
enum { QUIET_SLICES = 3 }; /* sent messages have arrived after that time, also over tcp */

static const uint64_t wall_begin_us = UINT64_C(1767225600) * 1000000, /* 2026-01-01 */
    ns_per_ms = 1000000;

/* A loop. Its thread is the one that created its first timer. It is closed with `wake`: by the close of its
 * last timer, or by a uv_walk that closes all handles; its timers are then removed. */
struct driven_loop {
    uv_loop_t *loop;
    pthread_t thread;
    uv_async_t wake;
    int n_timers;
    struct driven_timer *firing; /* due; to be run by the loop's thread */
};

/* A thread that waits with a deadline. */
struct waiter {
    uint64_t until_ns; /* 0: unused */
    /* If something else can end the wait: slices without such an event, started after so many events. */
    bool may_wake;
    const pthread_cond_t *cond; /* NULL: not waiting for a condition */
    bool woken;                 /* also set between two slices, when the thread is not in the wait */
    uint64_t events;
    int quiet_slices;
};

struct driven_timer {
    struct psd_timer *timer; /* NULL: unused */
    struct driven_loop *loop;
    uint64_t due_ns, repeat_ms, order;
    bool active;
};

static _Atomic uint64_t now_ns = BEGIN_S * PS_NS_PER_S;

/* Guards the state below. `changed` signals any change of it, or of the time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct waiter waiters[MAX_WAITERS];
static uint64_t n_events; /* starts and ends of waits */
static struct driven_loop loops[MAX_LOOPS];
static struct driven_timer timers[MAX_TIMERS];
static uint64_t n_started;

/* proto/clock.h */

uint64_t ps_now_ns(void)
{
    return atomic_load(&now_ns);
}

uint64_t ps_now_us(void)
{
    return ps_now_ns() / 1000;
}

uint64_t ps_now_ms(void)
{
    return ps_now_ns() / ns_per_ms;
}

double ps_now_s(void)
{
    return 1e-9 * (double)ps_now_ns();
}

uint64_t ps_wall_us(void)
{
    return wall_begin_us + (ps_now_ns() - BEGIN_S * PS_NS_PER_S) / 1000;
}

uint64_t ps_ns_after(double seconds)
{
    return ps_now_ns() + (seconds > 0 ? (uint64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9) : 0);
}

/* With the lock held; so is end_wait. */
static struct waiter *begin_wait(uint64_t until_ns, bool may_wake)
{
    int i = 0;
    while (i < MAX_WAITERS && waiters[i].until_ns != 0)
        i++;
    ck_assert_msg(i < MAX_WAITERS, "more than %d threads wait", MAX_WAITERS);
    waiters[i] = (struct waiter){.until_ns = until_ns, .may_wake = may_wake};
    n_events++;
    pthread_cond_broadcast(&changed);
    return &waiters[i];
}

static void end_wait(struct waiter *w)
{
    w->until_ns = 0;
    n_events++;
    pthread_cond_broadcast(&changed);
}

static struct waiter *begin_slices(uint64_t until_ns, const pthread_cond_t *cond)
{
    pthread_mutex_lock(&lock);
    struct waiter *w = begin_wait(until_ns, true);
    w->cond = cond;
    w->events = n_events;
    pthread_mutex_unlock(&lock);
    return w;
}

/* Called after a slice in which the system did not wake the thread. Returns whether nothing else did. */
static bool note_quiet(struct waiter *w)
{
    pthread_mutex_lock(&lock);
    bool quiet = !w->woken;
    w->quiet_slices = w->events == n_events ? w->quiet_slices + 1 : 0;
    w->events = n_events;
    pthread_mutex_unlock(&lock);
    return quiet;
}

static void end_slices(struct waiter *w)
{
    pthread_mutex_lock(&lock);
    end_wait(w);
    pthread_mutex_unlock(&lock);
}

void ps_sleep_us(uint64_t us)
{
    pthread_mutex_lock(&lock);
    uint64_t until_ns = ps_now_ns() + us * 1000;
    struct waiter *w = begin_wait(until_ns, false);
    while (ps_now_ns() < until_ns)
        pthread_cond_wait(&changed, &lock);
    end_wait(w);
    pthread_mutex_unlock(&lock);
}

/* Real time, which ps_cond_init uses for conditions here as well. */
static struct timespec real_after(long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

void ps_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void ps_cond_wake(pthread_cond_t *cond)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_WAITERS; i++)
        if (waiters[i].until_ns != 0 && waiters[i].cond == cond)
            waiters[i].woken = true;
    pthread_mutex_unlock(&lock);
    pthread_cond_broadcast(cond);
}

int ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    struct waiter *w = begin_slices(until_ns, cond);
    int rc = ETIMEDOUT;
    while (rc == ETIMEDOUT && ps_now_ns() < until_ns) {
        struct timespec slice = real_after(SLICE_MS);
        if ((rc = pthread_cond_timedwait(cond, mutex, &slice)) == ETIMEDOUT && !note_quiet(w))
            rc = 0;
    }
    end_slices(w);
    return -rc;
}

int ps_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    if (timeout_ms <= 0)
        return poll(fds, n, timeout_ms);
    uint64_t until_ns = ps_now_ns() + (uint64_t)timeout_ms * ns_per_ms;
    struct waiter *w = begin_slices(until_ns, NULL);
    int rc = 0;
    while (rc == 0 && ps_now_ns() < until_ns)
        if ((rc = poll(fds, n, SLICE_MS)) == 0)
            note_quiet(w);
    end_slices(w);
    return rc;
}

/* server/loop/timer.h */

uint64_t psd_loop_now_ms(const uv_loop_t *loop)
{
    (void)loop;
    return ps_now_ms();
}

static bool is_open(const struct driven_loop *l)
{
    return !uv_is_closing((const uv_handle_t *)&l->wake);
}

/* With the lock held. Returns when the timer's callback has returned. */
static void fire(struct driven_timer *t)
{
    struct psd_timer *timer = t->timer;
    if (t->repeat_ms > 0) {
        t->due_ns = ps_now_ns() + t->repeat_ms * ns_per_ms;
        t->order = ++n_started;
    } else {
        t->active = false;
        uv_timer_stop(&timer->handle);
    }
    pthread_mutex_unlock(&lock);
    timer->fired(timer);
    pthread_mutex_lock(&lock);
}

static void on_wake(uv_async_t *wake)
{
    struct driven_loop *l = wake->data;
    pthread_mutex_lock(&lock);
    if (l->firing != NULL) {
        if (l->firing->active && l->firing->due_ns <= ps_now_ns()) /* it may have been stopped since */
            fire(l->firing);
        l->firing = NULL;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

static struct driven_loop *find_loop(uv_loop_t *loop)
{
    int i = 0;
    while (i < MAX_LOOPS && loops[i].loop != NULL && loops[i].loop != loop)
        i++;
    ck_assert_msg(i < MAX_LOOPS, "more than %d loops", MAX_LOOPS);
    struct driven_loop *l = &loops[i];
    if (l->loop != NULL && is_open(l))
        return l;
    for (int k = 0; k < MAX_TIMERS; k++) /* timers of the slot's previous loop */
        if (timers[k].loop == l)
            timers[k] = (struct driven_timer){0};
    *l = (struct driven_loop){.loop = loop, .thread = pthread_self()};
    uv_async_init(loop, &l->wake, on_wake);
    uv_unref((uv_handle_t *)&l->wake);
    l->wake.data = l;
    return l;
}

static struct driven_timer *find_timer(const struct psd_timer *timer)
{
    for (int i = 0; i < MAX_TIMERS; i++)
        if (timers[i].timer == timer)
            return &timers[i];
    return NULL;
}

void psd_timer_init(uv_loop_t *loop, struct psd_timer *timer, void *data)
{
    pthread_mutex_lock(&lock);
    struct driven_loop *l = find_loop(loop);
    struct driven_timer *t =
        find_timer(timer); /* reused memory of a timer whose loop was closed by a uv_walk */
    t = t != NULL ? t : find_timer(NULL);
    ck_assert_msg(t != NULL, "more than %d timers", MAX_TIMERS);
    *t = (struct driven_timer){.timer = timer, .loop = l};
    l->n_timers++;
    timer->data = data;
    uv_timer_init(loop, &timer->handle);
    timer->handle.data = timer;
    pthread_mutex_unlock(&lock);
}

static void never(uv_timer_t *handle)
{
    (void)handle;
}

/* libuv's timer is active but never due: it only keeps the loop alive. */
void psd_timer_start(struct psd_timer *timer, psd_timer_fn *fired, uint64_t after_ms, uint64_t repeat_ms)
{
    pthread_mutex_lock(&lock);
    struct driven_timer *t = find_timer(timer);
    timer->fired = fired;
    t->due_ns = ps_now_ns() + (after_ms > 0 ? after_ms : 1) * ns_per_ms;
    t->repeat_ms = repeat_ms;
    t->order = ++n_started;
    t->active = true;
    uv_timer_start(&timer->handle, never, INT64_MAX, 0);
    pthread_mutex_unlock(&lock);
}

void psd_timer_stop(struct psd_timer *timer)
{
    pthread_mutex_lock(&lock);
    struct driven_timer *t = find_timer(timer);
    if (t != NULL) /* a zeroed timer is not active */
        t->active = false;
    uv_timer_stop(&timer->handle);
    pthread_mutex_unlock(&lock);
}

bool psd_timer_is_active(const struct psd_timer *timer)
{
    return uv_is_active((const uv_handle_t *)&timer->handle);
}

void psd_timer_close(struct psd_timer *timer, uv_close_cb closed)
{
    pthread_mutex_lock(&lock);
    struct driven_timer *t = find_timer(timer);
    struct driven_loop *l = t->loop;
    *t = (struct driven_timer){0};
    if (--l->n_timers == 0 && is_open(l))
        uv_close((uv_handle_t *)&l->wake, NULL);
    pthread_mutex_unlock(&lock);
    uv_close((uv_handle_t *)&timer->handle, closed);
}

/* driven_clock.h */

/* With the lock held, like all functions below: waits for `changed` or a short time. */
static void await_change(double begin_s, const char *what)
{
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon); /* the clock of `changed` */
    soon.tv_sec += 1;
    pthread_cond_timedwait(&changed, &lock, &soon);
    ck_assert_msg(unit_now_s() < begin_s + HANG_S, "%s", what);
}

static struct driven_timer *next_due(uint64_t until_ns)
{
    struct driven_timer *next = NULL;
    for (int i = 0; i < MAX_TIMERS; i++) {
        struct driven_timer *t = &timers[i];
        if (t->active && t->due_ns <= until_ns && is_open(t->loop) &&
            (next == NULL || t->due_ns < next->due_ns ||
             (t->due_ns == next->due_ns && t->order < next->order)))
            next = t;
    }
    return next;
}

static bool has_sleepers_due(void)
{
    for (int i = 0; i < MAX_WAITERS; i++)
        if (waiters[i].until_ns != 0 && waiters[i].until_ns <= ps_now_ns())
            return true;
    return false;
}

static void go_to(uint64_t ns)
{
    double begin_s = unit_now_s();
    atomic_store(&now_ns, ns);
    pthread_cond_broadcast(&changed);
    while (has_sleepers_due())
        await_change(begin_s, "a thread whose deadline has passed does not wake");
}

static void fire_at_its_loop(struct driven_timer *t)
{
    struct driven_loop *l = t->loop;
    double begin_s = unit_now_s();
    if (pthread_equal(l->thread, pthread_self())) {
        fire(t);
        return;
    }
    l->firing = t;
    uv_async_send(&l->wake);
    while (l->firing != NULL)
        await_change(begin_s, "a loop whose timer is due does not run");
}

static void advance_to(uint64_t end_ns)
{
    struct driven_timer *t;
    while ((t = next_due(end_ns)) != NULL) {
        go_to(t->due_ns > ps_now_ns() ? t->due_ns : ps_now_ns());
        if (t->active && t->due_ns <= ps_now_ns()) /* a thread that woke may have stopped it */
            fire_at_its_loop(t);
    }
    go_to(end_ns);
}

void test_clock_advance_ms(uint64_t ms)
{
    pthread_mutex_lock(&lock);
    advance_to(ps_now_ns() + ms * ns_per_ms);
    pthread_mutex_unlock(&lock);
}

static int count_waiters(void)
{
    int n = 0;
    for (int i = 0; i < MAX_WAITERS; i++)
        n += waiters[i].until_ns != 0;
    return n;
}

int test_clock_waiters(void)
{
    pthread_mutex_lock(&lock);
    int n = count_waiters();
    pthread_mutex_unlock(&lock);
    return n;
}

void test_clock_await_waiters(int n)
{
    double begin_s = unit_now_s();
    pthread_mutex_lock(&lock);
    while (count_waiters() < n)
        await_change(begin_s, "fewer threads wait with a deadline than expected");
    pthread_mutex_unlock(&lock);
}

/* All threads have been waiting since before the current slices started, so none can wake another. */
static bool are_idle(int threads)
{
    for (int i = 0; i < MAX_WAITERS; i++) {
        const struct waiter *w = &waiters[i];
        if (w->until_ns != 0 && w->may_wake && (w->events != n_events || w->quiet_slices < QUIET_SLICES))
            return false;
    }
    return count_waiters() >= threads;
}

static uint64_t first_time(void)
{
    const struct driven_timer *t = next_due(UINT64_MAX);
    uint64_t first_ns = t != NULL ? t->due_ns : UINT64_MAX;
    for (int i = 0; i < MAX_WAITERS; i++)
        if (waiters[i].until_ns != 0 && waiters[i].until_ns < first_ns)
            first_ns = waiters[i].until_ns;
    return first_ns;
}

/* With the lock held: waits until all threads are idle, or none is left. Returns their number. */
static int await_idle(test_clock_threads_fn *threads, void *arg)
{
    for (double begin_s = unit_now_s();;) {
        pthread_mutex_unlock(&lock);
        int n = threads(arg);
        pthread_mutex_lock(&lock);
        if (n == 0 || are_idle(n))
            return n;
        pthread_mutex_unlock(&lock);
        unit_nap_ms(SLICE_MS);
        pthread_mutex_lock(&lock);
        ck_assert_msg(unit_now_s() < begin_s + HANG_S, "of %d running threads, %d wait with a deadline", n,
                      count_waiters());
    }
}

void test_clock_await_idle(test_clock_threads_fn *threads, void *arg)
{
    pthread_mutex_lock(&lock);
    await_idle(threads, arg);
    pthread_mutex_unlock(&lock);
}

void test_clock_drive(test_clock_threads_fn *threads, void *arg)
{
    pthread_mutex_lock(&lock);
    while (await_idle(threads, arg) > 0)
        advance_to(first_time());
    pthread_mutex_unlock(&lock);
}
