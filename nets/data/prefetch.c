#include "nets/data/prefetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

/* A batch on its way. A thread writes it between claiming it and setting `ready`. The reader reads it from
 * then until it takes the one after: there is a slot more than batches are made ahead, and nobody claims that
 * of the batch before `head`. */
struct slot {
    bool ready; /* under lock */
    uint32_t n;
    int rc; /* of the image that failed */
    struct cnn_position after;
    struct cnn_pick *picks; /* [batch] */
    float *images;          /* [batch][n_pixels] */
    uint16_t *labels;       /* [batch] */
    struct ps_error error;
};

struct thread {
    struct cnn_prefetch *queue;
    pthread_t id;
    uint8_t *stored;
};

struct cnn_prefetch {
    const struct cnn_maker *maker;
    uint32_t batch, depth;
    uint32_t n_threads, n_started;
    atomic_bool abandon; /* batches being made are not wanted any more; written under lock */
    pthread_mutex_t lock;
    pthread_cond_t room;  /* threads: a slot is free, or stopping */
    pthread_cond_t ready; /* the reader: some slot is ready, or the end was drawn */
    pthread_cond_t idle;  /* pause: no thread makes a batch */
    /* Under lock. Batch k lies in slot k % (depth + 1); head <= tail <= head + depth. */
    uint64_t head, tail; /* the next to take, the next to claim */
    bool ended, paused, stopping;
    uint32_t n_making; /* batches claimed and not ready */
    struct cnn_order *order;
    struct slot *slots;     /* [depth + 1] */
    struct thread *threads; /* [n_threads] */
};

static bool has_work(const struct cnn_prefetch *p)
{
    return !p->paused && !p->ended && p->tail - p->head < p->depth;
}

static struct slot *slot_of(struct cnn_prefetch *p, uint64_t k)
{
    return &p->slots[k % (p->depth + 1)];
}

/* Under lock. NULL: there is nothing more to make. */
static struct slot *claim(struct cnn_prefetch *p)
{
    struct slot *s = slot_of(p, p->tail);
    s->n = cnn_order_draw(p->order, p->batch, s->picks);
    s->after = p->order->at;
    s->rc = 0;
    s->ready = false;
    if (s->n == 0) {
        p->ended = true;
        ps_cond_wake(&p->ready);
        return NULL;
    }
    p->tail++;
    p->n_making++;
    return s;
}

static void make(struct thread *t, struct slot *s)
{
    struct cnn_prefetch *p = t->queue;
    for (uint32_t i = 0; i < s->n && s->rc == 0; i++) {
        if (atomic_load_explicit(&p->abandon, memory_order_relaxed))
            return;
        s->rc = cnn_maker_image(p->maker, &s->picks[i], t->stored, s->images + i * p->maker->n_pixels,
                                &s->labels[i], &s->error);
    }
}

static void *run(void *arg)
{
    struct thread *t = arg;
    struct cnn_prefetch *p = t->queue;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        struct slot *s = has_work(p) ? claim(p) : NULL;
        if (s == NULL) {
            pthread_cond_wait(&p->room, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        make(t, s);
        pthread_mutex_lock(&p->lock);
        s->ready = true;
        p->n_making--;
        ps_cond_wake(&p->ready);
        if (p->n_making == 0)
            ps_cond_wake(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int cnn_prefetch_take(struct cnn_prefetch *p, const float **images, const uint16_t **labels,
                      struct cnn_position *after, struct ps_error *err)
{
    struct slot *s = slot_of(p, p->head); /* head is the reader's own */
    pthread_mutex_lock(&p->lock);
    while (p->head < p->tail ? !s->ready : !p->ended)
        pthread_cond_wait(&p->ready, &p->lock);
    bool at_end = p->head == p->tail;
    pthread_mutex_unlock(&p->lock);
    if (at_end)
        return 0;
    if (s->rc != 0)
        return ps_fail(err, s->rc, "%s", s->error.text);

    *images = s->images;
    *labels = s->labels;
    *after = s->after;
    pthread_mutex_lock(&p->lock);
    p->head++;
    ps_cond_wake(&p->room);
    pthread_mutex_unlock(&p->lock);
    return (int)s->n;
}

void cnn_prefetch_pause(struct cnn_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->paused = true;
    atomic_store(&p->abandon, true);
    while (p->n_making > 0)
        pthread_cond_wait(&p->idle, &p->lock);
    p->head = p->tail = 0;
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

/* Signals are the program's own: none is delivered to these threads. */
static int start_threads(struct cnn_prefetch *p)
{
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (p->n_started < p->n_threads && rc == 0) {
        struct thread *t = &p->threads[p->n_started];
        rc = pthread_create(&t->id, NULL, run, t);
        if (rc == 0) {
            char name[16]; /* as top -H shows it */
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
    for (uint32_t i = 0; p->slots != NULL && i <= p->depth; i++) {
        struct slot *s = &p->slots[i];
        s->picks = calloc(p->batch, sizeof *s->picks);
        s->images = calloc(p->batch, p->maker->n_pixels * sizeof *s->images);
        s->labels = calloc(p->batch, sizeof *s->labels);
        if (s->picks == NULL || s->images == NULL || s->labels == NULL)
            return false;
    }
    return p->slots != NULL;
}

static bool create_threads(struct cnn_prefetch *p)
{
    p->threads = calloc(p->n_threads, sizeof *p->threads);
    for (uint32_t i = 0; p->threads != NULL && i < p->n_threads; i++) {
        p->threads[i].queue = p;
        p->threads[i].stored = malloc(p->maker->n_stored);
        if (p->threads[i].stored == NULL)
            return false;
    }
    return p->threads != NULL;
}

void cnn_prefetch_destroy(struct cnn_prefetch *p)
{
    if (p == NULL)
        return;
    stop_threads(p);
    for (uint32_t i = 0; p->slots != NULL && i <= p->depth; i++) {
        free(p->slots[i].picks);
        free(p->slots[i].images);
        free(p->slots[i].labels);
    }
    for (uint32_t i = 0; p->threads != NULL && i < p->n_threads; i++)
        free(p->threads[i].stored);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->room);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->slots);
    free(p);
}

int cnn_prefetch_create(const struct cnn_maker *maker, struct cnn_order *order, uint32_t batch,
                        uint32_t depth, uint32_t threads, struct cnn_prefetch **out, struct ps_error *err)
{
    struct cnn_prefetch *p = calloc(1, sizeof *p);
    if (p == NULL)
        return ps_fail(err, -ENOMEM, "no memory for batches made ahead");
    p->maker = maker;
    p->order = order;
    p->batch = batch;
    p->depth = depth;
    p->n_threads = threads < depth ? threads : depth; /* a batch is made by one thread */
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->room, NULL);
    pthread_cond_init(&p->ready, NULL);
    pthread_cond_init(&p->idle, NULL);
    int rc = 0;
    if (!create_slots(p) || !create_threads(p))
        rc = ps_fail(err, -ENOMEM, "no memory for %u batches of %u images made ahead", depth, batch);
    else if ((rc = start_threads(p)) != 0)
        ps_fail(err, rc, "thread %u of %u for data cannot be started: %s", p->n_started + 1, p->n_threads,
                strerror(-rc));
    if (rc != 0)
        cnn_prefetch_destroy(p);
    else
        *out = p;
    return rc;
}
