/* join_shards.h: joins the checkpoints of several servers' parts into one. */
#ifndef PSD_CHECKPOINT_JOIN_SHARDS_H
#define PSD_CHECKPOINT_JOIN_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* The result. */
struct psd_merged {
    char path[4096];  /* of the written file */
    uint64_t version; /* of the head's part, used for the whole */
    uint64_t low,
        high; /* lowest and highest of the parts; they differ if no version is common to all, as under fcfs */
    uint32_t parts;
};

/* Reads the newest version that all n state directories have, or, if there is none, each one's newest, and
 * writes OUT/checkpoints/center-….safetensors. psd --state-dir OUT --resume can resume from it, alone or as
 * the same number of servers. Creates OUT, which must not contain a checkpoint. -EINVAL with a sentence: the
 * parts belong to different jobs, or one is missing or there twice; other -errno. */
int psd_join_shards(const char *out, char *const *dirs, size_t n, struct psd_merged *merged,
                    struct ps_error *err);

#endif
