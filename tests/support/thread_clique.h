/* thread_clique.h: cliques whose members are threads of one process: the simplest kind, for tests of the
 * users of cliques. Sums are in rank order. */
#ifndef TEST_SUPPORT_THREAD_CLIQUE_H
#define TEST_SUPPORT_THREAD_CLIQUE_H

#include <stddef.h>

#include "client/psclique.h"

/* Fills out[members]; each handle is for one thread. */
int circle_open(int members, struct psc_clique **out);

/* What the member of rank 0 of a process's circles has run. To be read when its threads have ended. */
enum { CIRCLE_CALLS = 512 };
struct circle_call {
    enum psc_collective_kind kind;
    size_t n; /* values; bytes of a broadcast */
};
struct circle_log {
    struct circle_call calls[CIRCLE_CALLS];
    size_t n; /* beyond CIRCLE_CALLS they are only counted */
};
const struct circle_log *circle_log(void);
/* If set, the member of rank 0 calls it before each of its collectives. */
struct psc_collective;
extern void (*circle_before)(const struct psc_collective *op);

#endif
