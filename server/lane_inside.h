/* lane_inside.h: what the files of the data message's life in a lane share. All of it runs on the lane's
 * thread; nothing allocates, locks or logs unless a peer misbehaves. */
#ifndef PSD_LANE_INSIDE_H
#define PSD_LANE_INSIDE_H

#include "proto/codec.h"
#include "server/lane.h"

/* What each kind of request needs. */
struct psd_request_kind {
    void (*serve)(struct psd_lane *lane, struct psd_arrival *a);
    bool has_payload;
    bool moves;      /* by the rule: frozen chunks do not take part */
    bool one_tensor; /* may cover one tensor only */
    bool averages;   /* may ask for the average */
    unsigned phases; /* bits of enum psd_phase in which it is allowed */
    uint32_t code;   /* when it is not */
};

/* lane_check.c: whether the frame fits its kind, client and lane; finds the chunk and what the transfer
 * covers. 0 or the code to refuse with. */
uint32_t psd_lane_check(struct psd_lane *lane, struct psd_arrival *a, const struct psd_request_kind *kind,
                        struct ps_error *err);

/* lane_answer.c: each of these consumes the message. */
void psd_lane_refuse(struct psd_lane *lane, struct psd_arrival *a, uint32_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Values that are not finite, in the transfer's floats from `at` on: the client's session ends. */
void psd_lane_refuse_values(struct psd_lane *lane, struct psd_arrival *a, size_t n_bad, uint64_t at);
/* Turns the request, whose body is the answer already, into its answer. */
void psd_lane_answer(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);
/* With the vector's floats that the request names. */
void psd_lane_answer_vector(struct psd_lane *lane, struct psd_arrival *a, const float *vector, float rate,
                            uint16_t flags);
/* With the center as it is now. */
void psd_lane_answer_center(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);
void psd_lane_answer_nothing(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);

/* lane_apply.c */
struct psd_move psd_lane_move_of(const struct psd_lane *lane, const struct psd_arrival *a);
/* Where the floats of a body are worked on: in place where it may hold floats; else in the lane's scratch,
 * from which they go back. */
float *psd_lane_room_of(struct psd_lane *lane, const struct psd_arrival *a);
void psd_lane_floats_back(struct psd_lane *lane, const struct psd_arrival *a);
/* The floats of a body, there. */
float *psd_lane_floats_of(struct psd_lane *lane, const struct psd_arrival *a);
/* Applies the arrival and lands it; its body is the answer then. False: it was refused and consumed. */
bool psd_lane_move(struct psd_lane *lane, struct psd_arrival *a);
/* The chunk has landed: notes it, and when it was the last of the transfer here, lets the clocks go on. */
void psd_lane_land(struct psd_lane *lane, struct psd_arrival *a);
/* Answers an exchange or a push that has been applied. */
void psd_lane_answer_moved(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags);

/* A run of values of one role within a piece; state[k] and z are aligned with center. */
struct psd_run {
    uint8_t role; /* enum ps_role */
    uint64_t at;  /* of its first value in the vector */
    float *center, *m;
    float *state[PSD_MAX_STATE]; /* of the rule, and behind it what the client last saw */
    float *z;                    /* NULL: no average */
    size_t n;
};
/* z follows the center, before that moves. Part of psd_lane_move_run. */
void psd_lane_follow(const struct psd_lane *lane, const struct psd_move *move, const struct psd_run *r);
/* Goes n values on within the run. */
void psd_lane_skip(const struct psd_lane *lane, struct psd_run *r, size_t n);
/* Moves the run by its role, a block at a time, m holding message and then answer. Returns how many results
 * were not finite; none of those was stored. */
size_t psd_lane_move_run(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                         struct psd_run r);
/* for (struct psd_run r = psd_lane_first_run(lane, piece, m); r.n > 0; r = psd_lane_next_run(lane, piece, r))
 */
struct psd_run psd_lane_first_run(const struct psd_lane *lane, struct ps_range piece, float *m);
struct psd_run psd_lane_next_run(const struct psd_lane *lane, struct ps_range piece, struct psd_run r);

/* Exchanges that landed but the client's own. */
static inline int64_t psd_lane_others(const struct psd_lane *lane, uint32_t client)
{
    const struct psd_shared *s = lane->shared;
    return (int64_t)(atomic_load_explicit(&s->version, memory_order_relaxed) -
                     atomic_load_explicit(&s->exchanges[client], memory_order_relaxed));
}

/* lane_answer.c: the client has, or is sent, these values of the center. */
void psd_lane_see(const struct psd_lane *lane, uint32_t client, struct ps_range at, const float *values);

static inline float *psd_lane_center_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return lane->center->x + a->frame.begin;
}

#endif
