/* join_shards.h: one checkpoint out of the parts that several servers have written. */
#ifndef PSD_CHECKPOINT_JOIN_SHARDS_H
#define PSD_CHECKPOINT_JOIN_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* What was merged. */
struct psd_merged {
    char path[4096];    /* of the file written */
    uint64_t version;   /* of the head's part, which is the whole's */
    uint64_t low, high; /* of all parts: they differ where no version is common to all, as under fcfs */
    uint32_t parts;
};

/* Reads from each of n state directories the newest version that all of them have, or without one the newest
 * of each, and writes OUT/checkpoints/center-….safetensors, which psd --state-dir OUT --resume goes on from,
 * alone or as servers of the same number. OUT is made, or must hold no checkpoint. -EINVAL: the parts are not
 * of one job, or one is missing or twice, with a sentence; other -errno. */
int psd_join_shards(const char *out, char *const *dirs, size_t n, struct psd_merged *merged,
                    struct ps_error *err);

#endif
