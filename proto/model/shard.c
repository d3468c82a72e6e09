#include "proto/model/shard.h"

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Parts ascend from 0, and none is empty. */
static bool has_valid_parts(const struct ps_shard *s)
{
    if (s->n_parts <= 1)
        return true;
    if (s->n_parts > PS_MAX_PARTS || s->n_lanes % s->n_parts != 0 || s->part_at[0] != 0)
        return false;
    for (uint32_t i = 1; i < s->n_parts; i++)
        if (s->part_at[i] <= s->part_at[i - 1] || s->part_at[i] >= s->n_floats)
            return false;
    return true;
}

bool ps_shard_valid(const struct ps_shard *s)
{
    return s->n_floats >= 1 && s->n_floats <= (UINT64_C(1) << 40) && s->n_lanes >= 1 &&
           s->n_lanes <= PS_MAX_LANES && s->chunk_floats >= PS_MIN_CHUNK && s->chunk_floats <= PS_MAX_CHUNK &&
           s->chunk_floats % PS_SHARD_ALIGN == 0 && has_valid_parts(s);
}

struct ps_range ps_shard_part(const struct ps_shard *s, uint32_t part)
{
    if (s->n_parts <= 1)
        return (struct ps_range){0, s->n_floats};
    uint64_t end = part + 1 < s->n_parts ? s->part_at[part + 1] : s->n_floats;
    return (struct ps_range){s->part_at[part], end - s->part_at[part]};
}

/* Below this size of a slice, another lane costs more in wakeups than it saves. */
static uint32_t lanes_worth(const struct ps_shard *s, uint64_t n_floats, uint32_t lanes)
{
    uint64_t n = n_floats / (s->chunk_floats / PS_SHARD_LEAST);
    return n < 1 ? 1 : n < lanes ? (uint32_t)n : lanes;
}

struct ps_range ps_shard_slice(const struct ps_shard *s, uint32_t lane)
{
    uint32_t lanes = s->n_parts > 1 ? s->n_lanes / s->n_parts : s->n_lanes;
    struct ps_range part = ps_shard_part(s, lane / lanes);
    uint32_t used = lanes_worth(s, part.count, lanes), i = lane % lanes < used ? lane % lanes : used;
    uint64_t lines = ceil_div(part.count, PS_SHARD_ALIGN);
    uint64_t begin = lines * i / used * PS_SHARD_ALIGN;
    uint64_t end = i < used ? lines * (i + 1) / used * PS_SHARD_ALIGN : begin;
    begin = begin < part.count ? begin : part.count;
    end = end < part.count ? end : part.count;
    return (struct ps_range){part.begin + begin, end - begin};
}

/* The size of all chunks of a slice but the last: equal parts of the slice, at most chunk_floats. */
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

struct ps_range ps_range_intersect(struct ps_range a, struct ps_range b)
{
    uint64_t begin = a.begin > b.begin ? a.begin : b.begin;
    uint64_t a_end = a.begin + a.count, b_end = b.begin + b.count, end = a_end < b_end ? a_end : b_end;
    return (struct ps_range){begin, end > begin ? end - begin : 0};
}

struct ps_range ps_shard_whole(const struct ps_shard *s)
{
    return (struct ps_range){0, s->n_floats};
}

uint32_t ps_shard_pieces(const struct ps_shard *s, uint32_t lane, struct ps_range scope, uint32_t *first)
{
    struct ps_range slice = ps_shard_slice(s, lane), met = ps_range_intersect(slice, scope);
    *first = 0;
    if (met.count == 0)
        return 0;
    uint64_t step = chunk_step(s, slice.count);
    uint64_t begin = (met.begin - slice.begin) / step,
             last = (met.begin + met.count - 1 - slice.begin) / step;
    *first = (uint32_t)begin;
    return (uint32_t)(last - begin + 1);
}

struct ps_range ps_shard_piece(const struct ps_shard *s, uint32_t lane, struct ps_range scope, uint32_t k)
{
    return ps_range_intersect(ps_shard_chunk(s, lane, k), scope);
}

int64_t ps_shard_find(const struct ps_shard *s, uint32_t lane, struct ps_range scope, struct ps_range r)
{
    struct ps_range slice = ps_shard_slice(s, lane);
    if (slice.count == 0 || r.begin < slice.begin || r.begin >= slice.begin + slice.count)
        return -1;
    uint64_t k = (r.begin - slice.begin) / chunk_step(s, slice.count);
    struct ps_range piece = ps_shard_piece(s, lane, scope, (uint32_t)k);
    return piece.count > 0 && piece.begin == r.begin && piece.count == r.count ? (int64_t)k : -1;
}

uint32_t ps_shard_lanes_met(const struct ps_shard *s, struct ps_range scope)
{
    uint32_t met = 0;
    for (uint32_t lane = 0; lane < s->n_lanes; lane++)
        met += ps_range_intersect(ps_shard_slice(s, lane), scope).count > 0;
    return met;
}
