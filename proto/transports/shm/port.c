/* A shm port. It polls the rings of recently active clients; the other clients ring a bell in its epoll. */
#include "proto/clock.h"
#include "proto/transports/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/log.h"

enum {
    LOOK_EVERY = 64,   /* messages between two checks for rings of the bell */
    EVENTS = 64,       /* taken at a time */
    SPIN_NS = 50000,   /* a running peer answers within this time, or is computing */
    SPINS_A_LOOK = 16, /* pauses between two looks at the clock */
};

int ps_shm_watch(const struct ps_port *port, int fd, uint32_t events, enum ps_shm_event kind, uint32_t index,
                 uint32_t generation)
{
    uint64_t about = (uint64_t)generation << 32 | (uint64_t)kind << 28 | index;
    return epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){events, {.u64 = about}}) < 0
               ? -errno
               : 0;
}

void ps_shm_unwatch(const struct ps_port *port, int fd)
{
    if (fd >= 0)
        epoll_ctl(port->epoll, EPOLL_CTL_DEL, fd, NULL);
}

int ps_shm_port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err)
{
    int rc;
    const char *path = ps_shm_path(url);
    struct ps_port *port = calloc(1, sizeof *port);
    (void)hub;
    if (port == NULL || (port->seats = calloc(limits->clients + 1, sizeof *port->seats)) == NULL ||
        (port->active = calloc(limits->clients + 1, sizeof(void *))) == NULL) {
        rc = ps_fail(err, -ENOMEM, "no memory for a lane's port of %u clients", limits->clients);
        goto free_port;
    }
    port->limits = *limits;
    if (path == NULL) {
        rc = ps_fail(err, -EINVAL, "%s: not an address of a lane; allowed is shm://PATH", url);
        goto free_port;
    }
    if ((port->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        rc = ps_fail(err, -errno, "cannot watch %s: %s", url, strerror(errno));
        goto free_port;
    }
    if ((rc = ps_unix_socket_listen(path, "lane's socket", &port->file, err)) < 0)
        goto close_epoll;
    if ((rc = ps_shm_listen(port)) < 0) {
        ps_fail(err, rc, "cannot watch %s: %s", url, strerror(-rc));
        goto close_file;
    }
    strcpy(port->url, "shm://");
    strcat(port->url, port->file.path);
    *out = port;
    return 0;

close_file:
    ps_unix_socket_remove(&port->file);
    close(port->file.fd);
close_epoll:
    close(port->epoll);
free_port:
    if (port != NULL)
        free(port->active);
    free(port != NULL ? port->seats : NULL);
    free(port);
    return rc;
}

void ps_shm_port_close(struct ps_port *port)
{
    if (port == NULL)
        return;
    for (size_t i = 0; i < PS_SHM_HALVES; i++)
        ps_shm_half_end(port, &port->halves[i]);
    for (uint32_t i = 0; i < port->limits.clients; i++)
        if (port->seats[i].client != NULL)
            ps_shm_detach(port->seats[i].client);
    ps_unix_socket_remove(&port->file);
    close(port->file.fd);
    close(port->epoll);
    explicit_bzero(port->seats, port->limits.clients * sizeof *port->seats);
    free(port->active);
    free(port->seats);
    free(port);
}

int ps_shm_port_admit(struct ps_port *port, const struct ps_pass *pass)
{
    struct ps_shm_seat *seat = NULL;
    for (uint32_t i = 0; i < port->limits.clients; i++) {
        struct ps_shm_seat *s = &port->seats[i];
        if (s->admitted && s->pass.client == pass->client) {
            seat = s;
            break;
        }
        if (!s->admitted && seat == NULL)
            seat = s;
    }
    if (seat == NULL)
        return -ENOSPC;
    bool same = seat->admitted && seat->pass.incarnation == pass->incarnation &&
                seat->pass.identity == pass->identity &&
                memcmp(seat->pass.token, pass->token, sizeof pass->token) == 0;
    if (!same && seat->client != NULL)
        ps_shm_detach(seat->client);
    seat->admitted = true;
    seat->pass = *pass;
    return 0;
}

void ps_shm_port_expel(struct ps_port *port, uint32_t client)
{
    for (uint32_t i = 0; i < port->limits.clients; i++) {
        struct ps_shm_seat *s = &port->seats[i];
        if (!s->admitted || s->pass.client != client)
            continue;
        if (s->client != NULL)
            ps_shm_detach(s->client);
        s->admitted = false;
        s->pass = (struct ps_pass){.client = 0};
    }
}

static void unmap_buffer(struct ps_shm_client *c, uint32_t i)
{
    munmap(c->buffers[i], c->buffer_bytes[i]);
    if (c->registered != NULL)
        atomic_fetch_sub_explicit(&c->registered->bytes, c->buffer_bytes[i], memory_order_relaxed);
}

void ps_shm_client_free(struct ps_shm_client *c)
{
    for (uint32_t i = 0; i < c->n_buffers; i++)
        if (c->buffers[i] != NULL)
            unmap_buffer(c, i);
    ps_shm_region_unmap(&c->region);
    ps_shm_close(&c->socket);
    ps_shm_close(&c->bell);
    ps_shm_close(&c->link_bell);
    free(c->taken);
    free(c);
}

static void let_go(struct ps_shm_client *c)
{
    if (--c->refs == 0)
        ps_shm_client_free(c);
}

void ps_shm_client_wake(struct ps_shm_client *c)
{
    struct ps_port *port = c->port;
    if (c->active_at != PS_SHM_RESTS)
        return;
    atomic_store_explicit(&c->region.control->port.asleep, 0, memory_order_relaxed);
    c->active_at = port->n_active;
    port->active[port->n_active++] = c;
}

/* Stops polling the client's ring: it will ring the bell, or is gone. */
static void stop_polling(struct ps_shm_client *c)
{
    struct ps_port *port = c->port;
    if (c->active_at == PS_SHM_RESTS)
        return;
    struct ps_shm_client *last = port->active[--port->n_active];
    port->active[c->active_at] = last;
    last->active_at = c->active_at;
    c->active_at = PS_SHM_RESTS;
}

void ps_shm_detach(struct ps_shm_client *c)
{
    struct ps_port *port = c->port;
    stop_polling(c);
    ps_shm_unwatch(port, c->socket);
    ps_shm_unwatch(port, c->bell);
    atomic_store(&c->region.control->port.detached, 1);
    shutdown(c->socket, SHUT_WR); /* wakes the link */
    ps_shm_close(&c->bell);
    ps_shm_close(&c->link_bell);
    port->seats[c->seat].client = NULL;
    port->seats[c->seat].generation++;
    c->port = NULL;
    let_go(c);
}

/* Handles one event of the epoll. */
static void take_event(struct ps_port *port, uint64_t about)
{
    uint32_t generation = (uint32_t)(about >> 32), index = (uint32_t)about & 0xfffffff;
    enum ps_shm_event kind = (enum ps_shm_event)((uint32_t)about >> 28);
    struct ps_shm_client *c;

    switch (kind) {
    case PS_SHM_LISTENER:
        ps_shm_accept(port);
        break;
    case PS_SHM_HALF:
        if (port->halves[index].generation == generation && port->halves[index].used)
            ps_shm_half_read(port, &port->halves[index]);
        break;
    case PS_SHM_SOCKET:
    case PS_SHM_BELL:
        c = port->seats[index].client;
        if (c == NULL || port->seats[index].generation != generation)
            break;
        if (kind == PS_SHM_BELL)
            ps_shm_client_wake(c);
        else
            ps_shm_detach(c);
        break;
    }
}

/* Handles bells, new connections and lost clients. */
static void look(struct ps_port *port)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(port->epoll, events, EVENTS, 0);
    port->until_look = LOOK_EVERY;
    for (int i = 0; i < n; i++)
        take_event(port, events[i].data.u64);
    ps_shm_halves_expire(port);
}

/* Clients that were silent between two checks return to ringing the bell, so that idle ones cost nothing. */
static void stop_polling_silent(struct ps_port *port)
{
    for (uint32_t i = port->n_active; i-- > 0;) {
        struct ps_shm_client *c = port->active[i];
        if (!c->heard && ps_shm_sleep(&c->region.control->port, &c->region.requests))
            stop_polling(c);
        c->heard = false;
    }
}

static void fill(struct ps_message *m, struct ps_shm_client *c, const struct ps_shm_note *n)
{
    struct ps_shm_held *held = ps_shm_held_of(m);
    memcpy(held->head, n->head, sizeof held->head);
    held->client = c;
    held->link = NULL;
    held->slot = n->slot;
    held->works_in_place = n->buffer != PS_SHM_STAGED && !n->copies;
    m->head = held->head;
    m->head_bytes = PS_FRAME_BYTES;
    m->body = held->works_in_place ? (unsigned char *)c->buffers[n->buffer] + n->offset
                                   : ps_shm_slot(&c->region, n->slot);
    m->body_bytes = n->bytes;
    m->ownership = held->works_in_place ? PS_BODY_IN_PLACE : PS_BODY_SHARED;
}

/* False: the link has taken the body back, perhaps in the middle of the copy. */
static bool copy_body(const struct ps_shm_client *c, const struct ps_shm_note *n)
{
    memcpy(ps_shm_slot(&c->region, n->slot), (unsigned char *)c->buffers[n->buffer] + n->offset, n->bytes);
    return ps_shm_claim_slot(&c->region, n->slot, PS_SHM_BEGUN);
}

/* Tells the client where this thread runs, and how many it serves. */
static void show_load(struct ps_shm_client *c)
{
    struct ps_shm_side *mine = &c->region.control->port;
    uint32_t cpu = ps_shm_cpu(), clients = c->port->n_active;
    if (cpu != c->cpu)
        atomic_store_explicit(&mine->cpu, c->cpu = cpu, memory_order_relaxed);
    if (clients != c->clients)
        atomic_store_explicit(&mine->clients, c->clients = clients, memory_order_relaxed);
}

/* Takes the client's next request. -EAGAIN: there is none, or it was taken back; -EPROTO: the client was
 * detached. */
static int take_message(struct ps_shm_client *c, struct ps_message *m)
{
    struct ps_shm_note n;
    struct ps_error err;
    if (!ps_shm_ring_take(&c->region.requests, &n))
        return -EAGAIN;
    if (ps_shm_request_check(&n, &c->region.shape, c->taken, c->buffer_bytes, c->n_buffers, &err) < 0) {
        if (ps_log_allows(&c->port->log_limit, "shm.detached", c->port->url))
            ps_log(PS_LOG_WARN, "shm.detached", "client %u (pid %d, uid %u): %s", c->pass.client,
                   (int)c->peer.pid, (unsigned)c->peer.uid, err.text);
        ps_shm_detach(c);
        return -EPROTO;
    }
    show_load(c);
    c->taken[n.slot] = 1;
    c->heard = true;
    c->refs++;
    fill(m, c, &n);
    if (!n.copies || copy_body(c, &n))
        return 0;
    ps_shm_port_drop(m);
    return -EAGAIN;
}

static int scan(struct ps_port *port, struct ps_message *m)
{
    for (uint32_t left = port->n_active; left > 0 && port->n_active > 0; left--) {
        uint32_t i = port->rotor < port->n_active ? port->rotor : 0;
        port->rotor = i + 1;
        if (take_message(port->active[i], m) == 0)
            return 0;
    }
    return -EAGAIN;
}

/* An empty call right after a busy one returns without a system call, so that a fast ping-pong needs none. */
int ps_shm_port_recv(struct ps_port *port, struct ps_message *m)
{
    int rc;
    if (port->until_look == 0) {
        look(port);
        stop_polling_silent(port);
    }
    rc = scan(port, m);
    if (rc < 0 && port->was_empty) {
        look(port);
        rc = scan(port, m);
    }
    port->was_empty = rc < 0;
    port->until_look -= rc == 0;
    return rc;
}

/* Whether all recently active clients run on other cpus: they may send while this thread polls, which a
 * client on this cpu cannot. */
static bool may_spin(const struct ps_port *port)
{
    uint32_t here = ps_shm_cpu();
    for (uint32_t i = 0; i < port->n_active; i++)
        if (atomic_load_explicit(&port->active[i]->region.control->link.cpu, memory_order_relaxed) == here)
            return false;
    return port->n_active > 0;
}

static bool anything(const struct ps_port *port)
{
    for (uint32_t i = 0; i < port->n_active; i++)
        if (ps_shm_ring_has(&port->active[i]->region.requests))
            return true;
    return false;
}

bool ps_shm_port_rest(struct ps_port *port)
{
    uint64_t end = port->n_active > 0 ? ps_now_ns() + SPIN_NS : 0;
    while (may_spin(port) && ps_now_ns() < end)
        for (int i = 0; i < SPINS_A_LOOK; i++) {
            if (anything(port))
                return true;
            PS_SHM_PAUSE();
        }
    for (uint32_t i = port->n_active; i-- > 0;) {
        struct ps_shm_client *c = port->active[i];
        if (!ps_shm_sleep(&c->region.control->port, &c->region.requests))
            return true;
        stop_polling(c);
    }
    port->was_empty = true;
    return false;
}

bool ps_shm_port_begin(struct ps_message *m)
{
    const struct ps_shm_held *held = ps_shm_held_of(m);
    return ps_shm_claim_slot(&held->client->region, held->slot, PS_SHM_BEGUN);
}

/* Returns the slot, with an answer or without. A detached link still reads answers to requests that were
 * begun in its vectors. */
static int give_back(struct ps_message *m, uint64_t bytes)
{
    struct ps_shm_held *held = ps_shm_held_of(m);
    struct ps_shm_client *c = held->client;
    struct ps_shm_note n = {.slot = held->slot, .buffer = PS_SHM_STAGED, .bytes = bytes};
    int rc = c->port != NULL ? 0 : -EHOSTUNREACH;
    memcpy(n.head, held->head, sizeof n.head);
    c->taken[held->slot] = 0;
    ps_shm_ring_put(&c->region.answers, &n);
    if (rc == 0 && ps_shm_must_ring(&c->region.control->link))
        eventfd_write(c->link_bell, 1);
    let_go(c);
    return rc;
}

int ps_shm_port_reply(struct ps_port *port, struct ps_message *m)
{
    (void)port;
    return give_back(m, m->ownership == PS_BODY_IN_PLACE ? 0 : m->body_bytes);
}

void ps_shm_port_drop(struct ps_message *m)
{
    give_back(m, PS_SHM_DROPPED);
}
