/* The data header: what parses is packed into the same 64 bytes again. The bytes behind it choose a cut of
 * the vector and a scope, in which the piece that the header names is looked up. */
#include <stdbool.h>
#include <string.h>

#include "proto/model/shard.h"
#include "proto/wire/frame.h"
#include "tests/fuzz/fuzz.h"

/* The cut, and within it what the transfer covers; whole when the bytes name no range of the vector. */
struct place {
    struct ps_shard shard;
    struct ps_range scope;
};

static bool place_of(const uint8_t *bytes, size_t len, struct place *p)
{
    *p = (struct place){0};
    memcpy(p, bytes, len < sizeof *p ? len : sizeof *p);
    if (!ps_shard_valid(&p->shard))
        return false;
    if (p->scope.begin >= p->shard.n_floats || p->scope.count < 1 ||
        p->scope.count > p->shard.n_floats - p->scope.begin)
        p->scope = ps_shard_whole(&p->shard);
    return true;
}

static void look_up(const struct ps_frame *f, const uint8_t *bytes, size_t len)
{
    struct place p;
    const struct ps_range r = {f->begin, f->count};
    if (!place_of(bytes, len, &p))
        return;
    for (uint32_t lane = 0; lane < p.shard.n_lanes; lane++) {
        struct ps_range slice = ps_shard_slice(&p.shard, lane);
        uint32_t first, n = ps_shard_pieces(&p.shard, lane, p.scope, &first);
        int64_t k = ps_shard_find(&p.shard, lane, p.scope, r);
        promise(slice.begin + slice.count <= p.shard.n_floats && slice.begin + slice.count >= slice.begin);
        promise((uint64_t)first + n <= ps_shard_n_chunks(&p.shard, lane));
        if (k < 0)
            continue;
        promise(k >= first && k < (int64_t)first + n);
        struct ps_range chunk = ps_shard_chunk(&p.shard, lane, (uint32_t)k);
        struct ps_range piece = ps_shard_piece(&p.shard, lane, p.scope, (uint32_t)k);
        promise(piece.begin == r.begin && piece.count == r.count && chunk.count <= p.shard.chunk_floats);
        promise(piece.begin >= chunk.begin && piece.begin + piece.count <= chunk.begin + chunk.count);
        promise(chunk.begin >= slice.begin && chunk.begin + chunk.count <= slice.begin + slice.count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    unsigned char again[PS_FRAME_BYTES];
    size_t head = len < PS_FRAME_BYTES ? len : PS_FRAME_BYTES;
    struct ps_error err = {""};
    struct ps_frame f;

    if (len > PS_FRAME_BYTES)
        promise(ps_frame_parse(&f, bytes, len, &err) < 0);
    if (ps_frame_parse(&f, bytes, head, &err) < 0) {
        promise(err.text[0] != 0);
        return 0;
    }
    ps_frame_pack(&f, again);
    promise(memcmp(again, bytes, sizeof again) == 0);
    look_up(&f, bytes + head, len - head);
    return 0;
}
