/* beat.h: heartbeats, which distinguish computing from silence.
 *
 * Four times per timeout_ms each member of a ring tells its neighbours, in the ring and in the tree, that its
 * process runs, whether it computes or waits in a call, and for how long it has been outside the ring's
 * calls. A separate thread sends the beats over separate connections: neither a computing caller nor a
 * blocked link delays a beat, and the thread never waits for a peer. A member that waits in a call tolerates
 * that a neighbour computes, for step_ms, but not that it is silent. All other members wait for a neighbour
 * that waits itself; the neighbour of the silent member reports the error to all.
 *
 * The error that broke the clique is sent over the same connections, so that it passes members that compute.
 * Nothing is sent after it. */
#ifndef PSC_CLIQUES_RING_BEAT_H
#define PSC_CLIQUES_RING_BEAT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "client/cliques/wire.h"

enum psc_beat_direction { PSC_BEAT_NEXT, PSC_BEAT_PREV, PSC_BEAT_DIRECTIONS };

/* The neighbours in the ring, then those in the tree, a parent and a child for each power of
 * two. */
enum {
    PSC_TREE_PEERS = 11,
    PSC_BEAT_TREE = PSC_BEAT_DIRECTIONS,
    PSC_BEAT_PEERS = PSC_BEAT_TREE + PSC_TREE_PEERS
};

/* A neighbour. Members without a comment belong to the thread. */
struct psc_beat_peer {
    int fd; /* owned by the code that opens and closes the ring */
    uint32_t rank;
    _Atomic uint64_t heard_ns; /* when its last bytes arrived */
    _Atomic uint64_t away_ms;  /* as its last beat said */
    _Atomic uint64_t waits_in; /* likewise: the call that it waits in, as psc_beat_call; 0: in none */
    uint32_t timeout_ms;       /* the longest silence that it tolerates */
    uint64_t due_ns;           /* the next beat */
    bool ended, told;          /* its connection has ended; it knows the error that broke the clique */
    unsigned char in[PSC_HEAD_BYTES + PSC_NEWS_BYTES], out[PSC_HEAD_BYTES + PSC_NEWS_BYTES];
    size_t got, len, sent;
};

struct psc_beat {
    const char *name; /* of the clique */
    uint32_t rank, timeout_ms;
    uint32_t n_peers;
    struct psc_beat_peer peer[PSC_BEAT_PEERS];
    int wake_fd; /* eventfd, to the thread */
    int news_fd; /* eventfd of the ring, written when a neighbour has reported an error */
    bool runs;
    pthread_t thread;
    /* When this member's calls last made progress, and whether one of them waits for a neighbour. */
    _Atomic uint64_t here_ns;
    _Atomic uint64_t waits_in; /* psc_beat_call; 0: none waits */
    _Atomic bool stop, has_news;
    _Atomic bool brought_news; /* by a neighbour */
    pthread_mutex_t lock;      /* guards `news` */
    struct ps_error news;
    uint32_t suspect; /* as in struct psc_ring */
};

/* No descriptors yet. */
void psc_beat_init(struct psc_beat *b);
/* Starts the thread; the peers are connected. After a stop it may be started again, with more peers.
 * PSC_ESYSTEM with a sentence. */
int psc_beat_start(struct psc_beat *b, struct ps_error *err);
/* Ends the thread, after sending what can be sent. May be called again. */
void psc_beat_stop(struct psc_beat *b);
/* Frees the rest, after the stop. The peers' connections stay open. */
void psc_beat_finish(struct psc_beat *b);

/* The functions below are for any thread. When the neighbour was last heard, as of ps_now_s; 0: never. */
double psc_beat_heard_s(const struct psc_beat *b, uint32_t peer);
/* How long the neighbour has been away from the ring's calls, computing or hanging, by its last beat. 0 while
 * it waits in a call: then it waits for another member. */
uint64_t psc_beat_away_ms(const struct psc_beat *b, uint32_t peer);
/* A call as a beat names it: its number and its algorithm, 1 and more; never 0. */
static inline uint64_t psc_beat_call(uint64_t seq, uint32_t algorithm)
{
    return (seq & UINT32_MAX) << 8 | (algorithm + 1);
}
/* The call that the neighbour waits in, by its last beat; 0: none. */
uint64_t psc_beat_waits_in(const struct psc_beat *b, uint32_t peer);
/* This member's call made progress. in: the call that it begins to wait in, or 0: it waits no longer. */
void psc_beat_be_here(struct psc_beat *b, uint64_t in);
/* Whether bytes of it have arrived that the thread has not read yet, because this process itself was stopped.
 */
bool psc_beat_has_unread(const struct psc_beat *b, uint32_t peer);
/* Sends the error that broke the clique to all neighbours, and no beat after it. The first sentence counts.
 */
void psc_beat_send_error(struct psc_beat *b, const struct ps_error *news, uint32_t suspect);
/* The sentence, if there is one. */
void psc_beat_take_news(struct psc_beat *b, struct ps_error *out, uint32_t *suspect);

#endif
