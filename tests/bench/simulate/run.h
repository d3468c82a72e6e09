/* run.h: the parts of a simulated job. Private to this folder. A struct sim owns all of them. */
#ifndef TEST_BENCH_SIMULATE_RUN_H
#define TEST_BENCH_SIMULATE_RUN_H

#include "tests/bench/simulate/engine.h"
#include "tests/bench/simulate/model.h"

/* A chunk, or a group of chunks, in flight to a lane and back. */
struct sim_piece {
    struct sim_task task;
    struct sim_piece *next; /* staged at the lane, or free */
    struct sim *sim;
    struct sim_client *client;
    uint32_t lane, k;
    bool counted, applied; /* counted by its chunk's clock; applied to the center */
    int stage;
};

/* A client's exchange at one lane. */
struct sim_window {
    uint32_t next, in_flight, left;
    struct sim_station io; /* the client's thread for this lane */
};

struct sim_client {
    struct sim *sim;
    uint32_t id, first_lane;
    struct sim_dice dice;
    double *factors; /* [members]: slowdown factor of its steps */
    struct sim_station caller, up, down;
    struct sim_task task;
    struct sim_window *windows;       /* [n_lanes] */
    struct sim_piece *pieces, *free;  /* [n_lanes * window]; those not in flight */
    uint32_t lanes_left, lanes_begun; /* of the current exchange: lanes not answered; lanes where it has
                                         begun */
    uint32_t landed;                  /* its applied pieces in the client's first lane */
    bool computes;                    /* beside its exchange */
    uint32_t joins;                   /* pending: its exchange, and an overlapped step */
    double begun_s, computed_s;       /* of the exchange; of the overlapped step */
    uint64_t exchanges;
    uint64_t round, seen_round; /* the round of the message; the lowest round seen by its answers */
    uint64_t member_of;         /* 1 + the round that this client is a member of */
    uint64_t seen_moves;
    bool was_dropped;
};

/* A chunk of the center. */
struct sim_place {
    struct sim *sim;
    struct sim_task merge;
    struct sim_piece *first, *last; /* staged, in order of arrival */
    uint32_t lane, k, n_staged, n_members;
    bool busy;                  /* a piece is being applied */
    uint64_t done;              /* rounds */
    uint32_t turn;              /* round-robin */
    struct sim_piece **by_rank; /* [clients], round-robin */
    uint32_t *clocks, *n_at;    /* [clients], [slack + 3]: ssp */
    uint64_t slowest;
};

struct sim_lane {
    struct sim_station io, work;
    uint32_t server;
    struct sim_place *places; /* [n_pieces] */
};

struct sim_server {
    struct sim_station in, out;
};

struct sim_admission {
    const char *name;
    void (*arrive)(struct sim *s, struct sim_piece *p); /* called when a piece reaches its lane */
    bool rounds;                                        /* one update per round: no exchange is stale */
    bool partial_rounds;                                /* a round consists of the first arrivals */
    bool by_rank, clocks;
    bool whole; /* each lane serves some clients with the whole center */
};
const struct sim_admission *sim_admission_find(const char *name);

struct sim_tally {
    double since_s, waited_s, staleness_sum, lanes_s, nic_s, cores_s;
    uint64_t exchanges, dropped, n_stale;
};

struct sim {
    struct sim_engine engine;
    const struct sim_method *method;
    const struct sim_machine *machine;
    const struct sim_load *load;
    const struct sim_admission *admission;
    struct sim_station cores;
    uint32_t n_clients, n_lanes, n_servers, n_pieces; /* n_pieces: per lane */
    double *piece_floats, *piece_chunks;              /* [n_pieces] */
    struct sim_client *clients;
    struct sim_lane *lanes;
    struct sim_server *servers;
    double sum_s, broadcast_s; /* of a clique */
    uint64_t moves;            /* exchanges completed in their client's first lane */
    struct {
        uint64_t round;   /* the open round */
        uint32_t n;       /* members of the previous round */
        uint32_t n_begun; /* messages of the open round that have begun in every lane */
        bool waits;       /* the grace time is running */
        uint64_t graced;
    } cut;
    uint64_t *staleness; /* [n_bins], the last counts all larger values */
    uint32_t n_bins;
    uint64_t n_warm, n_all;
    struct sim_tally tally;
    struct sim_result total;
    double end_s;
    bool over;
};

/* client.c */
void sim_client_start(struct sim_client *c);
void sim_client_answered(struct sim_client *c);                  /* its exchange is complete */
double sim_member_step_s(struct sim_client *c, uint32_t member); /* time of its next step */
double sim_own_steps_s(const struct sim *s);                     /* of a worker, per period */

/* exchange.c */
void sim_exchange_start(struct sim_client *c);
void sim_exchange_go_on(struct sim_client *c);        /* sends what the windows allow */
void sim_answer(struct sim *s, struct sim_piece *p);  /* the answer leaves its lane */
void sim_applied(struct sim *s, struct sim_piece *p); /* it was applied to the center */

/* ring.c: jobs that are one clique; time of sums without shared cores. */
int sim_ring_run(struct sim *s);
double sim_allreduce_s(const struct sim_machine *m, double n_floats, double members);
double sim_reduce_s(const struct sim_machine *m, double n_floats, double members);
double sim_broadcast_s(const struct sim_machine *m, double n_floats, double members);

/* run.c */
void sim_count(struct sim *s, struct sim_client *c, double waited_s);

#endif
