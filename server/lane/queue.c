#include "server/lane/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The counters of a ring run over, so that its size divides 2^32. */
static uint32_t power_of_two_from(uint32_t n)
{
    uint32_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

int psd_ring_init(struct psd_ring *r, uint32_t n_notes)
{
    uint32_t n = power_of_two_from(n_notes);
    atomic_init(&r->pushed, 0);
    atomic_init(&r->taken, 0);
    r->mask = n - 1;
    r->wake_fd = -1;
    if ((r->notes = calloc(n, sizeof *r->notes)) == NULL)
        return -ENOMEM;
    r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return r->wake_fd < 0 ? -errno : 0;
}

void psd_ring_finish(struct psd_ring *r)
{
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    r->wake_fd = -1;
    free(r->notes);
    r->notes = NULL;
}

void psd_ring_push(struct psd_ring *r, const struct psd_note *note)
{
    uint32_t at = atomic_load_explicit(&r->pushed, memory_order_relaxed);
    assert(at - atomic_load_explicit(&r->taken, memory_order_acquire) <= r->mask);
    r->notes[at & r->mask] = *note;
    atomic_store_explicit(&r->pushed, at + 1, memory_order_release);
    eventfd_write(r->wake_fd, 1);
}

void psd_ring_wake(struct psd_ring *r)
{
    eventfd_write(r->wake_fd, 1);
}

bool psd_ring_take(struct psd_ring *r, struct psd_note *note)
{
    uint32_t at = atomic_load_explicit(&r->taken, memory_order_relaxed);
    if (at == atomic_load_explicit(&r->pushed, memory_order_acquire))
        return false;
    *note = r->notes[at & r->mask];
    atomic_store_explicit(&r->taken, at + 1, memory_order_release);
    return true;
}

uint32_t psd_ring_room(const struct psd_ring *r)
{
    return r->mask + 1 -
           (atomic_load_explicit(&r->pushed, memory_order_relaxed) -
            atomic_load_explicit(&r->taken, memory_order_acquire));
}

void psd_ring_calm(struct psd_ring *r)
{
    eventfd_t count;
    eventfd_read(r->wake_fd, &count);
}
