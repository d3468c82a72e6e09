/* membership.h: the members of a job: it starts when there are enough, and they change between rounds. See
 * membership.c. Does nothing under admissions without members. Loop's thread. */
#ifndef PSD_JOB_MEMBERSHIP_H
#define PSD_JOB_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "server/lane/lane.h"

struct psd_job;

/* The members, and the state of the lanes. */
struct psd_membership {
    bool started; /* the first set was published */
    bool revived; /* a session from before a restart of psd continues */
    bool holding; /* the lanes were asked to hold */
    bool join_due, save_due;
    uint64_t awaited; /* lanes that have not reported that they hold, as bits */
    uint64_t away;    /* lanes of lost servers, as bits */
    uint64_t first;   /* first round that no lane has begun; without rounds, the slowest member's clock */
    struct psd_members members;
};

int psd_membership_init(struct psd_job *job); /* -ENOMEM */
void psd_membership_finish(struct psd_job *job);
/* A worker has become active, or the number may have become sufficient. */
void psd_membership_joined(struct psd_job *job);
/* The number of workers that must be there before the job starts; 0: it does not wait for more. */
uint32_t psd_membership_awaits(const struct psd_job *job);
void psd_membership_reset(struct psd_job *job); /* the lanes have released the center */
void psd_membership_save(struct psd_job *job);  /* the lanes copy the center after the next round */
void psd_membership_held(struct psd_job *job, const struct psd_lane *lane, uint64_t first);
/* The server of these lanes (bits) is lost, or back. A draining psd does not wait for lanes that are away. */
void psd_membership_away(struct psd_job *job, uint64_t lanes, bool away);
void psd_membership_drain(struct psd_job *job); /* psd begins to drain */
/* The method has changed: starts again with every active worker, but where workers begin their parts in the
 * center (keeps_shares is false) once all of them are there. */
void psd_membership_method_changed(struct psd_job *job, bool keeps_shares);

#endif
