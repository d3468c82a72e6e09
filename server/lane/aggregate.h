/* aggregate.h: what admissions have in common whose rounds are one update each. */
#ifndef PSD_LANE_AGGREGATE_H
#define PSD_LANE_AGGREGATE_H

#include "server/lane/rounds.h"

/* Moves the chunk by the n > 0 messages that rounds->party has, in order of rank; each is answered and
 * consumed, and the round is over for the chunk. */
void psd_merge_round(struct psd_lane *lane, uint32_t chunk, uint32_t n);

#endif
