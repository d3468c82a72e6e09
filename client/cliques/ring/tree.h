/* tree.h: a binomial tree over the members of a ring, for short vectors, where messages cost more than bytes:
 * a sum takes 2 log2 p messages one after the other, and 2 (p - 1) in the ring.
 *
 * Member 0 is the top. The parent of a member is the member whose rank has the lowest bit of its own cleared;
 * so its children are its rank + 1, + 2, + 4, ... below that bit. Each link and the beat have a connection of
 * their own between parent and child. tree.c moves segments, tree_connect.c connects.
 *
 * A sum flows from all members to the root of the call, and the result flows back. The root is member 0,
 * except for a reduce to or a broadcast from another member: then the same connections form a tree with that
 * root. Each member adds to its own values those of its children, in the order of their ranks, then those of
 * its parent. So the bits of a sum depend only on the members and the root.
 */
#ifndef PSC_CLIQUES_RING_TREE_H
#define PSC_CLIQUES_RING_TREE_H

#include "client/cliques/ring/ring.h"

/* One of the parallel trees: its connections, and its part of a call. The time of a flow is its segment.
 */
struct psc_tree_link {
    int fd[PSC_TREE_PEERS];
    struct psc_span part;
    uint32_t segments;
    struct psc_flow gather; /* towards the root: from neighbour `from`, one after the other */
    uint32_t from;
    struct psc_flow pass;                   /* the sum of those and this member's, to the next on the way */
    struct psc_flow result;                 /* from there: the result */
    struct psc_flow spread[PSC_TREE_PEERS]; /* the result, to the others */
    uint32_t encoded;                       /* at the root: segments of the result that were encoded */
    unsigned char gathered[PSC_HEAD_BYTES], resulted[PSC_HEAD_BYTES]; /* the received heads */
    unsigned char *store; /* encoded segments of the result: two */
    size_t slot_bytes;
};

struct psc_tree {
    uint32_t n_peers; /* the children in the order of their ranks, then the parent */
    uint32_t rank[PSC_TREE_PEERS];
    struct psc_tree_link link[PSC_MAX_LINKS];
    /* Of the current call. */
    uint32_t towards; /* the neighbour on the way to the root; n_peers: this member is the root */
    bool up, down;    /* values flow to the root; from the root */
    uint32_t active;  /* links that carry a part */
};

extern const struct psc_algorithm psc_algorithm_tree;

/* The number of bytes up to which a call of this many members is faster in the tree than in the ring: alpha
 * in seconds, beta in seconds a byte. */
uint64_t psc_tree_bytes(uint32_t members, double alpha, double beta);

/* The parent of a member above 0. */
static inline uint32_t psc_tree_parent(uint32_t rank)
{
    return rank & (rank - 1);
}

/* Connects r->tree, before the deadline. The ring runs. PSC_ECLIQUE, PSC_ENOMEM, PSC_ESYSTEM. */
int psc_tree_join(struct psc_ring *r, double deadline_s, struct ps_error *err);
/* Closes what is connected and frees it. NULL is allowed. */
void psc_tree_destroy(struct psc_tree *t, uint32_t links, double farewell_s);
/* For abort.c: tells all neighbours in the tree; nothing is sent after that. */
void psc_tree_send_error(struct psc_ring *r, const unsigned char *news, double deadline_s);
/* Connection i of links x neighbours, if no part of a segment has been read from it; else -1. */
int psc_tree_fd_at_head(const struct psc_tree *t, uint32_t i);

#endif
