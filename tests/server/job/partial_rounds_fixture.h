/* partial_rounds_fixture.h: the loop's cuts (server/job/partial_rounds.c) over real lanes, and clients that
 * send exchanges as libpsclient does: to all lanes at once, a window of chunks in flight in each, one
 * exchange after the other. Messages are whole numbers under rule add, so that the center says which were
 * applied. The loop's time is driven: while a round is open it goes on by a millisecond a turn; while one is
 * under way it stands still, however long the lanes take, and goes on by cut_pass_ms. */
#ifndef TEST_SERVER_JOB_PARTIAL_ROUNDS_FIXTURE_H
#define TEST_SERVER_JOB_PARTIAL_ROUNDS_FIXTURE_H

#include "tests/server/job/job_fixture.h"
#include "tests/server/lane/lane_fixture.h"

enum { CUT_LANES = 2, CUT_CHUNKS = 3, CUT_N = (CUT_CHUNKS * CUT_LANES - 1) * RIG_CHUNK + 5 };

struct cut_client {
    bool in_job;
    bool frozen;   /* neither sends nor is heard */
    bool limps;    /* is heard, but sends nothing */
    uint32_t most; /* chunks that it sends to each lane, and then no more, while not 0 */
    uint32_t incarnation;
    uint64_t seq;
    uint32_t next[CUT_LANES], in_flight[CUT_LANES], left; /* left: chunks to be answered */
    uint32_t n_dropped, n_applied;                        /* chunks of this exchange */
    uint32_t taken, dropped, split;                       /* exchanges, whole; and split between both */
    uint16_t flags;                                       /* of its last answer */
    uint64_t lowest, highest;                             /* versions of the answers to this exchange */
};

struct cut_rig {
    struct rig rig;
    struct job_fixture d;
    struct cut_client clients[RIG_SLOTS];
    double sum[CUT_LANES][CUT_CHUNKS]; /* of what was answered as applied */
};

/* settings: as of rig_open. Clients 0 to n - 1 are members. */
void cut_open(struct cut_rig *c, const char *const *settings, uint32_t n);
void cut_close(struct cut_rig *c);
/* The client begins its next exchange. Nothing is sent yet. */
void cut_begin(struct cut_rig *c, uint32_t client);
/* Ends its session; a new one is admitted by cut_join. */
void cut_leave(struct cut_rig *c, uint32_t client);
void cut_join(struct cut_rig *c, uint32_t client);
/* Sends what may be sent, takes what has come, and lets the loop have its turn. */
void cut_turn(struct cut_rig *c);
/* Whether its exchange is whole. */
bool cut_is_done(const struct cut_rig *c, uint32_t client);
/* Turns until it is; fails the test when it does not end. */
void cut_await(struct cut_rig *c, uint32_t client);
/* So many turns, a moment apart: for what must not happen. */
void cut_turns(struct cut_rig *c, uint32_t n);
/* Turns of at most 100 ms of the loop's time each, which together take ms. */
void cut_pass_ms(struct cut_rig *c, uint32_t ms);
/* Turns until n chunks of the client's exchange have been answered as applied. */
void cut_await_applied(struct cut_rig *c, uint32_t client, uint32_t n);
/* Turns until a chunk of the client's waits in every lane. */
void cut_await_waiting(struct cut_rig *c, uint32_t client);
/* Turns until n exchanges are candidates for the open round. */
void cut_await_candidates(struct cut_rig *c, uint32_t n);
/* Turns; each client leaves when its exchange has ended, until nobody is left. */
void cut_await_all_and_leave(struct cut_rig *c);
/* The center is what the answers said. */
void cut_assert_sums(struct cut_rig *c);

#endif
