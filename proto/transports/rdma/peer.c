/* One client that is attached to a port. It can write to its own slots at any time, and nowhere else; a
 * violation of the protocol only ends its own connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "proto/log.h"
#include "proto/transports/rdma/port.h"

enum { MAX_DETACHED = 4, RNR_RETRIES = 3 };

static void queue_put(struct ps_rdma_queue *q, struct ps_rdma_slot *slot)
{
    slot->next = NULL;
    if (q->first == NULL)
        q->first = slot;
    else
        q->last->next = slot;
    q->last = slot;
}

struct ps_rdma_slot *ps_rdma_queue_take(struct ps_rdma_queue *q)
{
    struct ps_rdma_slot *slot = q->first;
    if (slot != NULL)
        q->first = slot->next;
    return slot;
}

static int watch(struct ps_port *port, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    int rc = ps_rdma_unblock(fd);
    return rc < 0 ? rc : epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* The device's asynchronous events concern every lane of the process: the first lane to read one logs it. */
static struct ps_rdma_device *device_hold(struct ps_port *port, struct ibv_context *verbs,
                                          struct ps_error *err)
{
    struct ps_rdma_device *d = port->devices;
    while (d != NULL && d->verbs != verbs)
        d = d->next;
    if (d == NULL) {
        if ((d = calloc(1, sizeof *d)) == NULL || (d->channel = ibv_create_comp_channel(verbs)) == NULL ||
            watch(port, d->channel->fd, d) < 0 || watch(port, verbs->async_fd, d) < 0) {
            ps_fail(err, -ENOMEM, "cannot wait for completions of %s", ibv_get_device_name(verbs->device));
            if (d != NULL && d->channel != NULL)
                ibv_destroy_comp_channel(d->channel);
            free(d);
            return NULL;
        }
        d->verbs = verbs;
        d->next = port->devices;
        port->devices = d;
    }
    d->clients++;
    return d;
}

static void device_release(struct ps_port *port, struct ps_rdma_device *d)
{
    struct ps_rdma_device **at = &port->devices;
    if (--d->clients > 0)
        return;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    epoll_ctl(port->epoll, EPOLL_CTL_DEL, d->verbs->async_fd, NULL);
    ibv_destroy_comp_channel(d->channel);
    free(d);
}

static void forget(struct ps_rdma_client *c)
{
    if (c->port != NULL) {
        struct ps_rdma_client **at = &c->port->detached;
        while (*at != NULL && *at != c)
            at = &(*at)->next;
        if (*at == c)
            *at = c->next;
    }
    ps_rdma_end_unmap(&c->end);
    explicit_bzero(&c->pass, sizeof c->pass);
    free(c->slots);
    free(c);
}

/* The lane has finished with a message. */
static void let_go(struct ps_rdma_client *c)
{
    if (--c->held == 0 && c->detached)
        forget(c);
}

static int accept_it(struct ps_rdma_client *c, struct ps_error *err)
{
    unsigned char data[PS_RDMA_ACCEPT_BYTES];
    struct rdma_conn_param param = {
        .private_data = data,
        .private_data_len = sizeof data,
        .rnr_retry_count = RNR_RETRIES,
    };
    ps_rdma_accept_pack(&c->end.local, data);
    return rdma_accept(c->end.id, &param) != 0
               ? ps_fail(err, -errno, "cannot accept a connection: %s", strerror(errno))
               : 0;
}

/* A client that reconnects repeatedly while a round holds its messages would use ever more memory. */
static int check_detached(const struct ps_port *port, uint32_t client, struct ps_error *err)
{
    int n = 0;
    for (const struct ps_rdma_client *c = port->detached; c != NULL; c = c->next)
        n += c->pass.client == client;
    return n < MAX_DETACHED ? 0
                            : ps_fail(err, -EBUSY, "messages of %d earlier connections are still in use", n);
}

static struct ps_rdma_client *client_make(struct ps_port *port, const struct ps_pass *pass, uint32_t n_slots,
                                          struct rdma_cm_id *id)
{
    struct ps_rdma_client *c = calloc(1, sizeof *c);
    if (c == NULL || (c->slots = calloc(n_slots, sizeof *c->slots)) == NULL) {
        free(c);
        return NULL;
    }
    for (uint32_t i = 0; i < n_slots; i++)
        c->slots[i].client = c;
    c->port = port;
    c->pass = *pass;
    c->awake = -1;
    ps_rdma_address_text(rdma_get_peer_addr(id), c->address, sizeof c->address);
    return c;
}

int ps_rdma_client_attach(struct ps_port *port, struct ps_rdma_admitted *a, struct rdma_cm_id *id,
                          const struct ps_rdma_request *r, struct ps_error *err)
{
    uint32_t n_slots = port->limits.window_chunks;
    uint64_t slot_bytes = ps_rdma_slot_bytes(port->limits.max_body_bytes);
    struct ps_rdma_client *c;
    int rc;

    n_slots = r->answers.n < n_slots ? r->answers.n : n_slots;
    slot_bytes = r->answers.slot_bytes < slot_bytes ? r->answers.slot_bytes : slot_bytes;
    if ((rc = check_detached(port, r->client, err)) < 0)
        return rc;
    if ((c = client_make(port, &a->pass, n_slots, id)) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a client");
    if ((c->device = device_hold(port, id->verbs, err)) == NULL) {
        rc = -ENOMEM;
        goto forget_it;
    }
    /* A separate protection domain, so that its keys are useless on other connections. */
    if ((c->pd = ibv_alloc_pd(id->verbs)) == NULL) {
        rc = ps_fail(err, -errno, "cannot create a protection domain: %s", strerror(errno));
        goto release;
    }
    if ((rc = ps_rdma_end_init(&c->end, id, c->pd, c->device->channel, c, n_slots, slot_bytes, err)) < 0)
        goto dealloc;
    c->end.remote = r->answers;
    if ((rc = accept_it(c, err)) < 0)
        goto finish;
    id->context = c;
    a->client = c;
    ps_rdma_client_wake(c);
    return 0;

finish:
    ps_rdma_end_finish(&c->end);
dealloc:
    ibv_dealloc_pd(c->pd);
release:
    device_release(port, c->device);
forget_it:
    forget(c);
    return rc;
}

void ps_rdma_client_wake(struct ps_rdma_client *c)
{
    if (c->awake >= 0)
        return;
    c->awake = (int)c->port->n_awake;
    c->port->awake[c->port->n_awake++] = c;
}

void ps_rdma_client_rest(struct ps_rdma_client *c)
{
    struct ps_port *port = c->port;
    if (c->awake < 0)
        return;
    port->awake[c->awake] = port->awake[--port->n_awake];
    port->awake[c->awake]->awake = c->awake;
    c->awake = -1;
}

static void forget_arrivals(struct ps_rdma_client *c)
{
    struct ps_rdma_queue rest = {NULL, NULL};
    struct ps_rdma_slot *slot;
    while ((slot = ps_rdma_queue_take(&c->port->arrived)) != NULL)
        if (slot->client != c)
            queue_put(&rest, slot);
    c->port->arrived = rest;
}

void ps_rdma_client_detach(struct ps_rdma_client *c, const char *why)
{
    struct ps_port *port = c->port;
    if (why != NULL)
        ps_log(PS_LOG_WARN, "rdma.ended", "client %u at %s: %s", c->pass.client, c->address, why);
    for (uint32_t i = 0; i < port->n_admitted; i++)
        if (port->admitted[i].client == c)
            port->admitted[i].client = NULL;
    ps_rdma_client_rest(c);
    forget_arrivals(c);
    rdma_disconnect(c->end.id);
    ps_rdma_end_finish(&c->end);
    ibv_dealloc_pd(c->pd);
    device_release(port, c->device);
    rdma_destroy_id(c->end.id);
    c->detached = true;
    if (c->held == 0) {
        forget(c);
        return;
    }
    c->next = port->detached;
    port->detached = c;
}

/* False: the connection failed, and the client is detached. */
static bool send_answers(struct ps_rdma_client *c)
{
    while (c->leaving.first != NULL && c->end.sending < c->end.depth) {
        struct ps_rdma_slot *slot = ps_rdma_queue_take(&c->leaving);
        uint32_t n = (uint32_t)(slot - c->slots);
        struct ibv_sge part = {(uintptr_t)ps_rdma_end_slot(&c->end, n), slot->bytes, c->end.mr->lkey};
        int rc = slot->bytes == 0 ? ps_rdma_end_write(&c->end, n | PS_RDMA_DROPPED, NULL, 0)
                                  : ps_rdma_end_write(&c->end, n, &part, 1);
        slot->state = PS_RDMA_FREE;
        if (rc < 0) {
            ps_rdma_client_detach(c, strerror(-rc));
            return false;
        }
    }
    return true;
}

/* A write past the end of its slot reaches at most the client's other slots: the queue pair allows nothing
 * else. */
static int arrive(struct ps_rdma_client *c, const struct ps_rdma_arrival *a, struct ps_error *err)
{
    if (a->imm >= c->end.local.n)
        return ps_fail(err, -EPROTO, "wrote to slot %u of %u", a->imm, c->end.local.n);
    struct ps_rdma_slot *slot = &c->slots[a->imm];
    if (slot->state != PS_RDMA_FREE)
        return ps_fail(err, -EPROTO, "wrote to slot %u, whose message is not answered yet", a->imm);
    if (a->bytes < PS_FRAME_BYTES || a->bytes > c->end.local.slot_bytes)
        return ps_fail(err, -EPROTO, "wrote %u bytes; allowed are %d to %llu", a->bytes, PS_FRAME_BYTES,
                       (unsigned long long)c->end.local.slot_bytes);
    slot->state = PS_RDMA_ARRIVED;
    slot->bytes = a->bytes;
    queue_put(&c->port->arrived, slot);
    return 0;
}

int ps_rdma_client_poll(struct ps_rdma_client *c)
{
    struct ps_rdma_arrival arrival[PS_RDMA_BATCH];
    struct ps_error err;
    int n, got = ps_rdma_end_poll(&c->end, arrival, &n, &err), rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = arrive(c, &arrival[i], &err);
    if (got < 0 || rc < 0) {
        ps_rdma_client_detach(c, err.text);
        return -ECONNRESET;
    }
    return got == 0 ? 0 : send_answers(c) ? 1 : -ECONNRESET;
}

/* With 0 bytes it only reports that there will be no answer. False: the client is gone. */
static bool send_back(struct ps_rdma_client *c, uint32_t slot, uint32_t bytes)
{
    if (c->detached) {
        let_go(c);
        return false;
    }
    c->slots[slot].bytes = bytes;
    c->slots[slot].state = PS_RDMA_LEAVING;
    queue_put(&c->leaving, &c->slots[slot]);
    c->held--;
    return send_answers(c);
}

int ps_rdma_port_reply(struct ps_port *port, struct ps_message *m)
{
    const struct ps_rdma_kept *kept = ps_rdma_kept_of(m);
    (void)port;
    if (!kept->client->detached)
        memcpy(ps_rdma_end_slot(&kept->client->end, kept->slot), m->head, PS_FRAME_BYTES);
    return send_back(kept->client, kept->slot, PS_FRAME_BYTES + (uint32_t)m->body_bytes) ? 0 : -EHOSTUNREACH;
}

void ps_rdma_client_drop(struct ps_rdma_client *c, uint32_t slot)
{
    send_back(c, slot, 0);
}

const struct ps_pass *ps_rdma_message_pass(const struct ps_message *m)
{
    return &ps_rdma_kept_of(m)->client->pass;
}

void ps_rdma_message_describe(const struct ps_message *m, char *text, size_t size)
{
    const struct ps_rdma_client *c = ps_rdma_kept_of(m)->client;
    snprintf(text, size, "client %u at %s", c->pass.client, c->address);
}

int ps_rdma_message_body(struct ps_message *m, size_t len_bytes)
{
    const struct ps_rdma_client *c = ps_rdma_kept_of(m)->client;
    if (len_bytes > c->end.local.slot_bytes - PS_FRAME_BYTES)
        return -ENOMEM;
    m->body_bytes = len_bytes;
    return 0;
}
