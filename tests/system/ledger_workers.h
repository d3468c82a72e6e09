/* ledger_workers.h: worker processes whose exchanges the center tells apart, one by one.
 *
 * Rule add, or sgd at a rate of 1. Float i of the vector is worker (i / LEDGER_SLOTS) % LEDGER_WORKERS's, its
 * slot i % LEDGER_SLOTS. Exchange k of a worker adds 4^(k / LEDGER_SLOTS) to its slot k % LEDGER_SLOTS,
 * wherever that is in the vector, and nothing elsewhere: a digit of base 4 says how often it landed, and
 * float32 holds all of them. The slot comes back LEDGER_PLACES times, at least once in every chunk of
 * LEDGER_CHUNK floats. Workers offer zeros.
 *
 * A worker notes in memory that the test owns, so that it outlives both, each exchange that it begins and
 * what it is answered. */
#ifndef TEST_SYSTEM_LEDGER_WORKERS_H
#define TEST_SYSTEM_LEDGER_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/psclient.h"

enum {
    LEDGER_WORKERS = 32,
    LEDGER_SLOTS = 128,
    LEDGER_DIGITS = 12, /* 4^12 = 2^24 */
    LEDGER_EXCHANGES = LEDGER_SLOTS * LEDGER_DIGITS,
    LEDGER_PLACES = 16,
    LEDGER_CHUNK = LEDGER_WORKERS * LEDGER_SLOTS,
    LEDGER_FLOATS = LEDGER_PLACES * LEDGER_WORKERS * LEDGER_SLOTS,
    LEDGER_KEYS = 4 /* tensors, each of as many places */
};

enum ledger_way {
    LEDGER_BY_EXCHANGE, /* psc_exchange */
    LEDGER_BY_STEP,     /* psc_step */
    LEDGER_BY_KEYS, /* psc_pushpull_keys of all keys; under rounds a restart or a new method refuses some */
    LEDGER_WAYS
};

/* How the workers of a job make moves. */
struct ledger_course {
    enum ledger_way way;
    bool gradients;  /* rule sgd */
    uint32_t behind; /* a step's move is in the center, and its answer is here, so many steps later: period
                      * and overlap. 0: at once */
    bool drops;      /* with behind: what is answered may have come too late for its round */
    bool lossy;      /* answers leave a part of the center to later ones */
};

struct ledger_page {
    _Atomic bool stop, rested, end, joined, ended;
    _Atomic uint32_t begun,
        answered; /* moves; answered ones are begun, and all but 1 + behind are answered */
    uint16_t landed[LEDGER_EXCHANGES]; /* of answered ones: at which places the answer has it; all, where the
                                        * answer need not show it and nothing drops it, else none */
    bool refused[LEDGER_EXCHANGES];    /* of answered ones: some keys were refused */
    int rc;                            /* of the last call */
    char error[600];
    double longest_s;       /* the slowest call */
    float x[LEDGER_FLOATS]; /* at the end */
};

struct ledger_worker {
    pid_t pid; /* 0: it is dead, or has ended and was waited for */
    uint32_t number;
    struct ledger_page *page;
};

/* Forks: the process must have no threads of its own. The child dies with its parent. In the parent its
 * number, in the child 0. */
pid_t ledger_fork(void);
/* Opens a session with keys as above, x zeros. A chunk without an answer is sent again after retry_ms. */
int ledger_join(const char *server, int kind, const char *name, uint32_t retry_ms, struct psc **c, float *x);

/* Forks, as above. server: psc_options.server. */
void ledger_start(struct ledger_worker *w, uint32_t number, const char *server,
                  const struct ledger_course *course);
/* kill -9, and reaps it. */
void ledger_kill(struct ledger_worker *w);
/* Tells it to move nothing more, and waits until all its moves are answered. It goes on with moves of zeros.
 * False when it has ended, or after `seconds`. */
void ledger_stop(struct ledger_worker *w);
bool ledger_rests(const struct ledger_worker *w, double seconds);
/* Tells it to end, with an x that has all that was in the center; the second waits for its end and reaps it,
 * false when it was killed for it. */
void ledger_end(struct ledger_worker *w);
bool ledger_finish(struct ledger_worker *w, double seconds);

/* The name by which /workers has it. */
void ledger_name(uint32_t number, char *name, size_t size);
/* How often exchange k of the worker is in the center at the place. */
unsigned ledger_digit(const float *center, uint32_t number, uint32_t k, uint32_t place);
/* The center as a process of its own pulls it: LEDGER_FLOATS floats. False with what it says. */
bool ledger_pull(const char *server, float *center, char *error, size_t size);

#endif
