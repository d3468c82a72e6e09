/* psclique_vectors.h: members of a clique that have several vectors, one for each of their devices. The
 * clique sees one member. Sums are over the vectors of all members, and every vector receives the result.
 *
 * A sum is made in parts (the rings of Mamidala et al. 2018, grouped bucket algorithm). While one part is
 * summed over the members, the next one is summed over the member's own vectors, and the result of an earlier
 * one is copied into them.
 *
 * The order of a sum is fixed: first the member's vectors, in the order of a binary tree; then the members,
 * as the clique does. So the same vectors give the same bits, run after run. They are the bits of one member
 * for each vector if the clique sums by the tree and the number of vectors is a power of two: member m with D
 * vectors takes the place of the members m D to m D + D - 1. With the ring they agree up to rounding. A
 * clique by "auto" chooses for each part by itself, and may choose differently in another run.
 *
 * There are two ways to call it. psc_vectors_... is for one thread that has all vectors of the member.
 * psc_devices_open is for a thread for each device, which makes all calls of psclique.h, or has a psc of its
 * own with psc_options.clique.
 *
 * All members have equally many vectors. Functions of type int return as those of psclique.h. */
#ifndef PSCLIQUE_VECTORS_H
#define PSCLIQUE_VECTORS_H

#include "psclique.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PSC_MAX_VECTORS 64 /* of a member */

/* A vector of the member's. Fields that are 0 have their defaults. */
struct psc_vector {
    float *data; /* the caller's; valid until psc_vectors_close */
    /* The kind of memory. "host", or NULL. "cuda" is refused until the library can sum there. */
    const char *memory;
    void *stream;   /* of "cuda": the stream that fills the vector; NULL with "host" */
    int32_t device; /* of "cuda": its number; 0 with "host" */
    uint32_t flags; /* 0 */
};

struct psc_vectors_options {
    size_t size;                      /* set by psc_vectors_options_init */
    size_t vector_size;               /* likewise: of struct psc_vector, as the caller knows it */
    const struct psc_vector *vectors; /* [n_vectors]; read during psc_vectors_open only */
    size_t n_vectors;                 /* 1 to PSC_MAX_VECTORS, the same at every member */
    size_t n_floats;                  /* in each vector */
    /* Of a part, rounded up to whole stripes of the clique; 0: a 32nd of the sum, at least 2^18. The same at
     * every member. With as many as the sum has, nothing overlaps. 0 */
    size_t part_floats;
};

/* Fills every field with its default. size: sizeof *opt. */
void psc_vectors_options_init(struct psc_vectors_options *opt, size_t size);

struct psc_vectors;

/* q: the member's, which is used until psc_vectors_close and stays the caller's. It may have one member. *out
 * after a failure: valid for psc_vectors_error and psc_vectors_close; NULL: no memory. PSC_EINVAL;
 * PSC_EUNSUPPORTED: a kind of memory that the library cannot sum. */
int psc_vectors_open(struct psc_clique *q, const struct psc_vectors_options *opt, struct psc_vectors **out);

/* Replaces the floats [begin, begin + count) of all vectors by their sum. All members make the same call, and
 * no other one of the clique meanwhile. codec: as of psc_allreduce; the sum over the member's own vectors is
 * made in float32. After a failure of the clique the floats are undefined. */
int psc_vectors_allreduce(struct psc_vectors *v, size_t begin, size_t count, const char *codec);

const char *psc_vectors_error(const struct psc_vectors *v); /* about the last failure, or "". Owned by v */

/* NULL is allowed. */
void psc_vectors_close(struct psc_vectors *v);

/* A thread for each device. */
struct psc_devices_options {
    size_t size; /* set by psc_devices_options_init */
    uint32_t
        devices; /* of this member, 1 to PSC_MAX_VECTORS, the same at every member; there is no default */
    uint32_t step_ms;   /* how long a call waits for a device's thread that does not make it, at least 100.
                           3600000 */
    const char *memory; /* the kind of memory of the arrays of all calls: "host", or NULL. NULL */
};

/* Fills every field with its default. size: sizeof *opt. */
void psc_devices_options_init(struct psc_devices_options *opt, size_t size);

/* Fills out[devices] with a handle for each device: of rank m D + d in a clique of M D members, where q is
 * member m of M, and D is devices. A handle is for one thread, which closes it. All arrays of one call have
 * the same length. q stays the caller's. Until all handles are closed only they use it, and a failure of one
 * device's call breaks it. After a failure the contents of out are undefined. Errors: PSC_EINVAL: an option
 * is not allowed; PSC_EUNSUPPORTED: such a kind of memory; PSC_ENOMEM. */
int psc_devices_open(struct psc_clique *q, const struct psc_devices_options *opt, struct psc_clique **out);

#ifdef __cplusplus
}
#endif
#endif
