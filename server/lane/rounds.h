/* rounds.h: staged messages under admissions with members, and the progress of rounds.
 *
 * The loop decides the members, and from which round on (PSD_COMMAND_MEMBERS); from that every lane derives
 * the same order by (round, rank). A member's message for a chunk is staged until the admission's `advance`
 * takes it. Each member sends one message for each round, so a message need not name its round. A client
 * completes an exchange in all lanes before it begins the next, or with fragments a cycle of exchanges before
 * the next, so chunks are at most one round apart. A round may also have one message for each tensor
 * (round_keys.c).
 *
 * Without rounds (admissions/ssp.c) a member's messages are numbered instead, and a new set is valid at once.
 *
 * Lane's thread. */
#ifndef PSD_LANE_ROUNDS_H
#define PSD_LANE_ROUNDS_H

#include "server/lane/internal.h"

/* A staged message. */
struct psd_staged {
    struct psd_arrival arrival;
    float *room; /* one chunk, for floats that cannot stay in a body; NULL until needed */
    bool used;
    bool moved;     /* it was applied and has landed; the answer is pending */
    uint16_t flags; /* of the answer */
};

/* The key of a message that is not of one tensor. */
#define PSD_WHOLE_VECTOR UINT32_MAX

/* The piece that a chunk's round has come to, as the first message for it names it. */
struct psd_round_key {
    bool known;
    uint32_t client; /* its sender */
    uint32_t key;    /* index of its tensor; PSD_WHOLE_VECTOR */
    uint64_t end;    /* the piece's */
};

/* A member's clock, without rounds. It counts exchanges of the whole vector, or of all keys. */
struct psd_member_clock {
    uint64_t offset; /* its clock when it became a member */
    uint64_t seq;    /* the last exchange that has begun */
    uint32_t key;    /* of that exchange: index of its tensor; PSD_WHOLE_VECTOR */
    uint64_t before; /* its clock, without the offset, when that one began */
    bool free;       /* that exchange waits for no other member */
};

/* The state of a client's exchange in partial rounds (partial_rounds.c). */
struct psd_exchange_state {
    uint64_t began; /* the last exchange that has begun, */
    uint64_t base;  /* and `seen` at that time */
    uint64_t noted; /* the last exchange that the loop was told of, */
    bool open;      /* and it has not decided about it yet */
    uint64_t late;  /* an exchange that is in no round any more; 0: none */
    uint64_t after; /* it is answered with the center after this many rounds */
    uint64_t seen;  /* the fewest rounds in the values sent to it since it began; UINT64_MAX: none */
};

struct psd_rounds {
    uint32_t window;           /* messages that a client may have staged */
    struct psd_staged *staged; /* [n_slots][window] */
    struct psd_members now, next;
    bool has_next;
    struct psd_member_clock *clocks;   /* [n_slots]; NULL under rounds */
    struct psd_exchange_state *states; /* [n_slots]; NULL without partial rounds */
    struct psd_members closed;         /* members of the current partial round `closed.from` */
    bool has_closed;
    uint64_t n_params; /* values of role PARAM in the model */
    uint64_t begin;    /* rounds of the center when the lane got its slice */
    uint64_t *done;    /* [n_chunks]: rounds that the chunk has completed */
    uint32_t *turn;    /* [n_chunks]: members that were served the current piece, in order of rank */
    uint64_t *at;      /* [n_chunks]: where the next piece of a round of keys begins; 0: at its beginning */
    struct psd_round_key *keys; /* [n_chunks] */
    uint32_t last_key;          /* the last tensor that moves */
    uint32_t last_key_here;     /* of those that this server has values of */
    uint64_t round;             /* completed by every chunk */
    uint32_t n_done;            /* chunks that have completed one more */
    uint32_t *moving;           /* [n_chunks]: chunks before it that move */
    uint32_t last;              /* the last chunk that moves: an exchange ends with it */
    uint64_t closing; /* chunks from this float on belong to a cycle's last fragment; 0 without fragments */
    bool held;
    bool hold_due; /* to be held as soon as every chunk has come to the next set */
    bool wake;     /* other chunks than the current one may be able to advance */
    bool saving;   /* the slice is to be copied after `save_at` rounds */
    uint64_t save_at;
    struct psd_snapshot *snapshot;
    struct psd_arrival **gathered; /* [n_slots]: the messages of a round, gathered by an admission */
    float **bodies;                /* [n_slots] */
    double *scales;                /* [n_slots]: for clip_norm */
    double *pulls;                 /* [n_slots]: for admm */
};

/* Allocates the state of a lane that has its slice; NULL: no memory. `begin`: rounds that the center has
 * completed. */
struct psd_rounds *psd_rounds_create(const struct psd_lane *lane, uint64_t begin);
/* The client continues a session from before psd was restarted. */
void psd_rounds_revive(struct psd_lane *lane, uint32_t client);
/* Drops the staged messages. */
void psd_rounds_destroy(struct psd_lane *lane);

/* `arrive` of admissions with members: refuses a message that cannot be staged, or stages it and advances. */
void psd_rounds_arrive(struct psd_lane *lane, struct psd_arrival *a);
/* The client's session has ended or begins again: removes it from rounds that are not complete. */
void psd_rounds_forget(struct psd_lane *lane, uint32_t client);
/* Commands of the loop. */
void psd_rounds_hold(struct psd_lane *lane);
/* At once, without an answer. */
void psd_rounds_halt(struct psd_lane *lane);
void psd_rounds_take_members(struct psd_lane *lane, const struct psd_members *m);
void psd_rounds_go(struct psd_lane *lane);
/* Refuses staged messages of exchanges that have not begun: the method is about to change. */
void psd_rounds_close(struct psd_lane *lane);
/* How far the furthest of the chunks that move is, and the one that is furthest behind, in a number that
 * grows with each message or round that moves them: equal in all lanes where no exchange is in some chunks
 * only. UINT64_MAX and 0 where chunks may differ: without rounds, and with fragments. */
void psd_rounds_span(const struct psd_lane *lane, uint64_t *least, uint64_t *most);
/* Copies the slice after this many rounds; at once if no round will complete any more, or without rounds. */
void psd_rounds_snapshot(struct psd_lane *lane, struct psd_snapshot *s, uint64_t after);

/* For `advance`. The members of the chunk's round. */
const struct psd_members *psd_rounds_members(const struct psd_lane *lane, uint32_t chunk);
/* The client's staged message for the chunk, or NULL. */
struct psd_staged *psd_rounds_find(const struct psd_lane *lane, uint32_t client, uint32_t chunk);
/* The flags of the answer to a message of its chunk's round. */
uint16_t psd_rounds_flags(const struct psd_lane *lane, const struct psd_arrival *a);
/* The chunk has completed the round. */
void psd_rounds_finish(struct psd_lane *lane, uint32_t chunk);
/* round_keys.c. The client's staged message for the chunk, if it is what the chunk's round needs next; NULL:
 * there is none, or it was refused. */
struct psd_staged *psd_rounds_due(struct psd_lane *lane, uint32_t client, uint32_t chunk);
/* Every member has been served the piece of the chunk that ends at `end`: the next piece is due, or the chunk
 * has completed the round. */
void psd_rounds_pass(struct psd_lane *lane, uint32_t chunk, uint64_t end);
/* The last tensor that moves and has values in the range. */
uint32_t psd_rounds_last_key(const struct ps_manifest *m, struct ps_range of);
/* The key of a message: index of its tensor; PSD_WHOLE_VECTOR. */
static inline uint32_t psd_key_of(const struct ps_frame *f)
{
    return (f->flags & PS_FLAG_TENSOR) != 0 ? f->code : PSD_WHOLE_VECTOR;
}
/* Whether the exchange is the last one of a round. */
static inline bool psd_rounds_ends(const struct psd_rounds *r, const struct ps_frame *f)
{
    return psd_key_of(f) == PSD_WHOLE_VECTOR || f->code == r->last_key;
}
/* The end of the message's piece. */
static inline uint64_t psd_end_of(const struct psd_arrival *a)
{
    return a->frame.begin + a->frame.count;
}
/* Advances every chunk that can. */
void psd_rounds_advance_all(struct psd_lane *lane);
/* Removes the client from the set. */
void psd_members_leave(struct psd_members *m, uint32_t client);
bool psd_rounds_moves(const struct psd_lane *lane, uint32_t chunk);
/* Answers and clears a staged message that was applied, at the rate of its arrival. */
void psd_rounds_answer(struct psd_lane *lane, struct psd_staged *s);
/* The same with the current center. */
void psd_rounds_answer_center(struct psd_lane *lane, struct psd_staged *s);
/* Clears a staged message that was consumed. */
void psd_rounds_clear(struct psd_lane *lane, struct psd_staged *s);

/* aggregate.c, for admissions whose rounds are one update each. Moves the chunk by the n > 0 messages in
 * rounds->gathered, in order of rank; answers and consumes each of them, and completes the chunk's round. */
void psd_merge_round(struct psd_lane *lane, uint32_t chunk, uint32_t n);

#endif
