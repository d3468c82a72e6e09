/* driven_clock.h: time controlled by a test. driven_clock.c replaces proto/clock.c and server/loop/timer.c in
 * the programs that it is compiled into: it is linked as an object, which takes precedence over the
 * libraries. It has no effect inside shared libraries.
 *
 * Time is constant until the test advances it. unit_now_s and test_now_s return real time, for limits on
 * tests that hang. */
#ifndef TEST_DRIVEN_CLOCK_H
#define TEST_DRIVEN_CLOCK_H

#include <stdint.h>

/* Advances the time by ms. Timers fire in the order of their due times, with the clock at that time. A timer
 * whose loop belongs to the calling thread is called directly, others by their loop, which must be running in
 * its thread. A timer started with 0 ms is due after 1 ms, because a loop has other work first. Returns when
 * every thread whose deadline has passed is awake. The caller must not hold a mutex that one of them needs.
 * Only one thread may advance the time. */
void test_clock_advance_ms(uint64_t ms);

/* The number of threads that now wait with a deadline: asleep, for a condition, or for descriptors. */
int test_clock_waiters(void);
/* Waits for at least n such threads; fails the test if that never happens. A test uses it before advancing
 * the time, to know that a thread has reached its wait. */
void test_clock_await_waiters(int n);

/* The number of running threads of the test that wait with a deadline when idle. */
typedef int test_clock_threads_fn(void *arg);
/* Returns when threads(arg) threads wait with a deadline and no pending message will wake one: nothing
 * happens before the time advances. Messages must be within this process. */
void test_clock_await_idle(test_clock_threads_fn *threads, void *arg);
/* Until threads(arg) is 0: whenever all threads are idle, advances the time to the earliest deadline. So time
 * passes as on an infinitely fast machine. */
void test_clock_drive(test_clock_threads_fn *threads, void *arg);

#endif
