/* thread_clique.h: cliques whose members are threads of one process: the simplest kind, for tests of the
 * users of cliques. Sums are in rank order. */
#ifndef TEST_SUPPORT_THREAD_CLIQUE_H
#define TEST_SUPPORT_THREAD_CLIQUE_H

#include "client/psclique.h"

/* Fills out[members]; each handle is for one thread. */
int circle_open(int members, struct psc_clique **out);

#endif
