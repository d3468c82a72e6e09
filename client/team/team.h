/* team.h: threads that share one pass over a long vector with the calling thread.
 *
 * They are started once and sleep between passes. A pass neither allocates nor locks. If another thread has
 * the team, or the vector is short, the caller makes the pass alone. The result is the same bits as with one
 * thread. */
#ifndef PSC_TEAM_TEAM_H
#define PSC_TEAM_TEAM_H

#include <stdint.h>

#define PSC_MAX_THREADS 1024
/* Below this many floats waking a thread costs more than the pass. */
#define PSC_TEAM_FLOATS (UINT64_C(1) << 18)

struct psc_team;

/* `count` floats from `begin` on. */
typedef void psc_pass(void *arg, uint64_t begin, uint64_t count);

/* threads: with the caller's, 2 to PSC_MAX_THREADS. 0, -ENOMEM, or the error of pthread_create. */
int psc_team_create(uint32_t threads, struct psc_team **out);
/* NULL is allowed. No pass may be running. */
void psc_team_destroy(struct psc_team *t);

/* Makes the pass over n floats in pieces, and returns when all are done. t NULL: in the calling thread alone.
 * Any thread. */
void psc_team_run(struct psc_team *t, uint64_t n, psc_pass *pass, void *arg);

#endif
