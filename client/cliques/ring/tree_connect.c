/* Connects the tree of a running ring: the ring sends the addresses of all members to each; each connects to
 * its parent, once for each link and once for the beat, and accepts its children. A caller must know the
 * job's number, which only the members know. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cliques/rendezvous/pending_peers.h"
#include "client/cliques/ring/tree.h"

/* The addresses of all members: their sum, one value for each byte. [members][PSC_ADDRESS_BYTES], to be
 * freed.
 */
static int share_addresses(struct psc_ring *r, const char own[PSC_ADDRESS_BYTES], float **out,
                           struct ps_error *err)
{
    size_t n = (size_t)r->members * PSC_ADDRESS_BYTES;
    float *all = calloc(n, sizeof *all);
    if (all == NULL) /* the others are told when this ring is closed */
        return ps_fail(err, PSC_ENOMEM, "no memory for the addresses of %u members", r->members);
    for (size_t i = 0; own[i] != 0; i++)
        all[(size_t)r->rank * PSC_ADDRESS_BYTES + i] = (float)(unsigned char)own[i];
    const struct psc_collective sum = {
        .kind = PSC_ALLREDUCE, .data = all, .n = n, .codec = ps_codec_named("raw")};
    int rc = psc_ring_run(r, &sum, err);
    if (rc != PSC_OK)
        free(all);
    else
        *out = all;
    return rc;
}

/* The received address of a member: printable and terminated, or -EPROTO. */
static int read_address(const float *from, char out[PSC_ADDRESS_BYTES])
{
    for (size_t i = 0; i < PSC_ADDRESS_BYTES; i++) {
        if (from[i] == 0 && i > 0) {
            out[i] = 0;
            return 0;
        }
        if (!(from[i] > 32 && from[i] < 127 && floorf(from[i]) == from[i]))
            return -EPROTO;
        out[i] = (char)from[i];
    }
    return -EPROTO;
}

/* Connection i of a neighbour: the links, then the beat's. */
static int *end_of(struct psc_ring *r, uint32_t peer, uint32_t i)
{
    return i < r->links ? &r->tree->link[i].fd[peer] : &r->beat.peer[PSC_BEAT_TREE + peer].fd;
}

static int call_parent(struct psc_ring *r, const float *addresses, double deadline_s)
{
    uint32_t peer = r->tree->n_peers - 1, rank = r->tree->rank[peer];
    unsigned char bytes[PSC_HELLO_BYTES];
    char address[PSC_ADDRESS_BYTES];
    struct ps_error why;
    if (read_address(addresses + (size_t)rank * PSC_ADDRESS_BYTES, address) < 0)
        return psc_ring_fail(r, "rank %u sent no valid address", rank);
    for (uint32_t i = 0; i <= r->links; i++) {
        struct psc_hello h = {.kind = i == r->links ? PSC_HELLO_TREE_BEAT : PSC_HELLO_TREE_LINK,
                              .rank = (int32_t)r->rank,
                              .nonce = r->job,
                              .members = r->members,
                              .links = r->links,
                              .link = i == r->links ? 0 : i,
                              .segment_bytes = r->segment_bytes};
        memcpy(h.name, r->name, sizeof h.name);
        int *fd = end_of(r, peer, i), rc = psc_connect(address, deadline_s, r->stop_fd, fd, &why);
        psc_hello_pack(&h, bytes);
        if (rc == 0 && (rc = psc_send_all(*fd, bytes, sizeof bytes, deadline_s, r->stop_fd)) < 0)
            ps_fail(&why, rc, "%s: %s", address, strerror(-rc));
        if (rc < 0)
            return psc_ring_fail(r, "rank %u, the parent in the tree, is gone: %.200s", rank, why.text);
    }
    return PSC_OK;
}

/* The child that sent the hello; n_peers: it is not a child's. */
static uint32_t child_of(const struct psc_ring *r, const struct psc_hello *h)
{
    const struct psc_tree *t = r->tree;
    bool ours = (h->kind == PSC_HELLO_TREE_LINK || h->kind == PSC_HELLO_TREE_BEAT) && h->nonce == r->job &&
                h->members == r->members && h->links == r->links;
    for (uint32_t i = 0; i < t->n_peers && ours; i++)
        if (t->rank[i] == (uint32_t)h->rank && t->rank[i] > r->rank)
            return i;
    return t->n_peers;
}

static int let_children_in(struct psc_ring *r, struct psc_pending_peers *pending, double deadline_s)
{
    unsigned char bytes[PSC_REPLY_BYTES];
    uint32_t children = r->tree->n_peers - (r->rank > 0);
    for (uint32_t come = 0; come < children * (r->links + 1);) {
        struct psc_hello h;
        int fd, rc = psc_ring_wait_hello(r, pending, deadline_s, &fd, &h);
        if (rc < 0)
            return psc_ring_fail(r, "not all children of rank %u in the tree connected: %s", r->rank,
                                 rc == -EAGAIN ? "timed out" : strerror(-rc));
        uint32_t peer = child_of(r, &h);
        int *end = peer < r->tree->n_peers
                       ? end_of(r, peer, h.kind == PSC_HELLO_TREE_BEAT ? r->links : h.link)
                       : NULL;
        if (end == NULL || *end >= 0) {
            psc_turn_away(fd, PSC_REPLY_REFUSED,
                          "only a child in the tree of this clique may connect here, and only once");
            continue;
        }
        *end = fd;
        come++;
        psc_reply_pack(&(struct psc_reply){.kind = PSC_REPLY_WELCOME, .rank = h.rank}, bytes);
        psc_send_all(fd, bytes, sizeof bytes, deadline_s, r->stop_fd); /* the first call reports it */
    }
    return PSC_OK;
}

static int hear_parent(struct psc_ring *r, double deadline_s)
{
    uint32_t peer = r->tree->n_peers - 1;
    unsigned char bytes[PSC_REPLY_BYTES];
    for (uint32_t i = 0; i <= r->links; i++) {
        struct psc_reply reply;
        struct ps_error why;
        int rc = psc_recv_all(*end_of(r, peer, i), bytes, sizeof bytes, deadline_s, r->stop_fd);
        if (rc == 0 && (rc = psc_reply_parse(&reply, bytes, &why)) == 0 && reply.kind == PSC_REPLY_WELCOME)
            continue;
        return psc_ring_fail(r, "rank %u, the parent in the tree, refuses rank %u: %s", r->tree->rank[peer],
                             r->rank, rc < 0 ? strerror(-rc) : reply.text);
    }
    return PSC_OK;
}

static struct psc_tree *create(const struct psc_ring *r)
{
    struct psc_tree *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    for (uint32_t i = 0; i < PSC_MAX_LINKS; i++)
        for (uint32_t k = 0; k < PSC_TREE_PEERS; k++)
            t->link[i].fd[k] = -1;
    for (uint32_t bit = 1; r->rank + bit < r->members && (r->rank & bit) == 0; bit <<= 1)
        t->rank[t->n_peers++] = r->rank + bit;
    if (r->rank > 0)
        t->rank[t->n_peers++] = psc_tree_parent(r->rank);
    return t;
}

void psc_tree_destroy(struct psc_tree *t, uint32_t links, double farewell_s)
{
    int fds[PSC_MAX_LINKS * PSC_TREE_PEERS];
    size_t n = 0;
    if (t == NULL)
        return;
    for (uint32_t i = 0; i < links; i++) {
        for (uint32_t k = 0; k < t->n_peers; k++)
            fds[n++] = t->link[i].fd[k];
        free(t->link[i].store);
    }
    psc_close_gently(fds, n, farewell_s);
    free(t);
}

/* From now on the neighbours in the tree receive this member's beat. */
static int widen_beat(struct psc_ring *r, struct ps_error *err)
{
    const struct psc_tree *t = r->tree;
    psc_beat_stop(&r->beat);
    for (uint32_t k = 0; k < t->n_peers; k++)
        r->beat.peer[PSC_BEAT_TREE + k].rank = t->rank[k];
    r->beat.n_peers = PSC_BEAT_TREE + t->n_peers;
    for (uint32_t i = 0; i < r->links; i++)
        for (uint32_t k = 0; k < t->n_peers; k++)
            psc_keep_alive(t->link[i].fd[k], r->timeout_ms);
    return psc_beat_start(&r->beat, err);
}

static int connect_all(struct psc_ring *r, int listen_fd, const float *addresses, double deadline_s)
{
    struct psc_pending_peers pending;
    psc_pending_peers_init(&pending, listen_fd, r->stop_fd);
    int rc = r->rank > 0 ? call_parent(r, addresses, deadline_s) : PSC_OK;
    if (rc == PSC_OK)
        rc = let_children_in(r, &pending, deadline_s);
    if (rc == PSC_OK && r->rank > 0)
        rc = hear_parent(r, deadline_s);
    psc_pending_peers_finish(&pending);
    return rc;
}

int psc_tree_join(struct psc_ring *r, double deadline_s, struct ps_error *err)
{
    char address[PSC_ADDRESS_BYTES];
    float *addresses = NULL;
    int listen_fd, rc = psc_listen(r->listen, &listen_fd, address, err);
    if (rc < 0)
        return PSC_ESYSTEM;
    if ((rc = share_addresses(r, address, &addresses, err)) == PSC_OK && (r->tree = create(r)) == NULL)
        rc = ps_fail(err, PSC_ENOMEM, "no memory for a tree");
    static const struct psc_collective barrier = {.kind = PSC_BARRIER};
    r->op = &barrier; /* the call that errors name */
    if (rc == PSC_OK)
        rc = connect_all(r, listen_fd, addresses, deadline_s);
    if (rc == PSC_OK)
        rc = widen_beat(r, err);
    free(addresses);
    close(listen_fd);
    /* No member returns before all are connected. */
    return rc == PSC_OK ? psc_ring_run(r, &barrier, err) : rc;
}
