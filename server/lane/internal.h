/* internal.h: what the files of the data message's life in a lane share. All of it runs on the lane's
 * thread; nothing allocates, locks or logs unless a peer misbehaves. */
#ifndef PSD_LANE_INTERNAL_H
#define PSD_LANE_INTERNAL_H

#include "proto/codecs/codec.h"
#include "server/lane/lane.h"
#include "server/rights/rights.h"

/* What each kind of request needs. */
struct psd_request_kind {
    void (*serve)(struct psd_lane *lane, struct psd_arrival *a);
    bool has_payload;
    bool moves;      /* frozen chunks do not take part */
    bool by_rule;    /* it is a message of the rule's, which the admission admits */
    bool one_tensor; /* may cover one tensor only */
    bool averages;   /* may ask for the average */
    bool lands;      /* remembered, so that it lands once */
    enum psd_message says;
    uint32_t code; /* when it may not be said */
};

/* validate.c: whether the frame fits its kind, client and lane; finds the chunk and what the transfer
 * covers. 0 or the code to refuse with. */
uint32_t psd_lane_check(struct psd_lane *lane, struct psd_arrival *a, const struct psd_request_kind *kind,
                        struct ps_error *err);

/* memory.c. Before the lane serves the center: what starts as a copy of its x. */
void psd_lane_memory_start(struct psd_lane *lane, const struct psd_center *c);
/* It has a center; some memory of its slice is made present. Whether more is to be. */
void psd_lane_memory_begin(struct psd_lane *lane);
bool psd_lane_memory_go_on(struct psd_lane *lane);

/* fragments.c. The table, of a method that has fragments; -ENOMEM. */
int psd_lane_fragments_create(struct psd_lane *lane);
/* Whether the exchange is of a fragment before which, or after which, others of the same cycle come here. */
bool psd_lane_cycle_goes_on(const struct psd_lane *lane, const struct ps_frame *f);
bool psd_lane_cycle_ends(const struct psd_lane *lane, const struct ps_frame *f);
/* After a resume: in how many lanes the client's last exchange was to land, if it has landed whole here; else
 * 0. */
uint32_t psd_lane_landed_whole(const struct psd_lane *lane, const struct psd_lane_client *c);
/* How often the rule has moved the values; chunks may be one apart while they are served. And what of that a
 * checkpoint says: with fragments the exchanges of them that have moved the slice. From that, how often the
 * rule has moved the chunk (without fragments, and under rounds, the same). */
uint64_t psd_lane_moves(const struct psd_lane *lane);
uint64_t psd_lane_moves_to_save(const struct psd_lane *lane);
uint64_t psd_lane_moves_at(const struct psd_lane *lane, uint32_t chunk, uint64_t moves);
/* Where the last fragment that moves begins: a round ends with it. */
uint64_t psd_lane_closing(const struct psd_lane *lane);

/* reply.c: each of these consumes the message. */
void psd_lane_refuse(struct psd_lane *lane, struct psd_arrival *a, uint32_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Values that are not finite, in the transfer's floats from `at` on: the client's session ends. */
void psd_lane_refuse_values(struct psd_lane *lane, struct psd_arrival *a, size_t n_bad, uint64_t at);
/* Turns the request, whose body is the answer already, or empty, into its answer. */
void psd_lane_answer(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);
/* With these floats, which are spent. */
void psd_lane_answer_floats(struct psd_lane *lane, struct psd_arrival *a, float *floats, float rate,
                            uint16_t flags);
/* With the vector's floats that the request names. */
void psd_lane_answer_vector(struct psd_lane *lane, struct psd_arrival *a, const float *vector, float rate,
                            uint16_t flags);
/* With the center as it is now. */
void psd_lane_answer_center(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);
void psd_lane_answer_nothing(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);

/* payload.c: how floats lie in bodies. How the request, and the answer to it, are encoded. */
const struct ps_codec *psd_lane_request_codec(const struct psd_lane *lane, const struct ps_frame *f);
const struct ps_codec *psd_lane_answer_codec(const struct psd_lane *lane, const struct psd_arrival *a);
/* Of a request that was checked: whether its answer is what has changed since the client's last. Whether the
 * client has the next answer is not known when this one is sent again: the next is whole then. */
bool psd_lane_is_based(const struct psd_lane *lane, const struct psd_arrival *a);
void psd_lane_forget_base(struct psd_arrival *a);
/* Where the floats of a request are worked on, and its answer's stand afterwards: in place in the body where
 * both are floats there; else where they have been decoded to: the arrival's room, or the lane's scratch
 * until the next message. */
float *psd_lane_room_of(struct psd_lane *lane, const struct psd_arrival *a);
/* The floats of a request, decoded into room[frame.count]. */
void psd_lane_decode(const struct psd_lane *lane, const struct psd_arrival *a, float *room);
/* The floats of a request, there. */
float *psd_lane_floats_of(struct psd_lane *lane, const struct psd_arrival *a);
/* Where an answer's floats are made that are not worked on where the request's are: in the body, which then
 * has the answer's length, where floats may lie there; else in the lane's scratch. NULL: no memory. */
float *psd_lane_answer_room(struct psd_lane *lane, struct psd_arrival *a);
/* The answer's floats, which may be at one of these places, into the body; they are spent. -ENOMEM: nothing
 * was done. */
int psd_lane_fill_body(struct psd_lane *lane, struct psd_arrival *a, float *floats);

/* apply.c */
struct psd_move psd_lane_move_of(const struct psd_lane *lane, const struct psd_arrival *a);
/* Before psd_lane_move: whether the arrival may be applied. False: its worker has taken its vector back, and
 * will send it again; the message was dropped. */
bool psd_lane_claim(struct psd_arrival *a);
/* Applies the arrival and lands it; at room_of is the answer then. False: it was refused and consumed. */
bool psd_lane_move(struct psd_lane *lane, struct psd_arrival *a);
/* A chunk of the exchange has landed: the whole of it is to be finished. */
void psd_lane_begin(struct psd_lane *lane, uint32_t client, uint32_t incarnation, uint64_t seq,
                    uint32_t parts);
/* The chunk has landed: notes it, and when it was the last of the transfer here, lets the clocks go on. */
void psd_lane_land(struct psd_lane *lane, struct psd_arrival *a);
/* Answers an exchange or a push that has been applied. */
void psd_lane_answer_moved(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);

/* A run of values of one role within a piece; state[k] and z are aligned with center. */
struct psd_role_run {
    uint8_t role;      /* enum ps_role */
    uint32_t rate_ppm; /* of the learning rate */
    uint64_t at;       /* of its first value in the vector */
    float *center, *m;
    float *state[PSD_MAX_STATE]; /* of the rule, and behind it what the client last saw */
    float *z;                    /* NULL: no average */
    size_t n;
};
/* z follows the center, before that moves. Part of psd_lane_move_run. */
void psd_lane_average(const struct psd_lane *lane, const struct psd_move *move, const struct psd_role_run *r);
/* Goes n values on within the run. */
void psd_lane_skip(const struct psd_lane *lane, struct psd_role_run *r, size_t n);
/* Moves the run by its role, a block at a time, m holding message and then answer. Returns how many results
 * were not finite; none of those was stored. */
size_t psd_lane_move_run(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                         struct psd_role_run r);
/* for (struct psd_role_run r = psd_lane_first_run(lane, piece, m); r.n > 0; r = psd_lane_next_run(lane,
 * piece, r))
 */
struct psd_role_run psd_lane_first_run(const struct psd_lane *lane, struct ps_range piece, float *m);
struct psd_role_run psd_lane_next_run(const struct psd_lane *lane, struct ps_range piece,
                                      struct psd_role_run r);

/* Exchanges that landed but the client's own. */
static inline int64_t psd_lane_others(const struct psd_lane *lane, uint32_t client)
{
    const struct psd_shared *s = lane->shared;
    return (int64_t)(atomic_load_explicit(&s->version, memory_order_relaxed) -
                     atomic_load_explicit(&s->exchanges[client], memory_order_relaxed));
}

/* reply.c: the client has, or is sent, these values of the center. */
void psd_lane_see(const struct psd_lane *lane, uint32_t client, struct ps_range at, const float *values);

/* Whether the request is worked on in the worker's own vector. */
static inline bool psd_lane_is_in_place(const struct psd_arrival *a)
{
    return a->message.ownership == PS_BODY_IN_PLACE;
}

/* Whether nobody else can write where the request's floats are. */
static inline bool psd_lane_is_private(const struct psd_arrival *a)
{
    return a->room != NULL || a->message.ownership == PS_BODY_PRIVATE;
}

static inline float *psd_lane_center_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return lane->center->x + a->frame.begin;
}

#endif
