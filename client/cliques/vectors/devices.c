/* devices.c: a thread for each device of a member. Together they are one member of the clique below: the
 * outer one, which device 0 alone calls.
 *
 * The devices meet, agree and sum in an inner clique of threads, so what is known about that holds here: a
 * thread that does not come, leaves, or makes another call is named. A sum is made in parts (grouped.h): an
 * inner reduce to device 0, the outer sum, an inner broadcast. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/vectors/grouped.h"
#include "client/cliques/wire.h"
#include "client/psclique_vectors.h"
#include "client/session/errors.h"

/* What the devices share. */
struct board {
    struct psc_clique *outer;
    int devices, users;
    int member;           /* this one's rank in the outer clique */
    size_t stripe;        /* of the outer clique; changes while the devices meet */
    pthread_mutex_t lock; /* guards the members above that change, and those below */
    bool calls;           /* device 0 is in an outer call, or may be */
    bool given_up;        /* device 0 has left */
    int failed_rc;        /* of the outer clique; PSC_OK */
    struct ps_error why;  /* it has failed */
};

struct device {
    struct board *board;
    struct psc_clique *inner;
    int rank; /* in the inner clique */
    const struct psc_collective *op;
};

/* What failed: the outer clique, for all devices, or this device's call. */
static int fail_inner(const struct device *d, int rc, struct ps_error *err)
{
    struct board *b = d->board;
    pthread_mutex_lock(&b->lock);
    if (b->failed_rc != PSC_OK) {
        rc = b->failed_rc;
        *err = b->why;
    } else {
        ps_fail(err, rc, "the devices of member %d: %s", b->member, psc_clique_error(d->inner));
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* The other devices, which wait for device 0, fail with the same sentence. */
static int fail_outer(struct device *d, int rc, const struct ps_error *why)
{
    struct board *b = d->board;
    pthread_mutex_lock(&b->lock);
    if (b->failed_rc == PSC_OK) {
        b->failed_rc = rc;
        b->why = *why;
    }
    pthread_mutex_unlock(&b->lock);
    psc_clique_give_up(d->inner);
    return rc;
}

static unsigned char *value_at(const struct device *d, size_t at)
{
    return (unsigned char *)d->op->data + at * psc_values_of(d->op->type)->bytes;
}

/* A mean is a sum until clique.c divides it, once. */
static uint8_t part_of(const struct psc_collective *op)
{
    return op->operation == PSC_MEAN && !op->compares ? PSC_SUM : op->operation;
}

/* The device's part in a collective of all devices of this member: of n values from `at` on. */
static int run_inner(struct device *d, enum psc_collective_kind kind, size_t at, size_t n, int root,
                     struct ps_error *err)
{
    struct psc_task t = {.op = *d->op};
    t.op.kind = kind;
    t.op.data = value_at(d, at);
    t.op.n = n;
    t.op.root = root;
    t.op.operation = part_of(d->op);
    int rc = psc_clique_run(d->inner, &t);
    return rc == PSC_OK ? rc : fail_inner(d, rc, err);
}

/* The member's part in one of all members, by device 0. */
static int run_outer(struct device *d, size_t n, int root, struct ps_error *err)
{
    struct psc_task t = {.op = *d->op};
    if (d->rank > 0)
        return PSC_OK;
    t.op.n = n;
    t.op.root = root;
    t.op.operation = part_of(d->op);
    int rc = psc_clique_run(d->board->outer, &t);
    return rc == PSC_OK ? rc : ps_fail(err, rc, "%s", psc_clique_error(d->board->outer));
}

static int sum(void *arg, size_t at, size_t n, struct ps_error *err)
{
    return run_inner(arg, PSC_REDUCE, at, n, 0, err);
}

static int copy(void *arg, size_t at, size_t n, struct ps_error *err)
{
    return run_inner(arg, PSC_BROADCAST, at, n, 0, err);
}

/* A sum that one device needs is copied only where that is not device 0 of its member. */
static bool copies(const struct device *d)
{
    const struct psc_collective *op = d->op;
    return op->kind == PSC_ALLREDUCE ||
           (op->root / d->board->devices == d->board->member && op->root % d->board->devices != 0);
}

static int run_sum(struct device *d, struct ps_error *err)
{
    struct board *b = d->board;
    struct psc_grouped g = {.q = d->rank == 0 ? b->outer : NULL,
                            .op = *d->op,
                            .part = psc_grouped_part(d->op->n, 0, b->stripe),
                            .sum = sum,
                            .copy = copies(d) ? copy : NULL,
                            .arg = d};
    g.op.root /= b->devices;
    g.op.operation = part_of(d->op);
    return psc_grouped_run(&g, err);
}

/* From a device of the root's member to all of them, to the other members, and to their devices. */
static int run_broadcast(struct device *d, struct ps_error *err)
{
    const struct psc_collective *op = d->op;
    struct board *b = d->board;
    int root = op->root / b->devices, rc = PSC_OK;
    bool has_root = root == b->member;
    if (has_root)
        rc = run_inner(d, PSC_BROADCAST, 0, op->n, op->root % b->devices, err);
    if (rc == PSC_OK)
        rc = run_outer(d, op->n, root, err);
    return rc == PSC_OK && !has_root ? run_inner(d, PSC_BROADCAST, 0, op->n, 0, err) : rc;
}

/* The devices' parts lie side by side: they are the member's part. */
static int run_scatter(struct device *d, struct ps_error *err)
{
    struct board *b = d->board;
    size_t n = d->op->n * (size_t)b->devices, own = n * (size_t)b->member;
    int rc = run_inner(d, PSC_REDUCE, 0, n * (size_t)psc_clique_size(b->outer), 0, err);
    if (rc == PSC_OK)
        rc = run_outer(d, n, 0, err);
    return rc == PSC_OK ? run_inner(d, PSC_BROADCAST, own, n, 0, err) : rc;
}

static int run_gather(struct device *d, struct ps_error *err)
{
    struct board *b = d->board;
    size_t n = d->op->n * (size_t)b->devices, own = n * (size_t)b->member;
    int rc = run_inner(d, PSC_ALLGATHER, own, d->op->n, 0, err);
    if (rc == PSC_OK)
        rc = run_outer(d, n, 0, err);
    return rc == PSC_OK ? run_inner(d, PSC_BROADCAST, 0, n * (size_t)psc_clique_size(b->outer), 0, err) : rc;
}

/* A barrier, or the comparison of calls, which moves nothing either. */
static int run_meeting(struct device *d, struct ps_error *err)
{
    int rc = run_inner(d, d->op->kind, 0, d->op->n, d->op->root, err);
    if (rc == PSC_OK)
        rc = run_outer(d, d->op->n, d->op->root, err);
    return rc == PSC_OK ? run_inner(d, d->op->kind, 0, d->op->n, d->op->root, err) : rc;
}

static int (*const kinds[PSC_N_COLLECTIVES])(struct device *d, struct ps_error *err) = {
    [PSC_ALLREDUCE] = run_sum,          [PSC_REDUCE] = run_sum,
    [PSC_BROADCAST] = run_broadcast,    [PSC_BARRIER] = run_meeting,
    [PSC_REDUCE_SCATTER] = run_scatter, [PSC_ALLGATHER] = run_gather};

static int run_kind(struct device *d, struct ps_error *err)
{
    return (d->op->compares ? run_meeting : kinds[d->op->kind])(d, err);
}

static bool begin(struct board *b)
{
    pthread_mutex_lock(&b->lock);
    b->calls = !b->given_up;
    bool begun = b->calls;
    pthread_mutex_unlock(&b->lock);
    return begun;
}

static void end(struct board *b)
{
    pthread_mutex_lock(&b->lock);
    b->calls = false;
    pthread_mutex_unlock(&b->lock);
}

static int run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct device *d = state;
    d->op = op;
    if (d->rank > 0)
        return run_kind(d, err);
    if (!begin(d->board))
        return ps_fail(err, PSC_ECLIQUE, "device 0 of member %d has left the clique", d->board->member);
    int rc = run_kind(d, err);
    end(d->board);
    return rc == PSC_OK ? rc : fail_outer(d, rc, err);
}

static size_t stripe(const void *state)
{
    return ((const struct device *)state)->board->stripe;
}

/* Between two meetings of the devices: none of them sums meanwhile. */
static int use_outer(struct device *d, uint8_t algorithm, struct ps_error *err)
{
    static const struct psc_collective barrier = {.kind = PSC_BARRIER};
    struct board *b = d->board;
    d->op = &barrier;
    int rc = run_meeting(d, err);
    if (rc == PSC_OK && d->rank == 0) {
        if ((rc = psc_clique_use(b->outer, psc_algorithm_name(algorithm))) != PSC_OK)
            return ps_fail(err, rc, "%s", psc_clique_error(b->outer));
        b->stripe = psc_clique_stripe(b->outer);
    }
    rc = rc == PSC_OK ? run_meeting(d, err) : rc;
    d->op = NULL;
    return rc;
}

static int use(void *state, uint8_t algorithm, struct ps_error *err)
{
    struct device *d = state;
    int rc = use_outer(d, algorithm, err);
    return rc == PSC_OK || d->rank > 0 ? rc : fail_outer(d, rc, err);
}

/* Device 0 abandons the outer call that it is in. What the others had to do with that call they have done,
 * and may leave: it goes on without them. */
static void give_up(void *state)
{
    struct device *d = state;
    struct board *b = d->board;
    psc_clique_give_up(d->inner);
    if (d->rank > 0)
        return;
    pthread_mutex_lock(&b->lock);
    bool calls = b->calls;
    b->given_up = true;
    pthread_mutex_unlock(&b->lock);
    if (calls)
        psc_clique_give_up(b->outer);
}

static void drop(struct board *b)
{
    pthread_mutex_lock(&b->lock);
    bool last = --b->users == 0;
    pthread_mutex_unlock(&b->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static void destroy(void *state)
{
    struct device *d = state;
    psc_clique_close(d->inner);
    drop(d->board);
    free(d);
}

static const struct psc_clique_ops devices_kind = {.size = sizeof(struct psc_clique_ops),
                                                   .name = "devices",
                                                   .any_thread = true,
                                                   .run = run,
                                                   .stripe = stripe,
                                                   .use = use,
                                                   .give_up = give_up,
                                                   .destroy = destroy};

void psc_devices_options_init(struct psc_devices_options *opt, size_t size)
{
    const struct psc_devices_options defaults = {.size = size, .step_ms = 3600000};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

static struct board *board_make(struct psc_clique *outer, int devices)
{
    struct board *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->outer = outer;
    b->devices = devices;
    b->users = 1; /* who opens it */
    b->member = psc_clique_rank(outer);
    b->stripe = psc_clique_stripe(outer);
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

/* The device's handle. Takes over `inner`, and a share of the board. */
static int join(struct board *b, struct psc_clique *inner, struct psc_clique **out)
{
    struct device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        psc_clique_close(inner);
        return PSC_ENOMEM;
    }
    d->board = b;
    d->inner = inner;
    d->rank = psc_clique_rank(inner);
    pthread_mutex_lock(&b->lock);
    b->users++;
    pthread_mutex_unlock(&b->lock);
    return psc_clique_create(&devices_kind, d, b->member * b->devices + d->rank,
                             psc_clique_size(b->outer) * b->devices, out);
}

/* Joins all, or none. */
static int join_all(struct board *b, struct psc_clique **inner, struct psc_clique **out)
{
    int rc = PSC_OK, n = 0;
    for (int i = 0; i < b->devices; i++) {
        rc = rc == PSC_OK ? join(b, inner[i], &out[i]) : rc;
        if (rc == PSC_OK)
            n++;
        else if (i > n)
            psc_clique_close(inner[i]);
    }
    while (rc != PSC_OK && n > 0)
        psc_clique_close(out[--n]);
    return rc;
}

int psc_devices_open(struct psc_clique *q, const struct psc_devices_options *given, struct psc_clique **out)
{
    struct psc_devices_options o;
    struct psc_threads_options threads;
    struct psc_clique *inner[PSC_MAX_VECTORS];
    psc_devices_options_init(&o, sizeof o);
    psc_threads_options_init(&threads, sizeof threads);
    if (q == NULL || psc_clique_size(q) < 1 || given == NULL || given->size < sizeof given->size ||
        given->size > 4096 || out == NULL ||
        psc_take_struct(&o, sizeof o, given, given->size, "devices", NULL) != PSC_OK || o.devices < 1 ||
        o.devices > PSC_MAX_VECTORS || o.step_ms < 100)
        return PSC_EINVAL;
    int rc = psc_memory_check(o.memory, "devices", NULL);
    if (rc != PSC_OK)
        return rc;
    threads.members = o.devices;
    threads.step_ms = o.step_ms;
    struct board *b = board_make(q, (int)o.devices);
    if (b == NULL)
        return PSC_ENOMEM;
    rc = psc_threads_open(&threads, inner);
    if (rc == PSC_OK)
        rc = join_all(b, inner, out);
    drop(b);
    return rc;
}
