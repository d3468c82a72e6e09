/* rounds.h: what a lane stages under admissions with members, and how it goes through rounds.
 *
 * The loop decides who the members are, from which round on (PSD_COMMAND_MEMBERS); from that every lane
 * derives the same order by (round, rank) on its own. A member's message for a chunk is staged until the
 * admission's `advance` takes it; each member sends one for each round, so that the round needs no name on
 * the transport. A client ends an exchange in all lanes before it begins the next: chunks are one round apart
 * at most.
 *
 * Without rounds (admissions/ssp.c) a member's messages are numbered instead; a new set is valid at once.
 *
 * All of it belongs to the lane's thread. */
#ifndef PSD_LANE_ROUNDS_H
#define PSD_LANE_ROUNDS_H

#include "server/lane/internal.h"

/* A message that waits. */
struct psd_staged {
    struct psd_arrival arrival;
    float *room; /* one chunk, for floats that cannot stay in a body; NULL until one was needed */
    bool used;
    bool moved;     /* applied and landed already: the answer waits */
    uint16_t flags; /* of the answer */
};

/* Where a member stands. */
struct psd_pace {
    uint64_t offset; /* its clock when it began to take part */
    uint64_t seq;    /* the exchange begun last */
    uint64_t before; /* exchanges of it that had landed in every lane when that began */
    bool free;       /* that one waits for nobody */
};

/* Where a client's exchange stands under cuts (partial_rounds.c). */
struct psd_standing {
    uint64_t began; /* exchange begun last, */
    uint64_t base;  /* and `seen` as it was then */
    uint64_t noted; /* the last that the loop was told of, */
    bool open;      /* and it has not said what becomes of it */
    uint64_t late;  /* exchange that is in no round any more; 0: none */
    uint64_t after; /* it is answered with the center after so many rounds */
    uint64_t seen;  /* the least rounds behind the values that it was sent since it began; UINT64_MAX: none */
};

struct psd_rounds {
    uint32_t window;           /* messages that a client may have staged */
    struct psd_staged *staged; /* [n_slots][window] */
    struct psd_members now, next;
    bool has_next;
    struct psd_pace *pace;         /* [n_slots]; NULL under rounds */
    struct psd_standing *standing; /* [n_slots]; NULL without cuts */
    struct psd_members cut;        /* the round under way of `cut.from` is made of these */
    bool has_cut;
    uint64_t n_params; /* values of role PARAM in the model */
    uint64_t begin;    /* rounds that the center had been through when the lane got its slice */
    uint64_t *done;    /* [n_chunks]: rounds that the chunk has been through */
    uint32_t *turn;    /* [n_chunks]: members of the round under way that it has served, in order of rank */
    uint64_t round;    /* that every chunk has been through */
    uint32_t n_done;   /* chunks that have been through one more */
    uint32_t last;     /* the last chunk that moves: an exchange ends with it */
    uint64_t closing; /* the float from which on chunks are of a cycle's last fragment; 0 without fragments */
    bool held;
    bool wake;   /* chunks other than the one at work may go on */
    bool saving; /* the slice is to be copied after `save_at` rounds */
    uint64_t save_at;
    struct psd_snapshot *snapshot;
    struct psd_arrival **party; /* [n_slots]: for an admission to gather a round in */
    float **bodies;             /* [n_slots] */
    double *keeps;              /* [n_slots]: for merges */
};

/* Memory for a lane that has its slice; NULL without. `begin`: rounds that the center has been through. */
struct psd_rounds *psd_rounds_create(const struct psd_lane *lane, uint64_t begin);
/* The client goes on with a session that it had before psd was restarted. */
void psd_rounds_revive(struct psd_lane *lane, uint32_t client);
/* Drops what is staged. */
void psd_rounds_destroy(struct psd_lane *lane);

/* `arrive` of admissions with members: refuses what cannot be staged, or stages it and advances. */
void psd_rounds_arrive(struct psd_lane *lane, struct psd_arrival *a);
/* The client's session has ended or begins anew: it is no member of what is not complete. */
void psd_rounds_forget(struct psd_lane *lane, uint32_t client);
/* Notes of the loop. */
void psd_rounds_hold(struct psd_lane *lane);
void psd_rounds_take_members(struct psd_lane *lane, const struct psd_members *m);
void psd_rounds_go(struct psd_lane *lane);
/* Refuses what is staged of exchanges that have not begun: the method is about to change. */
void psd_rounds_close(struct psd_lane *lane);
/* Copies the slice after so many rounds; at once where none will end any more, or there are none. */
void psd_rounds_snapshot(struct psd_lane *lane, struct psd_snapshot *s, uint64_t after);

/* For `advance`. The members of the chunk's round. */
const struct psd_members *psd_rounds_members(const struct psd_lane *lane, uint32_t chunk);
/* What the client has staged for the chunk, or NULL. */
struct psd_staged *psd_rounds_find(const struct psd_lane *lane, uint32_t client, uint32_t chunk);
/* The answer's flags in the chunk's round. */
uint16_t psd_rounds_flags(const struct psd_lane *lane, uint32_t chunk);
/* The round is over for the chunk. */
void psd_rounds_finish(struct psd_lane *lane, uint32_t chunk);
/* Goes on with whatever chunk may. */
void psd_rounds_advance_all(struct psd_lane *lane);
/* The set goes on without the client. */
void psd_members_leave(struct psd_members *m, uint32_t client);
bool psd_rounds_moves(const struct psd_lane *lane, uint32_t chunk);
/* Answers and forgets a staged message that was moved. */
void psd_rounds_answer(struct psd_lane *lane, struct psd_staged *s, float rate);
/* The same with the center as it is now. */
void psd_rounds_answer_center(struct psd_lane *lane, struct psd_staged *s, float rate);
/* Forgets a staged message that was consumed. */
void psd_rounds_clear(struct psd_lane *lane, struct psd_staged *s);

/* aggregate.c, for admissions whose rounds are one update each. Moves the chunk by the n > 0 messages that
 * rounds->party has, in order of rank; each is answered and consumed, and the round is over for the chunk. */
void psd_merge_round(struct psd_lane *lane, uint32_t chunk, uint32_t n);

#endif
