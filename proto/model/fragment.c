#include "proto/model/fragment.h"

/* The number of chunks in the lanes before this one. */
static uint64_t chunks_before(const struct ps_shard *s, uint32_t lane)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < lane; i++)
        n += ps_shard_n_chunks(s, i);
    return n;
}

uint64_t ps_fragments_most(const struct ps_shard *s)
{
    return chunks_before(s, s->n_lanes);
}

/* The first float of chunk k of the whole vector; for the number of chunks, the end of the vector. */
static uint64_t chunk_begin(const struct ps_shard *s, uint64_t k)
{
    for (uint32_t lane = 0; lane < s->n_lanes; lane++) {
        uint64_t n = ps_shard_n_chunks(s, lane);
        if (k < n)
            return ps_shard_chunk(s, lane, (uint32_t)k).begin;
        k -= n;
    }
    return s->n_floats;
}

/* The chunk of the whole vector that begins nearest to float `at`. */
static uint64_t nearest_chunk(const struct ps_shard *s, uint64_t at)
{
    uint32_t lane = 0, first;
    while (lane + 1 < s->n_lanes && ps_shard_slice(s, lane + 1).begin <= at)
        lane++;
    ps_shard_pieces(s, lane, (struct ps_range){at, 1}, &first);
    uint64_t k = chunks_before(s, lane) + first, below = chunk_begin(s, k), above = chunk_begin(s, k + 1);
    return at - below <= above - at ? k : k + 1;
}

/* The start of the tensor that is nearest to float `at`. */
static uint64_t nearest_tensor(const struct ps_manifest *m, uint64_t at)
{
    struct ps_range r = ps_tensor_range(ps_manifest_tensor(m, at));
    uint64_t below = r.begin, above = r.begin + r.count;
    return at - below <= above - at ? below : above;
}

/* The first chunk of fragment i, 1 <= i <= n - 1; the fragment before it begins with chunk `before`. */
static uint64_t cut_at(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n, uint32_t i,
                       uint64_t before)
{
    uint64_t even = s->n_floats / n * i + s->n_floats % n * i / n, at = nearest_tensor(m, even);
    uint64_t off = at > even ? at - even : even - at;
    if (off > s->n_floats / n / 4 || at >= s->n_floats)
        at = even;
    uint64_t k = nearest_chunk(s, at), lowest = before + 1, highest = ps_fragments_most(s) - (n - i);
    return k < lowest ? lowest : k > highest ? highest : k;
}

/* The first chunk of fragment i + 1; fragment i begins with chunk `first`. */
static uint64_t next_cut(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n, uint32_t i,
                         uint64_t first)
{
    return i + 1 < n ? cut_at(s, m, n, i + 1, first) : ps_fragments_most(s);
}

static struct ps_range range_of(const struct ps_shard *s, uint64_t first, uint64_t after)
{
    uint64_t begin = chunk_begin(s, first);
    return (struct ps_range){begin, chunk_begin(s, after) - begin};
}

struct ps_range ps_fragment(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n, uint32_t i)
{
    uint64_t first = 0;
    for (uint32_t k = 0; k < i; k++)
        first = next_cut(s, m, n, k, first);
    return range_of(s, first, next_cut(s, m, n, i, first));
}

void ps_fragments(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n, struct ps_range *out)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t after = next_cut(s, m, n, i, first);
        out[i] = range_of(s, first, after);
        first = after;
    }
}
