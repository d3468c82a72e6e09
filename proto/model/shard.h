/* shard.h: the partition of the flat vector into lanes' slices and chunks. Both ends compute the same
 * partition from the same numbers, and, with several servers, from the manifest (ps_manifest_cut). Each
 * server has a part and the same number of lanes; slices and chunks start at multiples of 16 floats (a cache
 * line) of the part; the chunks of a slice have the same size except for the last. Slices have the same size,
 * at least a quarter of chunk_floats: with a small vector some lanes hold nothing. */
#ifndef PS_MODEL_SHARD_H
#define PS_MODEL_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#define PS_SHARD_ALIGN 16
#define PS_MAX_LANES   64
#define PS_MIN_CHUNK   1024
#define PS_MAX_CHUNK   1048576
#define PS_MAX_PARTS   32
#define PS_SHARD_LEAST 4 /* a slice has at least this fraction of chunk_floats */

struct ps_shard {
    uint64_t n_floats;
    uint32_t n_lanes;
    uint32_t chunk_floats;          /* the largest chunk; a multiple of PS_SHARD_ALIGN */
    uint32_t n_parts;               /* n_lanes is a multiple of it; 0 or 1: one */
    uint64_t part_at[PS_MAX_PARTS]; /* [n_parts]: the first float of each, ascending; the first is 0 */
};

struct ps_range {
    uint64_t begin; /* floats from the start of the vector */
    uint64_t count;
};

/* Whether the numbers are in range. */
bool ps_shard_valid(const struct ps_shard *s);
/* The part that one server holds. */
struct ps_range ps_shard_part(const struct ps_shard *s, uint32_t part);
struct ps_range ps_shard_slice(const struct ps_shard *s, uint32_t lane);
uint32_t ps_shard_n_chunks(const struct ps_shard *s, uint32_t lane);
/* k < ps_shard_n_chunks */
struct ps_range ps_shard_chunk(const struct ps_shard *s, uint32_t lane, uint32_t k);

/* A transfer covers a scope: the whole vector, or one tensor. A piece is the part of a chunk that lies in the
 * scope: the unit of messages. */
struct ps_range ps_shard_whole(const struct ps_shard *s);
/* The number of chunks of the lane that the scope intersects; they are contiguous from *first. */
uint32_t ps_shard_pieces(const struct ps_shard *s, uint32_t lane, struct ps_range scope, uint32_t *first);
/* The piece of chunk k, which the scope intersects. */
struct ps_range ps_shard_piece(const struct ps_shard *s, uint32_t lane, struct ps_range scope, uint32_t k);
/* The chunk whose piece is exactly r, or -1. */
int64_t ps_shard_find(const struct ps_shard *s, uint32_t lane, struct ps_range scope, struct ps_range r);
/* The number of lanes that the scope intersects. */
uint32_t ps_shard_lanes_met(const struct ps_shard *s, struct ps_range scope);

/* The intersection; count 0 when it is empty. */
struct ps_range ps_range_intersect(struct ps_range a, struct ps_range b);

#endif
