/* engine.h: a discrete-event engine: events in time order, stations that serve tasks first come, first
 * served, and a seeded generator. It is independent of parameter servers.
 *
 * Equal runs give bit-identical results: events of the same time run in the order of their creation, and
 * randomness comes only from seeds. Times are in seconds from 0. If memory runs out, `failed` is set and the
 * run ends. */
#ifndef TEST_BENCH_SIMULATE_ENGINE_H
#define TEST_BENCH_SIMULATE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*sim_handler)(void *owner);

struct sim_event {
    double at_s;
    uint64_t order;
    sim_handler run;
    void *owner;
};

struct sim_engine {
    struct sim_event *heap; /* [room], the first n in heap order */
    size_t n, room;
    uint64_t n_made, n_run;
    double now_s;
    bool failed;
};

void sim_engine_finish(struct sim_engine *e);
/* Schedules run(owner) for that time, which must not be before now. */
void sim_at(struct sim_engine *e, double at_s, sim_handler run, void *owner);
/* Runs the next event; false if there is none, or the engine has failed. */
bool sim_next(struct sim_engine *e);

/* A task at a station. Owned by its owner; it must not move while at the station. */
struct sim_task {
    struct sim_task *next;
    struct sim_station *station;
    double seconds;
    sim_handler done;
    void *owner;
};

struct sim_queue {
    struct sim_task *first, *last;
};

/* A number of servers, or threads, that take tasks in order of arrival. With `cores`, a task that has a
 * thread also needs a core, and holds both. */
struct sim_station {
    struct sim_engine *engine;
    struct sim_station *cores; /* NULL: a task with a thread can run */
    uint32_t servers, busy;
    struct sim_queue waiting;
    double busy_s; /* summed over servers */
    uint64_t n_done;
};

void sim_station_init(struct sim_station *st, struct sim_engine *e, uint32_t servers,
                      struct sim_station *cores);
/* Enters a task that takes `seconds`; then calls done(owner). A task of 0 seconds completes at once. */
void sim_station_enter(struct sim_station *st, struct sim_task *task, double seconds, sim_handler done,
                       void *owner);

/* Steele, Lea, Flood 2014 (splitmix64). */
struct sim_dice {
    uint64_t state;
};

uint64_t sim_dice_bits(struct sim_dice *d);
double sim_dice_uniform(struct sim_dice *d); /* above 0, below 1 */
double sim_dice_normal(struct sim_dice *d);  /* mean 0, deviation 1 */

#endif
