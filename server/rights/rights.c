#include "server/rights/rights.h"

#define NEVER 0

const struct psd_right psd_rights[PSD_N_MESSAGES] = {
    /*                      worker              observer           proof */
    [PSD_SAY_HELLO] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_CLIENT},
    [PSD_SAY_MEET] = {PSD_STAGE_ALL, NEVER, PSD_PROOF_WORKER},
    [PSD_SAY_BEGIN] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_SAY_HEARTBEAT] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_SAY_REPORT] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_SAY_EVALUATION] = {NEVER, PSD_STAGE_ACTIVE, PSD_PROOF_OWNER},
    [PSD_SAY_NOT_FINITE] = {PSD_STAGE_ALL, NEVER, PSD_PROOF_OWNER},
    [PSD_SAY_LEAVE] = {PSD_STAGE_ALL, PSD_STAGE_ALL, PSD_PROOF_OWNER},
    [PSD_SAY_ENLIST] = {NEVER, NEVER, PSD_PROOF_SERVER},
    [PSD_SAY_NEWS] = {NEVER, NEVER, PSD_PROOF_SERVER},
    [PSD_SAY_EXCHANGE] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_SAY_PUSH] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_SAY_PULL] = {PSD_STAGE_ACTIVE, PSD_STAGE_ACTIVE, PSD_PROOF_OWNER},
    [PSD_SAY_SET] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_SAY_ADD] = {PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    /* Also after the whole offer has arrived: an answer may have been lost. */
    [PSD_SAY_OFFER] = {PSD_STAGE_OFFERING | PSD_STAGE_ACTIVE, NEVER, PSD_PROOF_OWNER},
    [PSD_SAY_KEEP] = {NEVER, PSD_STAGE_ACTIVE, PSD_PROOF_OWNER},
};

bool psd_role_may_say(enum psd_message m, enum psd_role role, bool observer)
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
