/* The code shared by all kinds of cliques: the queue of started collectives, the communication thread that
 * runs them in order, and the copies of calls that are out of place. The thread starts with the first call
 * that needs it; while the queue is empty the caller's thread runs a collective itself, if the kind allows
 * that, without waking another thread. A clique of one member runs nothing.
 *
 * Tickets number the started collectives. The first failure breaks a clique: that ticket and all later ones
 * have failed, and all earlier ones have not. So one number holds all results. */
#include "client/cliques/clique.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cliques/wire.h"
#include "proto/thread.h"

#include "proto/clock.h"

struct psc_clique {
    const struct psc_clique_ops *kind; /* NULL: the handle only carries the error */
    void *state;
    int rank, members;
    pid_t owner;           /* the process that has the threads */
    struct ps_error error; /* of the last failure that was reported to the caller */
    pthread_t thread;
    bool runs; /* the thread exists */

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t queued, ended;
    bool stop;
    uint64_t issued, finished; /* tickets */
    uint64_t forgotten;        /* tickets up to this one are of the clique before it shrank */
    uint64_t failed;           /* 0: none; the first ticket that failed, or that would be the next */
    int failed_rc;
    struct ps_error failure;
    struct psc_task slots[PSC_CLIQUE_MAX_STARTED];
    /* The largest memory of an ended call that needed some, for the next one. */
    void *spare;
    size_t spare_bytes;
};

int psc_clique_refuse(struct psc_clique *q, int rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(q->error.text, sizeof q->error.text, fmt, ap);
    va_end(ap);
    return rc;
}

/* After fork the child has a copy of the handle but none of its threads. */
static int check_process(struct psc_clique *q)
{
    return getpid() == q->owner
               ? PSC_OK
               : psc_clique_refuse(q, PSC_EINVAL,
                                   "the clique belongs to process %d; a forked child opens its own",
                                   (int)q->owner);
}

static struct psc_clique *allocate(void)
{
    struct psc_clique *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    q->owner = getpid();
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->queued, NULL);
    ps_cond_init(&q->ended);
    return q;
}

int psc_clique_create(const struct psc_clique_ops *kind, void *state, int rank, int members,
                      struct psc_clique **out)
{
    bool known = kind->size == sizeof *kind;
    struct psc_clique *q = known ? allocate() : NULL;
    if (q == NULL) {
        kind->give_up(state);
        kind->destroy(state);
        return known ? PSC_ENOMEM : PSC_EUNSUPPORTED;
    }
    q->kind = kind;
    q->state = state;
    q->rank = rank;
    q->members = members;
    *out = q;
    return PSC_OK;
}

struct psc_clique *psc_clique_failed(const struct ps_error *err)
{
    struct psc_clique *q = allocate();
    if (q == NULL)
        return NULL;
    q->rank = -1;
    q->failed = 1;
    q->failed_rc = PSC_ECLIQUE;
    q->failure = q->error = *err;
    return q;
}

int psc_clique_rank(const struct psc_clique *q)
{
    return q->rank;
}

int psc_clique_size(const struct psc_clique *q)
{
    return q->members;
}

const char *psc_clique_kind(const struct psc_clique *q)
{
    return q->kind != NULL ? q->kind->name : "";
}

size_t psc_clique_stripe(const struct psc_clique *q)
{
    return q->members > 1 && q->kind->stripe != NULL ? q->kind->stripe(q->state) : 1;
}

bool psc_clique_keeps_bits(const struct psc_clique *q, const char *codec)
{
    return q->kind != NULL && q->kind->stripe != NULL &&
           !(q->kind->raw_varies && ps_codec_named_for_values(codec) == ps_codec_named("raw"));
}

bool psc_clique_is_open(const struct psc_clique *q)
{
    return q->kind != NULL;
}

const char *psc_clique_error(const struct psc_clique *q)
{
    return q != NULL ? q->error.text : "no memory";
}

/* With the lock held. */
static void note_failure(struct psc_clique *q, uint64_t ticket, int rc, const struct ps_error *err)
{
    if (q->failed != 0)
        return;
    q->failed = ticket;
    q->failed_rc = rc;
    q->failure = *err;
}

static size_t bytes_of(const struct psc_clique *q, const struct psc_collective *op)
{
    return op->n * psc_values_of(op->type)->bytes * (psc_call_has_parts(op->kind) ? (size_t)q->members : 1);
}

/* The values that are this member's in a call with parts, else all. */
static unsigned char *own_part(const struct psc_clique *q, const struct psc_collective *op)
{
    bool parts = psc_call_has_parts(op->kind);
    return (unsigned char *)op->data + (parts ? op->n * psc_values_of(op->type)->bytes * (size_t)q->rank : 0);
}

/* With the lock held. Finds memory for a call that is out of place. */
static int take_memory(struct psc_clique *q, struct psc_task *t)
{
    size_t bytes = t->needs_copy ? bytes_of(q, &t->op) : 0;
    if (bytes == 0)
        return PSC_OK;
    if (bytes <= q->spare_bytes) {
        t->op.data = q->spare;
        t->memory_bytes = q->spare_bytes;
        q->spare = NULL;
        q->spare_bytes = 0;
        return PSC_OK;
    }
    t->op.data = malloc(bytes);
    t->memory_bytes = bytes;
    return t->op.data != NULL
               ? PSC_OK
               : psc_clique_refuse(q, PSC_ENOMEM, "no memory for %zu bytes of a %s out of place", bytes,
                                   psc_call_name(t->op.kind));
}

/* With the lock held. */
static void return_memory(struct psc_clique *q, const struct psc_task *t)
{
    if (t->memory_bytes <= q->spare_bytes) {
        if (t->memory_bytes > 0)
            free(t->op.data);
        return;
    }
    free(q->spare);
    q->spare = t->op.data;
    q->spare_bytes = t->memory_bytes;
}

/* Before the values move: those out of place are copied. An allgather copies this member's part only. */
static void copy_in(const struct psc_clique *q, const struct psc_task *t)
{
    size_t bytes = t->op.n * psc_values_of(t->op.type)->bytes;
    if (t->in == NULL || bytes == 0)
        return;
    if (t->op.kind == PSC_ALLGATHER)
        memcpy(own_part(q, &t->op), t->in, bytes);
    else
        memcpy(t->op.data, t->in, bytes_of(q, &t->op));
}

static void finish_values(const struct psc_clique *q, const struct psc_task *t)
{
    const struct psc_values *values = psc_values_of(t->op.type);
    if (t->op.kind == PSC_REDUCE && q->rank != t->op.root)
        return;
    if (psc_call_reduces(t->op.kind) && t->op.operation == PSC_MEAN && q->members > 1)
        values->divide(own_part(q, &t->op), t->op.n, q->members);
    if (t->out != NULL && t->op.n > 0)
        memcpy(t->out, own_part(q, &t->op), t->op.n * values->bytes);
}

/* Nothing is written to the caller's arrays before it is known that all members make the same call, if the
 * caller wants that. */
static int run_task(struct psc_clique *q, struct psc_task *t, struct ps_error *err)
{
    int rc = PSC_OK;
    if (t->timeout_ms > 0)
        t->op.until_s = ps_now_s() + t->timeout_ms * 1e-3;
    if (t->compare && q->members > 1) {
        t->op.compares = true;
        rc = q->kind->run(q->state, &t->op, err);
        t->op.compares = false;
        t->op.compared = true;
    }
    if (rc == PSC_OK)
        copy_in(q, t);
    if (rc == PSC_OK && q->members > 1 && !(t->op.compared && t->op.kind == PSC_BARRIER))
        rc = q->kind->run(q->state, &t->op, err);
    if (rc == PSC_OK && !t->op.compares)
        finish_values(q, t);
    return rc;
}

static void *communicate(void *arg)
{
    struct psc_clique *q = arg;
    pthread_mutex_lock(&q->lock);
    while (!q->stop) {
        if (q->finished == q->issued) {
            pthread_cond_wait(&q->queued, &q->lock);
            continue;
        }
        uint64_t ticket = q->finished + 1;
        struct psc_task *t =
            &q->slots[ticket % PSC_CLIQUE_MAX_STARTED]; /* valid until the collective has ended */
        if (q->failed == 0) {
            struct ps_error err = {""};
            pthread_mutex_unlock(&q->lock);
            int rc = run_task(q, t, &err);
            pthread_mutex_lock(&q->lock);
            if (rc != PSC_OK)
                note_failure(q, ticket, rc, &err);
        }
        return_memory(q, t);
        q->finished = ticket;
        ps_cond_wake(&q->ended);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* With the lock held. */
static int tell_failure(struct psc_clique *q)
{
    q->error = q->failure;
    return q->failed_rc;
}

/* With the lock held. A collective ends by itself when a member stays silent. */
static int await(struct psc_clique *q, uint64_t ticket)
{
    while (q->finished < ticket)
        pthread_cond_wait(&q->ended, &q->lock);
    return q->failed != 0 && ticket >= q->failed ? tell_failure(q) : PSC_OK;
}

static int start_thread(struct psc_clique *q)
{
    int rc = q->runs ? 0 : ps_thread_create(&q->thread, communicate, q);
    if (rc != 0)
        return psc_clique_refuse(q, PSC_ESYSTEM, "cannot start the clique's thread: %s", strerror(rc));
    q->runs = true;
    return PSC_OK;
}

/* With the lock held, and a free place in the queue. */
static uint64_t put(struct psc_clique *q, const struct psc_task *t)
{
    uint64_t ticket = ++q->issued;
    q->slots[ticket % PSC_CLIQUE_MAX_STARTED] = *t;
    ps_cond_wake(&q->queued);
    return ticket;
}

/* With the lock held. */
static int start_locked(struct psc_clique *q, struct psc_task *t, uint64_t *ticket)
{
    int rc;
    if (q->failed != 0)
        return tell_failure(q);
    if (q->members == 1) {
        struct ps_error err = {""};
        if ((rc = take_memory(q, t)) != PSC_OK)
            return rc;
        run_task(q, t, &err); /* only copies */
        return_memory(q, t);
        q->finished = ++q->issued;
        *ticket = q->issued;
        return PSC_OK;
    }
    if ((rc = start_thread(q)) != PSC_OK)
        return rc;
    if (q->issued - q->finished >= PSC_CLIQUE_MAX_STARTED &&
        (rc = await(q, q->issued + 1 - PSC_CLIQUE_MAX_STARTED)) != PSC_OK)
        return rc;
    if ((rc = take_memory(q, t)) == PSC_OK)
        *ticket = put(q, t);
    return rc;
}

int psc_clique_start(struct psc_clique *q, struct psc_task *t, uint64_t *ticket)
{
    uint64_t issued = 0;
    int rc = check_process(q);
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    rc = start_locked(q, t, &issued);
    pthread_mutex_unlock(&q->lock);
    if (rc == PSC_OK && ticket != NULL)
        *ticket = issued;
    return rc;
}

/* With the lock held, which is released while the call runs; no other is in progress. */
static int run_here(struct psc_clique *q, struct psc_task *t)
{
    struct ps_error err = {""};
    int rc = take_memory(q, t);
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_unlock(&q->lock); /* tickets are issued by this thread alone */
    t->op.is_waited_for = true;
    rc = run_task(q, t, &err);
    pthread_mutex_lock(&q->lock);
    return_memory(q, t);
    if (rc != PSC_OK) {
        note_failure(q, q->issued + 1, rc, &err);
        tell_failure(q);
    }
    return rc;
}

int psc_clique_run(struct psc_clique *q, struct psc_task *t)
{
    uint64_t ticket = 0;
    int rc = check_process(q);

    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    if (q->failed != 0)
        rc = tell_failure(q);
    else if (q->members == 1 || (q->kind->any_thread && q->finished == q->issued))
        rc = run_here(q, t);
    else if ((rc = start_locked(q, t, &ticket)) == PSC_OK)
        rc = await(q, ticket);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

/* With the lock held: whether the calls up to the ticket have ended; 0: all. */
static bool has_ended(const struct psc_clique *q, uint64_t ticket)
{
    return q->finished >= (ticket == 0 ? q->issued : ticket);
}

/* With the lock held. */
static int result_of(struct psc_clique *q, uint64_t ticket)
{
    return q->failed != 0 && (ticket == 0 || ticket >= q->failed) ? tell_failure(q) : PSC_OK;
}

static int check_ticket(struct psc_clique *q, const char *call, uint64_t ticket)
{
    if (ticket > q->issued)
        return psc_clique_refuse(q, PSC_EINVAL, "%s: ticket %" PRIu64 " was never issued", call, ticket);
    return ticket == 0 || ticket > q->forgotten
               ? PSC_OK
               : psc_clique_refuse(q, PSC_EINVAL,
                                   "%s: ticket %" PRIu64 " was issued before the clique shrank", call,
                                   ticket);
}

static int check_out(struct psc_clique *q, const char *call, const void *out, const char *name)
{
    int rc = check_process(q);
    return rc != PSC_OK || out != NULL ? rc
                                       : psc_clique_refuse(q, PSC_EINVAL, "%s: `%s` is missing", call, name);
}

int psc_clique_test(struct psc_clique *q, uint64_t ticket, int *ended)
{
    int rc = check_out(q, "psc_clique_test", ended, "ended");
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    if ((rc = check_ticket(q, "psc_clique_test", ticket)) == PSC_OK)
        *ended = has_ended(q, ticket);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

int psc_clique_wait_for(struct psc_clique *q, uint64_t ticket, uint32_t timeout_ms, int *ended)
{
    uint64_t until_ns = ps_ns_after(timeout_ms * 1e-3);
    int rc = check_out(q, "psc_clique_wait_for", ended, "ended"), waited = 0;
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    if ((rc = check_ticket(q, "psc_clique_wait_for", ticket)) == PSC_OK) {
        while (!has_ended(q, ticket) && waited == 0)
            waited = ps_cond_wait_until(&q->ended, &q->lock, until_ns);
        *ended = has_ended(q, ticket);
        rc = *ended ? result_of(q, ticket) : PSC_OK;
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

int psc_clique_wait(struct psc_clique *q, uint64_t ticket)
{
    int rc = check_process(q);
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    if ((rc = check_ticket(q, "psc_clique_wait", ticket)) == PSC_OK) {
        while (!has_ended(q, ticket))
            pthread_cond_wait(&q->ended, &q->lock);
        rc = result_of(q, ticket);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

/* With the lock held. Whether psc_clique_shrink is in order now. */
static int check_shrink(struct psc_clique *q)
{
    if (q->kind == NULL)
        return tell_failure(q);
    if (q->kind->shrink == NULL)
        return psc_clique_refuse(q, PSC_EUNSUPPORTED, "psc_clique_shrink: a clique over %s cannot shrink",
                                 q->kind->name);
    return q->failed != 0 ? PSC_OK
                          : psc_clique_refuse(q, PSC_EINVAL, "psc_clique_shrink: no call has failed");
}

int psc_clique_shrink(struct psc_clique *q, uint64_t step, uint32_t timeout_ms, struct psc_shrunk *out)
{
    struct ps_error err = {""};
    int rc = check_out(q, "psc_clique_shrink", out, "out");
    if (rc != PSC_OK)
        return rc;
    if (timeout_ms < PSC_MIN_TIMEOUT_MS || timeout_ms > PSC_MAX_TIMEOUT_MS)
        return psc_clique_refuse(q, PSC_EINVAL, "psc_clique_shrink: timeout_ms is %u; allowed are %d to %d",
                                 timeout_ms, PSC_MIN_TIMEOUT_MS, PSC_MAX_TIMEOUT_MS);
    pthread_mutex_lock(&q->lock);
    rc = check_shrink(q);
    while (rc == PSC_OK && !has_ended(q, 0)) /* what was started fails by itself */
        pthread_cond_wait(&q->ended, &q->lock);
    if (rc == PSC_OK &&
        (rc = q->kind->shrink(q->state, step, timeout_ms, out, &q->rank, &q->members, &err)) != PSC_OK)
        q->error = err;
    if (rc == PSC_OK) {
        q->forgotten = q->issued;
        q->failed = 0;
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

uint32_t psc_clique_patience_ms(const struct psc_clique *q)
{
    return q->kind != NULL && q->kind->patience_ms != NULL ? q->kind->patience_ms(q->state) : 0;
}

int psc_clique_use(struct psc_clique *q, const char *algorithm)
{
    struct ps_error err = {""};
    int rc = check_process(q);
    if (rc != PSC_OK || q->members == 1)
        return rc;
    int kind = psc_algorithm_find(algorithm);
    if (kind < 0)
        return psc_clique_refuse(q, PSC_EINVAL, "algorithm is '%.32s'; allowed are ring, tree and auto",
                                 algorithm);
    if (q->kind != NULL && q->kind->use == NULL)
        return strcmp(algorithm, "ring") == 0
                   ? PSC_OK
                   : psc_clique_refuse(
                         q, PSC_EUNSUPPORTED,
                         "clique.algorithm: found %.32s; a clique over %s has its own algorithm; allowed is "
                         "ring",
                         algorithm, q->kind->name);
    pthread_mutex_lock(&q->lock);
    rc = q->failed != 0 ? tell_failure(q) : PSC_OK;
    pthread_mutex_unlock(&q->lock);
    if (rc != PSC_OK || (rc = q->kind->use(q->state, (uint8_t)kind, &err)) == PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    note_failure(q, q->issued + 1, rc, &err);
    tell_failure(q);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

int psc_clique_look(struct psc_clique *q, const struct psc_collective *op, const char *failed)
{
    struct ps_error err = {""};
    if (q->members == 1)
        return failed == NULL ? PSC_OK : psc_clique_refuse(q, PSC_ECLIQUE, "%s", failed);
    pthread_mutex_lock(&q->lock);
    int rc = q->failed != 0 ? tell_failure(q) : PSC_OK;
    pthread_mutex_unlock(&q->lock);
    if (rc != PSC_OK || (rc = q->kind->look(q->state, op, failed, &err)) == PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    note_failure(q, q->issued + 1, rc, &err);
    tell_failure(q);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

bool psc_clique_is_on_device(const struct psc_clique *q)
{
    return q->kind != NULL && q->kind->check_device != NULL;
}

int psc_clique_check_device(struct psc_clique *q, const struct psc_collective *op)
{
    struct ps_error err = {""};
    if (q->kind == NULL)
        return PSC_OK; /* the call tells why */
    if (q->kind->check_device == NULL)
        return psc_clique_refuse(q, PSC_EUNSUPPORTED,
                                 "%s: the vector is of a GPU; a clique over %s has vectors of the host only; "
                                 "allowed is one over nccl",
                                 psc_call_name(op->kind), q->kind->name);
    int rc = q->kind->check_device(q->state, op, &err);
    return rc == PSC_OK ? PSC_OK : psc_clique_refuse(q, rc, "%s", err.text);
}

int psc_device_start(struct psc_clique *q, const struct psc_collective *op, uint64_t *ticket)
{
    struct psc_task t = {.op = *op};
    t.op.on_device = true;
    int rc = psc_clique_check_device(q, &t.op);
    return rc == PSC_OK ? psc_clique_start(q, &t, ticket) : rc;
}

void psc_clique_give_up(struct psc_clique *q)
{
    if (q->kind != NULL)
        q->kind->give_up(q->state);
}

void psc_clique_close(struct psc_clique *q)
{
    if (q == NULL || check_process(q) != PSC_OK)
        return;
    psc_clique_give_up(q);
    if (q->runs) {
        pthread_mutex_lock(&q->lock);
        q->stop = true;
        ps_cond_wake(&q->queued);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
    }
    if (q->kind != NULL)
        q->kind->destroy(q->state);
    for (uint64_t ticket = q->finished + 1; ticket <= q->issued; ticket++)
        if (q->slots[ticket % PSC_CLIQUE_MAX_STARTED].memory_bytes > 0)
            free(q->slots[ticket % PSC_CLIQUE_MAX_STARTED].op.data);
    free(q->spare);
    pthread_cond_destroy(&q->queued);
    pthread_cond_destroy(&q->ended);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
