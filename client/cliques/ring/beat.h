/* beat.h: tells computing from silence.
 *
 * Each member of a ring says to both neighbours that its process runs, four times in timeout_ms, whether it
 * computes or waits in a call, and for how long it has been away from the ring's calls. A thread of the
 * ring's own does it, over connections of its own: neither a caller that computes nor a link that is clogged
 * holds a beat up, and the thread never waits for a peer. A member that waits for a neighbour in a call bears
 * its computing, for step_ms, and not its silence. Whoever else waits does so for a neighbour that waits: the
 * one beside the silent member says so to all.
 *
 * Over the same connections travels what broke the clique, so that members hear of it whose neighbours
 * compute. After that nothing is said any more. */
#ifndef PSC_CLIQUES_RING_BEAT_H
#define PSC_CLIQUES_RING_BEAT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "client/cliques/wire.h"

enum psc_beat_direction { PSC_BEAT_NEXT, PSC_BEAT_PREV, PSC_BEAT_DIRECTIONS };

/* A neighbour. What has no comment is the thread's. */
struct psc_beat_peer {
    int fd; /* who opens and closes the ring owns it */
    uint32_t rank;
    _Atomic uint64_t heard_ns; /* when bytes last came from it */
    _Atomic uint64_t away_ms;  /* as its last beat said */
    uint32_t timeout_ms;       /* how long a silence it bears */
    uint64_t due_ns;           /* the next beat */
    bool ended, told;          /* its connection has; it knows what broke the clique */
    unsigned char in[PSC_HEAD_BYTES + PSC_NEWS_BYTES], out[PSC_HEAD_BYTES + PSC_NEWS_BYTES];
    size_t got, len, sent;
};

struct psc_beat {
    const char *name; /* of the clique */
    uint32_t rank, timeout_ms;
    struct psc_beat_peer peer[PSC_BEAT_DIRECTIONS];
    int wake_fd; /* eventfd, to the thread */
    int news_fd; /* eventfd of the ring's, written once a neighbour has said what broke the clique */
    bool runs;
    pthread_t thread;
    /* When this member's calls were last seen to go on; whether one of them waits for a neighbour. */
    _Atomic uint64_t here_ns;
    _Atomic bool waits;
    _Atomic bool stop, has_news;
    _Atomic bool brought_news; /* by a neighbour */
    pthread_mutex_t lock;      /* guards `news` */
    struct ps_error news;
};

/* No descriptors yet. */
void psc_beat_init(struct psc_beat *b);
/* The peers are connected. PSC_ESYSTEM with a sentence. */
int psc_beat_start(struct psc_beat *b, struct ps_error *err);
/* Ends the thread, when what was told has left as far as it can. Once more is fine. */
void psc_beat_stop(struct psc_beat *b);
/* After that. The peers' connections stay open. */
void psc_beat_finish(struct psc_beat *b);

/* What follows is for any thread. When the neighbour was last heard, in ps_now_s; 0: never. */
double psc_beat_heard_s(const struct psc_beat *b, enum psc_beat_direction direction);
/* How long it has been away from the ring's calls, computing or hung, as it last said. 0 while it waits in
 * one: somebody else keeps it. */
uint64_t psc_beat_away_ms(const struct psc_beat *b, enum psc_beat_direction direction);
/* This member's calls go on; from here one of them waits, or waits no longer. */
void psc_beat_be_here(struct psc_beat *b, bool waits);
/* Something of it has come that the thread has not read yet: this process stood still itself. */
bool psc_beat_has_unread(const struct psc_beat *b, enum psc_beat_direction direction);
/* What broke the clique goes to both neighbours, and no beat after it. The first sentence stays. */
void psc_beat_send_error(struct psc_beat *b, const struct ps_error *news);
/* The sentence, where there is one. */
void psc_beat_take_news(struct psc_beat *b, struct ps_error *out);

#endif
