/* method_change.h: changes the method of the running job. See method_change.c. Loop's thread. */
#ifndef PSD_JOB_METHOD_CHANGE_H
#define PSD_JOB_METHOD_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "server/job/reload.h"
#include "server/lane/lane.h"

struct psd_job;

/* The phases of a method change. See method_change.c. */
enum psd_method_change_phase {
    PSD_METHOD_CHANGE_NONE,
    PSD_METHOD_CHANGE_DUE,      /* the center is not ready, or is being saved */
    PSD_METHOD_CHANGE_ASKING,   /* the other servers try it */
    PSD_METHOD_CHANGE_CLOSING,  /* lanes complete open exchanges and accept no others */
    PSD_METHOD_CHANGE_EMPTYING, /* the lanes release the old center */
};

/* Exchanges at another server, by name: [n_slots]. The newest that has begun there, with the servers that it
 * goes to; the newest that is complete there, or never will be. */
struct psd_exchanges_elsewhere {
    uint64_t *begun, *whole;
    uint32_t *parts;
};

struct psd_method_change {
    enum psd_method_change_phase phase;
    bool again;                      /* a reload arrived meanwhile */
    struct psd_config next;          /* the next configuration */
    struct psd_config_layers layers; /* its layers */
    struct psd_center *center;       /* for the next method; NULL if there is no center to take over from */
    bool method;                     /* the method changes; else only keys that do not concern lanes */
    bool agreed;                     /* with several servers: the others have tried it, */
    bool with_center;                /* with a center, or without one */
    uint32_t generation;             /* of the next method, at a server that is not the head */
    uint64_t closings;               /* so far: numbers of CLOSE */
    uint32_t lanes_left;
    uint64_t released;    /* lanes that have released the center, as bits */
    uint64_t deadline_ms; /* for exchanges that are open */
    uint32_t n_open;      /* of them when that was last looked at */
    uint64_t n_changes;
    /* [servers.count] at the head, during a change; NULL: no other servers */
    struct psd_exchanges_elsewhere *elsewhere;
};

/* At a head with other servers; -ENOMEM. */
int psd_method_change_open(struct psd_job *job);
void psd_method_change_close(struct psd_job *job);

/* Changes the running job's method to that of `next`, which was built from the layers. -E2BIG, -ENOMEM:
 * nothing changes. */
int psd_method_change_begin(struct psd_job *job, const struct psd_config *next,
                            const struct psd_config_layers *layers, struct ps_error *err);
/* The same with other servers, also for keys that do not belong to the method: the others try it first. */
int psd_method_change_begin_all(struct psd_job *job, const struct psd_config *next,
                                const struct psd_config_layers *layers, bool method, struct ps_error *err);
/* All others have tried it. refused: the sentence of one that cannot apply it; NULL: all can. */
void psd_method_change_tried(struct psd_job *job, const char *refused);
/* Another server, which has these lanes (bits), is lost: drops a change that can still be dropped. */
void psd_method_change_server_lost(struct psd_job *job, uint64_t lanes, const char *who);
/* Nothing more of the exchange will land at any server. */
void psd_method_change_give_up(struct psd_job *job, uint32_t client, uint64_t name);
/* Whether the lanes are about to be handed over: until then no client joins, nothing is saved and no set of
 * members is published. */
bool psd_method_change_is_closing(const struct psd_job *job);
/* Continues when the awaited condition is met; call on every tick. */
void psd_method_change_check(struct psd_job *job);
void psd_method_change_closed(struct psd_job *job, uint64_t number);
void psd_method_change_released(struct psd_job *job, const struct psd_lane *lane);
/* psd drains or stops: drops a change that has not begun. */
void psd_method_change_cancel(struct psd_job *job);

/* another_server.c, at a server that is not the head. Tries the head's settings and keeps them for
 * psd_method_change_make and the lanes' events; drops them; applies them. -EBUSY: a checkpoint is being
 * written; -EINVAL and others: it cannot apply them. */
int psd_method_change_try(struct psd_job *job, const char *settings, uint32_t generation,
                          struct ps_error *err);
void psd_method_change_drop(struct psd_job *job);
void psd_method_change_make(struct psd_job *job);
/* The head's commands to all lanes here, before they receive them: CLOSE; release the center, which then has
 * this version. False: nothing was tried, and the lanes do not receive it. */
bool psd_method_change_close_own(struct psd_job *job);
bool psd_method_change_empty_own(struct psd_job *job, uint64_t version);
/* A lane here has released the center. After the last one the change is applied and the lanes get the next
 * center. */
void psd_method_change_released_own(struct psd_job *job);

#endif
