#include "tests/support/thread_clique.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cliques/clique.h"
#include "proto/clock.h"

enum { WAIT_S = 120 }; /* only ends a hang */

struct circle {
    int members, users;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived;
    uint64_t turns;
    bool broken;
    struct psc_collective *ops[64];
};

struct seat {
    struct circle *circle;
    int rank;
    struct psc_collective op;
};

/* A barrier; false if a member has left, or does not arrive. */
static bool meet(struct circle *c)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_S;
    pthread_mutex_lock(&c->lock);
    uint64_t turn = c->turns;
    if (++c->arrived == c->members) {
        c->arrived = 0;
        c->turns++;
        ps_cond_wake(&c->changed);
    }
    while (c->turns == turn && !c->broken)
        if (pthread_cond_timedwait(&c->changed, &c->lock, &end) == ETIMEDOUT)
            c->broken = true;
    bool met = c->turns != turn;
    pthread_mutex_unlock(&c->lock);
    return met;
}

static float *sum(const struct circle *c, const struct psc_collective *op)
{
    size_t room = op->codec->payload_bytes(op->codec, op->n);
    float *total = calloc(op->n + 1, sizeof *total);
    void *payload = malloc(room + 1);
    for (int r = 0; r < c->members; r++) {
        op->codec->encode(op->codec, payload, c->ops[r]->data, op->n);
        op->codec->add(op->codec, total, payload, op->n);
    }
    free(payload);
    return total;
}

static struct circle_log made;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* a process may have several circles */

const struct circle_log *circle_log(void)
{
    return &made;
}

void (*circle_before)(const struct psc_collective *op);

static void note(const struct psc_collective *op)
{
    pthread_mutex_lock(&making);
    if (made.n < CIRCLE_CALLS)
        made.calls[made.n] = (struct circle_call){op->kind, op->n};
    made.n++;
    pthread_mutex_unlock(&making);
}

static int run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct seat *s = state;
    struct circle *c = s->circle;
    float *total = NULL;
    s->op = *op;
    if (s->rank == 0)
        note(op);
    if (s->rank == 0 && circle_before != NULL)
        circle_before(op);
    c->ops[s->rank] = &s->op;
    if (!meet(c))
        return ps_fail(err, PSC_ECLIQUE, "a member of the clique is gone");
    for (int r = 0; r < c->members; r++)
        if (c->ops[r]->kind != op->kind || c->ops[r]->n != op->n)
            return ps_fail(err, PSC_ECLIQUE, "rank %d makes another call", r);
    bool sums = op->kind == PSC_ALLREDUCE || op->kind == PSC_REDUCE;
    if (sums)
        total = sum(c, op);
    else if (op->kind == PSC_BROADCAST && s->rank != op->root)
        memcpy(op->data, c->ops[op->root]->data, op->n);
    bool met = meet(c);
    if (met && sums && (op->kind == PSC_ALLREDUCE || s->rank == op->root))
        memcpy(op->data, total, op->n * sizeof *total);
    free(total);
    return met ? PSC_OK : ps_fail(err, PSC_ECLIQUE, "a member of the clique is gone");
}

static void give_up(void *state)
{
    struct circle *c = ((struct seat *)state)->circle;
    pthread_mutex_lock(&c->lock);
    c->broken = true;
    ps_cond_wake(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void destroy(void *state)
{
    struct circle *c = ((struct seat *)state)->circle;
    pthread_mutex_lock(&c->lock);
    bool last = --c->users == 0;
    pthread_mutex_unlock(&c->lock);
    free(state);
    if (last)
        free(c);
}

static const struct psc_clique_ops circle_kind = {.size = sizeof(struct psc_clique_ops),
                                                  .name = "circle",
                                                  .any_thread = true,
                                                  .run = run,
                                                  .give_up = give_up,
                                                  .destroy = destroy};

int circle_open(int members, struct psc_clique **out)
{
    struct circle *c = calloc(1, sizeof *c);
    c->members = c->users = members;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    for (int r = 0; r < members; r++) {
        struct seat *s = calloc(1, sizeof *s);
        s->circle = c;
        s->rank = r;
        int rc = psc_clique_create(&circle_kind, s, r, members, &out[r]);
        if (rc != PSC_OK)
            return rc;
    }
    return PSC_OK;
}
