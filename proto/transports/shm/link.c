/* A link of shm: attaches to a port, sends bodies, and waits for answers.
 *
 * A body is copied to a slot. One in a registered buffer may be copied by the port: a worker has one thread
 * for all of its links, and each port has its own. The port does so if the worker has more links than the
 * port has busy clients, else ports would have more to copy than workers have, and if each of the ports may
 * have a core beside the worker's. */
#include "proto/clock.h"
#include "proto/transports/shm/shm.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum {
    PEEK_EVERY = 64,   /* empty polls before the socket is asked whether the port is alive */
    SPIN_NS = 100000,  /* roughly the time a port takes for a chunk */
    SPINS_A_LOOK = 16, /* pauses between two looks at the clock */
    MAX_CPUS = 1024,   /* cpus above this are treated as one */
    MAX_WAIT = 65,
};

struct slot {
    bool sent, lent, in_place, taken_back; /* lent: the body is in a registered buffer */
    const void *body;                      /* where it is there */
};

/* bell: the port's. wait: an epoll instance that is readable when the port has rung or is gone. */
struct ps_link {
    struct ps_hub *hub; /* NULL: it was never open */
    int socket, bell, wait;
    uint32_t refs; /* received messages, and the owner */
    struct ps_shm_region region;
    struct slot *slots;
    uint32_t *free, n_free; /* last in, first out: a recently used slot is in the cache */
    uint32_t in_flight, lent, in_place, window, silence, cpu;
    bool gone, settles; /* being closed: sends nothing any more */
    struct ps_buffer buffers[PS_MAX_BUFFERS];
    uint32_t n_buffers;
};

static void let_go(struct ps_link *link)
{
    if (--link->refs > 0)
        return;
    ps_shm_region_unmap(&link->region);
    free(link->slots);
    free(link->free);
    free(link);
}

/* Fills the link from the reply and its files, and takes ownership of the last two. */
static int map_region(struct ps_link *link, const char *url, const struct ps_shm_reply *r, int *files,
                      struct ps_error *err)
{
    struct ps_shm_shape shape = {r->n_slots, r->slot_bytes};
    int rc = ps_shm_region_map(&shape, files[0], &link->region);
    if (rc < 0)
        return ps_fail(err, rc, "%s: its region cannot be mapped: %s", url, strerror(-rc));
    link->slots = calloc(r->n_slots, sizeof *link->slots);
    link->free = calloc(r->n_slots, sizeof *link->free);
    if (link->slots == NULL || link->free == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a link to %s", url);
    for (uint32_t i = 0; i < r->n_slots; i++)
        link->free[link->n_free++] = r->n_slots - 1 - i;
    /* Makes one descriptor to wait on: the socket reports that the port is gone. */
    if (epoll_ctl(files[2], EPOLL_CTL_ADD, link->socket, &(struct epoll_event){EPOLLRDHUP, {.u64 = 1}}) < 0)
        return ps_fail(err, -errno, "%s: cannot be watched: %s", url, strerror(errno));
    link->bell = files[1];
    link->wait = files[2];
    files[1] = files[2] = -1;
    link->window = r->n_slots > PS_SHM_SPARE_SLOTS ? r->n_slots - PS_SHM_SPARE_SLOTS : 1;
    return 0;
}

int ps_shm_link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err)
{
    int files[PS_SHM_REPLY_FILES] = {-1, -1, -1}, rc;
    struct ps_shm_reply reply;
    struct ps_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a link to %s", url);
    link->socket = link->bell = link->wait = -1;
    link->refs = 1;
    link->cpu = PS_SHM_RESTS;
    memcpy(link->buffers, hub->buffers, sizeof link->buffers);
    link->n_buffers = hub->n_buffers;
    if ((rc = ps_shm_connect(hub, url, limits, &link->socket, &reply, files, err)) == 0)
        rc = map_region(link, url, &reply, files, err);
    for (size_t i = 0; i < PS_SHM_REPLY_FILES; i++)
        ps_shm_close(&files[i]);
    if (rc < 0) {
        ps_shm_link_close(link);
        return rc;
    }
    link->hub = hub;
    atomic_fetch_add_explicit(&hub->n_links, 1, memory_order_relaxed);
    *out = link;
    return 0;
}

/* Whether the port's process has ended, or has detached this link and holds none of its messages: answers
 * that were sent are in the ring, and no more will come. */
static bool is_detached(const struct ps_link *link)
{
    struct pollfd fd = {.fd = link->socket};
    return ps_poll(&fd, 1, 0) > 0 && (fd.revents & POLLHUP) != 0;
}

static void take_back(struct ps_link *link)
{
    for (uint32_t i = 0; link->lent > 0 && i < link->region.shape.n_slots; i++) {
        struct slot *s = &link->slots[i];
        if (!s->sent || !s->lent || !ps_shm_claim_slot(&link->region, i, PS_SHM_TAKEN_BACK))
            continue;
        link->in_flight--;
        link->lent--;
        link->in_place -= s->in_place;
        *s = (struct slot){.taken_back = true};
    }
}

/* A port works in one body at a time. */
static const void *find_cut(const struct ps_link *link)
{
    for (uint32_t i = 0; link->in_place > 0 && i < link->region.shape.n_slots; i++)
        if (link->slots[i].sent && link->slots[i].in_place)
            return link->slots[i].body;
    return NULL;
}

int ps_shm_link_settle(struct ps_link *link, const void **cut)
{
    link->settles = true;
    take_back(link);
    bool let_go = is_detached(link);
    if (link->in_place > 0 && (!let_go || ps_shm_ring_has(&link->region.answers)))
        return -EAGAIN;
    *cut = find_cut(link);
    return 0;
}

void ps_shm_link_close(struct ps_link *link)
{
    if (link == NULL)
        return;
    take_back(link);
    if (link->hub != NULL)
        atomic_fetch_sub_explicit(&link->hub->n_links, 1, memory_order_relaxed);
    ps_shm_close(&link->socket);
    ps_shm_close(&link->bell);
    ps_shm_close(&link->wait);
    let_go(link);
}

void ps_shm_link_memory(struct ps_link *link, void **base, size_t *bytes)
{
    *base = link->region.slots;
    *bytes = link->region.shape.n_slots * link->region.shape.slot_bytes;
}

static void runs_at(struct ps_link *link, uint32_t cpu)
{
    if (cpu != link->cpu)
        atomic_store_explicit(&link->region.control->link.cpu, link->cpu = cpu, memory_order_relaxed);
}

static int send_note(struct ps_link *link, struct ps_shm_note *n, const void *head)
{
    bool lent = n->buffer != PS_SHM_STAGED, in_place = lent && !n->copies;
    memcpy(n->head, head, sizeof n->head);
    n->slot = link->free[--link->n_free];
    link->slots[n->slot] =
        (struct slot){.sent = true,
                      .lent = lent,
                      .in_place = in_place,
                      .body = lent ? (char *)link->buffers[n->buffer].base + n->offset : NULL};
    link->in_flight++;
    link->lent += lent;
    link->in_place += in_place;
    runs_at(link, ps_shm_cpu());
    if (lent)
        ps_shm_offer(&link->region, n->slot);
    ps_shm_ring_put(&link->region.requests, n);
    if (ps_shm_must_ring(&link->region.control->port))
        eventfd_write(link->bell, 1);
    return 0;
}

static int may_send(const struct ps_link *link)
{
    if (link->gone || link->settles)
        return -ECONNRESET;
    return link->n_free == 0 || link->in_flight >= link->window ? -EAGAIN : 0;
}

/* Names the registered buffer that contains the body. False: there is none. */
static bool find_buffer(const struct ps_link *link, const void *body, size_t body_bytes,
                        struct ps_shm_note *n)
{
    for (uint32_t i = 0; i < link->n_buffers; i++) {
        const struct ps_buffer *b = &link->buffers[i];
        uintptr_t at = (uintptr_t)body, base = (uintptr_t)b->base;
        if (at < base || at - base > b->bytes || body_bytes > b->bytes - (at - base))
            continue;
        n->buffer = i;
        n->offset = at - base;
        return true;
    }
    return false;
}

static bool port_has_time(const struct ps_link *link)
{
    uint32_t clients = atomic_load_explicit(&link->region.control->port.clients, memory_order_relaxed);
    uint32_t links = atomic_load_explicit(&link->hub->n_links, memory_order_relaxed);
    return links > clients && links < link->hub->n_cores;
}

int ps_shm_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes)
{
    struct ps_shm_note n = {.buffer = PS_SHM_STAGED, .bytes = body != NULL ? body_bytes : 0};
    int rc = may_send(link);
    if (rc < 0)
        return rc;
    if (n.bytes > link->region.shape.slot_bytes)
        return -EMSGSIZE;
    n.copies = n.bytes > 0 && port_has_time(link) && find_buffer(link, body, n.bytes, &n);
    if (n.bytes > 0 && !n.copies)
        memcpy(ps_shm_slot(&link->region, link->free[link->n_free - 1]), body, n.bytes);
    return send_note(link, &n, head);
}

int ps_shm_link_send_in_place(struct ps_link *link, const void *head, void *body, size_t body_bytes)
{
    int rc = may_send(link);
    if (rc < 0)
        return rc;
    struct ps_shm_note n = {.bytes = body_bytes};
    return find_buffer(link, body, body_bytes, &n) ? send_note(link, &n, head) : -EINVAL;
}

/* After empty polls: checks from time to time, by a system call, whether the port is alive. */
static int silent(struct ps_link *link)
{
    char byte;
    if (atomic_load_explicit(&link->region.control->port.detached, memory_order_relaxed) != 0 ||
        (++link->silence % PEEK_EVERY == 0 && recv(link->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0))
        link->gone = true;
    return link->gone ? -ECONNRESET : -EAGAIN;
}

/* Updates the slot of an answer. -EAGAIN: nothing for the caller; -ECONNRESET: the answer is not valid. */
static int take_slot(struct ps_link *link, const struct ps_shm_note *n)
{
    if (n->slot >= link->region.shape.n_slots)
        return -ECONNRESET;
    struct slot *s = &link->slots[n->slot];
    if (!(s->sent || s->taken_back) ||
        (n->bytes > link->region.shape.slot_bytes && n->bytes != PS_SHM_DROPPED))
        return -ECONNRESET;
    bool is_ours = s->sent && n->bytes != PS_SHM_DROPPED;
    link->in_flight -= s->sent;
    link->lent -= s->sent && s->lent;
    link->in_place -= s->sent && s->in_place;
    s->sent = s->taken_back = false;
    if (!is_ours)
        link->free[link->n_free++] = n->slot;
    return is_ours ? 0 : -EAGAIN;
}

int ps_shm_link_recv(struct ps_link *link, struct ps_message *m)
{
    struct ps_shm_held *held = ps_shm_held_of(m);
    struct ps_shm_note n;
    int rc;
    do {
        if (!ps_shm_ring_take(&link->region.answers, &n))
            return silent(link);
        rc = take_slot(link, &n);
    } while (rc == -EAGAIN);
    if (rc < 0) {
        link->gone = true;
        return rc;
    }
    memcpy(held->head, n.head, sizeof held->head);
    held->client = NULL;
    held->link = link;
    held->slot = n.slot;
    held->works_in_place = link->slots[n.slot].in_place;
    m->head = held->head;
    m->head_bytes = PS_FRAME_BYTES;
    m->body = ps_shm_slot(&link->region, n.slot);
    m->body_bytes = n.bytes;
    m->ownership = held->works_in_place && n.bytes == 0 ? PS_BODY_IN_PLACE : PS_BODY_SHARED;
    link->refs++;
    link->silence = 0;
    return 0;
}

void ps_shm_link_drop(struct ps_message *m)
{
    struct ps_shm_held *held = ps_shm_held_of(m);
    held->link->free[held->link->n_free++] = held->slot;
    let_go(held->link);
}

static bool readable(const struct ps_link *link)
{
    return link->gone || ps_shm_ring_has(&link->region.answers);
}

static bool any_readable(struct ps_link *const *links, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (links[i] != NULL && readable(links[i]))
            return true;
    return false;
}

/* False: another thread has it. */
static bool take_cpu(uint64_t *taken, uint32_t cpu)
{
    uint64_t *word = &taken[cpu % MAX_CPUS / 64], bit = UINT64_C(1) << cpu % 64;
    bool is_free = (*word & bit) == 0;
    *word |= bit;
    return is_free;
}

/* Whether polling pays: answers are expected, all of them from ports on other cpus than this thread's. With
 * bodies in registered buffers the ports do most of the work, and two ports that share a cpu could use this
 * one. */
static bool may_spin(struct ps_link *const *links, size_t n)
{
    uint64_t taken[MAX_CPUS / 64] = {0};
    bool awaits = false;
    uint32_t here = ps_shm_cpu();
    for (size_t i = 0; i < n; i++) {
        if (links[i] == NULL || links[i]->in_flight == 0)
            continue;
        runs_at(links[i], here);
        uint32_t cpu = atomic_load_explicit(&links[i]->region.control->port.cpu, memory_order_relaxed);
        if (cpu == here || (links[i]->lent > 0 && !take_cpu(taken, cpu)))
            return false;
        awaits = true;
    }
    return awaits;
}

static bool spin(struct ps_link *const *links, size_t n)
{
    uint64_t end = ps_now_ns() + SPIN_NS;
    while (may_spin(links, n) && ps_now_ns() < end)
        for (int i = 0; i < SPINS_A_LOOK; i++) {
            if (any_readable(links, n))
                return true;
            PS_SHM_PAUSE();
        }
    return false;
}

/* Puts all links to sleep; false: one of them has an answer. */
static bool put_to_sleep(struct ps_link *const *links, size_t n)
{
    bool asleep = true;
    for (size_t i = 0; i < n; i++)
        if (links[i] != NULL && !ps_shm_sleep(&links[i]->region.control->link, &links[i]->region.answers))
            asleep = false;
    return asleep;
}

static void wake(struct ps_link *link)
{
    struct epoll_event events[2];
    atomic_store_explicit(&link->region.control->link.asleep, 0, memory_order_relaxed);
    int n = epoll_wait(link->wait, events, 2, 0);
    for (int i = 0; i < n; i++)
        link->gone = link->gone || events[i].data.u64 == 1;
}

int ps_shm_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms)
{
    struct pollfd fds[MAX_WAIT];
    struct ps_link *of[MAX_WAIT];
    nfds_t used = 0;
    int rc;

    if (any_readable(links, n) || (timeout_ms != 0 && spin(links, n)))
        return 0;
    for (size_t i = 0; i < n && used < MAX_WAIT - 1; i++)
        if (links[i] != NULL) {
            of[used] = links[i];
            fds[used++] = (struct pollfd){.fd = links[i]->wait, .events = POLLIN};
        }
    nfds_t n_links = used;
    if (extra_fd >= 0)
        fds[used++] = (struct pollfd){.fd = extra_fd, .events = POLLIN};
    rc = put_to_sleep(links, n) ? ps_poll(fds, used, timeout_ms) : 1;
    int why = errno;
    for (nfds_t i = 0; i < n_links; i++)
        if (fds[i].revents != 0)
            wake(of[i]);
        else
            atomic_store_explicit(&of[i]->region.control->link.asleep, 0, memory_order_relaxed);
    return rc < 0 ? -why : rc == 0 ? -ETIMEDOUT : 0;
}
