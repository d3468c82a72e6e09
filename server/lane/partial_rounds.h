/* partial_rounds.h: a lane's part in rounds that are made of some members' messages. The loop's is
 * server/job/partial_rounds.c.
 *
 * Which exchanges make a round is decided when they have begun, since no more than a window of each can be
 * here before others go on: a lane tells the loop when a client's exchange begins (BEGUN), and the loop
 * publishes the round's set (CUT), one round at a time, or says of an exchange that it is in none (LATE). All
 * lanes go by these, so that every chunk's round is made of the same messages, but for a member that is lost
 * or that the loop takes out in the middle of one (LATE again): it is in the chunks that were complete.
 *
 * An exchange that is late moves nothing. Each chunk of it is answered with the center, flagged
 * PS_FLAG_DROPPED, as soon as that is the one after the round that went on without it; its sender begins its
 * next one with that. It does not land: were psd restarted, it would be sent again
 * whole, and could be taken. Only what is left of one that has landed in other chunks does, so that it ends.
 *
 * All of it belongs to the lane's thread. */
#ifndef PSD_LANE_PARTIAL_ROUNDS_H
#define PSD_LANE_PARTIAL_ROUNDS_H

#include "server/lane/rounds.h"

/* False: no memory, and what there is is the caller's to free. */
bool psd_lane_partial_init(struct psd_rounds *r, uint32_t n_slots);

/* `arrive` and `advance` of these admissions. */
void psd_lane_partial_arrive(struct psd_lane *lane, struct psd_arrival *a);
bool psd_lane_partial_advance(struct psd_lane *lane, uint32_t chunk);

/* A chunk of a client's exchange has come, be it one that has landed. Nothing to do without cuts. */
void psd_lane_partial_begin(struct psd_lane *lane, const struct ps_frame *f);
/* The client is sent values of the chunk after so many rounds. Likewise. */
void psd_lane_partial_saw(struct psd_lane *lane, const struct psd_arrival *a, uint64_t rounds);
/* Every chunk has been through the round of the cut. */
void psd_lane_partial_over(struct psd_lane *lane);
/* The client's session has ended, or begins. Likewise. */
void psd_lane_partial_forget(struct psd_lane *lane, uint32_t client);

/* Notes of the loop. */
void psd_lane_partial_take(struct psd_lane *lane, const struct psd_members *cut);
void psd_lane_partial_late(struct psd_lane *lane, uint32_t client, uint64_t seq, uint64_t after);

#endif
