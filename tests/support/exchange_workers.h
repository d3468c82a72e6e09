/* exchange_workers.h: worker processes over libpsclient that exchange until told to stop.
 *
 * Their messages are whole numbers, so that under rule sgd with learning_rate 1 every sum is exact in float32
 * and the center says which exchanges landed. They offer zeros. */
#ifndef TEST_SUPPORT_EXCHANGE_WORKERS_H
#define TEST_SUPPORT_EXCHANGE_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/psclient.h"

struct crew_task {
    const char *server; /* as in psc_options */
    int32_t rank;       /* -1: any */
    uint64_t floats;
    uint64_t count;                              /* exchanges; 0: until told to stop */
    uint32_t timeout_ms, retry_ms, heartbeat_ms; /* 0: the library's default */
    uint32_t salt;                               /* tells the workers' messages apart */
    bool steps;        /* psc_step with messages as gradients, instead of exchanges */
    bool ignore_drain; /* goes on as long as exchanges take effect */
    double pause_s;    /* between two exchanges */
    uint64_t held_at;  /* as if by crew_hold_at from the beginning; 0: not held */
};

/* Shared with the worker's process. */
struct crew_page {
    _Atomic bool stop, joined, ended;
    _Atomic uint64_t exchanges; /* completed */
    _Atomic uint64_t held_at;   /* it begins no exchange after so many */
    _Atomic bool is_held;       /* it stands there: no exchange of its is under way */
    int rank, rc;               /* rc: of the last call */
    _Atomic uint64_t drained;   /* exchanges that returned PSC_DRAINED and took effect */
    struct psc_info info;
    char error[600];  /* psc_error after the last call */
    char said[4096];  /* what the log callback was told, a line each */
    double longest_s; /* the slowest exchange */
};

struct crew_worker {
    pid_t pid;
    struct crew_page *page;
};

/* Forks: call before this process starts threads of its own. The worker dies with its parent. */
void crew_start(struct crew_worker *w, const struct crew_task *task);
/* Waits until the worker has joined, or has completed `exchanges` in all; false after `seconds` or when it
 * ended first. */
bool crew_joined(const struct crew_worker *w, double seconds);
bool crew_reaches(const struct crew_worker *w, uint64_t exchanges, double seconds);
/* The same of exchanges that returned PSC_DRAINED. */
bool crew_has_drained(const struct crew_worker *w, uint64_t exchanges, double seconds);
/* Waits for the worker's own end; false after `seconds`. */
bool crew_ended(const struct crew_worker *w, double seconds);
/* Tells it to stop, waits, and reaps it. False when it did not end within `seconds` and was killed. */
bool crew_stop(struct crew_worker *w, double seconds);
/* From now on it stands still when it has completed `exchanges`, or more if it already has; its heartbeats go
 * on. UINT64_MAX: it goes on. The second waits until it stands there. */
void crew_hold_at(struct crew_worker *w, uint64_t exchanges);
bool crew_is_held(const struct crew_worker *w, double seconds);
void crew_signal(const struct crew_worker *w, int signal_number);
/* kill -9, and reaps it. */
void crew_kill(struct crew_worker *w);

/* Value i of exchange k (from 0): what the workers send. */
float crew_value(uint32_t salt, uint64_t k, uint64_t i);
/* The sum of value i over exchanges 0 to count - 1. */
double crew_sum(uint32_t salt, uint64_t count, uint64_t i);

#endif
