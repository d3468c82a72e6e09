/* center.h: the job's vectors and how they are cut. Made by the loop when the first manifest is taken, handed
 * to the lanes, which each own a slice of it from then on. */
#ifndef PSD_CENTER_CENTER_H
#define PSD_CENTER_CENTER_H

#include "proto/codecs/codec.h"
#include "proto/model/manifest.h"
#include "proto/model/method.h"
#include "proto/model/shard.h"
#include "ps.pb-c.h"
#include "server/checkpoint/checkpoint.h"
#include "server/config/config.h"
#include "server/rules/rules.h"

struct psd_admission;

struct psd_center {
    struct ps_manifest *manifest; /* owned */
    struct ps_shard cut;          /* into one slice for each lane, which copies it for snapshots */
    struct ps_shard
        shard; /* as clients see it: the cut, or under an admission with whole lanes a single lane */
    const struct psd_admission *admission; /* lanes know more of it: server/lane/admission.h */
    bool whole_lanes;
    uint32_t lanes_used;   /* lanes that an offer has to fill before the center is whole */
    uint32_t lanes_moving; /* lanes that an exchange of the whole vector goes to */
    /* What this psd serves of it, where there are several: the lanes from first_lane on, their range, and
     * those of the lanes above that are among them. */
    uint32_t first_lane, own_lanes, own_used, own_moving;
    uint32_t parts_used, parts_moving; /* bits of the servers that have some of lanes_used, lanes_moving */
    struct ps_range own;
    const struct psd_rule *rule;
    const struct ps_rule_info *info; /* of the rule */
    struct ps_hyper hyper;
    struct ps_codec message_codec, answer_codec; /* of exchanges; pushes have the first */
    uint32_t window_chunks;
    uint32_t most_in_flight; /* of a client and lane, whichever transport it takes */
    uint32_t generation;     /* of the method */
    uint64_t version;        /* of the center when this method began, or psd was resumed */
    uint64_t moves;          /* that the rule's state had seen by then */
    uint64_t origin;         /* version - moves, modulo 2^64: where the state began */
    float *x; /* [n_floats], owned; only `own` of it, and of all vectors here, is ever touched */
    float *state[PSD_MAX_STATE];
    /* [n_seen][n_floats], owned: what each client last saw, of rules that take it; or of an answer_codec for
     * moves what each has, since its last answer. */
    float **seen;
    uint32_t n_seen;
    const struct ps_averaging *averaging;
    float *z; /* the average that follows x, [n_floats], owned; NULL when averaging is none */
    /* Lanes copy x there when they take their slices: to z; to what each client saw last. */
    bool starts_average, starts_seen;
    struct psd_snapshot snapshot;       /* preallocated: a checkpoint never asks for memory of this size */
    const struct psd_snapshot *resumed; /* replay entries to start from; NULL: a new job. Borrowed */
};

/* Bytes that a center of n floats takes, snapshot included; of rules that take what clients saw, for so many
 * workers. */
uint64_t psd_center_bytes(uint64_t n_floats, const struct psd_rule *rule,
                          const struct ps_averaging *averaging, uint32_t workers);

/* Takes ownership of the manifest, also on failure. -ENOMEM; -E2BIG over limits.memory_gib;
 * -EINVAL with fewer chunks than fragments. */
int psd_center_create(const struct psd_config *cfg, const struct psd_admission *admission,
                      struct ps_manifest *manifest, struct psd_center **out, struct ps_error *err);
/* Whether the method's fragments can be cut from it; -EINVAL with a sentence. */
int psd_center_check_fragments(const struct ps_hyper *h, const struct ps_shard *shard, struct ps_error *err);
/* From a checkpoint, whose center, state, average and manifest it takes over; the lane map is the
 * checkpoint's. Without an average in it, one that is wanted starts at the center; under another rule than
 * the checkpoint's, the rule's state starts from zero. s must outlive it until the lanes have taken their
 * slices. -EINVAL when the lane map is not possible. */
int psd_center_resume(const struct psd_config *cfg, const struct psd_admission *admission,
                      struct psd_snapshot *s, struct psd_center **out, struct ps_error *err);
/* replace.c. A center for cfg's method that goes on from `old`, with what memory it needs beyond old's;
 * not yet served. -ENOMEM; -E2BIG over limits.memory_gib. */
int psd_center_replace(const struct psd_config *cfg, const struct psd_admission *admission,
                       const struct psd_center *old, struct psd_center **out, struct ps_error *err);
/* No lane serves old any more: c takes over its values and destroys it. The rule's state goes on where the
 * rule is the same, else it starts from zero; the average where the averaging is the same, else it starts at
 * the center. Both go on or none, since they count the same moves. moves: that old's have seen. What starts
 * at the center is copied by the lanes. */
void psd_center_take_over(struct psd_center *c, struct psd_center *old, uint64_t version, uint64_t moves);
/* Frees a center that was never taken over into. */
void psd_center_abandon(struct psd_center *c);
void psd_center_destroy(struct psd_center *c);
/* For replace.c. */
/* Without vectors. *out owns the manifest, which on failure is still the caller's. -ENOMEM; -EINVAL when the
 * map is not possible for it. */
int psd_center_new(const struct psd_config *cfg, const struct psd_admission *admission,
                   struct ps_manifest *manifest, const struct psd_map *map, struct psd_center **out,
                   struct ps_error *err);
/* For sentences: so many bytes in GiB, rounded up to hundredths. As limits.memory_gib it is enough. */
double psd_memory_gib_for(uint64_t bytes);
int psd_center_check_memory(const struct psd_config *cfg, uint64_t n_floats, const struct psd_rule *rule,
                            struct ps_error *err);
/* [n_floats], of which only `own` may be touched, and is zeros, in huge pages where the system has them. It
 * takes addresses and no memory until it is touched: lanes do that, each with its slice. NULL: no memory. */
float *psd_vector_create(uint64_t n_floats, struct ps_range own);

/* A manifest as it came, within limits.floats. -EINVAL, -ENOMEM with a sentence. */
int psd_manifest_of(const struct psd_config *cfg, Ps__Tensor *const *tensors, size_t n,
                    struct ps_manifest **out, struct ps_error *err);

/* Clients for whom it has a vector of what they saw. */
static inline uint32_t psd_center_sees(const struct psd_center *c)
{
    return c->rule->takes_seen || c->answer_codec.for_moves ? c->hyper.workers : 0;
}

/* The row of the shard that the lane serves. */
uint32_t psd_center_row(const struct psd_center *c, uint32_t lane);

/* The server that has the lane. */
static inline uint32_t psd_center_part(const struct psd_center *c, uint32_t lane)
{
    return c->shard.n_parts > 1 ? lane * c->shard.n_parts / c->shard.n_lanes : 0;
}

#endif
