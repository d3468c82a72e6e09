/* A program that drives time defines all of these functions itself, so that the linker leaves this file out
 * as a whole. */
#include "proto/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * PS_NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t ps_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t ps_now_us(void)
{
    return ps_now_ns() / 1000;
}

uint64_t ps_now_ms(void)
{
    return ps_now_ns() / 1000000;
}

double ps_now_s(void)
{
    return 1e-9 * (double)ps_now_ns();
}

uint64_t ps_wall_us(void)
{
    return read_ns(CLOCK_REALTIME) / 1000;
}

uint64_t ps_ns_after(double seconds)
{
    const double longest_s = 1e9;
    double s = seconds < longest_s ? seconds : longest_s;
    return ps_now_ns() + (s > 0 ? (uint64_t)(s * 1e9) : 0);
}

void ps_sleep_us(uint64_t us)
{
    const struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
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
    pthread_cond_broadcast(cond);
}

int ps_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / PS_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % PS_NS_PER_S)};
    return -pthread_cond_timedwait(cond, mutex, &until);
}

int ps_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return poll(fds, n, timeout_ms);
}
