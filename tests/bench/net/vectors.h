/* vectors.h: x, its momentum v and the gradient g of a measured net, where its backend has them: on the host,
 * or on a GPU. */
#ifndef BENCH_NET_VECTORS_H
#define BENCH_NET_VECTORS_H

#include "client/memory/memory.h"
#include "client/team/team.h"
#include "nets/model.h"

struct bench_vectors {
    size_t n;
    float *x, *v, *g;
    struct psc_memory_of memory;
    struct psc_team *team; /* of the update on the host; NULL: one thread */
};

/* x is the net's initial point, v and g are 0. -ENOMEM, -ENOTSUP, -EIO with a sentence; destroy it then, too.
 */
int bench_vectors_create(const struct cnn_model *model, const char *backend, uint32_t threads,
                         struct bench_vectors *out, struct ps_error *err);
void bench_vectors_destroy(struct bench_vectors *b);
/* v <- mu v - eta g; x <- x + v. Returns when it is done. -EIO with a sentence: the GPU has failed. */
int bench_vectors_update(struct bench_vectors *b, struct ps_error *err);

#endif
