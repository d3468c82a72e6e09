/* collective_cases.h: every collective with every type and operation, in place and out of place, against a
 * plain computation of the same. For members of cliques of any kind, threads and processes. */
#ifndef TEST_CLIENT_CLIQUES_COLLECTIVE_CASES_H
#define TEST_CLIENT_CLIQUES_COLLECTIVE_CASES_H

#include <stddef.h>

#include "client/psclique.h"

/* Makes all calls of one n, and checks what this member gets. The values are small whole numbers, which every
 * type holds exactly, so that no order of additions matters. NULL: all is right; else a sentence, valid until
 * the thread's next call. */
const char *collective_cases_run(struct psc_clique *q, size_t n);

/* All members call it: whether they have the same bytes. */
const char *collective_same_bytes(struct psc_clique *q, const void *data, size_t n);

#endif
