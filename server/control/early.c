#include "server/control/early.h"

#include <stdlib.h>

enum {
    MOST_BYTES = 8192, /* of a Hello: bounds what a peer can store */
    FRESH_MS = 15000   /* a client repeats its Hello within 12 s, on another connection */
};

static struct psd_early_hello *place_of(struct psd_early *e, uint64_t token, uint32_t most)
{
    for (uint32_t i = 0; i < e->n; i++)
        if (token != 0 && e->first[i].token == token)
            return &e->first[i];
    if (e->first == NULL)
        e->first = calloc(most, sizeof *e->first);
    if (e->first == NULL || e->n >= most)
        return NULL;
    struct psd_early_hello *h = &e->first[e->n++];
    zmq_msg_init(&h->id);
    zmq_msg_init(&h->body);
    return h;
}

void psd_early_keep(struct psd_early *e, zmq_msg_t *id, zmq_msg_t *body, uint64_t token, uint32_t most,
                    uint64_t now_ms)
{
    struct psd_early_hello *h = zmq_msg_size(body) <= MOST_BYTES ? place_of(e, token, most) : NULL;
    if (h == NULL)
        return;
    zmq_msg_copy(&h->id, id);
    zmq_msg_copy(&h->body, body);
    h->token = token;
    h->came_ms = now_ms;
}

struct psd_early psd_early_take(struct psd_early *e)
{
    struct psd_early all = *e;
    *e = (struct psd_early){.n = 0};
    return all;
}

bool psd_early_is_fresh(const struct psd_early_hello *h, uint64_t now_ms)
{
    return now_ms - h->came_ms <= FRESH_MS;
}

void psd_early_finish(struct psd_early *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        zmq_msg_close(&e->first[i].id);
        zmq_msg_close(&e->first[i].body);
    }
    free(e->first);
    *e = (struct psd_early){.n = 0};
}
