#include "tests/bench/simulate/engine.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { FIRST_ROOM = 1024 };

void sim_engine_finish(struct sim_engine *e)
{
    free(e->heap);
    e->heap = NULL;
    e->n = e->room = 0;
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->order < b->order);
}

static bool has_room(struct sim_engine *e)
{
    size_t room = e->room > 0 ? 2 * e->room : FIRST_ROOM;
    struct sim_event *grown;
    if (e->n < e->room)
        return true;
    if ((grown = realloc(e->heap, room * sizeof *grown)) == NULL) {
        e->failed = true;
        return false;
    }
    e->heap = grown;
    e->room = room;
    return true;
}

void sim_at(struct sim_engine *e, double at_s, sim_handler run, void *owner)
{
    struct sim_event made = {at_s, e->n_made++, run, owner};
    assert(at_s >= e->now_s);
    if (!has_room(e))
        return;
    size_t i = e->n++;
    for (size_t up; i > 0 && is_before(&made, &e->heap[up = (i - 1) / 2]); i = up)
        e->heap[i] = e->heap[up];
    e->heap[i] = made;
}

static struct sim_event take_first(struct sim_engine *e)
{
    struct sim_event first = e->heap[0], last = e->heap[--e->n];
    size_t i = 0;
    for (size_t down; (down = 2 * i + 1) < e->n; i = down) {
        if (down + 1 < e->n && is_before(&e->heap[down + 1], &e->heap[down]))
            down++;
        if (!is_before(&e->heap[down], &last))
            break;
        e->heap[i] = e->heap[down];
    }
    e->heap[i] = last;
    return first;
}

bool sim_next(struct sim_engine *e)
{
    if (e->n == 0 || e->failed)
        return false;
    struct sim_event event = take_first(e);
    e->now_s = event.at_s;
    e->n_run++;
    event.run(event.owner);
    return true;
}

void sim_station_init(struct sim_station *st, struct sim_engine *e, uint32_t servers,
                      struct sim_station *cores)
{
    *st = (struct sim_station){.engine = e, .cores = cores, .servers = servers};
}

static void push(struct sim_queue *q, struct sim_task *task)
{
    task->next = NULL;
    if (q->first == NULL)
        q->first = task;
    else
        q->last->next = task;
    q->last = task;
}

static struct sim_task *pull(struct sim_queue *q)
{
    struct sim_task *task = q->first;
    if (task != NULL)
        q->first = task->next;
    return task;
}

static void end_task(void *owner);

static void run_task(struct sim_station *at, struct sim_task *task)
{
    at->busy++;
    sim_at(at->engine, at->engine->now_s + task->seconds, end_task, task);
}

/* Called when the task has a thread. */
static void start_task(struct sim_station *st, struct sim_task *task)
{
    if (st->cores == NULL) {
        run_task(st, task);
        return;
    }
    st->busy++;
    if (st->cores->busy < st->cores->servers)
        run_task(st->cores, task);
    else
        push(&st->cores->waiting, task);
}

static void leave_cores(struct sim_station *cores, const struct sim_task *task)
{
    struct sim_task *next;
    cores->busy--;
    cores->busy_s += task->seconds;
    cores->n_done++;
    if ((next = pull(&cores->waiting)) != NULL)
        run_task(cores, next);
}

static void end_task(void *owner)
{
    struct sim_task *task = owner, *next;
    struct sim_station *st = task->station;
    if (st->cores != NULL)
        leave_cores(st->cores, task);
    st->busy--;
    st->busy_s += task->seconds;
    st->n_done++;
    if ((next = pull(&st->waiting)) != NULL)
        start_task(st, next);
    task->done(task->owner);
}

void sim_station_enter(struct sim_station *st, struct sim_task *task, double seconds, sim_handler done,
                       void *owner)
{
    if (!(seconds > 0)) {
        st->n_done++;
        done(owner);
        return;
    }
    task->station = st;
    task->seconds = seconds;
    task->done = done;
    task->owner = owner;
    if (st->busy < st->servers)
        start_task(st, task);
    else
        push(&st->waiting, task);
}

uint64_t sim_dice_bits(struct sim_dice *d)
{
    uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

double sim_dice_uniform(struct sim_dice *d)
{
    return ((double)(sim_dice_bits(d) >> 12) + 0.5) * 0x1p-52;
}

/* Box and Muller 1958; the second value is dropped, so that the state is one number. */
double sim_dice_normal(struct sim_dice *d)
{
    double u = sim_dice_uniform(d), v = sim_dice_uniform(d);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}
