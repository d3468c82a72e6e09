/* transfer.h: the data connection, and the transfers over it.
 *
 * Whoever runs transfers owns struct psc_transfer_state: the async thread (async.h) while its queue is not
 * empty, else the caller's thread. */
#ifndef PSC_TRANSFER_TRANSFER_H
#define PSC_TRANSFER_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/memory/memory.h"
#include "client/session/retry.h"
#include "client/session/session.h"
#include "proto/codecs/codec.h"
#include "proto/error.h"
#include "proto/model/manifest.h"
#include "proto/model/shard.h"
#include "proto/transports/registered_memory.h"
#include "proto/transports/transport.h"
#include "proto/wire/frame.h"

struct psc;

/* Results of a transfer inside the library, beside enum psc_result. */
enum {
    /* The method changed before any of the transfer had landed, and its message was made for the old one. */
    PSC_METHOD_CHANGED = 100,
    /* The server came back from a checkpoint, and all workers restart their cycle of fragments, or their
     * round of keys. What was not answered is still unsent. */
    PSC_ABORTED = 1000
};

/* The place of a message in a round of keys (client/worker/key_round.c). */
enum psc_round_key { PSC_ROUND_NONE, PSC_ROUND_FIRST, PSC_ROUND_LATER };

/* Applies the answer to one piece of a transfer; r is counted from the begin of its scope. */
typedef void (*psc_landed)(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);

/* Which chunks of a message may leave, while its caller still computes the others. The caller's thread opens
 * them; whoever runs the transfer sends what is open. */
struct psc_gate {
    struct ps_shard shard;  /* that the chunks are of */
    _Atomic uint64_t *open; /* bitmap: chunk k of lane i is bit k from word at[i] on */
    uint32_t at[PS_MAX_LANES];
    uint32_t n_words;
    _Atomic bool withdrawn; /* what is not open never will be: the transfer fails */
};

/* A vector that `landed` moves, and what it was before. Both [floats of the scope]. */
struct psc_moved {
    float *vector, *kept; /* kept NULL: none */
};
enum { PSC_MOST_MOVED = 2 };

/* One pass over all chunks that the scope intersects. */
struct psc_transfer {
    uint8_t kind;                   /* enum ps_frame_kind */
    const struct ps_tensor *tensor; /* the scope; NULL: the fragment, or the whole vector */
    bool is_fragment;
    uint16_t fragment;
    struct ps_range part;     /* the fragment's */
    enum psc_round_key round; /* the message is of one key of a round of keys */
    bool behind, more;        /* of a list: it has begun before; more of it follows */
    uint16_t flags;           /* of its frames, beside the scope's */
    const float *send;        /* [floats of the scope], or NULL */
    const char *name;         /* of `send`, when its values must be checked; NULL: they were */
    bool watched;             /* the device has looked at them as it made them: see psc_watch */
    uint32_t samples;
    uint64_t clock;
    uint32_t generation;  /* of the method that `send` was made for, when it is a rule's message */
    bool in_background;   /* no caller waits for it yet */
    bool keeps_turn;      /* each lane's last piece is sent when the caller waits for the transfer */
    bool may_be_in_place; /* `landed` is the elastic update of `send` itself, which a lane may do in place */
    bool restarts;        /* the worker restarts from the answer: the error feedback is cleared */
    bool is_owed;         /* if nothing of it has landed, the worker adds it when the method changes */
    /* Of the whole vector. On a device, answers in floats wait in the target: `landed` is called when all
     * have arrived, for as much at once as has one rate, with `answer` in `target`. */
    bool lands_at_end;
    const struct psc_gate *gate; /* of `send`; NULL: all of it may leave */
    psc_landed landed;           /* NULL: the answer has no payload */
    float *target;               /* [floats of the scope] */
    /* Restored before the answers of a message that is sent again whole land once more. */
    struct psc_moved moved[PSC_MOST_MOVED];
};

struct psc_hub {
    const struct ps_transport *transport;
    struct ps_hub *hub;
    unsigned registered; /* bitmap of the handle's buffers */
};

struct psc_links {
    struct psc_hub hubs[PSC_MAX_TRANSPORT_OFFERS];
    uint32_t n_hubs;
    const struct ps_transport *transport; /* of the links; NULL: there were none yet */
    uint32_t window_chunks;               /* in flight on each */
    struct ps_link *link[PS_MAX_LANES];   /* NULL: the lane is empty */
    const void *cut[PS_MAX_LANES]; /* of links that are settled: what its lane was moving as psd died */
    void *pinned[PS_MAX_LANES];    /* the link's memory for a device; NULL: it is not */
    uint64_t epoch;                /* of the Welcome that they belong to */
    uint32_t failed_offers;        /* bitmap of transport offers that are not tried again in this epoch */
    bool none;                     /* no link could be opened, but a later attempt may succeed: see `why` */
    bool worked;                   /* some links were opened since the handle was */
    uint64_t heard; /* shared.heard when for the first time no lane listened; 0: lanes always did */
    struct psc_retry retry;
    char why[160];    /* the last failure; "": none */
    bool lost;        /* a link has reported that its peer is gone */
    bool leaving;     /* to be closed as soon as no lane works in the worker's vector */
    bool new_welcome; /* ... because of a new Welcome */
};

/* A lane's part of a transfer in progress. */
struct psc_flight_lane {
    uint32_t first, end;   /* the chunks that the transfer's scope intersects */
    uint32_t next, n_left; /* to be sent; without an answer */
    uint32_t last;         /* the last piece that is to be sent */
    bool refused;          /* since its others had their turn: see next_flight */
};

/* A transfer in progress. Exchanges of fragments may be in progress beside each other: they have no chunk in
 * common. All other transfers are alone. */
struct psc_flight {
    struct psc_transfer t;
    uint64_t seq;
    struct ps_range scope; /* of the transfer */
    struct ps_range cover; /* the range that is divided into frames: the scope, or more (psc_cover_of) */
    bool over;             /* it ends with rc although pieces are without an answer */
    bool unmarked;         /* psc_pieces_start is called when those before it are over */
    int rc;
    uint64_t version; /* the newest in its answers; 0: none has arrived */
    uint64_t run;     /* of the server that sent the last one */
    float rate;       /* of its last answer */
    struct ps_error error;
    struct psc_flight_lane lanes[PS_MAX_LANES];
};

/* What a lane has of the transfers in progress. */
struct psc_lane_progress {
    uint64_t *answered; /* bitmap over the lane's chunks */
    uint32_t in_flight;
    uint32_t first_sent; /* the piece that was last sent because it was the first, of a message with a gate */
    uint64_t *sent; /* bitmap over the chunks of a message with a gate: sent since the links were opened */
    /* Bitmaps over the chunks. encoded: in psc_wire.room; fed_back: what that has lost is in the error. */
    uint64_t *encoded, *fed_back;
    /* Of what a device has encoded: batches that are being copied to the host, and those that are there. */
    uint32_t fetching, fetched;
    size_t place; /* index of the lane's first chunk there */
    float
        *rates; /* [chunks]: of answers that wait for the end of a transfer that lands_at_end; NaN: others */
    /* Bitmaps over the chunks, if answers are moves. based: the last exchange of the chunk was answered, and
     * `known` is the result. says_based: the same when the exchange in progress began; its frames say so. */
    uint64_t *based, *says_based;
};

/* The buffer of encoded messages (encode.c). */
struct psc_wire {
    struct ps_codec message, answer; /* of the method in psc_transfer_state.welcome */
    unsigned char *room;             /* for the whole vector, chunk by chunk */
    size_t room_bytes;
    size_t place_bytes;         /* of a chunk there, a multiple of 16 */
    unsigned char *device_room; /* the same of the device, which encodes; `room` is pinned then. NULL: none */
    struct psc_mark *marks[PS_MAX_LANES][2]; /* of the batches that are being copied from there */
    float *known;      /* [floats], with an answer codec for moves: the center as the answers have told it */
    float *sent_known; /* [floats], with overlap: the same, of each chunk when its last exchange began */
};

/* Between vectors of a device and the lanes (stage.c). All 0 if the vectors are the host's. */
enum { PSC_STAGE_SLOTS = 8 };
struct psc_stage {
    float *mirror; /* [n_floats], in psc.buffers; pinned */
    uint64_t block_floats;
    uint32_t n_blocks;
    unsigned char *states;   /* [n_blocks]: of the message, in the mirror */
    struct psc_mark **marks; /* [n_blocks] */
    struct ps_buffer slots;  /* PSC_STAGE_SLOTS chunks */
    bool pinned;             /* they are */
    float *device_slots;     /* as many, of the device */
    unsigned char *payloads; /* as many bytes, of the device: answers in a codec */
    struct psc_mark *slot_marks[PSC_STAGE_SLOTS];
    bool slot_used[PSC_STAGE_SLOTS];
    uint32_t slot; /* the next */
    /* Answers that the device reads where they were received, until the slot's mark. */
    struct ps_message answers[PSC_STAGE_SLOTS];
    uint32_t lanes[PSC_STAGE_SLOTS];
    bool holds[PSC_STAGE_SLOTS];
    uint32_t n_held[PS_MAX_LANES];
    bool reads_answer; /* the one in progress */
};

struct psc_transfer_state {
    struct psc_welcome welcome;               /* as of links.epoch */
    struct ps_shard shard;                    /* how this welcome divides the vector */
    struct psc_flight flights[PS_MAX_TRACKS]; /* in progress, in the order in which they began */
    uint32_t n_flights;
    uint32_t tracks;       /* of the method that the lanes' tables are for */
    bool one_by_one;       /* the method has changed: those that have landed are pulled one after the other */
    double held_told_s;    /* the longest wait for other workers that was told */
    struct ps_range scope; /* of the flight whose pieces are being moved: psc_flight_take_up */
    struct ps_range cover; /* likewise */
    struct psc_links links;
    struct psc_stage stage;
    struct psc_work work; /* PSC_UP: applies answers */
    uint64_t revivals;    /* as of links.epoch */
    bool cut;             /* the server came back from a checkpoint since lanes were started: see is_cut */
    bool lost_piece;      /* a piece was lost with a server that has died, and the next one is not told yet */
    bool swapped; /* the method changed, and the transfers in progress have not been adapted to it yet */
    uint64_t landed_seq[PS_MAX_TRACKS]; /* exchanges on each track up to this one had landed then */
    _Atomic bool awaited;    /* the caller waits for what it started: see psc_transfer.keeps_turn */
    bool begun;              /* a chunk of the transfers in progress has been answered */
    bool in_place;           /* lanes update the worker's vector in place: see psc_pieces_choose */
    bool resent;             /* links were reopened while pieces of it were in flight */
    const float *registered; /* the last vector that lanes worked in */
    bool unchecked;          /* the values of the transfer in progress are not checked yet: check_values */
    bool refused;            /* chunks were refused because the method changes: nothing is sent until */
    double refused_end_s;    /* this time */
    bool begins_anew;        /* the server came back since the last exchange of a fragment: see starts_over */
    struct psc_lane_progress progress[PS_MAX_LANES];
    struct psc_wire wire;
    float *scratch;        /* two chunks: for encoding and decoding, and for answers that are not aligned */
    uint64_t seq;          /* of the last transfer that has begun, without pulls */
    uint64_t n_pulls;      /* that have begun */
    uint64_t again_seq;    /* of an exchange that the next ADD includes: see seq_of. 0: there is none */
    uint64_t save_version; /* of the last answer that asked to save; 0: none has */
    uint64_t transfer_version;            /* the newest version in answers to the transfers in progress */
    uint64_t part_versions[PS_MAX_PARTS]; /* the same for each part; 0: none has answered */
    struct psc_counts counts;
    struct ps_error error; /* of the last transfer */
};

/* Whether the rule applies the transfer's message. */
static inline bool psc_transfer_moves(const struct psc_transfer *t)
{
    return t->kind == PS_FRAME_EXCHANGE || t->kind == PS_FRAME_PUSH;
}

/* Whether frozen values are left out. */
static inline bool psc_transfer_spares_frozen(const struct psc_transfer *t)
{
    return psc_transfer_moves(t) || t->kind == PS_FRAME_ADD;
}

/* Prepares for transfer_state.welcome: the shard and a bitmap for each lane, so that transfers allocate
 * nothing. A psc result, with a sentence. */
int psc_lanes_prepare(struct psc *c, struct ps_error *err);
/* Frees what it made. */
void psc_lanes_finish(struct psc *c);
/* The transfers that follow one in a queue. */
struct psc_followers {
    /* The transfer behind those in progress; NULL: there is none, or it is not to be sent. */
    const struct psc_transfer *(*next)(struct psc *c);
    /* The oldest in progress has ended, with its rc, error, rate, version and run. */
    void (*ended)(struct psc *c, const struct psc_flight *f);
};
/* Runs the transfer to its end. A psc result; on failure transfer_state.error has the sentence. With
 * followers: starts those that may be under way beside it, and runs all of them to their end. */
int psc_transfer_run(struct psc *c, const struct psc_transfer *t, const struct psc_followers *followers);
/* What passes of PSC_COMPUTE write to `part` of a message is looked at by a device, until psc_transfer_check
 * of a transfer that is `watched`. Returns whether the vectors are a device's. */
bool psc_watch(struct psc *c, const float *message, struct ps_range part);
/* Whether the values that it sends are finite: PSC_OK, or PSC_EVALUE with a sentence, after the server was
 * told. For the caller's thread. */
int psc_transfer_check(struct psc *c, const struct psc_transfer *t, struct ps_error *err);
/* Looks for a value in `at` of what it sends that is not finite: PSC_EVALUE with a sentence that names the
 * first and ends with `then`, after the server was told; PSC_OK: there is none. For whoever runs transfers;
 * any thread if the vectors are the host's. */
int psc_transfer_find_bad(struct psc *c, const struct psc_transfer *t, struct ps_range at, const char *then,
                          struct ps_error *err);

/* encode.c. Frees the room of encoded messages. The links are closed. */
void psc_wire_finish(struct psc *c);

/* stage.c. Allocates the stage, if the vectors are a device's. PSC_ENOMEM, PSC_EDEVICE. */
int psc_stage_prepare(struct psc *c, struct ps_error *err);
void psc_stage_finish(struct psc *c);
/* For the caller's thread. A transfer is about to start: it waits for the work that was enqueued. A transfer
 * has ended: further work waits for its answers. */
void psc_work_goes(struct psc *c);
void psc_work_returns(struct psc *c);
/* A call that enqueued work ends with rc. Waits for the work if the caller cannot. Returns rc, or PSC_EDEVICE
 * if the device has failed. */
int psc_work_end(struct psc *c, int rc);
/* The psc result of a function of psc_memory_kind. */
int psc_device_result(int rc);

/* gate.c, for the caller's thread. Makes a gate for the chunks of the shard, all closed; it may have been
 * another's. False: no memory. */
bool psc_gate_make(struct psc_gate *gate, const struct ps_shard *shard);
void psc_gate_free(struct psc_gate *gate);
/* Opens the chunks that lie in `whole`, of those that `r`, a part of it, meets. Returns whether there are
 * any. */
bool psc_gate_open(struct psc_gate *gate, struct ps_range whole, struct ps_range r);
/* 64 chunks of the lane from 64 word on, as bits. Any thread. */
static inline uint64_t psc_gate_word(const struct psc_gate *gate, uint32_t lane, uint32_t word)
{
    return atomic_load_explicit(&gate->open[gate->at[lane] + word], memory_order_acquire);
}
/* Closes the links. After it no lane reads or writes the worker's vector: where a lane does not let go of one
 * that it works in, the vector is moved to memory of its own. */
void psc_links_close(struct psc *c);
/* Closes the links and the hubs behind them. */
void psc_links_finish(struct psc *c);
/* Whether the server's admission holds exchanges until those of other workers have arrived. */
bool psc_among_members(const struct psc *c);

#endif
