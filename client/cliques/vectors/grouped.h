/* grouped.h: the sum over several vectors of each member, in parts that overlap: the grouped bucket algorithm
 * and the multi-ring of Mamidala et al. 2018.
 *
 *     the member's vectors:   sum 0 | sum 1 | sum 2 | copy 0, sum 3 | copy 1 ...
 *     the clique:                   | part 0        | part 1        | part 2 ...
 *
 * grouped.c orders the parts. How vectors are summed and copied is the caller's: vectors.c does it in one
 * thread, devices.c in a thread for each. */
#ifndef PSC_CLIQUES_VECTORS_GROUPED_H
#define PSC_CLIQUES_VECTORS_GROUPED_H

#include <stddef.h>

#include "client/cliques/clique.h"

struct psc_grouped {
    struct psc_clique *q; /* of the members; NULL: another thread of this member calls it */
    /* The whole sum, in the first vector: PSC_ALLREDUCE, or PSC_REDUCE to the member `root`. */
    struct psc_collective op;
    size_t part; /* values of a part */
    /* Sums values [at, at + n) of the member's vectors into the first. PSC_OK, or a result with a sentence.
     */
    int (*sum)(void *arg, size_t at, size_t n, struct ps_error *err);
    /* Copies values [at, at + n) of the first vector into the others. NULL: they do not receive the result.
     */
    int (*copy)(void *arg, size_t at, size_t n, struct ps_error *err);
    void *arg;
};

/* Values of a part in a sum of n. wanted: 0: the library's choice. The result depends on nothing else but the
 * clique's stripe: all threads and members make the same parts. */
size_t psc_grouped_part(size_t n, size_t wanted, size_t stripe);

/* Runs the sum to its end. PSC_OK, or a result with a sentence; the clique uses no value of the vector
 * afterwards. */
int psc_grouped_run(const struct psc_grouped *g, struct ps_error *err);

/* The kinds of memory that can be summed. PSC_OK; PSC_EUNSUPPORTED or PSC_EINVAL with a sentence that begins
 * with `what`. memory: NULL: "host". */
int psc_memory_check(const char *memory, const char *what, struct ps_error *err);

#endif
