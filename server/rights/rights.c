#include "server/rights/rights.h"

#define NEVER 0

const struct psd_right psd_rights[PSD_N_MESSAGES] = {
    /*                      worker              observer           proof */
    [PSD_MESSAGE_HELLO] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_CLIENT},
    [PSD_MESSAGE_MEET] = {PSD_STAGE_ALL, NEVER, PSD_PROOF_WORKER},
    [PSD_MESSAGE_BEGIN] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_MESSAGE_HEARTBEAT] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_MESSAGE_REPORT] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_MESSAGE_EVALUATION] = {NEVER, PSD_STAGE_ACTIVE, PSD_PROOF_OWNER},
    [PSD_MESSAGE_NOT_FINITE] = {PSD_STAGE_ALL, NEVER, PSD_PROOF_OWNER},
    [PSD_MESSAGE_LEAVE] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_MESSAGE_BARRIER] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_MESSAGE_SET_METHOD] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER, .first_rank = true},
    [PSD_MESSAGE_ENLIST] = {NEVER, NEVER, PSD_PROOF_SERVER},
    [PSD_MESSAGE_NEWS] = {NEVER, NEVER, PSD_PROOF_SERVER},
    [PSD_MESSAGE_EXCHANGE] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_MESSAGE_PUSH] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_MESSAGE_PULL] = {PSD_STAGE_ACTIVE, PSD_STAGE_ACTIVE, PSD_PROOF_OWNER},
    [PSD_MESSAGE_SET] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_MESSAGE_ADD] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    /* Also after the whole offer has arrived: an answer may have been lost. */
    [PSD_MESSAGE_OFFER] = {PSD_STAGE_OFFERING | PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_MESSAGE_KEEP] = {NEVER, PSD_STAGE_ACTIVE, PSD_PROOF_OWNER},
    [PSD_MESSAGE_KNOWN] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
};

bool psd_role_may_send(enum psd_message m, enum psd_role role, bool observer)
{
    switch (psd_rights[m].proof) {
    case PSD_PROOF_CLIENT:
        return role != PSD_ROLE_SERVER && role != (observer ? PSD_ROLE_WORKER : PSD_ROLE_OBSERVER);
    case PSD_PROOF_WORKER:
        return role == PSD_ROLE_ANY || role == PSD_ROLE_WORKER;
    case PSD_PROOF_SERVER:
        return role == PSD_ROLE_SERVER;
    default: /* the identity of a session is checked at its Hello */
        return true;
    }
}
