/* memory.h: where the handle's vectors lie. */
#ifndef PSC_WORKER_MEMORY_H
#define PSC_WORKER_MEMORY_H

struct psc;

/* psc.buffers: the first is the library's own x, if it keeps one; those of psc_alloc follow. */
enum { PSC_BUFFER_OWN = 0 };

/* All of them, and what psc_alloc gave. */
void psc_buffers_finish(struct psc *c);

#endif
