/* The ZeroMQ transport: a ROUTER at each lane, and for it a DEALER at each client.
 *
 * A message has the parts [peer's id at the port] header, body. High-water marks are a little above the
 * window, so that an honest peer never reaches them and a dishonest one cannot queue more. */
#include "proto/transports/zmq/zmq.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "proto/clock.h"
#include "proto/security/curve.h"
#include "proto/security/socket_monitor.h"
#include "proto/transports/zmq/bind.h"
#include "proto/transports/zmq/router.h"
#include "proto/wire/frame.h"
#include "proto/zmq_context.h"

/* libzmq is not instrumented: the thread sanitizer is told of the order that a mailbox within it gives to
 * what a thread did before it sent, and what another does in a call that libzmq makes for it. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HAND_OVER(p) __tsan_release(p)
#define TAKE_OVER(p) __tsan_acquire(p)
#else
#define HAND_OVER(p) ((void)0)
#define TAKE_OVER(p) ((void)0)
#endif

enum { PARTS_ID, PARTS_HEAD, PARTS_BODY, PARTS };

/* The three parts of a message in ps_message.storage. */
struct parts {
    zmq_msg_t part[PARTS];
};
_Static_assert(sizeof(struct parts) <= sizeof(((struct ps_message *)0)->storage),
               "a message's storage holds its parts");

struct ps_hub {
    void *context;
    bool is_stuck; /* libzmq did not release the bodies of the link that was closed last */
    bool secured;
    struct ps_curve_pair pair;
    char server_key[PS_CURVE_KEY_CHARS + 1];
};

struct ps_port {
    void *socket, *watch;
    char url[300];
    struct ps_unix_socket file;
};

/* Counts bodies that libzmq may still read, and the link while it is open. The last one frees it. */
struct bodies_in_use {
    atomic_int n;
};

struct ps_link {
    struct ps_hub *hub;
    void *socket;
    struct bodies_in_use *bodies_in_use;
};

int ps_zmq_hub_create(uint32_t io_threads, struct ps_hub **out)
{
    struct ps_hub *hub = calloc(1, sizeof *hub);
    if (hub == NULL)
        return -ENOMEM;
    if ((hub->context = ps_zmq_context_new(io_threads)) == NULL) {
        int rc = -errno;
        free(hub);
        return rc;
    }
    *out = hub;
    return 0;
}

void ps_zmq_hub_destroy(struct ps_hub *hub)
{
    if (hub == NULL)
        return;
    ps_zmq_context_end(hub->context);
    explicit_bzero(&hub->pair, sizeof hub->pair);
    free(hub);
}

void ps_zmq_hub_secure(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key)
{
    hub->secured = pair != NULL;
    hub->pair = pair != NULL ? *pair : (struct ps_curve_pair){.name = ""};
    snprintf(hub->server_key, sizeof hub->server_key, "%s", server_key != NULL ? server_key : "");
}

void *ps_zmq_hub_context(struct ps_hub *hub)
{
    return hub->context;
}

/* In whole messages: twice the window and some leave room for libzmq's lazy accounting. */
static int set_limits(void *socket, const struct ps_transport_limits *limits)
{
    int zero = 0, one = 1, mark = (int)limits->window_chunks * 2 + 8;
    int64_t max_bytes = (int64_t)limits->max_body_bytes;
    int rc = 0;
    rc |= zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    rc |= zmq_setsockopt(socket, ZMQ_RCVHWM, &mark, sizeof mark);
    rc |= zmq_setsockopt(socket, ZMQ_SNDHWM, &mark, sizeof mark);
    rc |= zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes);
    rc |= zmq_setsockopt(socket, ZMQ_TCP_KEEPALIVE, &one, sizeof one);
    return rc;
}

int ps_zmq_port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err)
{
    int rc;
    struct ps_port *port = calloc(1, sizeof *port);
    if (port == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a lane's socket");
    if ((port->socket = ps_zmq_router(hub->context)) == NULL) {
        rc = ps_fail(err, -zmq_errno(), "cannot create a socket for %s: %s", url, zmq_strerror(zmq_errno()));
        goto free_port;
    }
    if (set_limits(port->socket, limits) != 0 ||
        (hub->secured && ps_curve_serve(port->socket, &hub->pair) != 0)) {
        rc = ps_fail(err, -zmq_errno(), "cannot set up a socket for %s: %s", url, zmq_strerror(zmq_errno()));
        goto close_socket;
    }
    if (hub->secured && (rc = ps_watch_open(hub->context, port->socket, &port->watch)) < 0) {
        ps_fail(err, rc, "cannot watch a socket for %s: %s", url, zmq_strerror(-rc));
        goto close_socket;
    }
    if ((rc = ps_bind(port->socket, url, port->url, sizeof port->url, &port->file, err)) < 0)
        goto close_socket;
    *out = port;
    return 0;

close_socket:
    ps_watch_close(port->socket, port->watch);
    zmq_close(port->socket);
free_port:
    free(port);
    return rc;
}

void ps_zmq_port_close(struct ps_port *port)
{
    if (port == NULL)
        return;
    ps_watch_close(port->socket, port->watch);
    zmq_close(port->socket);
    ps_unix_socket_remove(&port->file);
    free(port);
}

const char *ps_zmq_port_url(const struct ps_port *port)
{
    return port->url;
}

void *ps_zmq_port_watch(const struct ps_port *port)
{
    return port->watch;
}

int ps_zmq_port_fd(const struct ps_port *port)
{
    int fd = -1;
    size_t size = sizeof fd;
    zmq_getsockopt(port->socket, ZMQ_FD, &fd, &size);
    return fd;
}

static void point(struct ps_message *m)
{
    struct parts *p = (struct parts *)m->storage;
    m->head = zmq_msg_data(&p->part[PARTS_HEAD]);
    m->head_bytes = zmq_msg_size(&p->part[PARTS_HEAD]);
    m->body = zmq_msg_data(&p->part[PARTS_BODY]);
    m->body_bytes = zmq_msg_size(&p->part[PARTS_BODY]);
    m->ownership = PS_BODY_PRIVATE;
}

void ps_zmq_message_drop(struct ps_message *m)
{
    struct parts *p = (struct parts *)m->storage;
    for (int i = 0; i < PARTS; i++)
        zmq_msg_close(&p->part[i]);
}

void ps_zmq_message_move(struct ps_message *to, struct ps_message *m)
{
    struct parts *mine = (struct parts *)to->storage, *p = (struct parts *)m->storage;
    for (int i = 0; i < PARTS; i++) {
        zmq_msg_init(&mine->part[i]);
        zmq_msg_move(&mine->part[i], &p->part[i]);
    }
    point(to);
}

/* Reads the parts of one message, starting with part `first`. With a wrong number of parts m can still be
 * answered or dropped. */
static int recv_parts(void *socket, struct ps_message *m, int first)
{
    struct parts *p = (struct parts *)m->storage;
    int i = first, more = 1;

    for (int k = 0; k < PARTS; k++)
        zmq_msg_init(&p->part[k]);
    while (more && i < PARTS) {
        if (zmq_msg_recv(&p->part[i], socket, ZMQ_DONTWAIT) < 0)
            return -zmq_errno(); /* only for the first part: the parts of a message arrive together */
        more = zmq_msg_more(&p->part[i++]);
    }
    point(m);
    if (i == PARTS && !more)
        return 0;
    while (more) {
        zmq_msg_t extra;
        zmq_msg_init(&extra);
        more = zmq_msg_recv(&extra, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&extra);
        zmq_msg_close(&extra);
    }
    return -EBADMSG;
}

int ps_zmq_port_recv(struct ps_port *port, struct ps_message *m)
{
    return recv_parts(port->socket, m, PARTS_ID);
}

uint64_t ps_zmq_message_sender(const struct ps_message *m)
{
    const struct parts *p = (const struct parts *)m->storage;
    const char *number = zmq_msg_gets(&p->part[PARTS_HEAD], PS_CURVE_ID_PROPERTY);
    uint64_t id = 0;
    for (; number != NULL && *number >= '0' && *number <= '9'; number++)
        id = 10 * id + (uint64_t)(*number - '0');
    return id;
}

void ps_zmq_message_describe(const struct ps_message *m, char *text, size_t size)
{
    const struct parts *p = (const struct parts *)m->storage;
    const char *name = zmq_msg_gets(&p->part[PARTS_HEAD], "User-Id");
    const char *address = zmq_msg_gets(&p->part[PARTS_HEAD], "Peer-Address");
    snprintf(text, size, "%s at %s", name != NULL ? name : "nobody",
             address != NULL ? address : "unknown address");
}

static int replace(zmq_msg_t *part, size_t len_bytes)
{
    zmq_msg_t fresh;
    if (zmq_msg_init_size(&fresh, len_bytes) != 0)
        return -ENOMEM;
    zmq_msg_move(part, &fresh);
    zmq_msg_close(&fresh);
    return 0;
}

int ps_zmq_message_body(struct ps_message *m, size_t len_bytes)
{
    struct parts *p = (struct parts *)m->storage;
    if (replace(&p->part[PARTS_BODY], len_bytes) < 0 ||
        (m->head_bytes != PS_FRAME_BYTES && replace(&p->part[PARTS_HEAD], PS_FRAME_BYTES) < 0))
        return -ENOMEM;
    point(m);
    return 0;
}

/* libzmq checks only occasionally whether a peer has read; let it check before treating the pipe as full. */
static int send_first(void *socket, zmq_msg_t *part)
{
    int events;
    size_t size = sizeof events;
    if (zmq_msg_send(part, socket, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
        return 0;
    if (zmq_errno() != EAGAIN)
        return -zmq_errno();
    zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size);
    return zmq_msg_send(part, socket, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 ? 0 : -zmq_errno();
}

int ps_zmq_port_reply(struct ps_port *port, struct ps_message *m)
{
    struct parts *p = (struct parts *)m->storage;
    int rc = send_first(port->socket, &p->part[PARTS_ID]);
    for (int i = PARTS_HEAD; i < PARTS && rc == 0; i++)
        if (zmq_msg_send(&p->part[i], port->socket, ZMQ_DONTWAIT | (i + 1 < PARTS ? ZMQ_SNDMORE : 0)) < 0)
            rc = -zmq_errno();
    if (rc < 0)
        ps_zmq_message_drop(m);
    return rc;
}

/* What is queued for a connection that is lost must not reach whoever listens at its address next: a psd that
 * came back would take chunks of a transfer that its client has given up. The client opens another link. */
static int keep_lost(void *socket)
{
    int never = -1;
    return zmq_setsockopt(socket, ZMQ_RECONNECT_IVL, &never, sizeof never);
}

int ps_zmq_link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err)
{
    int rc = -ENOMEM;
    struct ps_link *link = calloc(1, sizeof *link);
    if (link == NULL || (link->bodies_in_use = calloc(1, sizeof *link->bodies_in_use)) == NULL) {
        ps_fail(err, rc, "no memory for a link to %s", url);
        goto free_link;
    }
    link->hub = hub;
    atomic_init(&link->bodies_in_use->n, 1);
    if ((link->socket = zmq_socket(hub->context, ZMQ_DEALER)) == NULL) {
        rc = ps_fail(err, -zmq_errno(), "cannot create a socket for %s: %s", url, zmq_strerror(zmq_errno()));
        goto free_link;
    }
    if (set_limits(link->socket, limits) != 0 || keep_lost(link->socket) != 0 ||
        (hub->secured && ps_curve_connect(link->socket, &hub->pair, hub->server_key) != 0) ||
        ps_connect(link->socket, url) != 0) {
        rc = ps_fail(err, -zmq_errno(), "cannot connect to %s: %s", url, zmq_strerror(zmq_errno()));
        goto close_socket;
    }
    *out = link;
    return 0;

close_socket:
    zmq_close(link->socket);
free_link:
    free(link != NULL ? link->bodies_in_use : NULL);
    free(link);
    return rc;
}

static void forget_body(struct bodies_in_use *bodies_in_use)
{
    if (atomic_fetch_sub_explicit(&bodies_in_use->n, 1, memory_order_acq_rel) == 1)
        free(bodies_in_use);
}

static void let_go(void *data, void *lent_arg)
{
    (void)data;
    TAKE_OVER(lent_arg);
    forget_body(lent_arg);
}

/* libzmq's I/O thread drops queued messages within moments (LINGER 0), unless it looks up the host's name:
 * that can take long, and afterwards it drops them unread. Naps are counted, since a process that was stopped
 * has not waited. False: it was not waited for any longer. */
static bool await_bodies(const struct ps_link *link)
{
    enum { YIELDS = 1000, NAP_US = 1000, NAPS = 2000, NAPS_WHEN_STUCK = 100 };
    int naps = link->hub->is_stuck ? NAPS_WHEN_STUCK : NAPS;
    for (int i = 0; i < YIELDS + naps; i++) {
        if (atomic_load_explicit(&link->bodies_in_use->n, memory_order_acquire) == 1)
            return true;
        if (i < YIELDS)
            sched_yield();
        else
            ps_sleep_us(NAP_US);
    }
    return false;
}

void ps_zmq_link_close(struct ps_link *link)
{
    if (link == NULL)
        return;
    zmq_close(link->socket);
    link->hub->is_stuck = !await_bodies(link);
    forget_body(link->bodies_in_use);
    free(link);
}

int ps_zmq_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes)
{
    zmq_msg_t first, second;
    int rc;

    if (zmq_msg_init_size(&first, PS_FRAME_BYTES) != 0)
        return -ENOMEM;
    memcpy(zmq_msg_data(&first), head, PS_FRAME_BYTES);
    if (body == NULL) {
        zmq_msg_init(&second);
    } else if (zmq_msg_init_data(&second, (void *)(uintptr_t)body, body_bytes, let_go, link->bodies_in_use) !=
               0) {
        zmq_msg_close(&first);
        return -ENOMEM;
    } else {
        atomic_fetch_add_explicit(&link->bodies_in_use->n, 1, memory_order_relaxed);
        HAND_OVER(link->bodies_in_use);
    }
    if ((rc = send_first(link->socket, &first)) == 0 && zmq_msg_send(&second, link->socket, ZMQ_DONTWAIT) < 0)
        rc = -zmq_errno();
    if (rc < 0) {
        zmq_msg_close(&first);
        zmq_msg_close(&second);
    }
    return rc;
}

int ps_zmq_link_recv(struct ps_link *link, struct ps_message *m)
{
    return recv_parts(link->socket, m, PARTS_HEAD);
}

enum { MAX_WAIT = 65 };

int ps_zmq_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms)
{
    zmq_pollitem_t items[MAX_WAIT];
    int n_items = 0;
    for (size_t i = 0; i < n && n_items < MAX_WAIT - 1; i++)
        if (links[i] != NULL)
            items[n_items++] = (zmq_pollitem_t){.socket = links[i]->socket, .events = ZMQ_POLLIN};
    if (extra_fd >= 0)
        items[n_items++] = (zmq_pollitem_t){.fd = extra_fd, .events = ZMQ_POLLIN};
    int rc = zmq_poll(items, n_items, timeout_ms);
    return rc < 0 ? -zmq_errno() : rc == 0 ? -ETIMEDOUT : 0;
}
