/* leader.h: a rendezvous led by one of the members: the others send it a hello, and when all have joined it
 * assigns the ranks, or sends the error to all. */
#ifndef PSC_CLIQUES_RENDEZVOUS_LEADER_H
#define PSC_CLIQUES_RENDEZVOUS_LEADER_H

#include <stdbool.h>

#include "client/cliques/rendezvous/rendezvous.h"

/* Leads until all members have joined. nonce: hellos must carry it. still_leads is called from time to time
 * and before the end: when it returns false, all members are told to find the new leader, and -ESTALE is
 * returned. */
int psc_meeting_lead(struct psc_meeting *m, uint64_t nonce, bool (*still_leads)(void *arg), void *arg,
                     struct ps_error *err);

/* Fills the other fields of a hello from the meeting. */
void psc_hello_fill(struct psc_hello *h, uint8_t kind, const struct psc_meeting *m);

#endif
