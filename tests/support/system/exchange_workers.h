/* exchange_workers.h: worker processes that use libpsclient and exchange until told to stop.
 *
 * Their messages are whole numbers, so that under rule sgd with learning_rate 1 every sum is exact in float32
 * and the center shows which exchanges were applied. They offer zeros. */
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
    uint32_t salt;                               /* makes the messages of workers differ */
    bool steps;        /* psc_step with messages as gradients, instead of exchanges */
    bool ignore_drain; /* continues as long as exchanges are applied */
    double pause_s;    /* between two exchanges */
    uint64_t held_at;  /* like crew_hold_at from the start; 0: not held */
};

/* Shared with the worker's process. */
struct crew_page {
    _Atomic bool stop, joined, ended;
    _Atomic uint64_t exchanges;  /* completed */
    _Atomic uint64_t generation; /* of the method of the last of them */
    _Atomic uint64_t held_at;    /* it starts no exchange after so many */
    _Atomic uint64_t request;    /* number of the last crew_hold_at */
    _Atomic uint64_t held_by; /* the last that has held it: it had no exchange in progress, but for overlap */
    _Atomic bool settles;     /* before it is held it waits for those, too; to be set before crew_hold_at */
    int rank, rc;             /* rc: of the last call */
    _Atomic uint64_t drained; /* exchanges that returned PSC_DRAINED and were applied */
    struct psc_info info;
    char error[600];  /* psc_error after the last call */
    char said[4096];  /* the messages of the log callback, one a line */
    double longest_s; /* the slowest exchange */
};

struct crew_worker {
    pid_t pid;
    struct crew_page *page;
};

/* Forks: call before this process starts threads of its own. The worker dies with its parent. */
void crew_start(struct crew_worker *w, const struct crew_task *task);
/* Waits until the worker has joined, or has completed `exchanges` in total; false after `seconds` or if it
 * ended first. */
bool crew_joined(const struct crew_worker *w, double seconds);
bool crew_reaches(const struct crew_worker *w, uint64_t exchanges, double seconds);
/* The same for exchanges that returned PSC_DRAINED. */
bool crew_has_drained(const struct crew_worker *w, uint64_t exchanges, double seconds);
/* The same for an exchange under the method of that generation, or a later one. */
bool crew_has_generation(const struct crew_worker *w, uint64_t generation, double seconds);
/* Waits until the worker ends by itself; false after `seconds`. */
bool crew_ended(const struct crew_worker *w, double seconds);
/* Tells it to stop, waits, and reaps it. False if it did not end within `seconds` and was killed. */
bool crew_stop(struct crew_worker *w, double seconds);
/* Holds the worker when it has completed `exchanges`, or at once if it already has; its heartbeats continue.
 * UINT64_MAX: releases it. The second function also waits until it is held. */
void crew_hold_at(struct crew_worker *w, uint64_t exchanges);
bool crew_is_held(const struct crew_worker *w, double seconds);
void crew_signal(const struct crew_worker *w, int signal_number);
/* Kills it with SIGKILL and reaps it. */
void crew_kill(struct crew_worker *w);

/* Value i of exchange k (from 0), as the workers send it. */
float crew_value(uint32_t salt, uint64_t k, uint64_t i);
/* The sum of value i over exchanges 0 to count - 1. */
double crew_sum(uint32_t salt, uint64_t count, uint64_t i);

#endif
