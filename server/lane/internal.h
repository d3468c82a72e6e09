/* internal.h: the functions that the files of a lane share to serve a data message. All of it runs on the
 * lane's thread, and nothing allocates, locks or logs unless a peer misbehaves. */
#ifndef PSD_LANE_INTERNAL_H
#define PSD_LANE_INTERNAL_H

#include "proto/codecs/codec.h"
#include "server/lane/lane.h"
#include "server/rights/rights.h"

/* The properties of each kind of request. */
struct psd_request_kind {
    void (*serve)(struct psd_lane *lane, struct psd_arrival *a);
    bool has_payload;
    bool moves;      /* frozen chunks are not part of it */
    bool by_rule;    /* a message of the rule, subject to the admission */
    bool one_tensor; /* may be limited to one tensor */
    bool averages;   /* may ask for the average */
    bool lands;      /* recorded in the replay table, so that it lands once */
    enum psd_message says;
    uint32_t code; /* the error if the client may not send it */
};

/* validate.c. Checks the frame against its kind, client and lane; finds its chunk and the extent of its
 * transfer. Returns 0 or the code to refuse it with. */
uint32_t psd_lane_check(struct psd_lane *lane, struct psd_arrival *a, const struct psd_request_kind *kind,
                        struct ps_error *err);

/* commands.c. Frees what the lane has for its slice; it may be called again. */
void psd_lane_free_tables(struct psd_lane *lane);

/* memory.c. Called before the lane serves the center: copies x to the vectors that start from it. */
void psd_lane_memory_start(struct psd_lane *lane, const struct psd_center *c);
/* After the lane has its center: touches some pages of its slice. Returns whether more remain. */
void psd_lane_memory_begin(struct psd_lane *lane);
bool psd_lane_memory_go_on(struct psd_lane *lane);

/* fragments.c. Creates the table, if the method has fragments; -ENOMEM. */
int psd_lane_fragments_create(struct psd_lane *lane);
/* Whether the exchange is of a fragment that other fragments of the same cycle precede, or follow, in this
 * lane. */
bool psd_lane_cycle_goes_on(const struct psd_lane *lane, const struct ps_frame *f);
bool psd_lane_cycle_ends(const struct psd_lane *lane, const struct ps_frame *f);
/* After a resume: the number of lanes that the client's last exchange on the track was to land in, if it has
 * landed completely in this one; else 0. */
uint32_t psd_lane_landed_whole(const struct psd_lane *lane, const struct psd_lane_client *c, uint32_t track);
/* Forgets which chunks of the exchange's fragment have landed. */
void psd_lane_forget_fragment(const struct psd_lane *lane, struct psd_lane_client *c, uint32_t fragment);
/* Copies to `landed` the chunks of the exchange on the track that have landed. */
void psd_lane_copy_landed(const struct psd_lane *lane, const struct psd_lane_client *c, uint32_t track,
                          uint64_t *landed);
/* psd_lane_moves_to_save: psd_lane_moves as a checkpoint stores it; with fragments, the exchanges of
 * fragments that have moved the slice. psd_lane_fragment_moves: the moves of each fragment, [n_fragments].
 * psd_lane_moves_at: how often the rule has moved the chunk, by a checkpoint; one that does not count
 * fragments tells their share of the lane's count, which is exact if there was only one client. */
uint64_t psd_lane_moves_to_save(const struct psd_lane *lane);
void psd_lane_fragment_moves(const struct psd_lane *lane, uint64_t *out);
uint64_t psd_lane_moves_at(const struct psd_lane *lane, uint32_t chunk, const struct psd_snapshot *s);
/* The first float of the last fragment that moves: a round ends with it. */
uint64_t psd_lane_closing(const struct psd_lane *lane);

/* moves.c. Creates the counts of a lane that has its slice; -ENOMEM. */
int psd_lane_moves_create(struct psd_lane *lane);
/* How often the rule has moved the values of the message; of several tensors, the one that it has moved most
 * often. */
uint64_t psd_lane_moves_before(const struct psd_lane *lane, const struct psd_arrival *a);
/* It has moved them once more. */
void psd_lane_moves_count(struct psd_lane *lane, const struct psd_arrival *a);
/* How often it has moved the values of the chunk, of the lane; chunks may differ by one while they are
 * served. */
uint64_t psd_lane_moves_in(const struct psd_lane *lane, uint32_t chunk);
uint64_t psd_lane_moves(const struct psd_lane *lane);
/* All of the chunk were moved that often. */
void psd_lane_moves_set(struct psd_lane *lane, uint32_t chunk, uint64_t moves);

/* reply.c: each of these consumes the message. */
void psd_lane_refuse(struct psd_lane *lane, struct psd_arrival *a, uint32_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Refuses values that are not finite, among the transfer's floats from `at`: ends the client's session. */
void psd_lane_refuse_values(struct psd_lane *lane, struct psd_arrival *a, size_t n_bad, uint64_t at);
/* Answers with these floats, which are overwritten. */
void psd_lane_answer_floats(struct psd_lane *lane, struct psd_arrival *a, float *floats, float rate,
                            uint16_t flags);
/* Answers with the floats of the vector that the request names. */
void psd_lane_answer_vector(struct psd_lane *lane, struct psd_arrival *a, const float *vector, float rate,
                            uint16_t flags);
/* Answers with the current center. */
void psd_lane_answer_center(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);
void psd_lane_answer_nothing(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);

/* payload.c: encoding of floats in bodies. The codecs of the request and of its answer. */
const struct ps_codec *psd_lane_request_codec(const struct psd_lane *lane, const struct ps_frame *f);
const struct ps_codec *psd_lane_answer_codec(const struct psd_lane *lane, const struct psd_arrival *a);
/* For a checked request: whether its answer holds what has changed since the client's last answer. */
bool psd_lane_is_based(const struct psd_lane *lane, const struct psd_arrival *a);
/* The answer is sent again, so psd does not know which answer the client has: its next one is whole. */
void psd_lane_forget_base(struct psd_arrival *a);
/* Takes what a resumed client has of a chunk, which its next answer may add to, where psd keeps it. Returns
 * how many values are not finite: nothing was kept. */
size_t psd_lane_take_known(struct psd_lane *lane, struct psd_arrival *a);
/* The location of a request's floats, and of its answer's afterwards: the body itself if both are raw floats
 * there; else the decoded copy, in the arrival's room, or in the lane's scratch until the next message. */
float *psd_lane_room_of(struct psd_lane *lane, const struct psd_arrival *a);
/* Decodes the floats of a request into room[frame.count]. */
void psd_lane_decode(const struct psd_lane *lane, const struct psd_arrival *a, float *room);
/* The request's floats at the location above. */
float *psd_lane_floats_of(struct psd_lane *lane, const struct psd_arrival *a);
/* The location for an answer's floats that do not replace the request's: the body, resized to the answer, if
 * floats may be there; else the lane's scratch. NULL: no memory. */
float *psd_lane_answer_room(struct psd_lane *lane, struct psd_arrival *a);
/* Encodes the answer's floats, which are at one of these locations, into the body; overwrites them. -ENOMEM:
 * nothing was changed. */
int psd_lane_fill_body(struct psd_lane *lane, struct psd_arrival *a, float *floats);
/* Where that encodes them: the body; in the lane's scratch, until the next message, where the client may
 * write to the body and the floats are elsewhere. What others are answered is copied from there. */
void *psd_lane_payload_of(const struct psd_lane *lane, const struct psd_arrival *a, const float *floats);

/* With an answer codec for moves, of clients below center.n_seen: the answer that left the client with what
 * it has of the chunk. Equal numbers: equal values. */
static inline uint64_t *psd_lane_base_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return &lane->bases[(size_t)a->frame.client * lane->n_chunks + a->chunk];
}

/* round_answers.c. Encodes the answers to these messages of one chunk, which all have the same floats; those
 * that are alike once. */
enum { PSD_MOST_SHARES = 256 };
void psd_lane_fill_round(struct psd_lane *lane, struct psd_arrival *const *arrivals, uint32_t n);

/* apply.c */
struct psd_move psd_lane_move_of(const struct psd_lane *lane, const struct psd_arrival *a);
/* psd_move.kappa of its messages, for a tensor with that part of the learning rate. */
float psd_lane_kappa(const struct psd_move *move, double rate);
/* Call before psd_lane_move: whether the arrival may be applied. False: its worker has taken its vector back
 * and will send it again; the message was dropped. */
bool psd_lane_claim(struct psd_arrival *a);
/* Applies the arrival, whose rate is then set, and marks it as landed; the answer is then at
 * psd_lane_room_of. False: it was refused and consumed. */
bool psd_lane_move(struct psd_lane *lane, struct psd_arrival *a);
/* A chunk of the exchange has landed: the whole exchange is to be completed. */
void psd_lane_begin(struct psd_lane *lane, uint32_t client, uint32_t track, uint32_t incarnation,
                    uint64_t seq, uint32_t parts);
/* Call before the norms of the arrival are added: those of a cycle count from its first exchange on. */
void psd_lane_open_norms(const struct psd_lane *lane, struct psd_arrival *a);
/* The chunk has landed: records it, and advances the clocks if it was the transfer's last chunk in this
 * lane. */
void psd_lane_land(struct psd_lane *lane, struct psd_arrival *a);
/* Answers an exchange or a push after it was applied. */
void psd_lane_answer_moved(struct psd_lane *lane, struct psd_arrival *a, uint16_t flags);

/* A run of values of one role in a piece; state[k] and z are aligned with center. */
struct psd_role_run {
    uint8_t role;      /* enum ps_role */
    uint32_t rate_ppm; /* of the learning rate */
    uint64_t at;       /* index of its first value in the vector */
    float *center, *m;
    float *state[PSD_MAX_STATE]; /* the rule's, followed by what the client last saw */
    float *z;                    /* NULL: no average */
    size_t n;
};
/* Moves z towards the center, before the center moves. Part of psd_lane_move_run. */
void psd_lane_average(const struct psd_lane *lane, const struct psd_move *move, const struct psd_role_run *r);
/* Advances by n values in the run. */
void psd_lane_skip(const struct psd_lane *lane, struct psd_role_run *r, size_t n);
/* Moves the run by its role, block by block; m holds the message and then the answer. Returns how many
 * results were not finite; none of those was stored. */
size_t psd_lane_move_run(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                         struct psd_role_run r);
/* Iterates over the runs of a piece:
 *   for (struct psd_role_run r = psd_lane_first_run(lane, piece, m); r.n > 0; r = psd_lane_next_run(lane,
 *   piece, r)) */
struct psd_role_run psd_lane_first_run(const struct psd_lane *lane, struct ps_range piece, float *m);
struct psd_role_run psd_lane_next_run(const struct psd_lane *lane, struct ps_range piece,
                                      struct psd_role_run r);

/* Exchanges of the other clients that have landed. */
static inline int64_t psd_lane_others(const struct psd_lane *lane, uint32_t client)
{
    const struct psd_shared *s = lane->shared;
    return (int64_t)(atomic_load_explicit(&s->version, memory_order_relaxed) -
                     atomic_load_explicit(&s->exchanges[client], memory_order_relaxed));
}

/* reply.c. Records that the client has, or is sent, these values of the center. */
void psd_lane_see(const struct psd_lane *lane, uint32_t client, struct ps_range at, const float *values);

/* Whether the request is applied in the worker's own vector. */
static inline bool psd_lane_is_in_place(const struct psd_arrival *a)
{
    return a->message.ownership == PS_BODY_IN_PLACE;
}

/* Whether no other process can write to the request's floats. */
static inline bool psd_lane_is_private(const struct psd_arrival *a)
{
    return a->room != NULL || a->message.ownership == PS_BODY_PRIVATE;
}

static inline float *psd_lane_center_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return lane->center->x + a->frame.begin;
}

#endif
