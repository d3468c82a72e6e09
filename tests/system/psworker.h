/* psworker.h: real psworkers on `digits`. */
#ifndef TEST_PSWORKER_H
#define TEST_PSWORKER_H

#include "tests/support/system/daemon.h"

/* Runs a psworker with more options (NULL at the end); its output goes to DIR/name. It dies with its parent.
 */
pid_t psworker_start(const struct daemon *d, const char *name, const char *const *more);
/* Its exit code, or -1 after `seconds`. */
int psworker_wait(pid_t pid, double seconds);

#endif
