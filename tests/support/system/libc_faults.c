#include "tests/support/system/libc_faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/clock.h"
#include "tests/support/system/daemon.h"

/* psd allows 600 ms between two ticks, which are 200 ms apart. */
enum { STEP_MS = 350 };

struct shim_page *shim_set(const char *library, const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/shim", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shim_page)) < 0)
        return NULL;
    struct shim_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    setenv(SHIM_PAGE, path, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); /* for a psd built with ASan, whose library is then
                                                              loaded second */
    setenv("LD_PRELOAD", library, 1);
    return page;
}

void shim_unset(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("ASAN_OPTIONS");
    unsetenv(SHIM_PAGE);
}

void shim_hold_end(struct shim_page *page)
{
    atomic_store(&page->hold_end, true);
}

bool shim_holds_end(const struct shim_page *page)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (!atomic_load(&page->is_held)) {
        if (test_now_s() > deadline)
            return false;
        test_nap_s(0.002);
    }
    return true;
}

void shim_let_end(struct shim_page *page)
{
    atomic_store(&page->hold_end, false);
}

bool shim_leap(struct shim_page *page, const struct daemon *d, uint32_t seconds)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    unsigned before = daemon_logged(d, "job.slept");
    atomic_fetch_add(&page->ahead_ms, (int64_t)seconds * 1000);
    while (daemon_logged(d, "job.slept") == before) {
        if (test_now_s() > deadline)
            return false;
        test_nap_s(0.005);
    }
    return true;
}

/* Also makes psd's loop run. */
static bool hears(const struct daemon *d, const int *ranks, size_t n)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    double up_s = daemon_number(d, "/status", "uptime_s");
    for (size_t i = 0; i < n; i++) {
        double seen_s;
        while (!((seen_s = daemon_worker(d, ranks[i], "last_seen_s")) < SHIM_AWAKE_S)) {
            if (!(seen_s >= 0) || test_now_s() > deadline)
                return false;
            test_nap_s(0.005);
        }
    }
    return up_s >= 0;
}

bool shim_pass(struct shim_page *page, const struct daemon *d, uint32_t seconds, const int *ranks, size_t n)
{
    for (int64_t ms = 0; ms < (int64_t)seconds * 1000; ms += STEP_MS) {
        if (!hears(d, ranks, n))
            return false;
        atomic_fetch_add(&page->ahead_ms, STEP_MS);
    }
    return hears(d, ranks, n);
}

bool shim_pass_until(struct shim_page *page, const struct daemon *d, const char *text, unsigned lines,
                     const int *ranks, size_t n)
{
    double deadline = test_now_s() + test_slow_s(2 * TEST_HANG_S);
    while (daemon_logged(d, text) < lines)
        if (test_now_s() > deadline || !shim_pass(page, d, 1, ranks, n))
            return false;
    return true;
}
