/* The data header: what parses is packed into the same 64 bytes again. The bytes behind it choose a cut of
 * the vector, in which the chunk that the header names is looked up. */
#include <string.h>

#include "proto/frame.h"
#include "proto/shard.h"
#include "tests/fuzz/fuzz.h"

static void look_up(const struct ps_frame *f, const uint8_t *bytes, size_t len)
{
    struct ps_shard s = {0};
    const struct ps_range r = {f->begin, f->count};
    memcpy(&s, bytes, len < sizeof s ? len : sizeof s);
    if (!ps_shard_valid(&s))
        return;
    for (uint32_t lane = 0; lane < s.n_lanes; lane++) {
        struct ps_range slice = ps_shard_slice(&s, lane);
        int64_t k = ps_shard_find(&s, lane, r);
        promise(slice.begin + slice.count <= s.n_floats && slice.begin + slice.count >= slice.begin);
        if (k < 0)
            continue;
        promise(k < ps_shard_n_chunks(&s, lane));
        struct ps_range chunk = ps_shard_chunk(&s, lane, (uint32_t)k);
        promise(chunk.begin == r.begin && chunk.count == r.count && chunk.count <= s.chunk_floats);
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
