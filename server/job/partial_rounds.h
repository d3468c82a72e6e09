/* partial_rounds.h: which exchanges make a round, under admissions that do not wait for all. See
 * partial_rounds.c. Nothing to do under others. Loop's thread. */
#ifndef PSD_JOB_PARTIAL_ROUNDS_H
#define PSD_JOB_PARTIAL_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/lane/lane.h"
#include "server/loop/timer.h"

struct psd_job;

/* Rounds that are made of some members' messages. */
struct psd_partial_client;
struct psd_partial_rounds {
    struct psd_partial_client *clients; /* [n_slots] */
    uint32_t *candidates, n;            /* for the open round, as they came */
    struct psd_members closed;          /* of the round closed last; lanes read it while it is under way */
    uint64_t lanes_under_way;           /* bits of those that are not through it */
    uint64_t n_closed;                  /* rounds, in this run of psd */
    bool grace_is_over;                 /* of the open round */
    uint64_t dropped;                   /* exchanges that were late */
    struct psd_timer timer;             /* of the open round's grace, or of looks at the one under way */
};

int psd_partial_rounds_init(struct psd_job *job); /* -ENOMEM */
void psd_partial_rounds_finish(struct psd_job *job);
void psd_partial_rounds_reset(struct psd_job *job); /* the lanes have let go of the center */
/* Notes of a lane: an exchange has begun there; it is through the round. */
void psd_partial_rounds_begun(struct psd_job *job, const struct psd_lane *lane,
                              const struct psd_lane_message *msg);
void psd_partial_rounds_over(struct psd_job *job, const struct psd_lane *lane, uint64_t round);
void psd_partial_rounds_forget(struct psd_job *job,
                               uint32_t client);       /* its session has ended, and the lanes know */
void psd_partial_rounds_consider(struct psd_job *job); /* there are other members */
/* Exchanges of the client's session that came too late for their round. */
uint64_t psd_partial_rounds_dropped(const struct psd_job *job, uint32_t client);

#endif
