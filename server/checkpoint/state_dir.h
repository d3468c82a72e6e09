/* state_dir.h: the state directory, which one psd at a time may have. */
#ifndef PSD_CHECKPOINT_STATE_DIR_H
#define PSD_CHECKPOINT_STATE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

/* Makes the directory with mode 0700 if it is missing (not its parents) and takes it: an exclusive lock on
 * DIR/lock, whose text is our pid. The lock ends with psd_state_unlock or with the process, however it ends.
 * *fd receives the lock. -EBUSY names the pid that has it; other -errno: the directory cannot be used. */
int psd_state_lock(const char *dir, int *fd, struct ps_error *err);

/* The checkpoints of an earlier job that --fresh has set aside; n == 0: there were none. */
struct psd_aside {
    char path[400];
    uint32_t n;
    uint64_t newest; /* its version */
};

/* Makes DIR/checkpoints. One that holds checkpoints is of an earlier job, or of this one before it was
 * resumed: resume leaves them, fresh sets them aside, as DIR/checkpoints-<unix seconds>, which aside tells
 * of. With neither -EEXIST: the sentence says what is there and names both options. */
int psd_state_checkpoints(const char *dir, bool resume, bool fresh, struct psd_aside *aside,
                          struct ps_error *err);

/* Gives the directory back. The lock file stays: removing it would let two processes hold two locks. */
void psd_state_unlock(int fd);

#endif
