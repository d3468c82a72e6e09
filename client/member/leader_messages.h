/* leader_messages.h: messages from a clique's leader, which alone has the session, to the other members. */
#ifndef PSC_MEMBER_LEADER_MESSAGES_H
#define PSC_MEMBER_LEADER_MESSAGES_H

#include <stdint.h>

#include "client/session/session.h"
#include "proto/model/method.h"

struct psc;

struct psc_leader_message {
    int32_t rc;       /* result of the leader's call; PSC_WAITING: it has not ended */
    uint32_t workers; /* clients of the job */
    uint32_t generation;
    uint32_t has_stepped;     /* the library's optimizer has made its step */
    uint32_t own_step;        /* the program's has, at own_rate */
    uint32_t own_step_next;   /* it is made with what follows; then the step's last message comes */
    uint32_t mean_follows;    /* ... by a mean that only the leader has: it follows before all else */
    uint32_t x_follows;       /* something else has moved x, too: x follows this message */
    uint32_t v_follows;       /* ... and the velocity follows x */
    uint32_t welcome_follows; /* the method has changed: the welcome follows before x */
    uint32_t next_key;        /* of the round of keys, which may begin again */
    uint64_t clock;           /* after the step */
    uint64_t save_version;
    double own_rate;
    struct psc_counts counts;
    struct ps_hyper hyper;
    char sentence[400]; /* of an error, or of a drain before the call took effect */
};

/* Beside enum psc_result. */
#define PSC_WAITING 101

void psc_leader_message_fill(struct psc *c, struct psc_leader_message *o, int rc);
/* For the leader, while the keeper is idle. */
int psc_leader_message_send(struct psc *c, struct psc_leader_message *o);
int psc_leader_message_send_welcome(struct psc *c);
/* Tells the other members to wait; for the keeper. */
int psc_leader_message_wait(struct psc *c);
/* For the other members: receives the next message that is not PSC_WAITING. Returns its result, or the error
 * of receiving it. */
int psc_leader_message_receive(struct psc *c, struct psc_leader_message *o);
int psc_leader_message_receive_welcome(struct psc *c);

#endif
