/* shared.h: what all lanes of this psd and the loop share, and how exchanges are named in it. Any thread. */
#ifndef PSD_LANE_SHARED_H
#define PSD_LANE_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What all lanes and the loop share. */
struct psd_shared {
    _Atomic uint64_t version; /* exchanges that landed in every lane */
    _Atomic float alpha;      /* follows the number of live workers; written by the loop */
    _Atomic float mean_rate;  /* 1/p: how buffers follow the workers under rules whose answer is adopted */
    _Atomic uint32_t generation;
    _Atomic uint64_t rounds; /* that lanes have been through, all together */
    uint32_t n_slots;        /* limits.clients + PSD_OBSERVERS */
    uint32_t n_lanes;        /* of this psd */
    pthread_barrier_t
        snapshot; /* of all lanes: under whole lanes nobody moves the center while it is copied */
    /* [n_slots]: in how many lanes the client's newest exchange has landed; its name and the count, see
     * psd_lane_whole */
    _Atomic uint64_t *lanes_done;
    _Atomic uint64_t *exchanges; /* [n_slots]: the client's that landed in every lane they go to */
    _Atomic uint64_t *clocks;    /* [n_slots]: the same without what sets values instead of moving them */
    /* [n_slots]: the client's newest exchange of which a chunk has landed in some lane; and that has landed
     * in every lane that it goes to, or never will, since a lane has refused a chunk of it.
     * psd_exchange_name; 0: none */
    _Atomic uint64_t *begun, *whole;
    /* [n_slots], of several servers: those that the exchange in `begun` goes to, as bits below the lower half
     * of its name; see psd_exchange_parts. */
    _Atomic uint64_t *parts;
};

/* Tells exchanges of one slot apart, over sessions: the incarnation, and of seq what is left, which is
 * enough: exchanges of one session that are compared are near each other. */
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

/* A session is later than those of lower incarnation. */
static inline bool psd_exchange_is_later(uint64_t name, uint64_t than)
{
    return name >> 32 != than >> 32 ? name > than : (int32_t)((uint32_t)name - (uint32_t)than) > 0;
}

/* Makes it the client's newest of `begun` or `whole`; a lane may be behind with what another has remembered.
 * Whether it was not. Any thread. */
static inline bool psd_exchange_remember(_Atomic uint64_t *newest, uint64_t name)
{
    uint64_t was = atomic_load_explicit(newest, memory_order_relaxed);
    while (psd_exchange_is_later(name, was))
        if (atomic_compare_exchange_weak_explicit(newest, &was, name, memory_order_release,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* Bits of the servers that the exchange of this name goes to, from its slot of shared->parts. Where a lane
 * has written there of another one meanwhile it is not known: all of them. */
static inline uint32_t psd_exchange_parts(uint64_t kept, uint64_t name)
{
    return (uint32_t)(kept >> 32) == (uint32_t)name ? (uint32_t)kept : UINT32_MAX;
}

/* The seq in a name of this session, which is near another of its; near 0: its lower 32 bits. 0: the name is
 * of another session, or none. */
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

/* Whether the exchange was begun in some lane: then it is to be finished in all of them. Any thread. */
static inline bool psd_lane_has_begun(const struct psd_shared *s, uint32_t client, uint32_t incarnation,
                                      uint64_t seq)
{
    return atomic_load_explicit(&s->begun[client], memory_order_acquire) ==
           psd_exchange_name(incarnation, seq);
}

#endif
