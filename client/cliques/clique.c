/* The code shared by all kinds of cliques: the checks of arguments, the queue of started collectives, and the
 * communication thread that runs them in order. The thread starts with the first call that needs it; while
 * the queue is empty the caller's thread runs a collective itself, if the kind allows that, without waking
 * another thread. A clique of one member runs nothing.
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
    uint64_t failed;           /* 0: none; the first ticket that failed, or that would be the next */
    int failed_rc;
    struct ps_error failure;
    struct psc_collective slots[PSC_CLIQUE_MAX_STARTED];
};

static int refuse(struct psc_clique *q, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int refuse(struct psc_clique *q, int rc, const char *fmt, ...)
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
               : refuse(q, PSC_EINVAL, "the clique belongs to process %d; a forked child opens its own",
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
    pthread_cond_init(&q->ended, NULL);
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
        const struct psc_collective *op =
            &q->slots[ticket % PSC_CLIQUE_MAX_STARTED]; /* valid until the collective has ended */
        if (q->failed == 0) {
            struct ps_error err = {""};
            pthread_mutex_unlock(&q->lock);
            int rc = q->kind->run(q->state, op, &err);
            pthread_mutex_lock(&q->lock);
            if (rc != PSC_OK)
                note_failure(q, ticket, rc, &err);
        }
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
        return refuse(q, PSC_ESYSTEM, "cannot start the clique's thread: %s", strerror(rc));
    q->runs = true;
    return PSC_OK;
}

/* With the lock held, and a free place in the queue. */
static uint64_t put(struct psc_clique *q, const struct psc_collective *op)
{
    uint64_t ticket = ++q->issued;
    q->slots[ticket % PSC_CLIQUE_MAX_STARTED] = *op;
    ps_cond_wake(&q->queued);
    return ticket;
}

/* With the lock held. */
static int start_locked(struct psc_clique *q, const struct psc_collective *op, uint64_t *ticket)
{
    int rc;
    if (q->failed != 0)
        return tell_failure(q);
    if (q->members == 1) {
        q->finished = ++q->issued;
        *ticket = q->issued;
        return PSC_OK;
    }
    if ((rc = start_thread(q)) != PSC_OK)
        return rc;
    if (q->issued - q->finished >= PSC_CLIQUE_MAX_STARTED &&
        (rc = await(q, q->issued + 1 - PSC_CLIQUE_MAX_STARTED)) != PSC_OK)
        return rc;
    *ticket = put(q, op);
    return PSC_OK;
}

static int start(struct psc_clique *q, const struct psc_collective *op, uint64_t *ticket)
{
    uint64_t t = 0;
    int rc = check_process(q);
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    rc = start_locked(q, op, &t);
    pthread_mutex_unlock(&q->lock);
    if (rc == PSC_OK && ticket != NULL)
        *ticket = t;
    return rc;
}

static int run_collective(struct psc_clique *q, const struct psc_collective *op)
{
    struct ps_error err = {""};
    uint64_t ticket = 0;
    int rc = check_process(q);

    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    if (q->failed != 0 || q->members == 1) {
        rc = q->failed != 0 ? tell_failure(q) : PSC_OK;
    } else if (q->kind->any_thread && q->finished == q->issued) {
        pthread_mutex_unlock(&q->lock); /* tickets are issued by this thread alone */
        rc = q->kind->run(q->state, op, &err);
        pthread_mutex_lock(&q->lock);
        if (rc != PSC_OK) {
            note_failure(q, q->issued + 1, rc, &err);
            tell_failure(q);
        }
    } else if ((rc = start_locked(q, op, &ticket)) == PSC_OK) {
        rc = await(q, ticket);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

/* The name may have a parameter. */
static bool is_for_moves(const char *name)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i]->for_moves && ps_codec_is(name, rows[i]->name))
            return true;
    return false;
}

static int codec_of(struct psc_clique *q, const char *call, const char *name, const struct ps_codec **out)
{
    size_t n, at = 0;
    char names[128] = "";
    const struct ps_codec *const *rows = ps_codec_value_rows(&n);
    *out = ps_codec_named_for_values(name != NULL ? name : "raw");
    if (*out != NULL)
        return PSC_OK;
    for (size_t i = 0; i < n && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i > 0 ? ", " : "", rows[i]->name);
    return refuse(q, PSC_EINVAL, "%s: codec '%.32s' %s; allowed are %s", call, name,
                  is_for_moves(name) ? "needs error feedback, which sums do not have" : "is not known",
                  names);
}

/* Checks common to all collectives; n counts units of unit_bytes. */
static int check(struct psc_clique *q, const char *call, const struct psc_collective *op, size_t unit_bytes)
{
    if (op->n > 0 && op->data == NULL)
        return refuse(q, PSC_EINVAL, "%s: no array for %zu values", call, op->n);
    if (op->n > PTRDIFF_MAX / unit_bytes)
        return refuse(q, PSC_EINVAL, "%s: %zu values are more than an array can hold", call, op->n);
    if (q->kind != NULL && (op->root < 0 || op->root >= q->members))
        return refuse(q, PSC_EINVAL, "%s: root is %d; allowed are 0 to %d", call, op->root, q->members - 1);
    return PSC_OK;
}

static int floats_of(struct psc_clique *q, const char *call, struct psc_collective *op, const char *codec)
{
    int rc = check(q, call, op, sizeof(float));
    return rc == PSC_OK ? codec_of(q, call, codec, &op->codec) : rc;
}

int psc_allreduce(struct psc_clique *q, float *x, size_t n, const char *codec)
{
    struct psc_collective op = {.kind = PSC_ALLREDUCE, .data = x, .n = n};
    int rc = floats_of(q, "psc_allreduce", &op, codec);
    return rc == PSC_OK ? run_collective(q, &op) : rc;
}

int psc_allreduce_start(struct psc_clique *q, float *x, size_t n, const char *codec, uint64_t *ticket)
{
    struct psc_collective op = {.kind = PSC_ALLREDUCE, .data = x, .n = n};
    int rc = floats_of(q, "psc_allreduce_start", &op, codec);
    return rc == PSC_OK ? start(q, &op, ticket) : rc;
}

int psc_reduce(struct psc_clique *q, float *x, size_t n, int root, const char *codec)
{
    struct psc_collective op = {.kind = PSC_REDUCE, .data = x, .n = n, .root = root};
    int rc = floats_of(q, "psc_reduce", &op, codec);
    return rc == PSC_OK ? run_collective(q, &op) : rc;
}

int psc_reduce_start(struct psc_clique *q, float *x, size_t n, int root, const char *codec, uint64_t *ticket)
{
    struct psc_collective op = {.kind = PSC_REDUCE, .data = x, .n = n, .root = root};
    int rc = floats_of(q, "psc_reduce_start", &op, codec);
    return rc == PSC_OK ? start(q, &op, ticket) : rc;
}

int psc_broadcast(struct psc_clique *q, void *data, size_t n_bytes, int root)
{
    struct psc_collective op = {.kind = PSC_BROADCAST, .data = data, .n = n_bytes, .root = root};
    int rc = check(q, "psc_broadcast", &op, 1);
    return rc == PSC_OK ? run_collective(q, &op) : rc;
}

int psc_broadcast_start(struct psc_clique *q, void *data, size_t n_bytes, int root, uint64_t *ticket)
{
    struct psc_collective op = {.kind = PSC_BROADCAST, .data = data, .n = n_bytes, .root = root};
    int rc = check(q, "psc_broadcast_start", &op, 1);
    return rc == PSC_OK ? start(q, &op, ticket) : rc;
}

int psc_barrier(struct psc_clique *q)
{
    return run_collective(q, &(struct psc_collective){.kind = PSC_BARRIER});
}

int psc_barrier_start(struct psc_clique *q, uint64_t *ticket)
{
    return start(q, &(struct psc_collective){.kind = PSC_BARRIER}, ticket);
}

int psc_clique_wait(struct psc_clique *q, uint64_t ticket)
{
    int rc = check_process(q);
    if (rc != PSC_OK)
        return rc;
    pthread_mutex_lock(&q->lock);
    if (ticket > q->issued)
        rc = refuse(q, PSC_EINVAL, "psc_clique_wait: ticket %" PRIu64 " was never issued", ticket);
    else if (ticket == 0)
        rc = await(q, q->issued) == PSC_OK && q->failed == 0 ? PSC_OK : tell_failure(q);
    else
        rc = await(q, ticket);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

int psc_clique_use(struct psc_clique *q, const char *algorithm)
{
    struct ps_error err = {""};
    int rc = check_process(q);
    if (rc != PSC_OK || q->members == 1)
        return rc;
    int kind = psc_algorithm_find(algorithm);
    if (kind < 0)
        return refuse(q, PSC_EINVAL, "algorithm is '%.32s'; allowed are ring, tree and auto", algorithm);
    if (q->kind != NULL && q->kind->use == NULL)
        return strcmp(algorithm, "ring") == 0
                   ? PSC_OK
                   : refuse(
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
    pthread_cond_destroy(&q->queued);
    pthread_cond_destroy(&q->ended);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
