/* leader.h: a meeting that one of the members leads: the others say hello to it, and when all have come it
 * gives out the ranks, or tells everybody why not. */
#ifndef PSC_CLIQUES_RENDEZVOUS_LEADER_H
#define PSC_CLIQUES_RENDEZVOUS_LEADER_H

#include <stdbool.h>

#include "client/cliques/rendezvous/rendezvous.h"

/* Leads until everybody has come; nonce is what the hellos must carry. still_leads is asked every now and
 * then, and before the end: when false, everybody is told to look again and -ESTALE is returned. */
int psc_meeting_lead(struct psc_meeting *m, uint64_t nonce, bool (*still_leads)(void *arg), void *arg,
                     struct ps_error *err);

/* Fills the rest of a hello from the meeting. */
void psc_hello_fill(struct psc_hello *h, uint8_t kind, const struct psc_meeting *m);


#endif
