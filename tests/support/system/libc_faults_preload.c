/* Preloaded into psd: see libc_faults.h. The dynamic linker finds these functions first; RTLD_NEXT finds
 * those of the C library. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/system/libc_faults.h"

static struct shim_page *page;

__attribute__((constructor)) static void find_page(void)
{
    const char *path = getenv(SHIM_PAGE);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd >= 0 ? mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (at != MAP_FAILED)
        page = at;
}

static bool is_checkpoint(int fd)
{
    char link[40], path[400];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return false;
    path[n] = 0;
    return strstr(path, "/checkpoints") != NULL;
}

/* Whether the call on fd is to fail; if so, sets errno. */
static bool fails(const _Atomic int *code, int fd)
{
    int e = page != NULL ? atomic_load(code) : 0;
    if (e == 0 || !is_checkpoint(fd))
        return false;
    atomic_fetch_add(&page->failed, 1);
    errno = e;
    return true;
}

/* The real function behind a replacement. */
#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t len)
{
    return page != NULL && fails(&page->write_errno, fd) ? -1 : NEXT(write)(fd, bytes, len);
}

int fsync(int fd)
{
    return page != NULL && fails(&page->fsync_errno, fd) ? -1 : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    static const struct timespec moment = {.tv_nsec = 2000000};
    while (page != NULL && atomic_load(&page->hold_end) && gettid() == getpid()) {
        atomic_store(&page->is_held, true);
        nanosleep(&moment, NULL);
    }
    return NEXT(fdatasync)(fd);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return page != NULL && fails(&page->rename_errno, to_fd) ? -1 : NEXT(renameat)(from_fd, from, to_fd, to);
}

static int64_t offset_s(void)
{
    return page != NULL ? atomic_load(&page->wall_offset_s) : 0;
}

static void go_ahead(struct timespec *now)
{
    int64_t ms = page != NULL ? atomic_load(&page->ahead_ms) : 0;
    now->tv_sec += ms / 1000;
    now->tv_nsec += ms % 1000 * 1000000;
    if (now->tv_nsec >= 1000000000) {
        now->tv_sec++;
        now->tv_nsec -= 1000000000;
    }
}

/* Called often, so the real function is looked up once. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static _Atomic(__typeof__(&clock_gettime)) next;
    if (next == NULL)
        next = NEXT(clock_gettime);
    int rc = next(clock, now);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset_s();
    if (rc == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE))
        go_ahead(now);
    return rc;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int rc = NEXT(gettimeofday)(now, zone);
    if (rc == 0)
        now->tv_sec += offset_s();
    return rc;
}

time_t time(time_t *out)
{
    time_t now = NEXT(time)(NULL) + offset_s();
    if (out != NULL)
        *out = now;
    return now;
}
