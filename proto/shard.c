#include "proto/shard.h"

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

bool ps_shard_valid(const struct ps_shard *s)
{
    return s->n_floats >= 1 && s->n_floats <= (UINT64_C(1) << 40) && s->n_lanes >= 1 &&
           s->n_lanes <= PS_MAX_LANES && s->chunk_floats >= PS_MIN_CHUNK && s->chunk_floats <= PS_MAX_CHUNK &&
           s->chunk_floats % PS_SHARD_ALIGN == 0;
}

struct ps_range ps_shard_slice(const struct ps_shard *s, uint32_t lane)
{
    uint64_t lines = ceil_div(s->n_floats, PS_SHARD_ALIGN);
    uint64_t begin = lines * lane / s->n_lanes * PS_SHARD_ALIGN;
    uint64_t end = lines * (lane + 1) / s->n_lanes * PS_SHARD_ALIGN;
    if (end > s->n_floats)
        end = s->n_floats;
    return (struct ps_range){begin, end > begin ? end - begin : 0};
}

/* Floats of every chunk of a slice but its last: the slice in equal parts, none over chunk_floats. */
static uint64_t chunk_step(const struct ps_shard *s, uint64_t slice_floats)
{
    uint64_t parts = ceil_div(slice_floats, s->chunk_floats);
    return ceil_div(ceil_div(slice_floats, parts), PS_SHARD_ALIGN) * PS_SHARD_ALIGN;
}

uint32_t ps_shard_n_chunks(const struct ps_shard *s, uint32_t lane)
{
    struct ps_range slice = ps_shard_slice(s, lane);
    return slice.count == 0 ? 0 : (uint32_t)ceil_div(slice.count, chunk_step(s, slice.count));
}

struct ps_range ps_shard_chunk(const struct ps_shard *s, uint32_t lane, uint32_t k)
{
    struct ps_range slice = ps_shard_slice(s, lane);
    uint64_t step = chunk_step(s, slice.count);
    uint64_t offset = k * step;
    uint64_t left = slice.count - offset;
    return (struct ps_range){slice.begin + offset, left < step ? left : step};
}

int64_t ps_shard_find(const struct ps_shard *s, uint32_t lane, struct ps_range r)
{
    struct ps_range slice = ps_shard_slice(s, lane);
    if (slice.count == 0 || r.begin < slice.begin || r.begin >= slice.begin + slice.count)
        return -1;
    uint64_t step = chunk_step(s, slice.count);
    uint64_t k = (r.begin - slice.begin) / step;
    struct ps_range chunk = ps_shard_chunk(s, lane, (uint32_t)k);
    return chunk.begin == r.begin && chunk.count == r.count ? (int64_t)k : -1;
}

uint32_t ps_shard_lanes_used(const struct ps_shard *s)
{
    uint32_t used = 0;
    for (uint32_t lane = 0; lane < s->n_lanes; lane++)
        used += ps_shard_slice(s, lane).count > 0;
    return used;
}
