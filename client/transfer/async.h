/* async.h: the thread that runs started transfers, and the queue to it. Functions here are for the caller's
 * thread. */
#ifndef PSC_TRANSFER_ASYNC_H
#define PSC_TRANSFER_ASYNC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/transfer/transfer.h"
#include "proto/error.h"

/* How a transfer ended. */
struct psc_outcome {
    int rc;
    float rate;       /* as the server applied it */
    uint64_t version; /* of the center, as the newest answer told it; 0: none has */
    uint64_t run;     /* of the server that answered; 0: not known */
    struct ps_error error;
};

struct psc_started {
    struct psc_transfer transfer;
    struct psc_outcome *out; /* &own, or where the caller wants the outcome */
    struct psc_outcome own;
};

/* Transfers in the order of their tickets, 1, 2, ...: those up to `finished` have ended, and the next one is
 * in progress. Ticket k is in slot k % PSC_MAX_STARTED until ticket k + PSC_MAX_STARTED is issued. */
struct psc_async {
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;          /* of all below */
    pthread_cond_t queued, landed; /* CLOCK_MONOTONIC */
    struct psc_started *slots;
    uint64_t issued, finished;
    uint64_t failed_ticket; /* the first that failed since psc_wait(PSC_ALL) reported one; 0: none */
    struct psc_outcome failed;
    /* The first message of a round of keys that failed, and its tensor; those behind it are not sent. PSC_OK:
     * none has, since the caller last sent one. */
    int round_rc;
    uint32_t round_key;
    bool failure_told; /* psc_wait has returned a failure since */
    struct ps_error round_error;
    /* The first failure in the list of transfers in progress: the rest of the list is not sent. */
    int list_rc;
    /* The first exchange of a fragment that failed: those behind it are not sent, until the caller has taken
     * its failure. */
    int fragments_rc;
    struct ps_error fragments_error;
    struct ps_error list_error;
    int ended_fd; /* readable when a transfer has ended since psc_test or psc_wait last looked; -1: none yet
                   */
    bool stop;
};

/* Runs the transfer after everything that was started, and waits for it. */
int psc_move(struct psc *c, const struct psc_transfer *t);
/* Starts the thread, unless it runs. A psc result. */
int psc_async_start(struct psc *c);
/* Queues the transfer, waiting for a free slot; returns its ticket. out: where the outcome is written; NULL:
 * psc_wait alone reports it. The transfer's arrays and *out belong to the thread until the transfer ends. */
uint64_t psc_async_put(struct psc *c, const struct psc_transfer *t, struct psc_outcome *out);
/* A ticket for what the caller's thread has done itself, with this outcome, behind everything that was
 * started. */
uint64_t psc_async_put_ended(struct psc *c, const struct psc_outcome *out);
/* Whether the caller of `call` may wait for the ticket: PSC_OK, or PSC_EINVAL with a sentence. */
int psc_async_check(struct psc *c, const char *call, uint64_t ticket);
/* Waits until the transfer has ended and returns its result; with PSC_ALL all of them, and the first failure
 * that was not returned before, or PSC_METHOD_CHANGED if a step's exchange was refused. */
int psc_async_result(struct psc *c, uint64_t ticket);
/* Waits until the transfer has ended. */
void psc_async_await(struct psc *c, uint64_t ticket);
/* Exchanges of fragments that begin from now on are sent again. Call it when all before have ended. */
void psc_async_take_fragments(struct psc *c);
/* Ends the transfers that were started, and the thread. */
void psc_async_stop(struct psc *c);
/* Tells the service thread the clock and takes what it has learnt: parameters and save_version. Returns
 * whether the server drains. */
bool psc_refresh(struct psc *c);

#endif
