/* step_workers.h: worker processes that take psc_step with gradients that depend on (seed, rank, t, x) alone,
 * so that a run can be repeated, and be compared to the last bit. */
#ifndef TEST_SYSTEM_STEP_WORKERS_H
#define TEST_SYSTEM_STEP_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/psclient.h"
#include "tests/support/system/daemon.h"

enum { STEPPER_TIMES = 200 };

struct stepper_task {
    const char *server;
    int32_t rank;
    uint64_t floats;
    uint64_t steps;  /* goes on until t is this */
    size_t samples;  /* of each gradient */
    uint32_t nap_us; /* up to so long before each step, another time at every run */
    char save[160];  /* file of psc_save, written whenever the server asks for it; "": none */
    bool save_last;  /* also at the end */
    bool load;       /* starts from that file */
    const char *key_file, *server_key; /* as of psc_options */
    bool alloc;                        /* x is psc_alloc's */
    bool steady;      /* takes no standstill of psd's for a loss: a chunk that is sent again is
                       * answered with another center, and runs end in other bits */
    uint64_t held_at; /* as if by stepper_hold_at from the beginning; 0: not held */
};

/* Shared with the worker's process. */
struct stepper_page {
    _Atomic bool joined, ended;
    _Atomic uint64_t steps;           /* t */
    _Atomic uint64_t begun;           /* steps whose gradient it has begun to compute */
    _Atomic uint64_t held_at, end_at; /* as stepper_hold_at and stepper_end_at say */
    _Atomic uint64_t saved;           /* version of the last state saved */
    int rc;                           /* of the last call */
    uint64_t saved_at;                /* t of it */
    char error[600];
    uint64_t digest;                                           /* of x at the end */
    double computes_from[STEPPER_TIMES], until[STEPPER_TIMES]; /* gradient t: between psc_step's */
};

struct stepper {
    pid_t pid;
    struct stepper_page *page;
};

/* Forks: call while this process has no threads of its own. The worker dies with its parent. */
void stepper_start(struct stepper *s, const struct stepper_task *task);
/* Waits until it has joined, taken so many steps, saved, or ended; false after `seconds`, or when it ended
 * before. */
bool stepper_joined(const struct stepper *s, double seconds);
bool stepper_reaches(const struct stepper *s, uint64_t steps, double seconds);
bool stepper_saved(const struct stepper *s, double seconds);
/* Waits until it computes the gradient of the given step, the first being 1. */
bool stepper_begins(const struct stepper *s, uint64_t step, double seconds);
/* From now on it goes on until t is this. */
void stepper_end_at(struct stepper *s, uint64_t steps);
/* From now on it stands still when it has taken so many steps, computing the next gradient; its heartbeats go
 * on. */
void stepper_hold_at(struct stepper *s, uint64_t steps);
/* Waits for its end and reaps it; false after `seconds`, when it is killed. */
bool stepper_finish(struct stepper *s, double seconds);
void stepper_kill(struct stepper *s);

/* The offer is everyone's. */
void stepper_first_point(float *x, uint64_t floats);
/* The center, by an observer of this process. malloc'ed. */
float *stepper_center(const struct daemon *d, uint64_t floats);

#endif
