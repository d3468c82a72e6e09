/* shim.h: faults of the machine for a real psd: a preloaded library (shim_preload.c) between it and the C
 * library fails what the page says and shifts the wall clock.
 *
 * The page is shared: a test changes it while psd runs. */
#ifndef TEST_SHIM_H
#define TEST_SHIM_H

#include <stdatomic.h>
#include <stdint.h>

#define SHIM_PAGE "PSD_TEST_SHIM" /* in the environment: the page's file */

struct shim_page {
    /* errno that the call fails with on files below a folder "checkpoints"; 0: it works */
    _Atomic int write_errno, fsync_errno, rename_errno;
    _Atomic uint64_t failed;       /* calls that were failed so far */
    _Atomic int64_t wall_offset_s; /* added to the wall clock */
};

/* Makes a page in folder `dir`, and the environment so that a psd started from now on is under it. library:
 * the preloaded one. NULL on failure. */
struct shim_page *shim_set(const char *library, const char *dir);
/* Processes started from now on are under no shim. */
void shim_unset(void);

#endif
