/* The RDMA transport: one reliable connection for each client and lane, set up by librdmacm.
 *
 * A client writes each message into one of its slots in psd, and psd each answer into the same slot of the
 * client, both by RDMA write with the slot's number as immediate data, so that a completion reports each
 * arrival. No end reads or writes any other memory of the other end: each client's slots are registered for
 * that client in a separate protection domain, and are deregistered when it is detached. psd processes a
 * message in its slot, and copies only the header.
 *
 *   wire.c      the messages of the connection set-up
 *   endpoint.c  the common part of both ends: slots, queue pair, completions
 *   port.c      a lane's end: admission of clients; waiting
 *   peer.c      one attached client: its messages
 *   link.c      a client's end: set-up, its messages, waiting
 *
 * There are no threads: all work is done by the thread that owns the port or the link. Nothing is encrypted.
 *
 * fork: a child cannot use a device that its parent has opened, since the kernel accepts each descriptor only
 * from the process that opened it, and librdmacm keeps devices open until a process ends. A process that
 * forks workers must do so before the first port or link; later children get -EACCES and use another
 * transport. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/transports/rdma/rdma.h"
#include "proto/transports/transport.h"

static int hub_create(uint32_t io_threads, struct ps_hub **out)
{
    struct ps_hub *hub = calloc(1, sizeof *hub);
    (void)io_threads;
    if (hub == NULL)
        return -ENOMEM;
    pthread_mutex_init(&hub->lock, NULL);
    *out = hub;
    return 0;
}

static void hub_destroy(struct ps_hub *hub)
{
    if (hub == NULL)
        return;
    pthread_mutex_destroy(&hub->lock);
    explicit_bzero(&hub->pass, sizeof hub->pass);
    free(hub);
}

/* Data on this transport is not encrypted, whether or not the control socket is. */
static void hub_secure(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key)
{
    (void)hub;
    (void)pair;
    (void)server_key;
}

static void *hub_context(struct ps_hub *hub)
{
    (void)hub;
    return NULL;
}

static void hub_pass(struct ps_hub *hub, const struct ps_pass *pass)
{
    hub->pass = *pass;
}

static int hub_register(struct ps_hub *hub, const struct ps_buffer *buffer, struct ps_error *err)
{
    int rc = 0;
    if (buffer->kind == PS_BUFFER_DEVICE)
        return ps_fail(err, -ENOTSUP, "transport rdma does not read a device's memory");
    pthread_mutex_lock(&hub->lock);
    if (hub->n_registered == PS_MAX_BUFFERS)
        rc = ps_fail(err, -ENOSPC, "%d buffers are already registered", PS_MAX_BUFFERS);
    else
        hub->registered[hub->n_registered++] = *buffer;
    pthread_mutex_unlock(&hub->lock);
    return rc;
}

static struct ps_rdma_domain *find_domain(struct ps_hub *hub, struct ibv_context *verbs)
{
    struct ps_rdma_domain *d = hub->domains;
    while (d != NULL && d->verbs != verbs)
        d = d->next;
    return d;
}

static struct ps_rdma_domain *make_domain(struct ps_hub *hub, struct ibv_context *verbs, struct ps_error *err)
{
    struct ps_rdma_domain *d = calloc(1, sizeof *d);
    if (d == NULL || (d->pd = ibv_alloc_pd(verbs)) == NULL) {
        ps_fail(err, -ENOMEM, "cannot create a protection domain: %s", strerror(errno));
        free(d);
        return NULL;
    }
    d->verbs = verbs;
    d->next = hub->domains;
    hub->domains = d;
    return d;
}

/* A buffer that cannot be registered, for example because of a small ulimit -l, is copied from. The device
 * only reads registered buffers, and only where it was told to. */
static void register_buffers(struct ps_hub *hub, struct ps_rdma_domain *d,
                             struct ps_rdma_registered *registered)
{
    registered->n = 0;
    for (size_t i = 0; i < hub->n_registered; i++) {
        if (d->registered[i] == NULL)
            d->registered[i] = ibv_reg_mr(d->pd, hub->registered[i].base, hub->registered[i].bytes, 0);
        if (d->registered[i] == NULL)
            continue;
        registered->buffer[registered->n].base = (uintptr_t)hub->registered[i].base;
        registered->buffer[registered->n].bytes = hub->registered[i].bytes;
        registered->buffer[registered->n++].lkey = d->registered[i]->lkey;
    }
}

struct ps_rdma_domain *ps_rdma_domain_join(struct ps_hub *hub, struct ibv_context *verbs,
                                           struct ps_rdma_registered *registered, struct ps_error *err)
{
    pthread_mutex_lock(&hub->lock);
    struct ps_rdma_domain *d = find_domain(hub, verbs);
    if (d == NULL)
        d = make_domain(hub, verbs, err);
    if (d != NULL) {
        register_buffers(hub, d, registered);
        d->links++;
    }
    pthread_mutex_unlock(&hub->lock);
    return d;
}

void ps_rdma_domain_leave(struct ps_hub *hub, struct ps_rdma_domain *domain)
{
    pthread_mutex_lock(&hub->lock);
    if (--domain->links == 0) {
        struct ps_rdma_domain **at = &hub->domains;
        while (*at != domain)
            at = &(*at)->next;
        *at = domain->next;
        for (size_t i = 0; i < PS_MAX_BUFFERS; i++)
            if (domain->registered[i] != NULL)
                ibv_dereg_mr(domain->registered[i]);
        ibv_dealloc_pd(domain->pd);
        free(domain);
    }
    pthread_mutex_unlock(&hub->lock);
}

bool ps_rdma_registered_covers(const struct ps_rdma_registered *registered, const void *at, size_t bytes,
                               uint32_t *lkey)
{
    uintptr_t body = (uintptr_t)at;
    for (size_t i = 0; i < registered->n; i++) {
        uintptr_t base = registered->buffer[i].base;
        size_t len = registered->buffer[i].bytes;
        if (body < base || bytes > len || body - base > len - bytes)
            continue;
        *lkey = registered->buffer[i].lkey;
        return true;
    }
    return false;
}

static void *port_watch(const struct ps_port *port)
{
    (void)port;
    return NULL;
}

const struct ps_rdma_kept *ps_rdma_kept_of(const struct ps_message *m)
{
    return (const struct ps_rdma_kept *)m->storage;
}

void ps_rdma_message_fill(struct ps_message *m, const struct ps_rdma_end *end, uint32_t slot, uint32_t bytes)
{
    struct ps_rdma_kept *kept = (struct ps_rdma_kept *)m->storage;
    unsigned char *at = ps_rdma_end_slot(end, slot);
    *kept = (struct ps_rdma_kept){.slot = slot};
    memcpy(kept->head, at, PS_FRAME_BYTES);
    m->head = kept->head;
    m->head_bytes = PS_FRAME_BYTES;
    m->body = at + PS_FRAME_BYTES;
    m->body_bytes = bytes - PS_FRAME_BYTES;
    m->ownership = PS_BODY_SHARED;
}

static uint64_t message_sender(const struct ps_message *m)
{
    return ps_rdma_message_pass(m)->identity;
}

static void message_drop(struct ps_message *m)
{
    const struct ps_rdma_kept *kept = ps_rdma_kept_of(m);
    if (kept->client != NULL)
        ps_rdma_client_drop(kept->client, kept->slot);
    else
        ps_rdma_link_drop(kept->link, kept->slot);
}

static void message_move(struct ps_message *to, struct ps_message *m)
{
    *to = *m;
    to->head = ((struct ps_rdma_kept *)to->storage)->head;
}

const struct ps_transport ps_transport_rdma = {
    .name = "rdma",
    .exposed = true,
    .shares = true,
    .hub_create = hub_create,
    .hub_destroy = hub_destroy,
    .hub_secure = hub_secure,
    .hub_context = hub_context,
    .hub_pass = hub_pass,
    .hub_register = hub_register,
    .lane_url = ps_rdma_lane_url,
    .port_open = ps_rdma_port_open,
    .port_close = ps_rdma_port_close,
    .port_url = ps_rdma_port_url,
    .port_watch = port_watch,
    .port_admit = ps_rdma_port_admit,
    .port_expel = ps_rdma_port_expel,
    .port_fd = ps_rdma_port_fd,
    .port_rest = ps_rdma_port_rest,
    .port_recv = ps_rdma_port_recv,
    .message_pass = ps_rdma_message_pass,
    .message_sender = message_sender,
    .message_describe = ps_rdma_message_describe,
    .message_body = ps_rdma_message_body,
    .port_reply = ps_rdma_port_reply,
    .message_drop = message_drop,
    .message_move = message_move,
    .link_open = ps_rdma_link_open,
    .link_close = ps_rdma_link_close,
    .link_send = ps_rdma_link_send,
    .link_recv = ps_rdma_link_recv,
    .links_wait = ps_rdma_links_wait,
};
