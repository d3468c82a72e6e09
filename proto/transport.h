/* transport.h: a road for data messages, both ends of it. One file and one row each, in transports/.
 *
 * A data message is a header of PS_FRAME_BYTES and a body. The server end (a port) receives it, works in
 * place in the body and sends the same message back, so that it needs no buffers of its own; the client end
 * (a link) sends from and receives into messages likewise. Ports and links belong to one thread at a time; a
 * hub may be shared. */
#ifndef PS_TRANSPORT_H
#define PS_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct ps_hub;  /* what the ports or links of one process share: I/O threads */
struct ps_port; /* server end: one a lane */
struct ps_link; /* client end: one a lane */

/* A received message. The transport owns the storage behind it until reply or drop. */
struct ps_message {
    unsigned char *head; /* writable */
    size_t head_bytes;   /* as received; not checked */
    unsigned char *body; /* writable; at any alignment */
    size_t body_bytes;
    _Alignas(16) unsigned char storage[192]; /* the transport's */
};

struct ps_road_limits {
    size_t max_body_bytes;  /* a larger part ends the peer's connection */
    uint32_t window_chunks; /* requests in flight per peer */
};

struct ps_transport {
    const char *name; /* the URL's scheme */

    int (*hub_create)(uint32_t io_threads, struct ps_hub **out);
    /* All ports and links must have been closed. */
    void (*hub_destroy)(struct ps_hub *hub);

    /* Where lane `lane` is to listen when the control road does at control_url: for port_open. */
    void (*lane_url)(const char *control_url, uint32_t lane, char *url, size_t size);
    /* url: tcp://HOST:PORT, port 0 for any; ipc://PATH. -errno with a sentence. */
    int (*port_open)(struct ps_hub *hub, const char *url, const struct ps_road_limits *limits,
                     struct ps_port **out, struct ps_error *err);
    void (*port_close)(struct ps_port *port);
    /* The bound URL; owned by the port. */
    const char *(*port_url)(const struct ps_port *port);
    /* Readable when port_recv may have something. Level or edge: always call port_recv until -EAGAIN before
     * waiting. */
    int (*port_fd)(const struct ps_port *port);
    /* Never waits. -EAGAIN: nothing there. -EBADMSG: something that is not a header and
     * a body: m can only be answered or dropped. */
    int (*port_recv)(struct ps_port *port, struct ps_message *m);
    /* Replaces the body by a fresh one of len bytes, and a header of another length by a zeroed one of
     * PS_FRAME_BYTES. -ENOMEM. */
    int (*message_body)(struct ps_message *m, size_t len_bytes);
    /* Sends header and body back to where m came from and consumes m, also on failure. Never waits: -EAGAIN
     * when the peer does not read its answers, -EHOSTUNREACH when it has gone. */
    int (*port_reply)(struct ps_port *port, struct ps_message *m);
    void (*message_drop)(struct ps_message *m);
    /* *to, which holds nothing, takes over what *m holds. A message is never copied as a struct: it may point
     * into itself. */
    void (*message_move)(struct ps_message *to, struct ps_message *m);

    int (*link_open)(struct ps_hub *hub, const char *url, const struct ps_road_limits *limits,
                     struct ps_link **out, struct ps_error *err);
    /* Forgets what is in flight, and returns only when no byte of a body given to link_send is read any more.
     */
    void (*link_close)(struct ps_link *link);
    /* Sends without copying the body: it must stay as it is until its answer came or the link is closed. body
     * NULL: none. -EAGAIN: the window is full. */
    int (*link_send)(struct ps_link *link, const void *head, const void *body, size_t body_bytes);
    int (*link_recv)(struct ps_link *link, struct ps_message *m);
    /* Waits until one of the links, or extra_fd (-1: none), may be readable, timeout_ms at most. -EINTR,
     * -ETIMEDOUT. */
    int (*links_wait)(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms);
};

/* The roads built into this program; *n of them. */
const struct ps_transport *const *ps_transport_rows(size_t *n);
/* By name or by a URL's scheme; NULL: no such transport. */
const struct ps_transport *ps_transport_find(const char *name);
const struct ps_transport *ps_transport_of_url(const char *url);

#endif
