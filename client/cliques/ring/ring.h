/* ring.h: a ring's parts.
 *
 * Each link is one ring of connections: to the next member, where segments go, and from the previous one,
 * where they come from. A link carries its own part of the vector. ring.c opens and closes, connect.c
 * connects, progress.c runs a collective, schedule.c orders the segments and moves bytes, abort.c spreads
 * errors, beat.c sends heartbeats, look.c looks after the members between two calls.
 *
 * Beside the ring there may be a tree of the same members (tree.h). algorithms.c chooses one of the two for
 * each call. */
#ifndef PSC_CLIQUES_RING_RING_H
#define PSC_CLIQUES_RING_RING_H

#include <poll.h>
#include <stdbool.h>

#include "client/cliques/clique.h"
#include "client/cliques/ring/beat.h"
#include "client/cliques/ring/blocks.h"
#include "client/cliques/socket.h"
#include "client/cliques/wire.h"

/* The work of a link in one collective. The vector's part is cut into stripes, and a stripe into blocks of a
 * segment at most, one for each member or one in all. At hop h a member sends block (rank - h) mod blocks of
 * a stripe, which is the one it received at hop h - 1, and receives block (rank - h - 1) mod blocks. At hops
 * below adopt_from received values are added to its own; from there on they are final and take their place.
 *
 * Stripes follow each other by one time each: at time t, hop h is of stripe t - h, in the order of hops. So a
 * block is sent soon after it arrives, while it is in the cache, and no hop waits for the one before. */
struct psc_schedule {
    uint32_t blocks, stripes;
    uint32_t out_begin, out_end; /* hops */
    uint32_t in_begin, in_end;
    uint32_t adopt_from;
    uint32_t shift; /* of blocks: at hop h a member sends block (rank + shift - h) mod blocks */
    /* 0: a stripe is contiguous. Else block k is in member k's part of the vector, and the parts begin this
     * many units apart. */
    size_t apart;
    bool swaps; /* all is sent before anything is received */
};

/* One direction of a link: the segment that is moving. */
struct psc_flow {
    uint32_t time, hop;
    uint64_t left; /* segments */
    bool loaded;
    struct psc_span span;
    unsigned char head[PSC_HEAD_BYTES];
    unsigned char *payload;
    size_t bytes, done; /* of the payload; moved of head and payload */
};

/* The descriptors that a call waits for. */
enum { PSC_MAX_WAITS = 1 + PSC_MAX_LINKS * (PSC_TREE_PEERS + 1) };
struct psc_waits {
    struct pollfd fds[PSC_MAX_WAITS]; /* the first: give_up, or the beat's news */
    nfds_t n;
    bool on[PSC_BEAT_PEERS]; /* neighbours that the call waits for */
};

struct psc_ring;

/* An algorithm of collectives. A row of the table in algorithms.c. */
struct psc_algorithm {
    uint8_t kind; /* enum psc_algorithm_kind */
    /* Divides the vector for ring->op and resets the flows; PSC_ENOMEM. */
    int (*begin)(struct psc_ring *r);
    /* Moves what can be moved now. Positive: something; 0: nothing; negative: the call has failed, and all
     * were told. */
    int (*move)(struct psc_ring *r, bool *ended);
    /* Adds the descriptors to wait for. */
    void (*list_waits)(struct psc_ring *r, struct psc_waits *w);
    /* Receives error reports, sent against the direction of segments; NULL: there are none. */
    int (*hear)(struct psc_ring *r, const struct psc_waits *w);
};

struct psc_survival;

struct psc_ring_link {
    int next, prev;
    bool next_quiet; /* the next member has left, and this call does not wait for it */
    struct psc_span part;
    struct psc_flow out, in;
    unsigned char arrived[PSC_HEAD_BYTES]; /* the received head */
    unsigned char *bounce, *staging;       /* a segment each */
    unsigned char *store;                  /* encoded blocks that are forwarded: two for each hop */
    size_t store_bytes, slot_bytes;
};

/* auto: calls of fewer bytes in all go by the tree. Both are 0, or both may be more. */
struct psc_tree_limits {
    uint64_t bytes, parts_bytes; /* of calls with parts: PSC_REDUCE_SCATTER, PSC_ALLGATHER */
};

struct psc_ring {
    char name[PSC_NAME_BYTES], listen[PSC_ADDRESS_BYTES];
    uint32_t members, rank, links, segment_bytes, timeout_ms, step_ms;
    uint64_t job;
    int stop_fd;           /* an eventfd: give_up, or news from the beat */
    _Atomic bool given_up; /* by any thread; stop_fd stays readable */
    bool broken;
    struct psc_ring_link link[PSC_MAX_LINKS];
    struct psc_beat beat;
    uint8_t wanted;                /* enum psc_algorithm_kind, as the options have it */
    uint8_t algorithm;             /* in use */
    struct psc_tree *tree;         /* NULL: there is none yet */
    bool shrinks;                  /* on_loss is shrink */
    struct psc_survival *survival; /* NULL: it is not, or not yet connected */
    uint32_t suspect; /* 1 + the rank that is silent or hangs, by what broke the clique; 0: none */
    struct psc_tree_limits limits;

    /* Of the current collective. */
    const struct psc_collective *op;
    const struct psc_algorithm *by;
    uint64_t seq;
    double begun_s;
    uint32_t active; /* links that carry a part of it */
    size_t unit_bytes, segment_units;
    bool plain; /* values are sent as they are in memory */
    size_t n;   /* units in all; a call that compares has none */
    struct psc_schedule schedule;
    /* Whether bytes were sent to a neighbour or received from it since the last wait, and when, as of the
     * last wait: moving bytes reads no clock. */
    bool moved[PSC_BEAT_PEERS];
    double moved_s[PSC_BEAT_PEERS];
    double elsewhere_s[PSC_BEAT_PEERS]; /* since when its beats name another call; 0: they do not */
    bool has_cores;                     /* one for each member: a call may look again before it sleeps */
    uint32_t misses, rests; /* how often in a row that was in vain; waits left that sleep at once */
    struct ps_error *err;
};

static inline uint32_t psc_ring_next(const struct psc_ring *r)
{
    return (r->rank + 1) % r->members;
}

static inline uint32_t psc_ring_prev(const struct psc_ring *r)
{
    return (r->rank + r->members - 1) % r->members;
}

/* ring.c. Connects as a member of the job, with the settings that r has: rank, members, job. Afterwards the
 * clique works. */
int psc_ring_connect(struct psc_ring *r, int listen_fd, const char *next, double deadline_s,
                     struct ps_error *err);
/* Closes all connections: r is as it was before psc_ring_connect. */
void psc_ring_disconnect(struct psc_ring *r);

/* shrink.c. At open, once connected: the members learn each other's addresses. Takes listen_fd over on
 * success. */
int psc_survival_begin(struct psc_ring *r, int listen_fd, const char *own_address, struct ps_error *err);
/* NULL is allowed. */
void psc_survival_end(struct psc_survival *s);
/* Whether the hello, which came over fd, is of a member that begins anew and waits for this one. */
bool psc_survival_is_called(const struct psc_ring *r, int fd, const struct psc_hello *h);
/* struct psc_clique_ops.shrink of the ring. */
int psc_ring_shrink(struct psc_ring *r, uint64_t step, uint32_t timeout_ms, struct psc_shrunk *out,
                    struct ps_error *err);

/* Connects all links in a ring, before the deadline. PSC_ECLIQUE, PSC_ESYSTEM. */
int psc_ring_join(struct psc_ring *r, int listen_fd, const char *next, double deadline_s,
                  struct ps_error *err);

struct psc_pending_peers;
/* psc_pending_peers_wait, in a ring that shrinks only while the next member lives: -ECONNRESET. If all that
 * live wait for members that have ended, no other would tell them. */
int psc_ring_wait_hello(const struct psc_ring *r, struct psc_pending_peers *pending, double deadline_s,
                        int *fd, struct psc_hello *h);

/* One collective: struct psc_clique_ops's run. */
int psc_ring_run(void *state, const struct psc_collective *op, struct ps_error *err);

/* struct psc_clique_ops.look of the ring. */
int psc_ring_look(struct psc_ring *r, const struct psc_collective *op, const char *failed,
                  struct ps_error *err);

/* Floats of a stripe of an allreduce round the ring. */
size_t psc_ring_stripe(const struct psc_ring *r);

/* algorithms.c. Uses this algorithm for sums from the next call on. All members call it with the same value.
 * Connects the tree and measures the connections if needed. On failure the clique is broken. */
int psc_ring_use(struct psc_ring *r, uint8_t algorithm, struct ps_error *err);
/* The algorithm for r->op. */
const struct psc_algorithm *psc_ring_choose(const struct psc_ring *r);

/* The ring's algorithm: progress.c. */
extern const struct psc_algorithm psc_algorithm_ring;
/* psc_algorithm.begin of the ring. */
int psc_flow_begin(struct psc_ring *r);
/* Units of a segment in a stripe of this many blocks. */
size_t psc_segment_units(const struct psc_ring *r, uint8_t type, uint32_t blocks);
/* The part of a link: whole stripes, except at the end of the vector. */
struct psc_span psc_part_of(size_t n, size_t stripe, size_t n_stripes, uint32_t link, uint32_t links);
size_t psc_payload_bytes(const struct psc_ring *r, size_t units);
float *psc_floats_at(const struct psc_ring *r, struct psc_span s);
/* Adds a received payload to this member's values. */
void psc_fold_at(const struct psc_ring *r, struct psc_span s, const unsigned char *payload);
unsigned char *psc_bytes_at(const struct psc_ring *r, struct psc_span s);
/* Prepares the flow for a segment. */
void psc_flow_load(const struct psc_ring *r, struct psc_flow *f, struct psc_span block, uint32_t index);
/* Send or receive the rest of the loaded segment. Positive: some bytes; 0: none now; -errno. more: another
 * segment follows at once, so that its beginning fills the last packet of this one. receive: -EPROTO: the
 * head is not the expected one, and is in `arrived`. */
int psc_flow_send(struct psc_flow *f, int fd, bool more);
int psc_flow_receive(struct psc_flow *f, int fd, unsigned char arrived[PSC_HEAD_BYTES]);
static inline bool psc_flow_is_whole(const struct psc_flow *f)
{
    return f->done == PSC_HEAD_BYTES + f->bytes;
}
/* Moves what is possible of one segment. Positive: some bytes; 0: none now; negative: the call has failed,
 * and all were told. */
int psc_flow_out(struct psc_ring *r, struct psc_ring_link *l);
int psc_flow_in(struct psc_ring *r, struct psc_ring_link *l);
/* Whether the direction waits for its socket, not for the other direction. */
bool psc_flow_wants_out(struct psc_ring *r, struct psc_ring_link *l);
bool psc_flow_wants_in(struct psc_ring *r, struct psc_ring_link *l);
static inline bool psc_flow_ended(const struct psc_flow *f)
{
    return f->left == 0;
}

/* Fails the call: completes the sentence with this member's rank and call, and tells the others. PSC_ECLIQUE.
 */
int psc_ring_fail(struct psc_ring *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a connection to member `rank` that ended with -errno `rc`: an error that the others have
 * reported takes precedence. */
int psc_ring_lost(struct psc_ring *r, uint32_t rank, int rc);
/* Handles a head from `rank` that is not that of the expected segment: news, or a disagreement.
 * PSC_ECLIQUE. */
int psc_ring_odd_head(struct psc_ring *r, uint32_t rank, int fd, const struct psc_flow *f,
                      const unsigned char arrived[PSC_HEAD_BYTES]);
/* Sends the rest of a partly sent segment, so that a head can follow. */
void psc_flow_finish(const struct psc_flow *f, int fd, double deadline_s);
/* The next member's connection is readable: only news arrive there. */
int psc_ring_hear_next(struct psc_ring *r, struct psc_ring_link *l);
/* The beat has brought news. PSC_ECLIQUE. */
int psc_ring_take_beat_news(struct psc_ring *r);

#endif
