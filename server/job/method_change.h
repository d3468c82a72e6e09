/* method_change.h: another method for the job that is running. See method_change.c. Loop's thread. */
#ifndef PSD_JOB_METHOD_CHANGE_H
#define PSD_JOB_METHOD_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "server/job/reload.h"
#include "server/lane/lane.h"

struct psd_job;

/* How far a change of the method is. See method_change.c. */
enum psd_method_change_phase {
    PSD_METHOD_CHANGE_NONE,
    PSD_METHOD_CHANGE_DUE,      /* the center is not ready, or is being saved */
    PSD_METHOD_CHANGE_ASKING,   /* the other servers try it */
    PSD_METHOD_CHANGE_CLOSING,  /* lanes finish what has begun and take nothing else */
    PSD_METHOD_CHANGE_EMPTYING, /* they let go of the old center */
};

/* Exchanges of another server, by their names: [n_slots]. The newest that has begun there, with the servers
 * that it goes to; that is whole there, or never will be. */
struct psd_exchanges_elsewhere {
    uint64_t *begun, *whole;
    uint32_t *parts;
};

struct psd_method_change {
    enum psd_method_change_phase phase;
    bool again;                /* a reload came meanwhile */
    struct psd_config next;    /* to be in force */
    struct psd_recipe recipe;  /* of that */
    struct psd_center *center; /* made for it; NULL while there is none to go on from */
    bool method;               /* changes; else only what does not concern lanes */
    bool agreed;               /* of several servers: the others have tried it, */
    bool with_center;          /* with a center, or without one */
    uint32_t generation;       /* of it, at a server that is not the head */
    uint64_t closings;         /* so far: numbers of CLOSE */
    uint32_t lanes_left;
    uint64_t released; /* bits of lanes that have let go of the center */
    uint64_t deadline_ms;
    uint64_t n_changes;
    struct psd_exchanges_elsewhere
        *elsewhere; /* [servers.count] at the head, while it changes; NULL: no others */
};

/* At a head with other servers; -ENOMEM. */
int psd_method_change_open(struct psd_job *job);
void psd_method_change_close(struct psd_job *job);

/* Changes the method of the running job to what `next` says, which is made of the recipe. -E2BIG, -ENOMEM:
 * nothing changes. */
int psd_method_change_begin(struct psd_job *job, const struct psd_config *next,
                            const struct psd_recipe *recipe, struct ps_error *err);
/* The same where there are other servers, also of keys that are not the method's: they try it first. */
int psd_method_change_begin_all(struct psd_job *job, const struct psd_config *next,
                                const struct psd_recipe *recipe, bool method, struct ps_error *err);
/* All others have tried it; refused: one of them cannot, and says why. NULL: they can. */
void psd_method_change_tried(struct psd_job *job, const char *refused);
/* Another server, which has these lanes (bits), is lost: a change that can still be dropped is. */
void psd_method_change_server_lost(struct psd_job *job, uint64_t lanes, const char *who);
/* Nothing more of the exchange will land, at no server. */
void psd_method_change_give_up(struct psd_job *job, uint32_t client, uint64_t name);
/* Whether lanes are about to change hands: nobody joins, nothing is saved, no set of members is made. */
bool psd_method_change_is_closing(const struct psd_job *job);
void psd_method_change_check(struct psd_job *job); /* what it waited for may have come; on every tick */
void psd_method_change_closed(struct psd_job *job, uint64_t number);
void psd_method_change_released(struct psd_job *job, const struct psd_lane *lane);
void psd_method_change_cancel(
    struct psd_job *job); /* psd drains or ends: a swap that has not begun is dropped */

/* another_server.c, at a server that is not the head: tries what the head says is to be set, which
 * is kept for psd_method_change_make and the lanes' notes; drops it; makes it. -EINVAL and others: it cannot.
 */
int psd_method_change_try(struct psd_job *job, const char *settings, uint32_t generation,
                          struct ps_error *err);
void psd_method_change_drop(struct psd_job *job);
void psd_method_change_make(struct psd_job *job);
/* Notes of the head to all lanes here, before they are told: CLOSE; let go of the center, which is of this
 * version then. False: nothing was tried, and they are not told. */
bool psd_method_change_close_own(struct psd_job *job);
bool psd_method_change_empty_own(struct psd_job *job, uint64_t version);
/* A lane here has let go of the center: the last one's change is made, and lanes have the next. */
void psd_method_change_released_own(struct psd_job *job);

#endif
