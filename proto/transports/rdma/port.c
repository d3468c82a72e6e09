/* A lane's end: admission of clients, and waiting for their messages.
 *
 * A client's completion queue is polled while the client is awake. Before the lane sleeps, each queue is
 * armed, so that its next completion becomes an event of the device's channel, which is one of the
 * descriptors behind port_fd; the event wakes the client again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/log.h"
#include "proto/transports/rdma/port.h"

enum {
    REST_US = 20,       /* polls before it sleeps */
    LOOK_EVERY = 64,    /* messages taken before connection requests are checked again */
    MAX_CM_EVENTS = 16, /* taken at a time */
    MAX_CQ_EVENTS = 256,
    LOG_EVERY_US = 1000000, /* refusals are logged at most this often */
};

/* Does not open devices, unlike rdma_get_devices. */
static int check_device(const char *url, struct ps_error *err)
{
    int n = 0;
    struct ibv_device **all = ibv_get_device_list(&n);
    if (all != NULL)
        ibv_free_device_list(all);
    return n > 0 ? 0 : ps_fail(err, -ENODEV, "cannot listen on %.200s: this machine has no RDMA device", url);
}

static int bind_listener(struct ps_port *port, const char *url, struct ps_error *err)
{
    struct sockaddr_storage at;
    socklen_t len;
    int rc = ps_rdma_resolve(url, true, &at, &len, err);
    if (rc < 0)
        return rc;
    if (rdma_create_id(port->channel, &port->listener, port, RDMA_PS_TCP) != 0)
        return ps_fail(err, -errno, "cannot create a listener for %.200s: %s", url, strerror(errno));
    if (rdma_bind_addr(port->listener, (struct sockaddr *)&at) != 0) {
        bool none = errno == ENODEV || errno == EADDRNOTAVAIL;
        return ps_fail(err, none ? -ENODEV : -errno, "cannot listen on %.200s: %s", url,
                       none ? "no RDMA device has this address" : strerror(errno));
    }
    if (port->listener->verbs != NULL && !ps_rdma_device_serves(port->listener->verbs))
        return ps_fail(err, -ENODEV,
                       "cannot listen on %.200s: its device does not support writes with immediate data",
                       url);
    if (rdma_listen(port->listener, 0) != 0)
        return ps_fail(err, -errno, "cannot listen on %.200s: %s", url, strerror(errno));
    struct sockaddr_storage bound = at;
    memcpy(&bound, rdma_get_local_addr(port->listener), len);
    char text[200];
    ps_rdma_address_text((struct sockaddr *)&bound, text, sizeof text);
    snprintf(port->url, sizeof port->url, "rdma://%s", text);
    return 0;
}

static int make_waitable(struct ps_port *port)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int rc = ps_rdma_unblock(port->channel->fd);
    if (rc < 0)
        return rc;
    if ((port->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return -errno;
    return epoll_ctl(port->epoll, EPOLL_CTL_ADD, port->channel->fd, &event) < 0 ? -errno : 0;
}

int ps_rdma_port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                      struct ps_port **out, struct ps_error *err)
{
    int rc = -ENOMEM;
    struct ps_port *port = calloc(1, sizeof *port);
    (void)hub;
    if (port == NULL)
        return ps_fail(err, rc, "no memory for a lane's port");
    port->limits = *limits;
    port->epoll = -1;
    port->admitted = calloc(limits->clients + 1, sizeof *port->admitted);
    port->awake = calloc(limits->clients + 1, sizeof(struct ps_rdma_client *));
    if (port->admitted == NULL || port->awake == NULL) {
        ps_fail(err, rc, "no memory for %u clients", limits->clients);
        goto close;
    }
    if (ps_rdma_slot_bytes(limits->max_body_bytes) == 0) {
        rc = ps_fail(err, -EMSGSIZE, "bodies of %zu bytes are too large for %.200s", limits->max_body_bytes,
                     url);
        goto close;
    }
    if ((rc = check_device(url, err)) < 0)
        goto close;
    if ((port->channel = rdma_create_event_channel()) == NULL || make_waitable(port) < 0) {
        rc = ps_fail(err, -errno, "cannot wait for connections to %.200s: %s", url, strerror(errno));
        goto close;
    }
    if ((rc = bind_listener(port, url, err)) < 0)
        goto close;
    *out = port;
    return 0;

close:
    ps_rdma_port_close(port);
    return rc;
}

void ps_rdma_port_close(struct ps_port *port)
{
    if (port == NULL)
        return;
    for (uint32_t i = 0; i < port->n_admitted; i++)
        if (port->admitted[i].client != NULL)
            ps_rdma_client_detach(port->admitted[i].client, NULL);
    for (struct ps_rdma_client *c = port->detached; c != NULL; c = c->next)
        c->port = NULL;
    if (port->listener != NULL)
        rdma_destroy_id(port->listener);
    if (port->channel != NULL)
        rdma_destroy_event_channel(port->channel);
    if (port->epoll >= 0)
        close(port->epoll);
    if (port->admitted != NULL)
        explicit_bzero(port->admitted, port->n_admitted * sizeof *port->admitted);
    free(port->admitted);
    free(port->awake);
    free(port);
}

const char *ps_rdma_port_url(const struct ps_port *port)
{
    return port->url;
}

int ps_rdma_port_fd(const struct ps_port *port)
{
    return port->epoll;
}

static struct ps_rdma_admitted *find_admitted(struct ps_port *port, uint32_t client)
{
    for (uint32_t i = 0; i < port->n_admitted; i++)
        if (port->admitted[i].pass.client == client)
            return &port->admitted[i];
    return NULL;
}

int ps_rdma_port_admit(struct ps_port *port, const struct ps_pass *pass)
{
    struct ps_rdma_admitted *a = find_admitted(port, pass->client);
    if (a == NULL) {
        if (port->n_admitted == port->limits.clients)
            return -ENOSPC;
        a = &port->admitted[port->n_admitted++];
        a->client = NULL;
    } else if (a->client != NULL &&
               (a->pass.incarnation != pass->incarnation || !ps_rdma_token_is(a->pass.token, pass->token))) {
        ps_rdma_client_detach(a->client, NULL);
    }
    a->pass = *pass;
    return 0;
}

void ps_rdma_port_expel(struct ps_port *port, uint32_t client)
{
    struct ps_rdma_admitted *a = find_admitted(port, client);
    if (a == NULL)
        return;
    if (a->client != NULL)
        ps_rdma_client_detach(a->client, NULL);
    *a = port->admitted[--port->n_admitted];
    explicit_bzero(&port->admitted[port->n_admitted], sizeof *a);
}

/* Any peer can request connections at any rate: the log gets at most one line a second. */
static void log_refused(struct ps_port *port, const struct rdma_cm_id *id, const char *why)
{
    char address[64];
    uint64_t now = ps_now_us();
    port->refused++;
    if (port->logged_us != 0 && now - port->logged_us < LOG_EVERY_US)
        return;
    ps_rdma_address_text(rdma_get_peer_addr((struct rdma_cm_id *)(uintptr_t)id), address, sizeof address);
    ps_log(PS_LOG_WARN, "rdma.refused", "%s: %s (%u refused since the last such line)", address, why,
           port->refused);
    port->logged_us = now;
    port->refused = 0;
}

static int answer_request(struct ps_port *port, struct rdma_cm_id *id, const void *data, size_t len,
                          struct ps_error *err)
{
    struct ps_rdma_request r;
    int rc = ps_rdma_request_parse(&r, data, len, err);
    if (rc < 0)
        return rc;
    struct ps_rdma_admitted *a = find_admitted(port, r.client);
    static const unsigned char none[PS_PASS_TOKEN_BYTES];
    bool knows = ps_rdma_token_is(a != NULL ? a->pass.token : none, r.token);
    if (a == NULL || !knows || a->pass.incarnation != r.incarnation)
        return ps_fail(err, -EACCES, "the lane does not know the pass of client %u", r.client);
    if (!ps_rdma_device_serves(id->verbs))
        return ps_fail(err, -EHOSTUNREACH, "psd's device does not support writes with immediate data");
    if (a->client != NULL) /* it reconnects, for example because it missed the answer to its first request */
        ps_rdma_client_detach(a->client, NULL);
    return ps_rdma_client_attach(port, a, id, &r, err);
}

static void on_request(struct ps_port *port, struct rdma_cm_id *id, const void *data, size_t len)
{
    struct ps_error err;
    unsigned char answer[PS_RDMA_REJECT_BYTES];
    id->context = NULL;
    int rc = answer_request(port, id, data, len, &err);
    if (rc == 0)
        return;
    log_refused(port, id, err.text);
    rdma_reject(id, answer, (uint8_t)ps_rdma_reject_pack(rc, err.text, answer));
    rdma_destroy_id(id);
}

/* Copies and acknowledges the event first: rdma_destroy_id waits for that. */
static bool take_cm_event(struct ps_port *port)
{
    struct rdma_cm_event *event;
    unsigned char data[PS_RDMA_REQUEST_BYTES];
    if (rdma_get_cm_event(port->channel, &event) != 0)
        return false;
    enum rdma_cm_event_type kind = event->event;
    struct rdma_cm_id *id = event->id;
    size_t len = event->param.conn.private_data_len;
    bool asks = kind == RDMA_CM_EVENT_CONNECT_REQUEST;
    len = !asks || event->param.conn.private_data == NULL ? 0 : len < sizeof data ? len : sizeof data;
    memcpy(data, len > 0 ? event->param.conn.private_data : data, len);
    rdma_ack_cm_event(event);

    struct ps_rdma_client *c = id != port->listener ? id->context : NULL;
    if (asks)
        on_request(port, id, data, len);
    else if (kind == RDMA_CM_EVENT_DISCONNECTED && c != NULL)
        ps_rdma_client_detach(c, NULL);
    else if (kind != RDMA_CM_EVENT_ESTABLISHED && kind != RDMA_CM_EVENT_ADDR_CHANGE && c != NULL)
        ps_rdma_client_detach(c, rdma_event_str(kind));
    else if (kind == RDMA_CM_EVENT_DEVICE_REMOVAL)
        ps_log(PS_LOG_ERROR, "rdma.device_gone", "%s: the device was removed; no client can attach",
               port->url);
    return true;
}

/* Logs events of a device or of a queue pair; completions report the rest. */
static void log_device_event(const struct ps_rdma_device *d)
{
    struct ibv_async_event event;
    if (ibv_get_async_event(d->verbs, &event) != 0)
        return;
    ps_log(event.event_type == IBV_EVENT_COMM_EST ? PS_LOG_DEBUG : PS_LOG_WARN, "rdma.device", "%s: %s",
           ibv_get_device_name(d->verbs->device), ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
}

static void wake_clients(const struct ps_rdma_device *d)
{
    struct ibv_cq *cq;
    void *owner;
    for (int i = 0; i < MAX_CQ_EVENTS && ibv_get_cq_event(d->channel, &cq, &owner) == 0; i++) {
        struct ps_rdma_client *c = owner;
        ps_rdma_end_event(&c->end);
        ps_rdma_client_wake(c);
    }
}

/* Devices first: an event of the connection manager may end the last client of one. */
static void handle_events(struct ps_port *port)
{
    struct epoll_event events[8];
    int n = epoll_wait(port->epoll, events, sizeof events / sizeof *events, 0);
    bool cm = false;
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == NULL) {
            cm = true;
            continue;
        }
        wake_clients(events[i].data.ptr);
        log_device_event(events[i].data.ptr);
    }
    for (int i = 0; cm && i < MAX_CM_EVENTS; i++)
        cm = take_cm_event(port);
}

/* Backwards, because a detached client is replaced by the last one. */
static void poll_awake(struct ps_port *port)
{
    for (uint32_t i = port->n_awake; i-- > 0;)
        if (i < port->n_awake)
            ps_rdma_client_poll(port->awake[i]);
}

int ps_rdma_port_recv(struct ps_port *port, struct ps_message *m)
{
    if (port->arrived.first == NULL)
        poll_awake(port);
    if (port->arrived.first == NULL || ++port->calls % LOOK_EVERY == 0) {
        handle_events(port);
        if (port->arrived.first == NULL)
            poll_awake(port);
    }
    struct ps_rdma_slot *slot = ps_rdma_queue_take(&port->arrived);
    if (slot == NULL)
        return -EAGAIN;
    struct ps_rdma_client *c = slot->client;
    ps_rdma_message_fill(m, &c->end, (uint32_t)(slot - c->slots), slot->bytes);
    ((struct ps_rdma_kept *)m->storage)->client = c;
    c->held++;
    return 0;
}

/* Arms the client's queue and takes completions that came just before. */
static void put_to_sleep(struct ps_rdma_client *c)
{
    int rc = ps_rdma_end_arm(&c->end);
    if (rc < 0) {
        ps_rdma_client_detach(c, strerror(-rc));
        return;
    }
    while ((rc = ps_rdma_client_poll(c)) > 0)
        ;
    if (rc == 0)
        ps_rdma_client_rest(c);
}

bool ps_rdma_port_rest(struct ps_port *port)
{
    uint64_t end = port->n_awake > 0 ? ps_now_us() + REST_US : 0;
    while (port->arrived.first == NULL && port->n_awake > 0 && ps_now_us() < end)
        poll_awake(port);
    while (port->arrived.first == NULL && port->n_awake > 0)
        put_to_sleep(port->awake[port->n_awake - 1]);
    return port->arrived.first != NULL;
}
