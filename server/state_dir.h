/* state_dir.h: the state directory, which one psd at a time may have. */
#ifndef PSD_STATE_DIR_H
#define PSD_STATE_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"

/* Makes the directory with mode 0700 if it is missing (not its parents) and takes it: an exclusive lock on
 * DIR/lock, whose text is our pid. The lock ends with psd_state_unlock or with the process, however it ends.
 * *fd receives the lock. -EBUSY names the pid that has it; other -errno: the directory cannot be used. */
int psd_state_lock(const char *dir, int *fd, struct ps_error *err);

/* Makes DIR/checkpoints. One that holds checkpoints is of an earlier job, or of this one before it was
 * resumed: resume leaves them, fresh sets them aside, as DIR/checkpoints-<unix seconds>, whose path aside
 * (size bytes) receives ("": nothing was). With neither -EEXIST: the sentence says what is there and names
 * both options. */
int psd_state_checkpoints(const char *dir, bool resume, bool fresh, char *aside, size_t size,
                          struct ps_error *err);

/* Gives the directory back. The lock file stays: removing it would let two processes hold two locks. */
void psd_state_unlock(int fd);

#endif
