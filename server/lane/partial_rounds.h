/* partial_rounds.h: a lane's part of rounds that include only some members' messages. The loop's part is
 * server/job/partial_rounds.c.
 *
 * psd holds no more than a window of each exchange before others must advance, so the members of a round are
 * decided when exchanges begin. A lane tells the loop when a client's exchange begins (BEGUN). The loop
 * publishes the set of a round (CLOSE_ROUND), one round at a time, or declares that an exchange is in no
 * round (LATE). All lanes use these decisions, so every chunk's round has the same messages. The exception is
 * a member that is lost, or that the loop removes from a round in progress (LATE again): it is included in
 * the chunks that were complete.
 *
 * A late exchange moves nothing. Each chunk of it is answered with the center, flagged PS_FLAG_DROPPED, once
 * the center includes the round that went on without it; its sender starts its next exchange from that. It
 * does not land: after a restart of psd it would be sent again completely, and could be accepted. Only the
 * remaining chunks of an exchange that landed in other chunks are marked as landed, so that it completes.
 *
 * Lane's thread. */
#ifndef PSD_LANE_PARTIAL_ROUNDS_H
#define PSD_LANE_PARTIAL_ROUNDS_H

#include "server/lane/rounds.h"

/* False: no memory; the caller frees what was allocated. */
bool psd_lane_partial_init(struct psd_rounds *r, uint32_t n_slots);

/* `arrive` and `advance` of these admissions. */
void psd_lane_partial_arrive(struct psd_lane *lane, struct psd_arrival *a);
bool psd_lane_partial_advance(struct psd_lane *lane, uint32_t chunk);

/* A chunk of a client's message for a round has arrived, possibly one that has landed before. Does nothing
 * without partial rounds, as the next functions. */
void psd_lane_partial_begin(struct psd_lane *lane, const struct ps_frame *f);
/* The client is sent values of the chunk after this many rounds. */
void psd_lane_partial_saw(struct psd_lane *lane, const struct psd_arrival *a, uint64_t rounds);
/* Every chunk has completed the partial round. */
void psd_lane_partial_over(struct psd_lane *lane);
/* The client's session has ended, or begins. */
void psd_lane_partial_forget(struct psd_lane *lane, uint32_t client);

/* Commands of the loop. */
void psd_lane_partial_take(struct psd_lane *lane, const struct psd_members *closed);
void psd_lane_partial_late(struct psd_lane *lane, uint32_t client, uint64_t seq, uint64_t after);

#endif
