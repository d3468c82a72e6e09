/* manifest.h: named tensors over the flat vector. */
#ifndef PS_MODEL_MANIFEST_H
#define PS_MODEL_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/shard.h"

#define PS_MAX_DIMS       8
#define PS_MAX_TENSORS    65536
#define PS_MAX_NAME_BYTES 127

/* PARAM: moved by the method. BUFFER: statistics, averaged over the workers and never stepped. FROZEN: never
 * moved. */
enum ps_role { PS_ROLE_PARAM, PS_ROLE_BUFFER, PS_ROLE_FROZEN };
enum ps_decay { PS_DECAY, PS_NO_DECAY };

struct ps_tensor {
    char *name;      /* owned by the manifest */
    uint64_t offset; /* floats */
    uint64_t shape[PS_MAX_DIMS];
    uint32_t n_dims;
    uint32_t role;  /* enum ps_role */
    uint32_t decay; /* enum ps_decay: whether the method's weight decay applies */
    /* Multiplier of the method's learning rate, in millionths; 0: 1. For a PARAM only. */
    uint32_t rate_ppm;
};
#define PS_MAX_RATE_PPM 1000000000u

/* A maximal run of tensors with the same role, rate and decay. */
struct ps_segment {
    struct ps_range range;
    uint32_t role, decay, rate_ppm;
};

/* The multiplier of the learning rate. */
static inline double ps_rate_of(uint32_t rate_ppm)
{
    return rate_ppm == 0 ? 1 : (double)rate_ppm / 1e6;
}

/* Tensors are contiguous from offset 0; n_floats is the end of the last. */
struct ps_manifest {
    struct ps_tensor *tensors;
    size_t n_tensors;
    uint64_t n_floats;
    struct ps_segment *segments; /* over the whole vector, in order */
    size_t n_segments;
    uint64_t hash; /* XXH3 over names, shapes, offsets, roles and decay: equal manifests, equal hashes */
};

/* Copies, checks (names: 1 to 127 bytes, unique, no control characters; no zero sizes, no overflow, no gaps;
 * roles and decay known; not everything frozen; n_floats <= max_floats) and hashes. -EINVAL names the tensor
 * and what is allowed; -ENOMEM. */
int ps_manifest_create(const struct ps_tensor *tensors, size_t n_tensors, uint64_t max_floats,
                       struct ps_manifest **out, struct ps_error *err);
void ps_manifest_destroy(struct ps_manifest *m);
/* It has at most as many bytes. */
static inline size_t ps_manifest_most_bytes(const struct ps_manifest *m)
{
    return m->n_tensors * (sizeof *m->tensors + PS_MAX_NAME_BYTES + 1 + sizeof *m->segments);
}

/* 0 when equal; -EINVAL names the first difference ("tensor 3: 'fc1.weight' [500,800] here, 'fc1.weight'
 * [500,784] in the job"). */
int ps_manifest_compare(const struct ps_manifest *mine, const struct ps_manifest *job, struct ps_error *err);

/* The index of the tensor of that name, or -1. */
int64_t ps_manifest_find(const struct ps_manifest *m, const char *name);
/* The range of the tensor's values. */
struct ps_range ps_tensor_range(const struct ps_tensor *t);
/* The tensor that float `at` lies in; at is below n_floats. */
const struct ps_tensor *ps_manifest_tensor(const struct ps_manifest *m, uint64_t at);
/* The segment that holds float `at` < n_floats; the next ones follow it. */
const struct ps_segment *ps_manifest_segment(const struct ps_manifest *m, uint64_t at);
/* Whether the whole range is frozen: such a piece is left out of exchanges. */
bool ps_manifest_is_frozen(const struct ps_manifest *m, struct ps_range r);
/* r without the frozen values at its two ends; count 0: all of it is frozen. */
struct ps_range ps_manifest_trim(const struct ps_manifest *m, struct ps_range r);
/* The part of a range that lies in one segment: its values are all of one role. */
struct ps_role_run {
    struct ps_range range;
    const struct ps_segment *segment;
};

/* for (struct ps_role_run p = ps_role_run_first(m, r); p.range.count > 0; p = ps_role_run_next(p, r)) */
static inline struct ps_role_run ps_role_run_first(const struct ps_manifest *m, struct ps_range r)
{
    const struct ps_segment *s = ps_manifest_segment(m, r.begin);
    return (struct ps_role_run){ps_range_intersect(s->range, r), s};
}

static inline struct ps_role_run ps_role_run_next(struct ps_role_run p, struct ps_range r)
{
    if (p.range.begin + p.range.count >= r.begin + r.count)
        return (struct ps_role_run){{0, 0}, p.segment};
    return (struct ps_role_run){ps_range_intersect(p.segment[1].range, r), p.segment + 1};
}

/* Divides the vector into a part for each of n_parts servers: at the boundary of a tensor if there is one so
 * near to the even division that no part becomes a quarter larger or smaller, else within a tensor. s has the
 * other numbers. -EINVAL: lanes are not a multiple of parts, or a part would hold only frozen values. */
int ps_manifest_cut(const struct ps_manifest *m, uint32_t n_parts, struct ps_shard *s, struct ps_error *err);
/* The number of pieces of the scope in a lane that take part in an exchange. */
uint32_t ps_manifest_moving(const struct ps_manifest *m, const struct ps_shard *s, uint32_t lane,
                            struct ps_range scope);

#endif
