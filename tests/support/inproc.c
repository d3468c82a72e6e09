#include "tests/support/inproc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/wire/frame.h"

/* A queue: owned by its reader, referenced by its writers. */
struct pipe {
    pthread_mutex_t lock;
    struct item *first, **last;
    size_t n, most; /* most: 0: unbounded */
    int fd;         /* readable while the queue is not empty */
    bool closed;    /* the reader is gone */
    atomic_int users;
};

/* A message from a link to a port, or back. */
struct item {
    struct item *next;
    struct pipe *back; /* the link's queue */
    unsigned char *head, *body;
    size_t head_bytes, body_bytes;
};

struct ps_hub {
    int unused;
};

struct ps_port {
    struct ps_port *next; /* in `ports` */
    struct pipe *in;
    unsigned number;
    char url[40];
};

struct ps_link {
    struct pipe *out, *in; /* out: the port's queue; NULL: no such port */
};

static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_port *ports;
static unsigned last_number;

static struct pipe *pipe_make(size_t most)
{
    struct pipe *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->last = &p->first;
    p->most = most;
    p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    atomic_init(&p->users, 1);
    return p;
}

static struct pipe *pipe_keep(struct pipe *p)
{
    atomic_fetch_add(&p->users, 1);
    return p;
}

static void pipe_leave(struct pipe *p)
{
    if (p == NULL || atomic_fetch_sub(&p->users, 1) > 1)
        return;
    close(p->fd);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void item_free(struct item *item)
{
    pipe_leave(item->back);
    free(item->head);
    free(item->body);
    free(item);
}

/* Called by the reader: drops queued items, and refuses new ones. */
static void pipe_close(struct pipe *p)
{
    pthread_mutex_lock(&p->lock);
    struct item *item = p->first, *next;
    p->first = NULL;
    p->last = &p->first;
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    for (; item != NULL; item = next) {
        next = item->next;
        item_free(item);
    }
    pipe_leave(p);
}

/* 0; -EAGAIN: full; -EHOSTUNREACH: closed. Takes ownership of the item only on success. */
static int pipe_put(struct pipe *p, struct item *item)
{
    int rc = 0;
    pthread_mutex_lock(&p->lock);
    if (p->closed) {
        rc = -EHOSTUNREACH;
    } else if (p->most > 0 && p->n >= p->most) {
        rc = -EAGAIN;
    } else {
        item->next = NULL;
        *p->last = item;
        p->last = &item->next;
        p->n++;
        eventfd_write(p->fd, 1);
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static struct item *pipe_take(struct pipe *p)
{
    eventfd_t count;
    pthread_mutex_lock(&p->lock);
    struct item *item = p->first;
    if (item != NULL && (p->first = item->next) == NULL)
        p->last = &p->first;
    p->n -= item != NULL;
    if (p->first == NULL)
        eventfd_read(p->fd, &count);
    pthread_mutex_unlock(&p->lock);
    return item;
}

static int hub_create(uint32_t io_threads, struct ps_hub **out)
{
    (void)io_threads;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? 0 : -ENOMEM;
}

static void hub_destroy(struct ps_hub *hub)
{
    free(hub);
}

static void lane_url(const char *control_url, uint32_t lane, char *url, size_t size)
{
    (void)control_url, (void)lane;
    snprintf(url, size, "inproc://any");
}

static int port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err)
{
    struct ps_port *port = calloc(1, sizeof *port);
    (void)hub, (void)url, (void)limits;
    if (port == NULL || (port->in = pipe_make(0)) == NULL) {
        free(port);
        return ps_fail(err, -ENOMEM, "no memory for a port");
    }
    pthread_mutex_lock(&ports_lock);
    port->number = ++last_number;
    snprintf(port->url, sizeof port->url, "inproc://%u", port->number);
    port->next = ports;
    ports = port;
    pthread_mutex_unlock(&ports_lock);
    *out = port;
    return 0;
}

static void port_close(struct ps_port *port)
{
    if (port == NULL)
        return;
    pthread_mutex_lock(&ports_lock);
    for (struct ps_port **p = &ports; *p != NULL; p = &(*p)->next)
        if (*p == port) {
            *p = port->next;
            break;
        }
    pthread_mutex_unlock(&ports_lock);
    pipe_close(port->in);
    free(port);
}

static const char *port_url(const struct ps_port *port)
{
    return port->url;
}

static int port_fd(const struct ps_port *port)
{
    return port->in->fd;
}

static void point(struct ps_message *m, struct item *item)
{
    memcpy(m->storage, &item, sizeof item);
    m->head = item->head;
    m->head_bytes = item->head_bytes;
    m->body = item->body;
    m->body_bytes = item->body_bytes;
    m->ownership = PS_BODY_PRIVATE;
}

static struct item *item_of(const struct ps_message *m)
{
    struct item *item;
    memcpy(&item, m->storage, sizeof item);
    return item;
}

static int recv_from(struct pipe *p, struct ps_message *m)
{
    struct item *item = p != NULL ? pipe_take(p) : NULL;
    if (item == NULL)
        return -EAGAIN;
    point(m, item);
    return 0;
}

static int port_recv(struct ps_port *port, struct ps_message *m)
{
    return recv_from(port->in, m);
}

static int message_body(struct ps_message *m, size_t len_bytes)
{
    struct item *item = item_of(m);
    unsigned char *body = malloc(len_bytes + 1);
    if (body == NULL)
        return -ENOMEM;
    free(item->body);
    item->body = body;
    item->body_bytes = len_bytes;
    point(m, item);
    return 0;
}

static void message_drop(struct ps_message *m)
{
    item_free(item_of(m));
}

static void message_move(struct ps_message *to, struct ps_message *m)
{
    point(to, item_of(m));
}

static int port_reply(struct ps_port *port, struct ps_message *m)
{
    struct item *item = item_of(m);
    struct pipe *back = item->back;
    (void)port;
    item->back = NULL;
    int rc = pipe_put(back, item);
    if (rc < 0)
        item_free(item);
    pipe_leave(back);
    return rc;
}

static int link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err)
{
    struct ps_link *link = calloc(1, sizeof *link);
    (void)hub;
    if (link == NULL || (link->in = pipe_make(2 * limits->window_chunks + 8)) == NULL) {
        free(link);
        return ps_fail(err, -ENOMEM, "no memory for a link");
    }
    pthread_mutex_lock(&ports_lock);
    for (struct ps_port *p = ports; p != NULL; p = p->next)
        if (strcmp(p->url, url) == 0)
            link->out = pipe_keep(p->in);
    pthread_mutex_unlock(&ports_lock);
    *out = link;
    return 0;
}

static void link_close(struct ps_link *link)
{
    if (link == NULL)
        return;
    pipe_leave(link->out);
    pipe_close(link->in);
    free(link);
}

static int link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes)
{
    struct item *item = calloc(1, sizeof *item);
    if (link->out == NULL || item == NULL) {
        free(item);
        return item == NULL ? -ENOMEM : 0; /* dropped, as over a network */
    }
    *item = (struct item){.back = pipe_keep(link->in),
                          .head = malloc(PS_FRAME_BYTES),
                          .body = malloc(body_bytes + 1),
                          .head_bytes = PS_FRAME_BYTES,
                          .body_bytes = body != NULL ? body_bytes : 0};
    if (item->head == NULL || item->body == NULL) {
        item_free(item);
        return -ENOMEM;
    }
    memcpy(item->head, head, PS_FRAME_BYTES);
    if (body != NULL)
        memcpy(item->body, body, body_bytes);
    if (pipe_put(link->out, item) < 0)
        item_free(item);
    return 0;
}

static int link_recv(struct ps_link *link, struct ps_message *m)
{
    return recv_from(link->in, m);
}

enum { MAX_WAIT = 65 };

static int links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms)
{
    struct pollfd fds[MAX_WAIT];
    nfds_t used = 0;
    for (size_t i = 0; i < n && used < MAX_WAIT - 1; i++)
        if (links[i] != NULL)
            fds[used++] = (struct pollfd){.fd = links[i]->in->fd, .events = POLLIN};
    if (extra_fd >= 0)
        fds[used++] = (struct pollfd){.fd = extra_fd, .events = POLLIN};
    int rc = poll(fds, used, timeout_ms);
    return rc < 0 ? -errno : rc == 0 ? -ETIMEDOUT : 0;
}

const struct ps_transport ps_transport_inproc = {
    .name = "inproc",
    .hub_create = hub_create,
    .hub_destroy = hub_destroy,
    .lane_url = lane_url,
    .port_open = port_open,
    .port_close = port_close,
    .port_url = port_url,
    .port_fd = port_fd,
    .port_recv = port_recv,
    .message_body = message_body,
    .port_reply = port_reply,
    .message_drop = message_drop,
    .message_move = message_move,
    .link_open = link_open,
    .link_close = link_close,
    .link_send = link_send,
    .link_recv = link_recv,
    .links_wait = links_wait,
};
