/* watchdog.h: a thread that checks whether a call into MPI has waited for too long. */
#ifndef PSC_CLIQUES_MPI_WATCHDOG_H
#define PSC_CLIQUES_MPI_WATCHDOG_H

#include "client/psclique_mpi.h"

struct psc_watchdog;

/* who: names the process in the sentence, copied. */
int psc_watchdog_create(const struct psc_mpi_options *opt, const char *who, struct psc_watchdog **out);
/* A wait begins, or there was progress. fmt: names the call, for the error. Does not allocate. */
void psc_watchdog_wait(struct psc_watchdog *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* How long the calls from now on may wait; timeout_ms of the options at first. */
void psc_watchdog_limit(struct psc_watchdog *w, uint32_t limit_ms);
void psc_watchdog_rest(struct psc_watchdog *w); /* no call waits */
void psc_watchdog_destroy(struct psc_watchdog *w);

#endif
