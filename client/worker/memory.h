/* memory.h: where the handle's vectors lie. */
#ifndef PSC_WORKER_MEMORY_H
#define PSC_WORKER_MEMORY_H

#include "client/internal.h"

/* psc.buffers: the first is the library's own x, if it keeps one; those of psc_alloc follow. */
enum { PSC_BUFFER_OWN = 0 };

/* [n_floats] zeros that the library keeps; its own x lies in a buffer, which servers can reach. False: no
 * memory. */
bool psc_kept_make(struct psc *c, enum psc_kept k);
/* All but these (PSC_KEPT bits). */
void psc_kept_drop_but(struct psc *c, unsigned keeps);
/* All of them, and what psc_alloc gave. */
void psc_buffers_finish(struct psc *c);
/* Whether all these bytes lie in one buffer that another process can map. */
bool psc_buffers_share(const struct psc *c, const void *begin, size_t bytes);

#endif
