/* libc_faults.h: faults of the machine for a real psd: a preloaded library (libc_faults_preload.c) between it
 * and the C library fails what the page says and shifts the clocks.
 *
 * The page is shared: a test changes it while psd runs. */
#ifndef TEST_SUPPORT_LIBC_FAULTS_H
#define TEST_SUPPORT_LIBC_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHIM_PAGE "PSD_TEST_SHIM" /* in the environment: the page's file */

struct shim_page {
    /* errno that the call fails with on files below a folder "checkpoints"; 0: it works */
    _Atomic int write_errno, fsync_errno, rename_errno;
    _Atomic uint64_t failed;       /* calls that were failed so far */
    _Atomic int64_t wall_offset_s; /* added to the wall clock */
    _Atomic int64_t ahead_ms;      /* added to the monotonic clock: only ever more */
};

struct daemon;

/* Makes a page in folder `dir`, and the environment so that a psd started from now on is under it. library:
 * the preloaded one. NULL on failure. */
struct shim_page *shim_set(const char *library, const char *dir);
/* Processes started from now on are under no shim. */
void shim_unset(void);

/* psd's monotonic clock goes on by so much at once, and psd has noticed when this returns: what is due comes,
 * but psd takes the time for one that it stood still itself, and nobody's silence counts it. False after
 * TEST_HANG_S. */
bool shim_leap(struct shim_page *page, const struct daemon *d, uint32_t seconds);
/* psd's monotonic clock goes on by about so much, in steps too short to look as if psd stood still: silence
 * counts. Waits with each step until psd has heard each of the n ranks within SHIM_AWAKE_S of its time, so
 * that a slow machine makes none of them look silent: limits.silence_s must be twice that at least. False
 * when one of them is not heard for TEST_HANG_S, or is gone. */
enum { SHIM_AWAKE_S = 20 };
bool shim_pass(struct shim_page *page, const struct daemon *d, uint32_t seconds, const int *ranks, size_t n);
/* The same until `lines` lines of the log have the text. */
bool shim_pass_until(struct shim_page *page, const struct daemon *d, const char *text, unsigned lines,
                     const int *ranks, size_t n);

#endif
