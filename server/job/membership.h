/* membership.h: a job with members begins when there are enough; they change between rounds. See
 * membership.c. Nothing to do under other admissions. Loop's thread. */
#ifndef PSD_JOB_MEMBERSHIP_H
#define PSD_JOB_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "server/lane/lane.h"

struct psd_job;

/* Who takes part, and where the lanes stand. */
struct psd_membership {
    bool started; /* the first set is out */
    bool revived; /* a session of the psd before goes on */
    bool holding; /* lanes have been asked to hold */
    bool join_due, save_due;
    uint64_t awaited; /* bits of lanes that have not said that they hold */
    uint64_t away;    /* of lanes of servers that are lost */
    uint64_t first;   /* round that no lane has begun; without rounds, the slowest's clock */
    struct psd_members members;
};

int psd_membership_init(struct psd_job *job); /* -ENOMEM */
void psd_membership_finish(struct psd_job *job);
void psd_membership_joined(struct psd_job *job); /* a worker has become active, or may have become enough */
void psd_membership_reset(struct psd_job *job);  /* the lanes have let go of the center */
void psd_membership_save(
    struct psd_job *job); /* the lanes copy the center after a round that none has begun */
void psd_membership_held(struct psd_job *job, const struct psd_lane *lane, uint64_t first);
/* The server of these lanes (bits) is lost, or back. While psd drains nothing waits for lanes that are away.
 */
void psd_membership_away(struct psd_job *job, uint64_t lanes, bool away);
void psd_membership_drain(struct psd_job *job); /* psd drains from now on */
/* The method has changed: begins anew with everyone who is active. */
void psd_membership_method_changed(struct psd_job *job);

#endif
