/* leader_messages.h: what a clique's leader tells the others, where it alone has the session. */
#ifndef PSC_MEMBER_LEADER_MESSAGES_H
#define PSC_MEMBER_LEADER_MESSAGES_H

#include <stdint.h>

#include "client/session/session.h"
#include "proto/model/method.h"

struct psc;

struct psc_leader_message {
    int32_t rc;       /* of the leader's call; PSC_WAITING: it has not ended */
    uint32_t workers; /* clients of the job */
    uint32_t generation;
    uint32_t has_stepped; /* the optimizer's step was made */
    uint32_t x_comes;     /* more than it has moved x, which follows */
    uint32_t v_comes;     /* and the velocity, behind it */
    uint32_t road_comes;  /* and the method is another: its transport, before both */
    uint64_t clock;       /* after the step */
    uint64_t save_version;
    struct psc_counts counts;
    struct ps_hyper hyper;
    char sentence[400]; /* of an error */
};

/* Beside enum psc_result. */
#define PSC_WAITING 101

void psc_leader_message_fill(struct psc *c, struct psc_leader_message *o, int rc);
/* The leader's. Whoever keeps the others patient must be idle. */
int psc_leader_message_give(struct psc *c, struct psc_leader_message *o);
int psc_leader_message_give_road(struct psc *c);
/* Tells the others to wait; for the keeper. */
int psc_leader_message_wait(struct psc *c);
/* The others': the next orders that do not say to wait; returns what they say, or why there are none. */
int psc_leader_message_take(struct psc *c, struct psc_leader_message *o);
int psc_leader_message_take_road(struct psc *c);

#endif
