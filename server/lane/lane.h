/* lane.h: a thread that exclusively owns a contiguous slice of the center and serves it. Under admission
 * hogwild it serves some of the clients over the whole center instead.
 *
 * Until psd_lane_start everything belongs to the loop; from then on the loop only pushes commands, takes
 * events and reads the relaxed counters. There are no locks: a lane's slice, replay table and sockets are its
 * own. */
#ifndef PSD_LANE_LANE_H
#define PSD_LANE_LANE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/log.h"
#include "proto/topology/topology.h"
#include "proto/transports/transport.h"
#include "proto/wire/frame.h"
#include "ps.pb-c.h"
#include "server/lane/admission.h"
#include "server/center/center.h"
#include "server/lane/queue.h"
#include "server/lane/shared.h"

#define PSD_MAX_TRANSPORTS    4  /* the listener's, and those that clients attach to */
#define PSD_OBSERVERS         64 /* in addition to limits.clients */
#define PSD_N_CODES           32 /* more than Ps__Code has */
#define PSD_STALENESS_BUCKETS 16 /* bucket k: staleness < 2^k; the last: all others */

enum psd_phase { PSD_PHASE_NONE, PSD_PHASE_OFFERING, PSD_PHASE_ACTIVE, PSD_PHASE_OBSERVING, PSD_PHASE_ENDED };

/* Counters of a lane: written by the lane only, read by the loop. */
struct psd_lane_stats {
    _Atomic uint64_t beats; /* iterations of its loop */
    _Atomic uint64_t clock; /* exchanges whose chunks in this lane have all landed */
    _Atomic uint64_t chunks, replays, pulled, set;
    /* of the chunk that the rule has moved most often, when the slice was last released */
    _Atomic uint64_t moves;
    _Atomic uint64_t bytes_in[PSD_MAX_TRANSPORTS], bytes_out[PSD_MAX_TRANSPORTS]; /* payload, by transport */
    _Atomic uint64_t rejected[PSD_N_CODES];
    _Atomic uint64_t staleness[PSD_STALENESS_BUCKETS];
    _Atomic uint64_t staleness_sum;
    /* The longest time between two looks at messages, due to snapshot copies, touching memory or creating
     * tables: since the last snapshot began, or since the start before the first one. */
    _Atomic uint64_t longest_stop_ns;
    /* Sum over the lane's PARAM values, at the last exchange; NaN: none yet. */
    _Atomic double center_squares;
};

/* Sums over the PARAM values of an exchange: (x - center)^2 before the center moved, or g^2; and center^2. */
struct psd_norms {
    double squares, center_squares;
};

/* The last exchange of a client that has begun in a lane, on one of its tracks. */
struct psd_lane_track {
    uint64_t seq;      /* 0: none */
    uint32_t n_landed; /* number of its chunks that have landed */
    uint32_t fragment; /* counted from 1; 0: it is no fragment's */
};

/* A lane's state of one client. */
struct psd_lane_client {
    uint32_t incarnation;
    enum psd_phase phase;
    uint32_t end_code; /* under PSD_PHASE_ENDED */
    uint64_t identity; /* only messages of this identity are accepted; 0: any, peers are not authenticated */
    uint64_t seq;      /* the newest exchange that has begun here */
    uint64_t floor;    /* exchanges before this one are over: they are refused */
    struct psd_lane_track tracks[PS_MAX_TRACKS]; /* [n_tracks of the lane] */
    /* Bitmap of their chunks that have landed; in psd_lane.bitmaps. Those on different tracks have no chunk
     * in common. */
    uint64_t *landed;
    int64_t others_seen;               /* exchanges of other clients at the last answer to this one */
    double weight;                     /* of the current exchange: factor of eta from its staleness */
    struct psd_norms norms;            /* of the current exchange so far */
    _Atomic uint64_t clock, staleness; /* read by the loop */
    _Atomic uint32_t port;             /* of its last message; read by the loop */
    _Atomic uint64_t bytes_in, bytes_out;
    /* With members, read by the loop: chunks of this exchange that wait here for other members'. */
    _Atomic uint64_t waiting_seq;
    _Atomic uint32_t waiting_chunks;
    _Atomic bool computes;    /* and an earlier chunk of it is still computed: the client waits for nobody */
    _Atomic uint64_t arrived; /* in partial rounds: its chunks that have arrived here */
    /* For its last complete exchange here: the sum over the PARAM values of (x - center)^2 before the center
     * moved, or of g^2 for rules that take a gradient; NaN: none yet. And the rate that was applied. */
    _Atomic double last_squares;
    _Atomic float last_rate;
    /* Bitmap of the chunks of which the last answer left it with what center.seen has; NULL: answers are no
     * moves. */
    uint64_t *based;
};

/* A set of members; ranks ascend. */
struct psd_members {
    uint64_t from; /* the first round of this set; without rounds, the clock that new members start with */
    uint32_t n;
    uint32_t *ranks;
    uint64_t *seqs; /* of a partial round: the members' exchanges in it; else NULL */
};

struct psd_lane;
struct psd_rounds;

/* A transport on which clients reach a lane. */
struct psd_lane_port {
    const struct ps_transport *transport;
    struct ps_port *port;
    char url[320]; /* the URL that clients are given; the loop's */
};

/* One piece of a transfer that has arrived and is valid. */
struct psd_arrival {
    const struct psd_lane_port *port;
    struct psd_lane_client *client;
    struct ps_frame frame;
    struct ps_message message;
    float *room;                /* location of the decoded floats while it is staged; NULL: not decoded */
    uint32_t chunk;             /* index in the lane */
    uint32_t n_pieces, n_lanes; /* pieces of the transfer in this lane; lanes of this psd that it goes to */
    bool answers_moves;         /* the answer is in center.answer_codec, which is for moves */
    bool filled;                /* the message's body is the answer already */
    float rate; /* of the rule, when it moved the center: the client's side moves by the same */
    /* Without rounds, of a chunk that has landed just now: the center's version as its answer tells it, so
     * that the newest that an exchange is told counts itself, and no exchange behind it. Else UINT64_MAX. */
    uint64_t version;
};

/* The parts of tensors that a chunk consists of, in order: those before them in the lane, and the tensor of
 * the first. */
struct psd_tensor_parts {
    uint32_t first, tensor;
};

/* The extent of an exchange of one fragment. */
struct psd_fragment {
    bool moves; /* some of it moves, in any lane */
    struct ps_range range;
    uint32_t first, end; /* its chunks in this lane, frozen ones included */
    uint32_t n_pieces;   /* in this lane */
    uint32_t n_lanes;
    uint32_t parts; /* servers whose lanes it goes to, as bits */
};

struct psd_lane {
    uint32_t index;
    struct psd_shared *shared;
    const struct ps_topology *topology;             /* NULL: the thread runs where the system puts it */
    uint32_t node;                                  /* the group of cores that it is bound to */
    struct psd_lane_port ports[PSD_MAX_TRANSPORTS]; /* the listener's own first */
    /* memory that clients have registered, on all transports; the loop sets the limit */
    struct ps_registered registered;
    uint32_t n_ports; /* 0 for another server's lane, which has only ports[0].url, no queues and no thread */
    const struct ps_vec *vec;   /* the racing kernels under whole lanes */
    struct psd_queue *in, *out; /* from and to the loop */
    pthread_t thread;
    bool stop;
    bool closing; /* the method is about to change: only exchanges that have begun are accepted */

    struct psd_center *center;      /* NULL before there is a job, and during a method change */
    bool whole;                     /* serves some clients over the whole center */
    uint32_t row;                   /* of the shard: the row that this lane serves */
    struct ps_range slice;          /* of the row */
    uint32_t n_chunks;              /* of the row */
    _Atomic uint32_t n_words;       /* of a bitmap over the chunks; also read by the loop */
    _Atomic uint64_t staging_bytes; /* size of the tables of staged messages; also read by the loop */
    uint32_t n_moving;              /* chunks that are not completely frozen */
    struct psd_fragment *fragments; /* [n_fragments]; NULL: exchanges are of the whole vector */
    uint32_t n_fragments;
    _Atomic uint32_t n_tracks;              /* of each client; also read by the loop */
    uint32_t first_fragment, last_fragment; /* those with pieces in this lane */
    struct psd_lane_client *clients;        /* [n_slots] */
    uint64_t *bitmaps;                      /* [n_slots][n_words] */
    uint64_t *based;                        /* [n_slots][n_words]; NULL: answers are not moves */
    uint64_t *bases;                        /* [n_seen][n_chunks]; NULL: answers are not moves */
    uint64_t last_base;                     /* the highest number in `bases` */
    uint64_t whole_base;            /* of all whole answers, while those of a merged round are sent; else 0 */
    struct psd_tensor_parts *parts; /* [n_chunks + 1] */
    /* [parts[n_chunks].first]: how often the rule has moved the part of a tensor. Not used by lanes that
     * share the center: center.moved. */
    _Atomic uint64_t *moves;
    uint64_t *offered; /* [n_words]: chunks of the first worker's x that have arrived */
    uint32_t n_offered;
    struct {
        bool open; /* chunks of it are still missing */
        uint32_t client, incarnation;
        uint64_t seq;
    } offer; /* the worker that offers x, or did: its retried chunks are recognised */
    struct {
        bool due;
        uint32_t vector; /* index in the order of memory.c */
        uint64_t at;     /* bytes of its slice that are already touched */
    } memory;
    uint64_t stop_ns;                     /* duration of such pauses since it last looked at messages */
    float *scratch;                       /* one chunk, for bodies that are not processed in place */
    struct psd_rounds *rounds;            /* NULL: an admission without members */
    struct psd_replay_entry *snap_replay; /* [n_slots][n_tracks]: at the last snapshot */
    uint64_t *snap_bitmaps;               /* [n_slots][n_tracks][n_words] */
    size_t n_snap_replay;
    uint64_t snap_least, snap_most; /* psd_rounds_span at the last snapshot */
    struct {
        struct psd_snapshot *to; /* in progress; NULL: none */
        uint64_t *left;          /* [n_words]: chunks that are not copied yet */
        uint32_t n_left, next;   /* number of those; the next one to look at */
        bool receives;           /* the chunks are not copied: a client sends them */
        uint32_t client, incarnation;
    } snap;
    struct psd_lane_stats stats;
    struct psd_lane_stats told; /* of another server's lane: its counters as last received */
    struct ps_log_limit log_limit;
};

struct psd_lane_options {
    uint32_t index;
    struct psd_shared *shared;
};

int psd_lane_create(const struct psd_lane_options *opt, struct psd_lane **out, struct ps_error *err);
/* The loop's state of another server's lane. */
int psd_lane_create_remote(uint32_t index, struct psd_shared *shared, struct psd_lane **out,
                           struct ps_error *err);
/* Call before psd_lane_start: adds a transport on which the lane listens at the URL. -errno with a sentence,
 * as port_open; -ENOSPC: it already has PSD_MAX_TRANSPORTS. */
int psd_lane_add_port(struct psd_lane *lane, const struct ps_transport *transport, struct ps_hub *hub,
                      const char *url, const struct ps_transport_limits *limits, struct ps_error *err);
int psd_lane_start(struct psd_lane *lane, struct ps_error *err);
/* Stops and joins the thread if it was started. */
void psd_lane_destroy(struct psd_lane *lane);

/* Bytes of a lane's replay table, twice (for serving and for snapshots), and of its staging tables. */
uint64_t psd_lane_replay_bytes(const struct psd_lane *lane);

/* Lane's thread. Applies the arrival by the rule, answers it and consumes the message. */
void psd_lane_apply(struct psd_lane *lane, struct psd_arrival *a);
/* snapshot.c, lane's thread. Begins a snapshot of the slice and the replay table in their current state;
 * sends the loop an event when all of it is copied. Only one at a time. */
void psd_lane_snapshot(struct psd_lane *lane, struct psd_snapshot *s);
/* snapshot.c, lane's thread. Fills the slice of the snapshot's center with the vector that the client sends;
 * sends the loop an event when all of it has arrived, or none is expected here. Changes nothing else of the
 * snapshot. */
void psd_lane_keep(struct psd_lane *lane, struct psd_snapshot *s, uint32_t client, uint32_t incarnation);
/* Stops waiting for missing chunks of it, and tells the loop. */
void psd_lane_keep_no_more(struct psd_lane *lane);
/* Takes a chunk of it; ignores one that is not expected. Returns how many values are not finite. */
size_t psd_lane_keep_chunk(struct psd_lane *lane, struct psd_arrival *a);
/* Call when the chunk's values are about to change. */
void psd_lane_before_move(struct psd_lane *lane, uint32_t chunk);
/* Copies some more chunks that no move has copied yet. Returns whether some are left. */
bool psd_lane_copy_more(struct psd_lane *lane);

/* Exchanges that a client may have under way at a time. */
static inline uint32_t psd_tracks_of(const struct ps_hyper *h, uint32_t n_parts)
{
    uint32_t most = h->fragments < PS_MAX_TRACKS ? h->fragments : PS_MAX_TRACKS;
    return n_parts > 1 || most == 0 ? 1 : most;
}
/* The track of a request that names a fragment, or does not. */
static inline uint32_t psd_lane_track_of(const struct psd_lane *lane, const struct ps_frame *f)
{
    return (f->flags & PS_FLAG_FRAGMENT) != 0 ? f->code % lane->n_tracks : 0;
}

/* Lane's thread. The transfer has landed here: whether it has in all n_lanes that it goes to. */
bool psd_lane_whole(struct psd_lane *lane, uint32_t client, uint32_t track, uint32_t incarnation,
                    uint64_t seq, uint32_t n_lanes);
/* Call after it was counted in the version: a thread that sees it in shared->whole also sees that version. */
void psd_lane_remember_whole(struct psd_lane *lane, uint32_t client, uint32_t track, uint32_t incarnation,
                             uint64_t seq);

/* commands.c, lane's thread. Handles the commands from the loop. */
void psd_lane_take_commands(struct psd_lane *lane);
/* One iteration of the lane's thread, which never waits: commands, a batch of messages, a part of a snapshot.
 * Returns whether there may be more to do. */
bool psd_lane_turn(struct psd_lane *lane);
/* request.c, lane's thread. Serves a->message, which was just received. rc: the result of port_recv. */
void psd_lane_serve(struct psd_lane *lane, struct psd_arrival *a, int rc);

/* snapshot.c, lane's thread. Records the time since begin_ns, in which the lane did not look at messages. */
void psd_lane_note_stop(struct psd_lane *lane, uint64_t begin_ns);

/* Whether this client's data goes to this lane. Any thread, with a center. */
static inline bool psd_lane_serves(const struct psd_lane *lane, const struct psd_center *center,
                                   uint32_t client)
{
    return center->whole_lanes ? client % lane->shared->n_lanes == lane->index
                               : ps_shard_slice(&center->shard, lane->index).count > 0;
}

static inline void psd_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* Only one thread writes the counter, so a plain load and store suffice. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

#endif
