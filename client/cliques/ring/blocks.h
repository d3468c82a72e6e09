/* blocks.h: how a ring cuts a vector, which decides where the sum of a float begins and with it its last
 * bits. libpsclique-mpi has it too, for the same bits. */
#ifndef PSC_CLIQUES_RING_BLOCKS_H
#define PSC_CLIQUES_RING_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* Units of the vector: its values. */
struct psc_span {
    size_t begin, count;
};

/* Bytes of a segment, unless told otherwise. A segment has a cost of its own; in a larger ring the segments
 * of all members share the cache. */
uint32_t psc_segment_default(uint32_t members);

/* The most values, of value_bytes each, of a segment where a stripe has so many blocks: at least one cache
 * line of them. */
size_t psc_segment_values(size_t wanted_bytes, uint32_t blocks, size_t value_bytes);
/* The same in floats, whole blocks of a codec. */
size_t psc_segment_floats(size_t wanted_bytes, uint32_t blocks);
/* The k-th of `parts` blocks of a stripe: the last ones may be shorter or empty. */
struct psc_span psc_block_cut(struct psc_span whole, uint32_t k, uint32_t parts);

#endif
