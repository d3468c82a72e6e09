/* Shared memory, for workers on psd's machine: each lane has a socket next to the control socket, and a
 * region for each client. */
#include "proto/transports/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/transports/transport.h"

_Static_assert(sizeof(struct ps_shm_held) <= sizeof(((struct ps_message *)0)->storage),
               "a message's storage is large enough");

const char *ps_shm_path(const char *url)
{
    static const char scheme[] = "shm://";
    return strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1 : NULL;
}

void ps_shm_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int hub_create(uint32_t io_threads, struct ps_hub **out)
{
    (void)io_threads;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return -ENOMEM;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    (*out)->n_cores = cores > 0 ? (uint32_t)cores : 1;
    return 0;
}

static void hub_destroy(struct ps_hub *hub)
{
    if (hub != NULL)
        explicit_bzero(&hub->pass, sizeof hub->pass);
    free(hub);
}

/* The pass came over the authenticated control socket, and shared memory needs no encryption. */
static void hub_secure(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key)
{
    (void)hub, (void)pair, (void)server_key;
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
    if (buffer->kind != PS_BUFFER_SHARED)
        return ps_fail(err, -ENOTSUP,
                       "transport shm accesses buffers of shared memory only; others are copied");
    if (hub->n_buffers == PS_MAX_BUFFERS)
        return ps_fail(err, -ENOSPC, "%d buffers are already registered, which is the limit", PS_MAX_BUFFERS);
    hub->buffers[hub->n_buffers++] = *buffer;
    return 0;
}

static void lane_url(const char *control_url, uint32_t lane, char *url, size_t size)
{
    snprintf(url, size, "%s.%u", control_url, lane);
}

static const char *port_url(const struct ps_port *port)
{
    return port->url;
}

static void *port_watch(const struct ps_port *port)
{
    (void)port;
    return NULL;
}

static int port_fd(const struct ps_port *port)
{
    return port->epoll;
}

static const struct ps_pass *message_pass(const struct ps_message *m)
{
    const struct ps_shm_client *c = ps_shm_held_of(m)->client;
    return c != NULL ? &c->pass : NULL;
}

static uint64_t message_sender(const struct ps_message *m)
{
    const struct ps_pass *pass = message_pass(m);
    return pass != NULL ? pass->identity : 0;
}

static void message_describe(const struct ps_message *m, char *text, size_t size)
{
    const struct ps_shm_client *c = ps_shm_held_of(m)->client;
    if (c == NULL)
        snprintf(text, size, "a lane on this machine");
    else
        snprintf(text, size, "client %u, pid %d, uid %u on this machine", c->pass.client, (int)c->peer.pid,
                 (unsigned)c->peer.uid);
}

/* For a body in the peer's vector, 0 leaves the vector alone; another length goes to the slot. */
static int message_body(struct ps_message *m, size_t len_bytes)
{
    const struct ps_shm_held *held = ps_shm_held_of(m);
    if (held->client == NULL || len_bytes > held->client->region.shape.slot_bytes)
        return -ENOMEM;
    if (len_bytes > 0 || !held->works_in_place) {
        m->body = ps_shm_slot(&held->client->region, held->slot);
        m->ownership = PS_BODY_SHARED;
    }
    m->body_bytes = len_bytes;
    return 0;
}

static void message_drop(struct ps_message *m)
{
    if (ps_shm_held_of(m)->client != NULL)
        ps_shm_port_drop(m);
    else
        ps_shm_link_drop(m);
}

static void message_move(struct ps_message *to, struct ps_message *m)
{
    *to = *m;
    to->head = ps_shm_held_of(to)->head;
}

const struct ps_transport ps_transport_shm = {
    .name = "shm",
    .depth = 4, /* measured: with 2 slots of 512 KB a lane waits for its client */
    .spare = PS_SHM_SPARE_SLOTS,
    .shares = true,
    .hub_create = hub_create,
    .hub_destroy = hub_destroy,
    .hub_secure = hub_secure,
    .hub_context = hub_context,
    .hub_pass = hub_pass,
    .hub_register = hub_register,
    .lane_url = lane_url,
    .port_open = ps_shm_port_open,
    .port_close = ps_shm_port_close,
    .port_url = port_url,
    .port_watch = port_watch,
    .port_admit = ps_shm_port_admit,
    .port_expel = ps_shm_port_expel,
    .port_fd = port_fd,
    .port_rest = ps_shm_port_rest,
    .port_recv = ps_shm_port_recv,
    .message_pass = message_pass,
    .message_sender = message_sender,
    .message_describe = message_describe,
    .message_begin = ps_shm_port_begin,
    .message_body = message_body,
    .port_reply = ps_shm_port_reply,
    .message_drop = message_drop,
    .message_move = message_move,
    .link_open = ps_shm_link_open,
    .link_close = ps_shm_link_close,
    .link_send = ps_shm_link_send,
    .link_send_in_place = ps_shm_link_send_in_place,
    .link_settle = ps_shm_link_settle,
    .link_memory = ps_shm_link_memory,
    .link_recv = ps_shm_link_recv,
    .links_wait = ps_shm_links_wait,
};
