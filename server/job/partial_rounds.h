/* partial_rounds.h: decides which exchanges make a round, under admissions that do not wait for every member.
 * See partial_rounds.c. Does nothing under other admissions. Loop's thread. */
#ifndef PSD_JOB_PARTIAL_ROUNDS_H
#define PSD_JOB_PARTIAL_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/lane/lane.h"
#include "server/loop/timer.h"

struct psd_job;

/* Rounds of some members' messages. */
struct psd_partial_client;
struct psd_partial_rounds {
    struct psd_partial_client *clients; /* [n_slots] */
    uint32_t *candidates, n;            /* for the open round, in order of arrival */
    struct psd_members closed; /* the set of the last closed round; lanes read it while it is in progress */
    uint64_t lanes_under_way;  /* lanes that have not completed it, as bits */
    uint64_t n_closed;         /* rounds in this run of psd */
    bool grace_is_over;        /* of the open round */
    uint64_t dropped;          /* late exchanges */
    struct psd_timer timer;    /* for the open round's grace time, or for looks at the current one */
};

int psd_partial_rounds_init(struct psd_job *job); /* -ENOMEM */
void psd_partial_rounds_finish(struct psd_job *job);
void psd_partial_rounds_reset(struct psd_job *job); /* the lanes have released the center */
/* Events of a lane: an exchange has begun there; it has completed the round. */
void psd_partial_rounds_begun(struct psd_job *job, const struct psd_lane *lane,
                              const struct psd_lane_message *msg);
void psd_partial_rounds_over(struct psd_job *job, const struct psd_lane *lane, uint64_t round);
/* The session of the client has ended, and the lanes know. */
void psd_partial_rounds_forget(struct psd_job *job, uint32_t client);
void psd_partial_rounds_consider(struct psd_job *job); /* the members have changed */
/* Exchanges of the client's session that were late. */
uint64_t psd_partial_rounds_dropped(const struct psd_job *job, uint32_t client);

#endif
