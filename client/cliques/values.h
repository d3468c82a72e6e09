/* values.h: the types and operations of collectives. libpsclique-mpi has them, too. */
#ifndef PSC_CLIQUES_VALUES_H
#define PSC_CLIQUES_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "client/psclique.h"

enum { PSC_N_COLLECTIVES = PSC_ALLGATHER + 1, PSC_N_TYPES = PSC_BYTES + 1, PSC_N_OPERATIONS = PSC_MAX + 1 };

/* A type. Where it has no operations, fold and divide are NULL. */
struct psc_values {
    const char *name;  /* of the type: "float64" */
    const char *units; /* in a sentence, after a number: "floats" */
    size_t bytes;
    /* x <- x op y for n values, by enum psc_operation; PSC_MEAN adds. The arrays do not overlap, and both
     * begin at a multiple of `bytes`. */
    void (*fold[PSC_N_OPERATIONS])(void *restrict x, const void *restrict y, size_t n);
    void (*divide)(void *x, size_t n, int by);
};

/* The row of an enum psc_type. NULL: there is none. */
const struct psc_values *psc_values_of(uint32_t type);
/* "sum", "mean", "min", "max"; static. */
const char *psc_operation_name(uint32_t operation);
/* "allreduce", ..., of an enum psc_collective_kind; static. */
const char *psc_call_name(uint32_t kind);
/* Whether values are combined: the call has an operation. */
bool psc_call_reduces(uint32_t kind);
/* Whether every member has a part of n values in one array of all. */
bool psc_call_has_parts(uint32_t kind);
/* x <- x | y, n bytes. */
void psc_fold_bits(void *restrict x, const void *restrict y, size_t n);

#endif
