/* clock.h: the only clock. Whatever decides by time asks it: nothing else reads the system's clocks, sleeps
 * or waits for a condition with a limit. So a program that brings these functions itself drives time
 * (tests/support/driven_clock.h). Only libzmq, and epoll, wait with limits of their own. */
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

/* Unix time, which may jump: for what people read, never for a decision. */
uint64_t ps_wall_us(void);

/* The end of what may take so long from now. */
uint64_t ps_ns_after(double seconds);

/* A signal's handler ends it early. */
void ps_sleep_us(uint64_t us);

/* For ps_cond_wait_until. */
void ps_cond_init(pthread_cond_t *cond);
/* Wakes all who wait for it. Nothing else does: who waits by a driven clock has to hear of it. */
void ps_cond_wake(pthread_cond_t *cond);
/* As pthread_cond_wait: with the mutex held, and it may return for nothing. -ETIMEDOUT at ps_now_ns of
 * until_ns. */
int ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns);

/* As poll. */
int ps_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

#endif
