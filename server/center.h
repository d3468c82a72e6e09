/* center.h: the job's vectors and how they are cut. Made by the loop when the first manifest is taken, handed
 * to the lanes, which each own a slice of it from then on. */
#ifndef PSD_CENTER_H
#define PSD_CENTER_H

#include "proto/manifest.h"
#include "proto/method.h"
#include "proto/shard.h"
#include "server/checkpoint.h"
#include "server/config.h"
#include "server/rules/rules.h"

struct psd_admission;

struct psd_center {
    struct ps_manifest *manifest; /* owned */
    struct ps_shard cut;          /* into one slice for each lane, which copies it for snapshots */
    struct ps_shard
        shard; /* as clients see it: the cut, or under an admission with whole lanes a single lane */
    const struct psd_admission *admission;
    uint32_t lanes_used;   /* lanes that an offer has to fill before the center is whole */
    uint32_t lanes_moving; /* lanes that an exchange of the whole vector goes to */
    const struct psd_rule *rule;
    const struct ps_rule_info *info; /* of the rule */
    struct ps_hyper hyper;
    uint32_t window_chunks;
    float *x; /* [n_floats], owned */
    float *state[PSD_MAX_STATE];
    float **seen; /* [n_seen][n_floats], owned: what each client last saw, of rules that take it */
    uint32_t n_seen;
    const struct ps_averaging *averaging;
    float *z; /* the average that follows x, [n_floats], owned; NULL when averaging is none */
    struct psd_snapshot snapshot;       /* preallocated: a checkpoint never asks for memory of this size */
    const struct psd_snapshot *resumed; /* replay entries to start from; NULL: a new job. Borrowed */
};

/* Bytes that a center of n floats takes, snapshot included; of rules that take what clients saw, for so many
 * workers. */
uint64_t psd_center_bytes(uint64_t n_floats, const struct psd_rule *rule,
                          const struct ps_averaging *averaging, uint32_t workers);

/* Takes ownership of the manifest, also on failure. -ENOMEM; -E2BIG over limits.memory_gib. */
int psd_center_create(const struct psd_config *cfg, struct ps_manifest *manifest, struct psd_center **out,
                      struct ps_error *err);
/* From a checkpoint, whose center, state, average and manifest it takes over; the lane map is the
 * checkpoint's. Without an average in it, one that is wanted starts at the center. s must outlive it until
 * the lanes have taken their slices. -EINVAL when the state does not fit the rule. */
int psd_center_resume(const struct psd_config *cfg, struct psd_snapshot *s, struct psd_center **out,
                      struct ps_error *err);
void psd_center_destroy(struct psd_center *c);
/* The row of the shard that the lane serves. */
uint32_t psd_center_row(const struct psd_center *c, uint32_t lane);

#endif
