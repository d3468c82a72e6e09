/* state_dir.h: the state directory, which only one psd at a time may use. */
#ifndef PSD_CHECKPOINT_STATE_DIR_H
#define PSD_CHECKPOINT_STATE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

/* Creates the directory with mode 0700 if it is missing (not its parents) and takes an exclusive lock on
 * DIR/lock, whose text is psd's pid. The lock ends with psd_state_unlock or with the process, however it
 * ends. *fd receives the lock. -EBUSY names the pid that holds it; other -errno: the directory cannot be
 * used. */
int psd_state_lock(const char *dir, int *fd, struct ps_error *err);

/* The checkpoints of an earlier job that --fresh has moved away; n == 0: there were none. */
struct psd_aside {
    char path[400];
    uint32_t n;
    uint64_t newest; /* its version */
};

/* Creates DIR/checkpoints. If it already contains checkpoints: resume leaves them, fresh renames the
 * directory to DIR/checkpoints-<unix seconds>, which *aside describes. -EEXIST with neither: the sentence
 * names both options. Other -errno: it is no directory that this process may read and write. */
int psd_state_checkpoints(const char *dir, bool resume, bool fresh, struct psd_aside *aside,
                          struct ps_error *err);

/* Releases the directory. The lock file stays: if it were removed two processes could hold two locks. */
void psd_state_unlock(int fd);

#endif
