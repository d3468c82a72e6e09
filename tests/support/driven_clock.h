/* driven_clock.h: time that a test drives. driven_clock.c stands for proto/clock.c and server/loop/timer.c in
 * the programs that it is compiled into: linked as an object, so that the libraries' own are not taken. It
 * cannot drive what is inside a shared library.
 *
 * Time stands still until the test advances it. unit_now_s and test_now_s stay real: limits on a test that
 * hangs are theirs. */
#ifndef TEST_DRIVEN_CLOCK_H
#define TEST_DRIVEN_CLOCK_H

#include <stdint.h>

/* Goes on by ms. On the way timers fire in the order of their due times, with the clock at each; a timer of a
 * loop of the calling thread by a call from here, else by its loop, which must be running in its thread. A
 * timer that was started with 0 ms is due after 1: a loop has other things to do before it.
 * Returns when every thread whose time has come is awake. The caller holds no mutex that one of them needs,
 * and only one thread drives. */
void test_clock_advance_ms(uint64_t ms);

/* Threads that wait by the clock now: asleep, for a condition, or for descriptors with a limit. */
int test_clock_waiters(void);
/* Returns when there are so many at least; fails the test when it never happens. So a test knows that a
 * thread has come to where it waits, and advances. */
void test_clock_await_waiters(int n);

/* How many threads of the test run now: those that shall wait by the clock when they have nothing to do. */
typedef int test_clock_threads_fn(void *arg);
/* Returns when threads(arg) of them wait by the clock and nothing is on its way that wakes one: nobody does
 * anything before time goes on. What is on its way is in this process. */
void test_clock_await_idle(test_clock_threads_fn *threads, void *arg);
/* Until threads(arg) is 0: whenever nobody does anything, goes on to the first time that one waits for. So
 * time passes as for a machine that is infinitely fast, whatever this one is. */
void test_clock_drive(test_clock_threads_fn *threads, void *arg);

#endif
