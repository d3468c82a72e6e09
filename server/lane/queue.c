#include "server/lane/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The counters of a queue wrap around, so its size must divide 2^32. */
static uint32_t power_of_two_from(uint32_t n)
{
    uint32_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

int psd_queue_init(struct psd_queue *r, uint32_t n_notes)
{
    uint32_t n = power_of_two_from(n_notes);
    atomic_init(&r->pushed, 0);
    atomic_init(&r->taken, 0);
    r->mask = n - 1;
    r->wake_fd = -1;
    if ((r->msgs = calloc(n, sizeof *r->msgs)) == NULL)
        return -ENOMEM;
    r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return r->wake_fd < 0 ? -errno : 0;
}

void psd_queue_finish(struct psd_queue *r)
{
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    r->wake_fd = -1;
    free(r->msgs);
    r->msgs = NULL;
}

void psd_queue_push(struct psd_queue *r, const struct psd_lane_message *msg)
{
    uint32_t at = atomic_load_explicit(&r->pushed, memory_order_relaxed);
    assert(at - atomic_load_explicit(&r->taken, memory_order_acquire) <= r->mask);
    r->msgs[at & r->mask] = *msg;
    atomic_store_explicit(&r->pushed, at + 1, memory_order_release);
    eventfd_write(r->wake_fd, 1);
}

void psd_queue_wake(struct psd_queue *r)
{
    eventfd_write(r->wake_fd, 1);
}

bool psd_queue_take(struct psd_queue *r, struct psd_lane_message *msg)
{
    uint32_t at = atomic_load_explicit(&r->taken, memory_order_relaxed);
    if (at == atomic_load_explicit(&r->pushed, memory_order_acquire))
        return false;
    *msg = r->msgs[at & r->mask];
    atomic_store_explicit(&r->taken, at + 1, memory_order_release);
    return true;
}

uint32_t psd_queue_room(const struct psd_queue *r)
{
    return r->mask + 1 -
           (atomic_load_explicit(&r->pushed, memory_order_relaxed) -
            atomic_load_explicit(&r->taken, memory_order_acquire));
}

void psd_queue_calm(struct psd_queue *r)
{
    eventfd_t count;
    eventfd_read(r->wake_fd, &count);
}
