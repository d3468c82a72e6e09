/* manifest.h: named tensors over the flat vector. */
#ifndef PS_MANIFEST_H
#define PS_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define PS_MAX_DIMS       8
#define PS_MAX_TENSORS    65536
#define PS_MAX_NAME_BYTES 127

enum ps_role { PS_ROLE_PARAM, PS_ROLE_BUFFER, PS_ROLE_FROZEN };

struct ps_tensor {
    char *name;      /* owned by the manifest */
    uint64_t offset; /* floats */
    uint64_t shape[PS_MAX_DIMS];
    uint32_t n_dims;
    uint32_t role; /* enum ps_role */
};

/* Tensors follow each other without gaps from offset 0; n_floats is where the last ends. */
struct ps_manifest {
    struct ps_tensor *tensors;
    size_t n_tensors;
    uint64_t n_floats;
    uint64_t hash; /* XXH3 over names, shapes, offsets and roles: equal manifests, equal hashes */
};

/* Copies, checks (names: 1 to 127 bytes, unique, no control characters; no zero sizes, no overflow, no gaps;
 * roles known; n_floats <= max_floats) and hashes. -EINVAL names the tensor and what is allowed; -ENOMEM. */
int ps_manifest_create(const struct ps_tensor *tensors, size_t n_tensors, uint64_t max_floats,
                       struct ps_manifest **out, struct ps_error *err);
void ps_manifest_destroy(struct ps_manifest *m);

/* 0 when equal; -EINVAL names the first difference ("tensor 3: 'fc1.weight' [500,800] here, 'fc1.weight'
 * [500,784] in the job"). */
int ps_manifest_compare(const struct ps_manifest *mine, const struct ps_manifest *job, struct ps_error *err);

#endif
