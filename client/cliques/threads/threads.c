/* threads.c: cliques whose members are threads of one process. Vectors are summed in place.
 *
 * A collective has two barriers. Members bring their arrays to the first; the last to arrive checks that all
 * made the same call. Then each member sums its own part of all vectors, in the order of a binary tree over
 * the ranks, and writes it to every vector that receives the sum. After the second barrier no member uses
 * another member's array.
 *
 * The first has a deadline, and ends early when a member leaves. The second needs none: every member that
 * passed the first arrives there. */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/clique.h"
#include "client/session/errors.h"
#include "proto/clock.h"
#include "proto/vec/vec.h"

enum { MAX_MEMBERS = 1024, LEVELS = 11 }; /* 2^10 members, and the result */
/* Bytes that are summed at a time: the partial sums of all levels stay in the cache. */
enum { BLOCK_BYTES = 8192, LINE_BYTES = 64 };

struct circle {
    int members, users;
    uint32_t step_ms;
    const struct ps_vec *vec;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    int come, gone; /* of the current collective */
    uint64_t met;   /* first barriers so far */
    int left;       /* the rank that has left; -1: none */
    bool broken;
    struct ps_error why;        /* it is broken */
    struct psc_collective *ops; /* [members]: of the current collective */
    bool *here;                 /* [members]: has arrived */
};

struct seat {
    struct circle *circle;
    int rank;
    union {
        unsigned char bytes[BLOCK_BYTES];
        double aligned;
    } blocks[LEVELS];
};

/* With the lock. */
static int fail_broken(const struct circle *c, struct ps_error *err)
{
    return ps_fail(err, PSC_ECLIQUE, "%s", c->why.text);
}

static void break_up(struct circle *c)
{
    c->broken = true;
    ps_cond_wake(&c->changed);
}

static void describe(const struct psc_collective *op, char *text, size_t size)
{
    char of[24] = "";
    if (psc_call_reduces(op->kind) && op->operation != PSC_SUM)
        snprintf(of, sizeof of, " (%s)", psc_operation_name(op->operation));
    snprintf(text, size, "%s%s of %zu %s with root %d%s", psc_call_name(op->kind), of, op->n,
             psc_values_of(op->type)->units, op->root, op->compares ? ", compared" : "");
}

/* With the lock, by the last to arrive: whether all make the same call. */
static bool agree(struct circle *c)
{
    const struct psc_collective *first = &c->ops[0];
    for (int r = 1; r < c->members; r++) {
        const struct psc_collective *op = &c->ops[r];
        char ours[100], theirs[100];
        if (op->kind == first->kind && op->n == first->n && op->root == first->root &&
            op->type == first->type && op->operation == first->operation && op->compares == first->compares)
            continue;
        describe(first, ours, sizeof ours);
        describe(op, theirs, sizeof theirs);
        ps_fail(&c->why, PSC_ECLIQUE, "members make different calls: rank 0 calls %s, rank %d %s", ours, r,
                theirs);
        return false;
    }
    return true;
}

static void blame_missing(struct circle *c, double within_s)
{
    int r = 0;
    while (c->here[r])
        r++;
    ps_fail(&c->why, PSC_ECLIQUE, "rank %d did not join the call within %.3g s", r, within_s);
    break_up(c);
}

/* With the lock: waits until all have arrived. */
static void await_all(struct circle *c, const struct psc_collective *op)
{
    double wait_s = c->step_ms / 1e3;
    if (op->until_s > 0 && op->until_s - ps_now_s() < wait_s)
        wait_s = op->until_s > ps_now_s() ? op->until_s - ps_now_s() : 0;
    uint64_t meeting = c->met, until_ns = ps_ns_after(wait_s);
    while (c->met == meeting && !c->broken)
        if (ps_cond_wait_until(&c->changed, &c->lock, until_ns) == -ETIMEDOUT && c->met == meeting &&
            !c->broken)
            blame_missing(c, wait_s);
}

static int meet(struct seat *s, const struct psc_collective *op, struct ps_error *err)
{
    struct circle *c = s->circle;
    uint64_t meeting;
    pthread_mutex_lock(&c->lock);
    meeting = c->met;
    if (!c->broken) {
        c->ops[s->rank] = *op;
        c->here[s->rank] = true;
        if (++c->come < c->members) {
            await_all(c, op);
        } else if (!agree(c)) {
            break_up(c);
        } else {
            memset(c->here, 0, (size_t)c->members * sizeof *c->here);
            c->come = c->gone = 0;
            c->met++;
            ps_cond_wake(&c->changed);
        }
    }
    int rc = c->met > meeting ? PSC_OK : fail_broken(c, err);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* Until all are done with each other's arrays. */
static void part(struct circle *c)
{
    pthread_mutex_lock(&c->lock);
    if (++c->gone == c->members)
        ps_cond_wake(&c->changed);
    while (c->gone < c->members) /* the next barrier, which sets it to 0, waits for this member */
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void *at_unit(const struct psc_collective *op, size_t at)
{
    return (unsigned char *)op->data + at * psc_values_of(op->type)->bytes;
}

static void fold(const struct circle *c, const struct psc_collective *op, void *x, const void *y, size_t n)
{
    if (op->codec != NULL)
        c->vec->axpy(x, y, 1, n);
    else
        psc_values_of(op->type)->fold[op->operation](x, y, n);
}

/* n values from `at` on, of `count` members from `first` on, into block `level`: the sum of each half, then
 * of both. */
static void sum_tree(struct seat *s, int first, int count, size_t at, size_t n, int level)
{
    const struct circle *c = s->circle;
    const struct psc_collective *op = &c->ops[s->rank];
    void *sum = s->blocks[level].bytes;
    const void *other = at_unit(&c->ops[first + count / 2], at);
    int low = count / 2, high = count - low;
    if (count == 1) {
        memcpy(sum, other, n * psc_values_of(op->type)->bytes);
        return;
    }
    sum_tree(s, first, low, at, n, level);
    if (high > 1) {
        sum_tree(s, first + low, high, at, n, level + 1);
        other = s->blocks[level + 1].bytes;
    }
    fold(c, op, sum, other, n);
}

static bool receives(const struct seat *s, int rank)
{
    const struct psc_collective *op = &s->circle->ops[s->rank];
    return op->kind == PSC_ALLREDUCE || rank == (op->kind == PSC_REDUCE ? op->root : s->rank);
}

/* Values `at` to `end` of all vectors, by this member. */
static void sum_range(struct seat *s, size_t at, size_t end)
{
    const struct circle *c = s->circle;
    size_t bytes = psc_values_of(c->ops[s->rank].type)->bytes, block = BLOCK_BYTES / bytes;
    for (size_t n; at < end; at += n) {
        n = end - at < block ? end - at : block;
        sum_tree(s, 0, c->members, at, n, 0);
        for (int r = 0; r < c->members; r++)
            if (receives(s, r))
                memcpy(at_unit(&c->ops[r], at), s->blocks[0].bytes, n * bytes);
    }
}

/* This member's share of the vectors, at whole cache lines. */
static void sum_share(struct seat *s, const struct psc_collective *op)
{
    size_t line = LINE_BYTES / psc_values_of(op->type)->bytes, members = (size_t)s->circle->members;
    size_t lines = (op->n + line - 1) / line;
    size_t at = lines * (size_t)s->rank / members * line;
    size_t end = lines * ((size_t)s->rank + 1) / members * line;
    sum_range(s, at, end < op->n ? end : op->n);
}

/* Each member's part is read by the others, and written by none. */
static void gather_parts(struct seat *s, const struct psc_collective *op)
{
    const struct circle *c = s->circle;
    size_t bytes = op->n * psc_values_of(op->type)->bytes;
    for (int r = 0; r < c->members; r++)
        if (r != s->rank && bytes > 0)
            memcpy(at_unit(op, (size_t)r * op->n), at_unit(&c->ops[r], (size_t)r * op->n), bytes);
}

static void move_values(struct seat *s, const struct psc_collective *op)
{
    const struct circle *c = s->circle;
    size_t own = (size_t)s->rank * op->n;
    if (op->kind == PSC_ALLREDUCE || op->kind == PSC_REDUCE)
        sum_share(s, op);
    else if (op->kind == PSC_REDUCE_SCATTER)
        sum_range(s, own, own + op->n);
    else if (op->kind == PSC_ALLGATHER)
        gather_parts(s, op);
    else if (op->kind == PSC_BROADCAST && s->rank != op->root && op->n > 0)
        memcpy(op->data, c->ops[op->root].data, op->n * psc_values_of(op->type)->bytes);
}

static int run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct seat *s = state;
    struct circle *c = s->circle;
    int rc = meet(s, op, err);
    if (rc != PSC_OK)
        return rc;
    if (op->compares || op->kind == PSC_BARRIER)
        return PSC_OK;
    move_values(s, op);
    part(c);
    return PSC_OK;
}

static void give_up(void *state)
{
    struct seat *s = state;
    struct circle *c = s->circle;
    pthread_mutex_lock(&c->lock);
    if (!c->broken)
        ps_fail(&c->why, PSC_ECLIQUE, "rank %d has left the clique", s->rank);
    break_up(c);
    pthread_mutex_unlock(&c->lock);
}

static void circle_free(struct circle *c)
{
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->ops);
    free(c->here);
    free(c);
}

static void drop(struct circle *c)
{
    pthread_mutex_lock(&c->lock);
    bool last = --c->users == 0;
    pthread_mutex_unlock(&c->lock);
    if (last)
        circle_free(c);
}

static void destroy(void *state)
{
    struct circle *c = ((struct seat *)state)->circle;
    free(state);
    drop(c);
}

static const struct psc_clique_ops threads_kind = {.size = sizeof(struct psc_clique_ops),
                                                   .name = "threads",
                                                   .any_thread = true,
                                                   .run = run,
                                                   .give_up = give_up,
                                                   .destroy = destroy};

void psc_threads_options_init(struct psc_threads_options *opt, size_t size)
{
    const struct psc_threads_options defaults = {.size = size, .step_ms = 3600000};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

static struct circle *circle_make(uint32_t members, uint32_t step_ms)
{
    struct circle *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->users = 1; /* the member that opens it */
    c->members = (int)members;
    c->step_ms = step_ms;
    c->vec = ps_vec_best();
    pthread_mutex_init(&c->lock, NULL);
    ps_cond_init(&c->changed);
    c->ops = calloc(members, sizeof *c->ops);
    c->here = calloc(members, sizeof *c->here);
    if (c->ops != NULL && c->here != NULL)
        return c;
    circle_free(c);
    return NULL;
}

/* The member's handle. Takes a share of the circle. */
static int sit_down(struct circle *c, int rank, struct psc_clique **out)
{
    struct seat *s = calloc(1, sizeof *s);
    if (s == NULL)
        return PSC_ENOMEM;
    s->circle = c;
    s->rank = rank;
    pthread_mutex_lock(&c->lock);
    c->users++;
    pthread_mutex_unlock(&c->lock);
    return psc_clique_create(&threads_kind, s, rank, c->members, out);
}

int psc_threads_open(const struct psc_threads_options *opt, struct psc_clique **out)
{
    struct psc_threads_options o;
    psc_threads_options_init(&o, sizeof o);
    if (opt == NULL || opt->size < sizeof opt->size || opt->size > 4096 || out == NULL ||
        psc_take_struct(&o, sizeof o, opt, opt->size, "options", NULL) != PSC_OK)
        return PSC_EINVAL;
    if (o.members < 1 || o.members > MAX_MEMBERS || o.step_ms < 100)
        return PSC_EINVAL;
    struct circle *c = circle_make(o.members, o.step_ms);
    int rc = c != NULL ? PSC_OK : PSC_ENOMEM;
    uint32_t n = 0;
    while (n < o.members && rc == PSC_OK)
        if ((rc = sit_down(c, (int)n, &out[n])) == PSC_OK)
            n++;
    while (rc != PSC_OK && n > 0)
        psc_clique_close(out[--n]);
    if (c != NULL)
        drop(c);
    return rc;
}
