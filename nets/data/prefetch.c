#include "nets/data/prefetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

enum { MAX_SHARE = 16 };

/* A batch in progress. Threads write it from its claim until n_made = n. The reader then reads it until it
 * takes the next one: there is one slot more than prepared batches, and the slot before `head` is not
 * claimed. */
struct slot {
    uint32_t n;
    uint32_t n_begun, n_made; /* under lock: images begun, and images finished */
    uint32_t bad;             /* under lock: the first image that failed; n: none */
    int rc;                   /* under lock: its error */
    struct ps_error error;    /* under lock */
    struct cnn_position after;
    struct cnn_room room;
};

struct thread {
    struct cnn_prefetch *queue;
    pthread_t id;
    void *scratch;
    struct ps_error error;
};

struct cnn_prefetch {
    const struct cnn_batch_maker *maker;
    uint32_t batch, depth;
    uint32_t share; /* images a thread takes at a time */
    uint32_t n_threads, n_started;
    atomic_bool abandon; /* batches in progress are to be dropped; written under lock */
    pthread_mutex_t lock;
    pthread_cond_t room;  /* threads: a slot is free, or stopping */
    pthread_cond_t ready; /* the reader: a slot is ready, or the end of the order was reached */
    pthread_cond_t idle;  /* pause: no thread is making an image */
    /* Under lock. Batch k is in slot k % (depth + 1); head <= at_work <= tail <= head + depth. */
    uint64_t head, at_work, tail; /* next to take, first with images to begin, next to claim */
    bool ended, paused, stopping;
    uint32_t n_making; /* threads that make images */
    struct cnn_order *order;
    struct slot *slots;     /* [depth + 1] */
    struct thread *threads; /* [n_threads] */
};

static struct slot *slot_of(struct cnn_prefetch *p, uint64_t k)
{
    return &p->slots[k % (p->depth + 1)];
}

/* Under lock: draws the next batch if a slot is free. */
static void claim(struct cnn_prefetch *p)
{
    struct slot *s = slot_of(p, p->tail);
    if (p->paused || p->ended || p->tail - p->head >= p->depth)
        return;
    s->n = cnn_order_draw(p->order, p->batch, s->room.picks);
    s->after = p->order->at;
    s->n_begun = s->n_made = 0;
    s->bad = s->n;
    if (s->n == 0) {
        p->ended = true;
        ps_cond_wake(&p->ready);
    } else {
        p->tail++;
    }
}

/* Under lock: a slot with images that no thread has begun; NULL if there is none. */
static struct slot *find_work(struct cnn_prefetch *p)
{
    if (p->paused)
        return NULL;
    while (p->at_work < p->tail && slot_of(p, p->at_work)->n_begun == slot_of(p, p->at_work)->n)
        p->at_work++;
    if (p->at_work == p->tail)
        claim(p);
    return p->at_work < p->tail ? slot_of(p, p->at_work) : NULL;
}

/* Makes images [first, end) of the slot. Returns end, or the image that failed with its error in *rc. */
static uint32_t make(struct thread *t, struct slot *s, uint32_t first, uint32_t end, int *rc)
{
    struct cnn_prefetch *p = t->queue;
    for (uint32_t i = first; i < end; i++) {
        if (atomic_load_explicit(&p->abandon, memory_order_relaxed))
            return end;
        *rc = cnn_batch_maker_image(p->maker, t->scratch, &s->room, i, &t->error);
        if (*rc != 0)
            return i;
    }
    return end;
}

/* Takes a share of the slot's images and makes them. Called under lock; releases it while making. */
static void make_share(struct thread *t, struct slot *s)
{
    struct cnn_prefetch *p = t->queue;
    uint32_t first = s->n_begun, end = s->n - first < p->share ? s->n : first + p->share;
    int rc = 0;
    s->n_begun = end;
    p->n_making++;
    pthread_mutex_unlock(&p->lock);
    uint32_t bad = make(t, s, first, end, &rc);
    pthread_mutex_lock(&p->lock);
    if (rc != 0 && bad < s->bad) {
        s->bad = bad;
        s->rc = rc;
        s->error = t->error;
    }
    s->n_made += end - first;
    if (s->n_made == s->n)
        ps_cond_wake(&p->ready);
    if (--p->n_making == 0)
        ps_cond_wake(&p->idle);
}

static void *loader_thread(void *arg)
{
    struct thread *t = arg;
    struct cnn_prefetch *p = t->queue;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        struct slot *s = find_work(p);
        if (s == NULL)
            pthread_cond_wait(&p->room, &p->lock);
        else
            make_share(t, s);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int cnn_prefetch_take(struct cnn_prefetch *p, struct cnn_room *out, struct cnn_position *after,
                      struct ps_error *err)
{
    struct slot *s = slot_of(p, p->head); /* only the reader writes head */
    pthread_mutex_lock(&p->lock);
    while (p->head < p->tail ? s->n_made < s->n : !p->ended)
        pthread_cond_wait(&p->ready, &p->lock);
    bool at_end = p->head == p->tail;
    pthread_mutex_unlock(&p->lock);
    if (at_end)
        return 0;
    if (s->bad < s->n)
        return ps_fail(err, s->rc, "%s", s->error.text);

    *out = s->room;
    *after = s->after;
    pthread_mutex_lock(&p->lock);
    p->head++;
    ps_cond_wake(&p->room);
    pthread_mutex_unlock(&p->lock);
    return (int)s->n;
}

int cnn_prefetch_peek(struct cnn_prefetch *p, struct cnn_room *out)
{
    const struct slot *s = slot_of(p, p->head);
    pthread_mutex_lock(&p->lock);
    bool is_ready = p->head < p->tail && s->n_made == s->n && s->bad == s->n;
    pthread_mutex_unlock(&p->lock);
    if (!is_ready)
        return 0;
    *out = s->room;
    return (int)s->n;
}

void cnn_prefetch_pause(struct cnn_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->paused = true;
    atomic_store(&p->abandon, true);
    while (p->n_making > 0)
        pthread_cond_wait(&p->idle, &p->lock);
    p->head = p->at_work = p->tail = 0;
    p->ended = false;
    pthread_mutex_unlock(&p->lock);
}

void cnn_prefetch_resume(struct cnn_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->paused = false;
    atomic_store(&p->abandon, false);
    ps_cond_wake(&p->room);
    pthread_mutex_unlock(&p->lock);
}

/* Starts the threads with all signals blocked. */
static int start_threads(struct cnn_prefetch *p)
{
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (p->n_started < p->n_threads && rc == 0) {
        struct thread *t = &p->threads[p->n_started];
        rc = pthread_create(&t->id, NULL, loader_thread, t);
        if (rc == 0) {
            char name[16]; /* shown by top -H */
            snprintf(name, sizeof name, "data-%u", p->n_started++ % 1000);
            pthread_setname_np(t->id, name);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static void stop_threads(struct cnn_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    atomic_store(&p->abandon, true);
    ps_cond_wake(&p->room);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_started; i++)
        pthread_join(p->threads[i].id, NULL);
}

static bool create_slots(struct cnn_prefetch *p)
{
    p->slots = calloc(p->depth + 1, sizeof *p->slots);
    for (uint32_t i = 0; p->slots != NULL && i <= p->depth; i++)
        if (!cnn_room_init(&p->slots[i].room, p->maker, p->batch))
            return false;
    return p->slots != NULL;
}

static bool create_threads(struct cnn_prefetch *p)
{
    p->threads = calloc(p->n_threads, sizeof *p->threads);
    for (uint32_t i = 0; p->threads != NULL && i < p->n_threads; i++) {
        p->threads[i].queue = p;
        p->threads[i].scratch = cnn_batch_maker_scratch(p->maker);
        if (p->threads[i].scratch == NULL)
            return false;
    }
    return p->threads != NULL;
}

void cnn_prefetch_destroy(struct cnn_prefetch *p)
{
    if (p == NULL)
        return;
    stop_threads(p);
    for (uint32_t i = 0; p->slots != NULL && i <= p->depth; i++)
        cnn_room_finish(&p->slots[i].room, p->maker);
    for (uint32_t i = 0; p->threads != NULL && i < p->n_threads; i++)
        if (p->threads[i].scratch != NULL)
            cnn_batch_maker_drop_scratch(p->maker, p->threads[i].scratch);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->room);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->slots);
    free(p);
}

int cnn_prefetch_create(const struct cnn_batch_maker *maker, struct cnn_order *order, uint32_t batch,
                        uint32_t depth, uint32_t threads, struct cnn_prefetch **out, struct ps_error *err)
{
    struct cnn_prefetch *p = calloc(1, sizeof *p);
    if (p == NULL)
        return ps_fail(err, -ENOMEM, "no memory for prefetching");
    p->maker = maker;
    p->order = order;
    p->batch = batch;
    p->depth = depth;
    p->n_threads = threads;
    /* Several shares per thread, so that the threads finish a batch together, but not so many that they
     * contend for the lock. */
    p->share = batch / (4 * threads) > 0 ? batch / (4 * threads) : 1;
    p->share = p->share < MAX_SHARE ? p->share : MAX_SHARE;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->room, NULL);
    pthread_cond_init(&p->ready, NULL);
    pthread_cond_init(&p->idle, NULL);
    int rc = 0;
    if (!create_slots(p) || !create_threads(p))
        rc = ps_fail(err, -ENOMEM, "no memory to prefetch %u batches of %u images", depth, batch);
    else if ((rc = start_threads(p)) != 0)
        ps_fail(err, rc, "thread %u of %u for data cannot be started: %s", p->n_started + 1, p->n_threads,
                strerror(-rc));
    if (rc != 0)
        cnn_prefetch_destroy(p);
    else
        *out = p;
    return rc;
}
