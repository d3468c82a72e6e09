#include "client/cliques/ring/blocks.h"

/* Blocks begin at cache lines; the blocks of one stripe fit into a cache. */
enum { ALIGN_UNITS = 16, SEGMENT_BYTES = 128 << 10, STRIPE_BYTES = 4 << 20, CODEC_FLOATS = 1024 };

uint32_t psc_segment_default(uint32_t members)
{
    return members <= 2 ? 2 * SEGMENT_BYTES : SEGMENT_BYTES;
}

/* The most bytes of a segment where a stripe has so many blocks. */
static size_t segment_bytes(size_t wanted, uint32_t blocks)
{
    size_t most = STRIPE_BYTES / blocks;
    return wanted < most ? wanted : most;
}

size_t psc_segment_values(size_t wanted_bytes, uint32_t blocks, size_t value_bytes)
{
    return segment_bytes(wanted_bytes, blocks) / value_bytes / ALIGN_UNITS * ALIGN_UNITS;
}

size_t psc_segment_floats(size_t wanted_bytes, uint32_t blocks)
{
    size_t codec_blocks = segment_bytes(wanted_bytes, blocks) / (CODEC_FLOATS * sizeof(float));
    return (codec_blocks > 0 ? codec_blocks : 1) * CODEC_FLOATS;
}

struct psc_span psc_block_cut(struct psc_span whole, uint32_t k, uint32_t parts)
{
    size_t each = (whole.count + parts - 1) / parts;
    each = (each + ALIGN_UNITS - 1) / ALIGN_UNITS * ALIGN_UNITS;
    size_t begin = each * k < whole.count ? each * k : whole.count, left = whole.count - begin;
    return (struct psc_span){whole.begin + begin, left < each ? left : each};
}
