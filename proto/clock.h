/* clock.h: the only clock. All code whose decisions depend on time uses it: no other file reads the system's
 * clocks, sleeps, or waits for a condition with a limit. A test that defines these functions itself drives
 * time (tests/support/driven_clock.h). Only libzmq and epoll wait with their own limits. */
#ifndef PS_CLOCK_H
#define PS_CLOCK_H

#include <poll.h>
#include <pthread.h>
#include <stdint.h>

#define PS_NS_PER_S UINT64_C(1000000000)

/* Monotonic; any thread. */
uint64_t ps_now_ns(void);
uint64_t ps_now_us(void);
uint64_t ps_now_ms(void);
double ps_now_s(void);

/* Unix time, which may jump: for display, never for a decision. */
uint64_t ps_wall_us(void);

/* The time `seconds` from now, for a deadline. */
uint64_t ps_ns_after(double seconds);

/* Sleeps; a signal handler ends it early. */
void ps_sleep_us(uint64_t us);

/* For ps_cond_wait_until. */
void ps_cond_init(pthread_cond_t *cond);
/* Wakes all waiters. Use it in place of pthread_cond_broadcast: a driven clock must know of it. */
void ps_cond_wake(pthread_cond_t *cond);
/* Like pthread_cond_wait: with the mutex held, and with spurious wakeups. -ETIMEDOUT at ps_now_ns of
 * until_ns. */
int ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns);

/* The same as poll. */
int ps_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

#endif
