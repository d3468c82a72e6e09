/* fragment.h: divides the vector into parts that workers exchange in turn over one period (Douillard et al.
 * 2025, Streaming DiLoCo). Both ends compute the same division from the same shard and manifest.
 *
 * A fragment is a run of whole chunks, across lanes. Boundary i is the chunk boundary nearest to a tensor
 * boundary, the one nearest to i/n of the vector, if that is within a quarter of a fragment; otherwise it is
 * the chunk boundary nearest to i/n itself, so that one large tensor does not make the other fragments small.
 * Every fragment has at least one chunk. */
#ifndef PS_MODEL_FRAGMENT_H
#define PS_MODEL_FRAGMENT_H

#include "proto/model/manifest.h"
#include "proto/model/shard.h"

#define PS_MAX_FRAGMENTS 1024

/* The largest number of fragments: the chunks of all lanes. */
uint64_t ps_fragments_most(const struct ps_shard *s);
/* Fragment i < n; n is 1 to ps_fragments_most. */
struct ps_range ps_fragment(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n, uint32_t i);
/* All n of them. */
void ps_fragments(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n, struct ps_range *out);

#endif
