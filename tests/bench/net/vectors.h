/* vectors.h: x, its momentum v and the gradient g of a measured net, where its backend has them: on the host,
 * or on a GPU. With a server, x and g are a worker's of its job. */
#ifndef BENCH_NET_VECTORS_H
#define BENCH_NET_VECTORS_H

#include "client/memory/memory.h"
#include "client/psclient.h"
#include "client/team/team.h"
#include "nets/net.h"

struct bench_vectors {
    size_t n;
    float *x, *v, *g;
    struct psc_memory_of memory;
    struct psc_team *team; /* of the update on the host; NULL: one thread */
    struct psc *session;   /* makes the steps, with what it needs of a momentum; NULL: no server */
};

/* x is the net's initial point, v and g are 0. -ENOMEM, -ENOTSUP, -EIO with a sentence; destroy it then, too.
 */
int bench_vectors_create(const struct cnn_model *model, const struct cnn_net *net, uint32_t threads,
                         struct bench_vectors *out, struct ps_error *err);
/* Likewise, as a worker of the psd at `server`: one tensor. */
int bench_vectors_join(const struct cnn_model *model, const struct cnn_net *net, const char *server,
                       struct bench_vectors *out, struct ps_error *err);
void bench_vectors_destroy(struct bench_vectors *b);
/* v <- mu v - eta g; x <- x + v; with a server its method's step. On a GPU it is enqueued in the net's
 * stream. -EIO with a sentence: the GPU, or the session, has failed. */
int bench_vectors_update(struct bench_vectors *b, struct ps_error *err);
/* Returns when the updates are done. Errors likewise. */
int bench_vectors_wait(struct bench_vectors *b, struct ps_error *err);
/* Seconds that updates have spent in exchanges. 0 without a server. */
double bench_vectors_exchange_s(const struct bench_vectors *b);

#endif
