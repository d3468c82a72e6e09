/* For LD_PRELOAD: threads that are put off at random, as on a machine with too much to do. About one of
 * PSD_NAPS calls of the functions below is preceded or followed by a nap of up to a fifth of a second. It
 * finds tests that count on two threads, or two processes, being about as fast as each other. Calls that wait
 * for the disk are so rare that one of four naps, for up to a second: it finds tests that count on a
 * checkpoint being written at once. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_US = 200000, LONGEST_SYNC_US = 1000000, SYNC_PERIOD = 4 };

static _Atomic uint64_t seeds;
static uint64_t period;

__attribute__((constructor)) static void set_up(void)
{
    const char *text = getenv("PSD_NAPS");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    period = text != NULL ? strtoul(text, NULL, 10) : 0;
    atomic_store(&seeds, (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 32));
}

/* splitmix64 (Steele et al. 2014) */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t draw(void)
{
    static _Thread_local uint64_t state;
    if (state == 0)
        state = atomic_fetch_add(&seeds, 0x9e3779b97f4a7c15U) | 1;
    return mix(state += 0x9e3779b97f4a7c15U);
}

/* Lengths are spread evenly over orders of magnitude: most are short. A thread naps for at most half of its
 * time, so that one that makes many calls is not stopped for good. errno is kept. */
static void nap_up_to(uint64_t longest_us)
{
    static _Thread_local uint64_t first_us, napped_us;
    const int kept = errno;
    const uint64_t now = now_us(), us = longest_us >> draw() % 12;
    const struct timespec length = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000 * 1000)};
    first_us = first_us != 0 ? first_us : now;
    if (napped_us <= (now - first_us) / 2) {
        napped_us += us;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
    }
    errno = kept;
}

static void nap(void)
{
    static _Thread_local uint64_t left;
    if (period == 0)
        return;
    if (left == 0)
        left = 1 + draw() % period;
    if (--left > 0)
        return;
    left = 1 + draw() % (2 * period);
    nap_up_to(LONGEST_US);
}

static void nap_of_disk(void)
{
    if (period > 0 && draw() % SYNC_PERIOD == 0)
        nap_up_to(LONGEST_SYNC_US);
}

/* The real function behind a replacement, looked up once. */
#define WRAP(type, name, parameters, arguments) WRAP_WITH(nap, type, name, parameters, arguments)
#define WRAP_WITH(nap, type, name, parameters, arguments)                                                    \
    type name parameters                                                                                     \
    {                                                                                                        \
        static _Atomic(__typeof__(&name)) real;                                                              \
        __typeof__(&name) call = atomic_load_explicit(&real, memory_order_relaxed);                          \
        if (call == NULL) {                                                                                  \
            call = (__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name);                                    \
            atomic_store_explicit(&real, call, memory_order_relaxed);                                        \
        }                                                                                                    \
        nap();                                                                                               \
        type result = call arguments;                                                                        \
        nap();                                                                                               \
        return result;                                                                                       \
    }

WRAP(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
WRAP(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
WRAP(ssize_t, read, (int fd, void *bytes, size_t len), (fd, bytes, len))
WRAP(ssize_t, write, (int fd, const void *bytes, size_t len), (fd, bytes, len))
WRAP(ssize_t, recv, (int fd, void *bytes, size_t len, int flags), (fd, bytes, len, flags))
WRAP(ssize_t, send, (int fd, const void *bytes, size_t len, int flags), (fd, bytes, len, flags))
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(int, poll, (struct pollfd * fds, nfds_t n, int timeout_ms), (fds, n, timeout_ms))
WRAP(int, epoll_pwait, (int fd, struct epoll_event *events, int n, int timeout_ms, const sigset_t *mask),
     (fd, events, n, timeout_ms, mask))
WRAP(int, epoll_wait, (int fd, struct epoll_event *events, int n, int timeout_ms),
     (fd, events, n, timeout_ms))
WRAP_WITH(nap_of_disk, int, fsync, (int fd), (fd))
WRAP_WITH(nap_of_disk, int, fdatasync, (int fd), (fd))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, kill, (pid_t pid, int signal), (pid, signal))
WRAP(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
