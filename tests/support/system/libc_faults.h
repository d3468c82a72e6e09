/* libc_faults.h: injects faults into a real psd: a preloaded library (libc_faults_preload.c) between psd and
 * the C library fails the calls selected in a page and shifts the clocks.
 *
 * The page is shared memory: a test changes it while psd runs. */
#ifndef TEST_SUPPORT_LIBC_FAULTS_H
#define TEST_SUPPORT_LIBC_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHIM_PAGE "PSD_TEST_SHIM" /* environment variable: the page's file */

struct shim_page {
    /* errno with which the call fails on files in a folder "checkpoints"; 0: no fault */
    _Atomic int write_errno, fsync_errno, rename_errno;
    _Atomic uint64_t failed;        /* injected failures so far */
    _Atomic bool hold_end, is_held; /* see shim_hold_end */
    _Atomic int64_t wall_offset_s;  /* added to the wall clock */
    _Atomic int64_t ahead_ms;       /* added to the monotonic clock; only increases */
};

struct daemon;

/* Creates a page in folder `dir`, and sets the environment so that processes started later preload `library`.
 * NULL on failure. */
struct shim_page *shim_set(const char *library, const char *dir);
/* Processes started later run without the library. */
void shim_unset(void);

/* Between these calls psd's main thread does not return from fdatasync. It calls it when psd has served a
 * worker and ends, or restarts in place: after its loop, and when its lanes have stopped. The second one
 * waits for this; false after TEST_HANG_S. */
void shim_hold_end(struct shim_page *page);
bool shim_holds_end(const struct shim_page *page);
void shim_let_end(struct shim_page *page);

/* Advances psd's monotonic clock in one step, and waits until psd has noticed: due events happen, but psd
 * treats the time as a suspension of its own, which does not count as silence of its peers. False after
 * TEST_HANG_S. */
bool shim_leap(struct shim_page *page, const struct daemon *d, uint32_t seconds);
/* Advances psd's monotonic clock by about that time, in steps too short to look like a suspension, so that
 * silence counts. In each step waits until psd has heard each of the n ranks within SHIM_AWAKE_S of its time,
 * so that none looks silent on a slow machine: limits.silence_s must be at least twice SHIM_AWAKE_S. False if
 * a rank is not heard for TEST_HANG_S, or is gone. */
enum { SHIM_AWAKE_S = 20 };
bool shim_pass(struct shim_page *page, const struct daemon *d, uint32_t seconds, const int *ranks, size_t n);
/* The same until `lines` lines of the log contain the text. */
bool shim_pass_until(struct shim_page *page, const struct daemon *d, const char *text, unsigned lines,
                     const int *ranks, size_t n);

#endif
