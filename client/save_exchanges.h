/* save_exchanges.h: the exchanges that are under way (parameters.overlap) as a part of a saved state. For
 * save.c. */
#ifndef PSC_SAVE_EXCHANGES_H
#define PSC_SAVE_EXCHANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "client/save_format.h"

struct psc;

/* Waits for those that are under way. Returns whether any answers are still to be applied. */
bool psc_exchanges_wait(struct psc *c);
/* After that, if there are any: adds to the head what it says of their messages. A server that comes back
 * from a checkpoint before them gets them again. Without overlap of many steps rules that answer into x save
 * before an exchange begins: they have no message. */
void psc_exchanges_describe(const struct psc *c, struct psc_state_head *h);
/* The table that the head announces, to be freed by the caller; NULL: none. False: no memory. */
bool psc_exchanges_table(const struct psc *c, const struct psc_state_head *h, unsigned char **out);
/* Restores the position in the period and the exchanges, after the vectors. */
void psc_exchanges_restore(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p);

static inline uint32_t psc_state_fragments(const struct psc_state_head *h)
{
    return h->fragments > 1 ? h->fragments : 1;
}

#endif
