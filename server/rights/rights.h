/* rights.h: who may say what to psd: one row a message, on either connection, and nothing else decides it.
 *
 * A message comes from a peer without a session, or within a session: of a worker or an observer, in a stage.
 * What such a message proves of its sender is checked where it arrives; the row says what that must be. */
#ifndef PSD_RIGHTS_RIGHTS_H
#define PSD_RIGHTS_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

enum psd_message {
    /* control socket */
    PSD_SAY_HELLO,
    PSD_SAY_MEET,
    PSD_SAY_BEGIN,
    PSD_SAY_HEARTBEAT,
    PSD_SAY_REPORT,     /* of its own loss and speed */
    PSD_SAY_EVALUATION, /* a Report's accuracy and loss of the center */
    PSD_SAY_NOT_FINITE,
    PSD_SAY_LEAVE,
    PSD_SAY_ENLIST, /* of servers, as is the next */
    PSD_SAY_NEWS,
    /* lanes */
    PSD_SAY_EXCHANGE,
    PSD_SAY_PUSH,
    PSD_SAY_PULL,
    PSD_SAY_SET,
    PSD_SAY_ADD,
    PSD_SAY_OFFER,
    PSD_SAY_KEEP, /* the vector behind an evaluation */
    PSD_N_MESSAGES
};

/* What a line of the allow-list says of its key; psd's own has PSD_ROLE_SERVER. */
enum psd_role { PSD_ROLE_ANY, PSD_ROLE_WORKER, PSD_ROLE_OBSERVER, PSD_ROLE_SERVER };

/* Of a session, as a bit. The loop's and, of the last two, the lanes'. */
enum {
    PSD_STAGE_JOINING = 1, /* its Begin is to come, or waits */
    PSD_STAGE_OFFERING = 2,
    PSD_STAGE_ACTIVE = 4,
    PSD_STAGE_ALL = 7
};

enum psd_proof {
    PSD_PROOF_OWNER,  /* the session's own connection, and under auth.key its identity */
    PSD_PROOF_CLIENT, /* a key with the role that it asks for, under auth.key; under auth.munge a credential
                       */
    PSD_PROOF_WORKER, /* a key that a worker may have, under auth.key */
    PSD_PROOF_SERVER, /* psd's own key, under auth.key */
};

struct psd_right {
    uint8_t worker, observer; /* stages in which a session of the kind may say it; 0: never */
    enum psd_proof proof;     /* but for PSD_PROOF_OWNER, it needs no session */
};

extern const struct psd_right psd_rights[PSD_N_MESSAGES];

static inline bool psd_may_say(enum psd_message m, bool observer, unsigned stage)
{
    return ((observer ? psd_rights[m].observer : psd_rights[m].worker) & stage) != 0;
}

/* Whether a key of this role is proof enough. observer: as what a Hello asks to be let in. */
bool psd_role_may_say(enum psd_message m, enum psd_role role, bool observer);

#endif
