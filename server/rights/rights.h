/* rights.h: which messages a peer may send to psd: one row for each message of either connection. This table
 * alone decides it.
 *
 * A peer sends a message without a session, or within the session of a worker or an observer, in a stage. The
 * row also states which proof of identity the message needs; it is checked where the message arrives. */
#ifndef PSD_RIGHTS_RIGHTS_H
#define PSD_RIGHTS_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

enum psd_message {
    /* control socket */
    PSD_MESSAGE_HELLO,
    PSD_MESSAGE_MEET,
    PSD_MESSAGE_BEGIN,
    PSD_MESSAGE_HEARTBEAT,
    PSD_MESSAGE_REPORT,     /* its own loss and speed */
    PSD_MESSAGE_EVALUATION, /* a Report's accuracy and loss of the center */
    PSD_MESSAGE_NOT_FINITE,
    PSD_MESSAGE_LEAVE,
    PSD_MESSAGE_BARRIER,
    PSD_MESSAGE_SET_METHOD,
    PSD_MESSAGE_ENLIST, /* from other servers, as is the next */
    PSD_MESSAGE_NEWS,
    /* lanes */
    PSD_MESSAGE_EXCHANGE,
    PSD_MESSAGE_PUSH,
    PSD_MESSAGE_PULL,
    PSD_MESSAGE_SET,
    PSD_MESSAGE_ADD,
    PSD_MESSAGE_OFFER,
    PSD_MESSAGE_KEEP,  /* the vector behind an evaluation */
    PSD_MESSAGE_KNOWN, /* what it has of the center */
    PSD_N_MESSAGES
};

/* The role in a line of the allow-list; psd's own key has PSD_ROLE_SERVER. */
enum psd_role { PSD_ROLE_ANY, PSD_ROLE_WORKER, PSD_ROLE_OBSERVER, PSD_ROLE_SERVER };

/* Stages of a session, as bits. The loop uses all of them, the lanes the last two. */
enum {
    PSD_STAGE_JOINING = 1, /* its Begin has not arrived, or waits */
    PSD_STAGE_OFFERING = 2,
    PSD_STAGE_ACTIVE = 4,
    PSD_STAGE_ALL = 7
};

enum psd_proof {
    PSD_PROOF_OWNER,  /* the session's own connection, and under auth.key its identity */
    PSD_PROOF_CLIENT, /* under auth.key a key that allows the requested role; under auth.munge a credential */
    PSD_PROOF_WORKER, /* under auth.key a key that allows a worker */
    PSD_PROOF_SERVER, /* under auth.key psd's own key */
};

struct psd_right {
    uint8_t worker, observer; /* stages in which such a session may send it; 0: never */
    enum psd_proof proof;     /* needed without a session, except PSD_PROOF_OWNER */
    bool first_rank;          /* of the workers only that of rank 0 */
};

extern const struct psd_right psd_rights[PSD_N_MESSAGES];

static inline bool psd_may_send(enum psd_message m, bool observer, unsigned stage)
{
    return ((observer ? psd_rights[m].observer : psd_rights[m].worker) & stage) != 0;
}

/* Whether a worker of this rank may send it, in a stage in which workers may. */
static inline bool psd_rank_may_send(enum psd_message m, uint32_t rank)
{
    return !psd_rights[m].first_rank || rank == 0;
}

/* Whether a key of this role allows the message. observer: the role that a Hello asks for. */
bool psd_role_may_send(enum psd_message m, enum psd_role role, bool observer);

#endif
