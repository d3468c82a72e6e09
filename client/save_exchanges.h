/* save_exchanges.h: the exchanges that are under way (parameters.overlap) as a part of a saved state. For
 * save.c. */
#ifndef PSC_SAVE_EXCHANGES_H
#define PSC_SAVE_EXCHANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "client/save_format.h"

struct psc;

/* Waits for the sums of a clique that are in progress. A sum whose members have failed fails the call,
 * because the state would have it as if it were whole, or lack it where the state of another member has it;
 * unless it is that of a step that was not made. */
int psc_exchanges_gather(struct psc *c);
/* Waits for those that are under way. Returns whether any answers are still to be applied. */
bool psc_exchanges_wait(struct psc *c);
/* After that, if there are any: adds to the head what it says of their messages. A server that comes back
 * from a checkpoint before them gets them again. Without overlap of many steps rules that answer into x save
 * before an exchange begins: they have no message. */
void psc_exchanges_describe(const struct psc *c, struct psc_state_head *h);
/* After that: the version of the center that the state goes with. newest: that of the newest answer. Under
 * rounds this may be the next one, of a cycle of which all messages so far are on their way and are sent
 * again: the state goes with the center before it. */
uint64_t psc_exchanges_center(const struct psc *c, uint64_t newest);
/* What answers that are moves have told of the center (psc_wire.known): the chunks of the vector, and the
 * bits of enum psc_state_chunk of each, to be freed by the caller. False: no memory. */
uint32_t psc_known_chunks(const struct psc *c);
bool psc_known_describe(const struct psc *c, unsigned char **out);
/* The table that the head announces, to be freed by the caller; NULL: none. False: no memory. */
bool psc_exchanges_table(const struct psc *c, const struct psc_state_head *h, unsigned char **out);
/* Restores the position in the period, the exchanges and what is known of the center, after the vectors. */
void psc_exchanges_restore(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p);

static inline uint32_t psc_state_fragments(const struct psc_state_head *h)
{
    return h->fragments > 1 ? h->fragments : 1;
}

#endif
