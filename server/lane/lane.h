/* lane.h: a thread that alone owns a contiguous slice of the center and serves it; under Hogwild's admission
 * it serves some of the clients instead, over the whole center.
 *
 * Until psd_lane_start everything belongs to the loop; from then on the loop only pushes and takes notes and
 * reads the relaxed counters. No locks: a lane's slice, replay table and sockets are its own. */
#ifndef PSD_LANE_LANE_H
#define PSD_LANE_LANE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/log.h"
#include "proto/transports/transport.h"
#include "proto/wire/frame.h"
#include "ps.pb-c.h"
#include "server/lane/admission.h"
#include "server/center/center.h"
#include "server/lane/queue.h"
#include "server/lane/shared.h"

#define PSD_MAX_TRANSPORTS    4  /* the listener's own, and those that clients attach to */
#define PSD_OBSERVERS         64 /* beside limits.clients */
#define PSD_N_CODES           32 /* more than Ps__Code has */
#define PSD_STALENESS_BUCKETS 16 /* bucket k: staleness < 2^k, the last: the rest */

enum psd_phase { PSD_PHASE_NONE, PSD_PHASE_OFFERING, PSD_PHASE_ACTIVE, PSD_PHASE_OBSERVING, PSD_PHASE_ENDED };

/* Counters of a lane: written by it alone, read by the loop. */
struct psd_lane_stats {
    _Atomic uint64_t beats; /* times that it has come round its loop */
    _Atomic uint64_t clock; /* exchanges whose every chunk here has landed */
    _Atomic uint64_t chunks, replays, pulled, set;
    _Atomic uint64_t moves; /* of the chunk that the rule has moved most, when the slice was last let go of */
    _Atomic uint64_t bytes_in[PSD_MAX_TRANSPORTS], bytes_out[PSD_MAX_TRANSPORTS]; /* payload, by transport */
    _Atomic uint64_t rejected[PSD_N_CODES];
    _Atomic uint64_t staleness[PSD_STALENESS_BUCKETS];
    _Atomic uint64_t staleness_sum;
    /* The longest time without a look at messages, because the lane copied for a snapshot, touched memory or
     * made tables: since the last snapshot began, before the first one since the start. */
    _Atomic uint64_t longest_stop_ns;
    /* Sum over the PARAM values that it serves, at the last exchange; NaN: none yet. */
    _Atomic double center_squares;
};

/* Sums over the PARAM values of an exchange: (x - center)^2 before the center moved, or g^2; and center^2. */
struct psd_norms {
    double squares, center_squares;
};

/* What a lane knows of one client. */
struct psd_lane_client {
    uint32_t incarnation;
    enum psd_phase phase;
    uint32_t end_code;      /* of PSD_PHASE_ENDED */
    uint64_t identity;      /* whose messages are the client's; 0: anybody's, peers prove nothing */
    uint64_t seq;           /* the last exchange begun here */
    uint32_t n_landed;      /* its chunks that have landed */
    uint64_t *landed;       /* bitmap of them; in psd_lane.bitmaps */
    int64_t others_seen;    /* others' exchanges when it was last answered */
    double weight;          /* of the exchange under way: what its staleness leaves of eta */
    struct psd_norms norms; /* of the exchange under way so far */
    _Atomic uint64_t clock, staleness; /* for the loop */
    _Atomic uint32_t port;             /* that it last came on; for the loop */
    _Atomic uint64_t bytes_in, bytes_out;
    /* Of members, for the loop: chunks of this exchange that wait here for others'. */
    _Atomic uint64_t waiting_seq;
    _Atomic uint32_t waiting_chunks;
    _Atomic uint64_t arrived; /* under cuts: chunks of it that have come here */
    /* Of its last whole exchange here: the sum over the PARAM values of (x - center)^2 before the center
     * moved, or of g^2 for rules that take a gradient; NaN: none yet. And the rate that moved the center. */
    _Atomic double last_squares;
    _Atomic float last_rate;
    /* Bitmap of the chunks of which the last answer left it with what center.seen has; NULL: answers are no
     * moves. */
    uint64_t *based;
};

/* Who takes part; ranks ascend. */
struct psd_members {
    uint64_t from; /* the first round of it; without rounds, the clock that those who are new start with */
    uint32_t n;
    uint32_t *ranks;
    uint64_t *seqs; /* of a cut: their exchanges in it; else NULL */
};

struct psd_lane;
struct psd_rounds;

/* A transport on which clients come to a lane. */
struct psd_lane_port {
    const struct ps_transport *transport;
    struct ps_port *port;
    char url[320]; /* as clients are told it; the loop's */
};

/* One piece of a transfer that has arrived and is valid. */
struct psd_arrival {
    const struct psd_lane_port *port;
    struct psd_lane_client *client;
    struct ps_frame frame;
    struct ps_message message;
    float *room;                /* where its floats have been decoded to, while it is staged; NULL: nowhere */
    uint32_t chunk;             /* of the lane */
    uint32_t n_pieces, n_lanes; /* of the transfer: in this lane; lanes of this psd that it goes to */
    bool answers_moves;         /* in center.answer_codec, which is for them */
};

/* What an exchange of one fragment goes to. */
struct psd_fragment {
    bool moves; /* something of it does, in whichever lane */
    struct ps_range range;
    uint32_t n_pieces; /* in this lane */
    uint32_t n_lanes;
    uint32_t parts; /* bits of the servers whose lanes it goes to */
};

struct psd_lane {
    uint32_t index;
    struct psd_shared *shared;
    struct psd_lane_port ports[PSD_MAX_TRANSPORTS]; /* the listener's own first */
    struct ps_lent lent; /* by clients, on all of them; the loop says how much may be */
    uint32_t
        n_ports; /* of another server's lane 0 (but ports[0].url), its queues NULL, and it has no thread */
    const struct ps_vec *vec;   /* the racing row under whole lanes */
    struct psd_queue *in, *out; /* from and to the loop */
    pthread_t thread;
    bool stop;
    bool closing; /* the method is about to change: only exchanges that have begun go on */

    struct psd_center *center;      /* NULL until there is a job, and while the method changes */
    bool whole;                     /* it serves some clients, over the whole center */
    uint32_t row;                   /* of the shard: what this lane serves */
    struct ps_range slice;          /* the row's */
    uint32_t n_chunks;              /* of the row */
    _Atomic uint32_t n_words;       /* of a bitmap over them; the loop reads it too */
    _Atomic uint64_t staging_bytes; /* what the tables of staged messages take; the loop reads it too */
    uint32_t n_moving;              /* chunks that are not frozen whole */
    struct psd_fragment *fragments; /* [n_fragments]; NULL: exchanges are of the whole vector */
    uint32_t n_fragments;
    uint32_t first_fragment, last_fragment; /* that have pieces here */
    struct psd_lane_client *clients;        /* [n_slots] */
    uint64_t *bitmaps;                      /* [n_slots][n_words] */
    uint64_t *based;                        /* [n_slots][n_words]; NULL: answers are no moves */
    uint64_t *moves;                        /* [n_chunks]: times that the rule has moved values of it */
    uint64_t *offered;                      /* [n_words]: chunks of the first worker's x that have come */
    uint32_t n_offered;
    struct {
        bool open; /* chunks of it are still to come */
        uint32_t client, incarnation;
        uint64_t seq;
    } offer; /* whose x it is or was: a retried chunk of it is known again */
    struct {
        bool due;
        uint32_t vector; /* in the order of memory.c */
        uint64_t at;     /* bytes of its slice that are there */
    } memory;
    uint64_t stop_ns;                     /* of such a stop, since it last looked at messages */
    float *scratch;                       /* one chunk: for bodies that are not worked on in place */
    struct psd_rounds *rounds;            /* NULL: an admission without members */
    struct psd_replay_entry *snap_replay; /* [n_slots]: what the last snapshot saw */
    uint64_t *snap_bitmaps;               /* [n_slots][n_words] */
    size_t n_snap_replay;
    struct {
        struct psd_snapshot *to; /* under way; NULL: none */
        uint64_t *left;          /* [n_words]: chunks that are still to be copied */
        uint32_t n_left, next;   /* of these; looked at next */
        bool keeps;              /* they are not copied: a client sends them */
        uint32_t client, incarnation;
    } snap;
    struct psd_lane_stats stats;
    struct ps_log_limit log_limit;
};

struct psd_lane_options {
    uint32_t index;
    struct psd_shared *shared;
};

int psd_lane_create(const struct psd_lane_options *opt, struct psd_lane **out, struct ps_error *err);
/* Another server's, for what the loop keeps of it. */
int psd_lane_create_remote(uint32_t index, struct psd_shared *shared, struct psd_lane **out,
                           struct ps_error *err);
/* Before psd_lane_start: one more transport, on which the lane listens at the URL. -errno with a sentence, as
 * port_open; -ENOSPC: it has PSD_MAX_TRANSPORTS. */
int psd_lane_add_port(struct psd_lane *lane, const struct ps_transport *transport, struct ps_hub *hub,
                      const char *url, const struct ps_transport_limits *limits, struct ps_error *err);
int psd_lane_start(struct psd_lane *lane, struct ps_error *err);
/* Stops and joins the thread if it was started. */
void psd_lane_destroy(struct psd_lane *lane);

/* Bytes that a lane's replay table takes, twice: for serving and for snapshots; and what it stages in. */
uint64_t psd_lane_replay_bytes(const struct psd_lane *lane);

/* Lane's thread. Applies the arrival by the rule, answers, consumes the message. */
void psd_lane_apply(struct psd_lane *lane, struct psd_arrival *a);
/* snapshot.c, lane's thread. Begins a snapshot of the slice and the replay table as they are now; the loop is
 * told when all of it is copied. One at a time. */
void psd_lane_snapshot(struct psd_lane *lane, struct psd_snapshot *s);
/* snapshot.c, lane's thread. The slice of the snapshot's center is to be what the client sends; the loop is
 * told when all of it has come, or there is nothing to come here. Nothing else of the snapshot is touched. */
void psd_lane_keep(struct psd_lane *lane, struct psd_snapshot *s, uint32_t client, uint32_t incarnation);
/* What has not come of it is not waited for: the loop is told so. */
void psd_lane_keep_no_more(struct psd_lane *lane);
/* Takes a chunk of it; one that nobody waits for is passed by. How many values are not finite. */
size_t psd_lane_keep_chunk(struct psd_lane *lane, struct psd_arrival *a);
/* The chunk's values are about to change. */
void psd_lane_before_move(struct psd_lane *lane, uint32_t chunk);
/* Copies some more of what no move has copied. Whether something is left. */
bool psd_lane_copy_more(struct psd_lane *lane);

/* The transfer has landed in this lane: whether it now has in all n_lanes that it goes to. Lane's thread. */
bool psd_lane_whole(struct psd_lane *lane, uint32_t client, uint32_t incarnation, uint64_t seq,
                    uint32_t n_lanes);
/* Then, when it has been counted: whoever sees it in shared->whole sees the version that it has made. */
void psd_lane_remember_whole(struct psd_lane *lane, uint32_t client, uint32_t incarnation, uint64_t seq);

/* commands.c, lane's thread: notes from the loop. */
void psd_lane_take_notes(struct psd_lane *lane);
/* One turn of the lane's thread, which never waits: notes, a batch of messages, a part of a snapshot. Whether
 * there may be more. */
bool psd_lane_turn(struct psd_lane *lane);
/* request.c, lane's thread: serves a->message, just received. rc: what port_recv said of it. */
void psd_lane_serve(struct psd_lane *lane, struct psd_arrival *a, int rc);

/* snapshot.c, lane's thread. What it has done since begin_ns was not for clients. */
void psd_lane_note_stop(struct psd_lane *lane, uint64_t begin_ns);

/* Whether data of this client comes to this lane. Any thread, with a center. */
static inline bool psd_lane_serves(const struct psd_lane *lane, const struct psd_center *center,
                                   uint32_t client)
{
    return center->whole_lanes ? client % lane->shared->n_lanes == lane->index
                               : ps_shard_slice(&center->shard, lane->index).count > 0;
}

static inline void psd_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* One writer: no read-modify-write on the bus. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

#endif
