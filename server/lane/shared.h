/* shared.h: state shared by all lanes of this psd and the loop, and the names of exchanges in it. Any
 * thread. */
#ifndef PSD_LANE_SHARED_H
#define PSD_LANE_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/frame.h"

/* State shared by all lanes and the loop. */
struct psd_shared {
    _Atomic uint64_t version; /* exchanges that have landed in every lane */
    _Atomic float alpha;      /* depends on the number of live workers; written by the loop */
    /* 1/p: rate at which buffers follow the workers, for rules whose answer is adopted */
    _Atomic float mean_rate;
    _Atomic uint32_t generation;
    _Atomic uint64_t rounds;    /* completed by lanes, summed over all of them */
    uint32_t n_slots;           /* limits.clients + PSD_OBSERVERS */
    uint32_t n_lanes;           /* of this psd */
    pthread_barrier_t snapshot; /* under whole lanes, keeps every lane from moving the center during a copy */
    /* [PS_MAX_TRACKS][n_slots]: in how many lanes the client's newest exchange on the track has landed, with
     * its name; see psd_lane_whole */
    _Atomic uint64_t *lanes_done;
    /* [n_slots]: the client's exchanges that have landed in every lane that they go to */
    _Atomic uint64_t *exchanges;
    /* [n_slots]: the same, excluding exchanges that set values instead of moving them */
    _Atomic uint64_t *clocks;
    /* [PS_MAX_TRACKS][n_slots]: the client's newest exchange on the track of which a chunk has landed in some
     * lane; and the newest that has landed in every lane that it goes to, or never will because a lane has
     * refused a chunk of it. Values of psd_exchange_name; 0: none. With several servers there is one track.
     */
    _Atomic uint64_t *begun, *whole;
    /* [n_slots]: the client's exchanges before this one are over: it has their answers, or has given them up.
     * Likewise a name. Lanes learn it from the next exchange, the loop from heartbeats. */
    _Atomic uint64_t *over;
    /* [n_slots], with several servers: those that the exchange in `begun` goes to, as bits below the lower
     * half of its name; see psd_exchange_parts. */
    _Atomic uint64_t *parts;
};

/* Identifies an exchange of a slot across sessions: the incarnation and the low bits of seq. These suffice
 * because compared exchanges of one session are near each other: pulls have other numbers. */
static inline uint64_t psd_exchange_name(uint32_t incarnation, uint64_t seq)
{
    return (uint64_t)incarnation << 32 | (uint32_t)seq;
}

static inline bool psd_exchange_is(uint64_t name, uint32_t incarnation, uint64_t seq)
{
    return name == psd_exchange_name(incarnation, seq);
}

static inline bool psd_exchange_is_of(uint64_t name, uint32_t incarnation)
{
    return name >> 32 == incarnation;
}

/* Sessions of higher incarnation are later. */
static inline bool psd_exchange_is_later(uint64_t name, uint64_t than)
{
    return name >> 32 != than >> 32 ? name > than : (int32_t)((uint32_t)name - (uint32_t)than) > 0;
}

/* Makes it the client's newest exchange in `begun` or `whole`, unless another lane has stored a later one.
 * Returns whether it did. Any thread. */
static inline bool psd_exchange_remember(_Atomic uint64_t *newest, uint64_t name)
{
    uint64_t was = atomic_load_explicit(newest, memory_order_relaxed);
    while (psd_exchange_is_later(name, was))
        if (atomic_compare_exchange_weak_explicit(newest, &was, name, memory_order_release,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* The servers that the exchange of this name goes to, as bits, from its slot of shared->parts. All of them if
 * a lane has overwritten the slot with another exchange. */
static inline uint32_t psd_exchange_parts(uint64_t kept, uint64_t name)
{
    return (uint32_t)(kept >> 32) == (uint32_t)name ? (uint32_t)kept : UINT32_MAX;
}

/* The seq in a name of this session, given a nearby seq; near_seq 0: only its lower 32 bits. 0: the name is
 * of another session, or empty. */
static inline uint64_t psd_exchange_seq(uint64_t name, uint32_t incarnation, uint64_t near_seq)
{
    int64_t behind = (int32_t)((uint32_t)near_seq - (uint32_t)name);
    if (!psd_exchange_is_of(name, incarnation))
        return 0;
    return behind <= (int64_t)near_seq ? near_seq - (uint64_t)behind : (uint32_t)name;
}

/* -ENOMEM. */
int psd_shared_init(struct psd_shared *s, uint32_t n_slots, uint32_t n_lanes);
void psd_shared_finish(struct psd_shared *s);

/* The place of the client's track in a table that has them. */
static inline size_t psd_track_at(const struct psd_shared *s, uint32_t client, uint32_t track)
{
    return (size_t)track * s->n_slots + client;
}

/* Whether the exchange has begun in some lane: it must then be completed in all of them. Any thread. */
static inline bool psd_lane_has_begun(const struct psd_shared *s, uint32_t client, uint32_t track,
                                      uint32_t incarnation, uint64_t seq)
{
    return atomic_load_explicit(&s->begun[psd_track_at(s, client, track)], memory_order_acquire) ==
           psd_exchange_name(incarnation, seq);
}

#endif
