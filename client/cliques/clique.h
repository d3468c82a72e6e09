/* clique.h: what every kind of clique is to the rest of the library.
 *
 * A kind runs one collective at a time, to its end, in whatever thread calls it. clique.c, which is all
 * kinds', keeps those that were started in a queue and has a communication thread run them in their order;
 * a call that finds the queue empty runs in the caller's thread where the kind allows that, without waking
 * anybody. After its first failure a clique is broken: nothing is run any more. */
#ifndef PSC_CLIQUES_CLIQUE_H
#define PSC_CLIQUES_CLIQUE_H

#include <stdbool.h>

#include "client/psclique.h"
#include "proto/codecs/codec.h"
#include "proto/error.h"

enum psc_collective_kind { PSC_ALLREDUCE, PSC_REDUCE, PSC_BROADCAST, PSC_BARRIER };

struct psc_collective {
    enum psc_collective_kind kind;
    void *data;                   /* float [n]; of a broadcast, n bytes */
    size_t n;                     /* may be 0, or less than the number of members */
    int root;                     /* of REDUCE and BROADCAST */
    const struct ps_codec *codec; /* of ALLREDUCE and REDUCE */
};

struct psc_clique_ops {
    size_t size; /* sizeof (struct psc_clique_ops), as the library that has the kind knows it */
    const char *name;
    bool any_thread; /* run may be called by the caller's thread while the communication thread is idle */
    /* Runs the collective to its end: PSC_OK, or PSC_ECLIQUE (PSC_ENOMEM, PSC_ESYSTEM) with a sentence.
     * Never called with fewer than two members. */
    int (*run)(void *state, const struct psc_collective *op, struct ps_error *err);
    /* The floats of a stripe: a vector that is summed by several calls, each from a multiple of it on, ends
     * with the bits of one call for all; over MPI in a codec. NULL: the kind does not promise that. */
    size_t (*stripe)(const void *state);
    /* Moves sums by this enum psc_algorithm_kind from now on, the same at every member, which all call it.
     * What fails breaks the clique. NULL: the kind has a way of its own. */
    int (*use)(void *state, uint8_t algorithm, struct ps_error *err);
    /* Any thread: makes a collective in progress fail soon. Called once, before destroy. */
    void (*give_up)(void *state);
    void (*destroy)(void *state);
};

/* Takes ownership of `state`, also on failure: PSC_ENOMEM; PSC_EUNSUPPORTED: the kind is of another version.
 */
int psc_clique_create(const struct psc_clique_ops *kind, void *state, int rank, int members,
                      struct psc_clique **out);
/* The kind's stripe; 1: it has none, or there is one member. */
size_t psc_clique_stripe(const struct psc_clique *q);
/* struct psc_clique_ops.use, while nothing is under way. PSC_EUNSUPPORTED: the kind has a way of its own, and
 * the name is not "ring". */
int psc_clique_use(struct psc_clique *q, const char *algorithm);
/* A handle that only carries an error's sentence; NULL: no memory. */
struct psc_clique *psc_clique_failed(const struct ps_error *err);

#endif
