/* timelapse.h: a worker is given up for its silence, by a clock of psd's that goes faster than everybody
 * else's (tests/support/system/libc_faults.h): a test waits for no silence_s, and on a slow machine no other
 * worker is silent for so long.
 */
#ifndef TEST_TIMELAPSE_H
#define TEST_TIMELAPSE_H

#include <stddef.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/libc_faults.h"

/* limits.silence_s of such a job, as shim_pass needs it. */
#define TIMELAPSE_SILENCE_S 45
#define TIMELAPSE_SILENCE   "limits.silence_s=45"

/* Every psd that is started until shim_unset is under the shim, with a page in this one's folder. */
struct shim_page *timelapse_prepare(const struct daemon *d);
/* Puts psd's clock forward until it has ended a session, the job's first, whose worker was silent for
 * TIMELAPSE_SILENCE_S. ranks: the n others. */
void timelapse_until_given_up(const struct daemon *d, struct shim_page *page, const int *ranks, size_t n);

#endif
