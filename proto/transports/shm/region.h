/* region.h: the memory that one link and its port share: a ring of requests, a ring of answers, and slots for
 * bodies.
 *
 *   control words | requests[] | answers[] | claims[] | (next page) slot 0 | slot 1 | ...
 *
 * Each ring has one writer and one reader. An entry is valid when its `seq` is the expected one. No slot is
 * in a ring twice and a ring has room for all slots, so the writer need not know the reader's position. The
 * other end may write anything at any time: an entry is read once into private memory, and no state of this
 * end is stored here.
 *
 * A request whose body is in a registered buffer is either processed by the port or taken back by the link,
 * never both: the first that changes its slot's claim from PS_SHM_OFFERED owns it. In place, the port claims
 * it before it works in the buffer. A body that it only copies, it claims after the copy: if the link has
 * taken the body back by then, it may have changed during the copy, which is thrown away. So a link never
 * waits for a copy. */
#ifndef PS_TRANSPORTS_SHM_REGION_H
#define PS_TRANSPORTS_SHM_REGION_H

#include <stdatomic.h>
#include <stdbool.h>

#include "proto/transports/shm/wire.h"

/* Two cache lines: the prefetcher loads them in pairs. */
struct ps_shm_entry {
    _Atomic uint64_t seq; /* from 1; written last */
    _Atomic uint64_t place, offset, bytes, copies;
    uint64_t unused[3];
    _Atomic uint64_t head[PS_FRAME_BYTES / 8];
};

/* Flags that one end writes for the other, on separate cache lines. */
struct ps_shm_side {
    _Alignas(128) _Atomic uint32_t asleep; /* its bell must be rung at the next entry */
    _Atomic uint32_t cpu;                  /* where it ran last */
    _Atomic uint32_t detached;             /* the port's only: it takes no more requests */
    _Atomic uint32_t clients;              /* the port's only: that have sent it something lately */
};

enum ps_shm_claim_state {
    PS_SHM_UNCLAIMED, /* no such request uses the slot */
    PS_SHM_OFFERED,   /* set by the link before the request is in the ring */
    PS_SHM_BEGUN,     /* set by the port: it processes the body, or has copied it, and will answer */
    PS_SHM_TAKEN_BACK /* set by the link when it closes: the body is the caller's again */
};

struct ps_shm_claim {
    _Alignas(64) _Atomic uint32_t state;
};

struct ps_shm_control {
    struct ps_shm_side link, port;
};

struct ps_shm_ring {
    struct ps_shm_entry *entries;
    uint64_t mask, next;
};

struct ps_shm_region {
    struct ps_shm_shape shape;
    struct ps_shm_control *control; /* where it is mapped */
    struct ps_shm_ring requests, answers;
    struct ps_shm_claim *claims; /* [n_slots] */
    unsigned char *slots;
    size_t bytes;
};

/* For the port: creates a file that is sealed against shrinking. *fd is the caller's. -errno. */
int ps_shm_region_make(const struct ps_shm_shape *shape, struct ps_shm_region *out, int *fd);
/* For the link: maps a file that it received. A child of fork does not have it. */
int ps_shm_region_map(const struct ps_shm_shape *shape, int fd, struct ps_shm_region *out);
void ps_shm_region_unmap(struct ps_shm_region *r);

/* Whether the file can never become smaller than `bytes`, so that accessing it is safe. */
bool ps_shm_file_is_safe(int fd, uint64_t bytes);

static inline unsigned char *ps_shm_slot(const struct ps_shm_region *r, uint32_t slot)
{
    return r->slots + slot * r->shape.slot_bytes;
}

static inline void ps_shm_offer(const struct ps_shm_region *r, uint32_t slot)
{
    atomic_store(&r->claims[slot].state, PS_SHM_OFFERED);
}

/* Tries to claim the slot, as PS_SHM_BEGUN or PS_SHM_TAKEN_BACK; whether it succeeded. */
static inline bool ps_shm_claim_slot(const struct ps_shm_region *r, uint32_t slot, uint32_t as)
{
    uint32_t offered = PS_SHM_OFFERED;
    return atomic_compare_exchange_strong(&r->claims[slot].state, &offered, as);
}

/* Sequentially consistent, like all accesses to `asleep`: either the writer of an entry sees that the reader
 * sleeps, or the reader sees the entry before it sleeps. */
static inline bool ps_shm_ring_has(const struct ps_shm_ring *r)
{
    return atomic_load(&r->entries[r->next & r->mask].seq) == r->next + 1;
}

void ps_shm_ring_put(struct ps_shm_ring *r, const struct ps_shm_note *n);
/* False: the ring is empty. */
bool ps_shm_ring_take(struct ps_shm_ring *r, struct ps_shm_note *n);

/* After a put: whether to ring the other end's bell. True once each time that it falls asleep. */
static inline bool ps_shm_must_ring(struct ps_shm_side *other)
{
    return atomic_load(&other->asleep) != 0 && atomic_exchange(&other->asleep, 0) != 0;
}

/* Falls asleep, unless the ring has an entry. */
static inline bool ps_shm_sleep(struct ps_shm_side *mine, const struct ps_shm_ring *ring)
{
    atomic_store(&mine->asleep, 1);
    if (!ps_shm_ring_has(ring))
        return true;
    atomic_store_explicit(&mine->asleep, 0, memory_order_relaxed);
    return false;
}

/* The cpu that this thread runs on. */
uint32_t ps_shm_cpu(void);

#if defined __x86_64__ || defined __i386__
#define PS_SHM_PAUSE() __builtin_ia32_pause()
#else
#define PS_SHM_PAUSE() atomic_signal_fence(memory_order_seq_cst)
#endif

#endif
