/* center.h: the job's vectors and their partition. The loop creates the center when it accepts the first
 * manifest, and hands it to the lanes, each of which then owns a slice. */
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
    struct ps_shard cut;          /* into one slice for each lane, as lanes copy it for snapshots */
    /* as clients see it: the same as cut, or a single lane under an admission with whole lanes */
    struct ps_shard shard;
    const struct psd_admission *admission; /* its functions belong to the lanes: server/lane/admission.h */
    bool whole_lanes;
    uint32_t lanes_used;   /* lanes that an offer must fill before the center is complete */
    uint32_t lanes_moving; /* lanes that an exchange of the whole vector goes to */
    /* This psd's part, with several servers: the lanes from first_lane, how many of these are used and
     * moving, and the range of floats. */
    uint32_t first_lane, own_lanes, own_used, own_moving;
    uint32_t parts_used, parts_moving; /* servers that have some of lanes_used, lanes_moving, as bits */
    struct ps_range own;
    const struct psd_rule *rule;
    const struct ps_rule_info *info; /* of the rule */
    struct ps_hyper hyper;
    struct ps_codec message_codec, answer_codec; /* of exchanges; pushes use the first */
    uint32_t window_chunks;
    uint32_t most_in_flight; /* of a client and lane, on any transport */
    uint32_t generation;     /* of the method */
    uint64_t version;        /* of the center when this method began, or psd was resumed */
    uint64_t moves;          /* of the rule's state until then */
    _Atomic uint64_t *moved; /* psd_lane.moves since then where lanes share the center, owned; else NULL */
    float *x; /* [n_floats], owned; here and in all vectors only the range `own` is ever touched */
    float *state[PSD_MAX_STATE];
    /* [n_seen][n_floats], owned: what each client last saw, for rules that use it; with an answer_codec for
     * moves, what each client has since its last answer. */
    float **seen;
    uint32_t n_seen;
    const struct ps_averaging *averaging;
    float *z; /* the average that follows x, [n_floats], owned; NULL if averaging is none */
    /* Lanes copy x to z, or to `seen`, when they take their slices; or zero the last vector of state, the sum
     * of moves of a rule with another `delay` than before. */
    bool starts_average, starts_seen, starts_sum;
    struct psd_snapshot snapshot; /* preallocated, so that a checkpoint never allocates this much memory */
    const struct psd_snapshot *resumed; /* has the replay entries to start from; NULL: a new job. Borrowed */
};

/* Bytes of a center of n floats, including the snapshot and, for rules that use what clients saw, the vectors
 * of this many workers. */
uint64_t psd_center_bytes(uint64_t n_floats, const struct psd_rule *rule,
                          const struct ps_averaging *averaging, uint32_t workers);

/* Takes ownership of the manifest, also on failure. -ENOMEM; -E2BIG over limits.memory_gib; -EINVAL with
 * fewer chunks than fragments. */
int psd_center_create(const struct psd_config *cfg, const struct psd_admission *admission,
                      struct ps_manifest *manifest, struct psd_center **out, struct ps_error *err);
/* Room in the snapshot for the moves of each fragment. -ENOMEM. */
int psd_center_count_fragments(struct psd_center *c);
/* Whether the vector can be split into the method's fragments; -EINVAL with a sentence. */
int psd_center_check_fragments(const struct ps_hyper *h, const struct ps_shard *shard, struct ps_error *err);
/* Creates the center from a checkpoint and takes over its center, state, average and manifest; uses the
 * checkpoint's lane map. If the checkpoint has no average, or one of another averaging or rule, a configured
 * one starts at the center; then, and if it has another rule, the rule's state starts from zero; with another
 * `delay`, its sum of moves does. s must stay valid until the lanes have taken their slices. -EINVAL if the
 * lane map is not possible. */
int psd_center_resume(const struct psd_config *cfg, const struct psd_admission *admission,
                      struct psd_snapshot *s, struct psd_center **out, struct ps_error *err);
/* replace.c. Creates a center for cfg's method that will take over from `old`, and allocates what it needs in
 * addition; not served yet. -ENOMEM; -E2BIG over limits.memory_gib. */
int psd_center_replace(const struct psd_config *cfg, const struct psd_admission *admission,
                       const struct psd_center *old, struct psd_center **out, struct ps_error *err);
/* Call when no lane serves `old` any more: c takes over its values and destroys it. The rule's state is kept
 * if the rule is the same, the average if the averaging is the same; otherwise the state starts from zero,
 * the average at the center. Both are kept or neither, since they count the same moves. moves: of old. The
 * lanes copy vectors that start at the center. */
void psd_center_take_over(struct psd_center *c, struct psd_center *old, uint64_t version, uint64_t moves);
/* Frees a center that has not taken over another one's values. */
void psd_center_abandon(struct psd_center *c);
void psd_center_destroy(struct psd_center *c);
/* For replace.c. */
/* Creates a center without vectors. *out owns the manifest; on failure the caller does. -ENOMEM; -EINVAL if
 * the map is not possible for it. */
int psd_center_new(const struct psd_config *cfg, const struct psd_admission *admission,
                   struct ps_manifest *manifest, const struct psd_map *map, struct psd_center **out,
                   struct ps_error *err);
/* For messages: the bytes in GiB, rounded up to hundredths, so that the value suffices as
 * limits.memory_gib. */
double psd_memory_gib_for(uint64_t bytes);
int psd_center_check_memory(const struct psd_config *cfg, uint64_t n_floats, const struct psd_rule *rule,
                            struct ps_error *err);
/* [n_floats] zeros, of which only `own` may be touched, in huge pages if the system has them. It reserves
 * addresses, but no memory until it is touched; each lane touches its own slice. NULL: no memory. */
float *psd_vector_create(uint64_t n_floats, struct ps_range own);

/* Creates a manifest from a message, within limits.floats. -EINVAL, -ENOMEM with a sentence. */
int psd_manifest_of(const struct psd_config *cfg, Ps__Tensor *const *tensors, size_t n,
                    struct ps_manifest **out, struct ps_error *err);

/* Clients for whom it has a vector of what they saw. */
static inline uint32_t psd_center_sees(const struct psd_center *c)
{
    return c->rule->takes_seen || c->answer_codec.for_moves ? c->hyper.workers : 0;
}

/* Moves of the rule's sum; 0: it has none. */
static inline uint32_t psd_center_delay(const struct psd_center *c)
{
    return (c->info->uses & PS_USES_DELAY) != 0 ? c->hyper.delay : 0;
}

/* The highest of n counts. */
static inline uint64_t psd_most(const uint64_t *counts, uint32_t n)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    return most;
}

/* The row of the shard that the lane serves. */
uint32_t psd_center_row(const struct psd_center *c, uint32_t lane);

/* The server that has the lane. */
static inline uint32_t psd_center_part(const struct psd_center *c, uint32_t lane)
{
    return c->shard.n_parts > 1 ? lane * c->shard.n_parts / c->shard.n_lanes : 0;
}

#endif
