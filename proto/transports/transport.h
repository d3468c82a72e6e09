/* transport.h: a transport for data messages, both ends of it. One file and one row each, in transports/.
 *
 * A data message is a header of PS_FRAME_BYTES and a body. The server end (a port) receives it, works in
 * place in the body and sends the same message back, so that it needs no buffers of its own; the client end
 * (a link) sends from and receives into messages likewise. Ports and links belong to one thread at a time; a
 * hub may be shared.
 *
 * Anybody may speak to the ports of some transports (tcp, ipc). To those of the others (shm, rdma) a client
 * is attached: its link shows the pass that psd's Welcome gave it, the port sets apart slots for a window of
 * messages, and everything that comes from there is that client's. */
#ifndef PS_TRANSPORTS_TRANSPORT_H
#define PS_TRANSPORTS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/security/curve.h"
#include "proto/transports/registered_memory.h"

struct ps_hub;  /* what the ports or links of one process share: I/O threads */
struct ps_port; /* server end: one a lane */
struct ps_link; /* client end: one a lane */

/* Lets a client's links attach to a psd's ports: made by psd for one session, told in its Welcome. */
enum { PS_PASS_TOKEN_BYTES = 16 };
struct ps_pass {
    uint32_t client, incarnation;
    unsigned char token[PS_PASS_TOKEN_BYTES]; /* random; compared in constant time */
    uint64_t identity;                        /* psd's, of who holds the session; 0: nobody in particular */
};

/* Who may write in the body of a message that was received. */
enum ps_ownership {
    PS_BODY_PRIVATE, /* nobody else */
    /* Its sender, at any moment: what was checked may be different when it is used. Copy it first, or check
     * what came of it. What others are to get is made in private memory only. */
    PS_BODY_SHARED,
    /* Its sender, whose own vector body and answer are, [body_bytes]: see link_send_in_place. The message
     * that goes back has no body (message_body of 0 leaves the vector alone). Nobody works in it before
     * message_begin has allowed it. */
    PS_BODY_IN_PLACE,
};

/* A received message. The transport owns the storage behind it until reply or drop. */
struct ps_message {
    unsigned char *head; /* writable; nobody else's */
    size_t head_bytes;   /* as received; not checked */
    unsigned char *body; /* writable; at any alignment */
    size_t body_bytes;
    enum ps_ownership ownership;             /* of the body */
    _Alignas(16) unsigned char storage[192]; /* the transport's */
};

/* Memory that clients lend to one port; counted by its thread. Outlives the port's messages. */
struct ps_lent {
    _Atomic uint64_t bytes;
    _Atomic uint64_t max_bytes; /* of all clients together; who would lend more is refused */
};

struct ps_transport_limits {
    size_t max_body_bytes;  /* a larger part ends the peer's connection */
    uint32_t window_chunks; /* requests in flight per peer */
    uint32_t clients;       /* that may be attached to a port at once; of ports of such transports */
    struct ps_lent *lent;   /* of ports; NULL: clients lend what they like */
};

enum { PS_ATTACH_MS = 2000, PS_MAX_WINDOW = 64 };

struct ps_transport {
    const char *name; /* the URL's scheme */
    uint32_t
        depth; /* windows that a peer may have in flight, where room costs nothing until it is used; 0: one */
    uint32_t spare; /* messages beyond the window for which a port sets room apart, for each client */
    bool exposed;   /* bodies leave the machine, and hub_secure does not encrypt them */
    bool shares;    /* bodies that its ports receive are never private */

    int (*hub_create)(uint32_t io_threads, struct ps_hub **out);
    /* All ports and links must have been closed. */
    void (*hub_destroy)(struct ps_hub *hub);

    /* CURVE on every port and link that is opened from now on: ports have `pair` and ask the hub's ZAP
     * handler who may come, links prove to have `pair` and want a server that has server_key's secret (NULL:
     * none is opened). pair NULL: plain. Copies both. */
    void (*hub_secure)(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key);
    /* The ZeroMQ context that the hub's sockets live in: for a ZAP handler. NULL: it has none. */
    void *(*hub_context)(struct ps_hub *hub);
    /* Transports that clients are attached to; else NULL. Links that are opened from now on show this pass.
     * Copies.
     */
    void (*hub_pass)(struct ps_hub *hub, const struct ps_pass *pass);
    /* Links that are opened from now on know the buffer: they read bodies in it without a copy, or work in
     * place. It stays as it is until the hub is destroyed. -ENOTSUP: this kind is copied from, like any other
     * memory, but for a device's, which is not to be copied from and cannot travel here; -ENOSPC:
     * PS_MAX_BUFFERS are lent; NULL: the transport copies, or needs not know. */
    int (*hub_register)(struct ps_hub *hub, const struct ps_buffer *buffer, struct ps_error *err);

    /* Where lane `lane` is to listen when the control socket does at control_url: for port_open. shm:
     * control_url is shm://PATH, the stem of the sockets at which clients are attached; rdma: the control
     * transport's own. */
    void (*lane_url)(const char *control_url, uint32_t lane, char *url, size_t size);
    /* url: tcp://HOST:PORT, port 0 for any; ipc://PATH; shm://PATH; rdma://HOST:PORT. -errno with a sentence;
     * -ENODEV: this machine has nothing for the transport to run on. */
    int (*port_open)(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err);
    void (*port_close)(struct ps_port *port);
    /* The bound URL; owned by the port. */
    const char *(*port_url)(const struct ps_port *port);
    /* The port's ps_watch (proto/security/socket_monitor.h), for the thread that opened the port, until it
     * closes it; NULL: it has none, as those of a plain hub. */
    void *(*port_watch)(const struct ps_port *port);
    /* From now on who shows the pass may attach, and nobody with an older one of this client: what was
     * attached with that is detached. Allocates nothing, may be called as often as one likes. -ENOSPC: the
     * port has as many clients as its limits say. NULL: nobody attaches to this transport. */
    int (*port_admit)(struct ps_port *port, const struct ps_pass *pass);
    /* The client's pass is worth nothing any more, and what was attached with it is detached; messages that
     * were received stay valid until reply or drop. */
    void (*port_expel)(struct ps_port *port, uint32_t client);
    /* Readable when port_recv may have something. Level or edge: always call port_recv until -EAGAIN, and
     * then port_rest, before waiting. */
    int (*port_fd)(const struct ps_port *port);
    /* Before a wait on port_fd. Looks for a moment (some ten microseconds at most) for what may come at once,
     * where that is cheaper than to sleep and be woken. true: port_recv may have something; false: nothing is
     * there, and whatever comes from now on makes port_fd readable. NULL: false. */
    bool (*port_rest)(struct ps_port *port);
    /* Never waits. -EAGAIN: nothing there. -EBADMSG: something that is not a header and
     * a body: m can only be answered or dropped. */
    int (*port_recv)(struct ps_port *port, struct ps_message *m);
    /* The pass that its sender is attached with, valid until reply or drop; NULL: nobody is attached to this
     * transport. */
    const struct ps_pass *(*message_pass)(const struct ps_message *m);
    /* Who sent it, as the ZAP handler has numbered identities, or its pass says; 0: nobody has proved to be
     * anybody. Allocates nothing. Without passes, ports of a secured hub only: elsewhere a peer could say
     * what it likes. */
    uint64_t (*message_sender)(const struct ps_message *m);
    /* The same for people: "NAME at ADDRESS". */
    void (*message_describe)(const struct ps_message *m, char *text, size_t size);
    /* Of a message in place, right before its body is read or written for good: true: the body is the port's
     * until reply or drop; false: the peer has taken it back, and the message is to be dropped. NULL: nothing
     * is ever in place here. */
    bool (*message_begin)(struct ps_message *m);
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

    /* Where clients are attached this waits for the port, PS_ATTACH_MS at most: -ETIMEDOUT; -EACCES: it does
     * not know the pass; -EHOSTUNREACH: no port there, or on another machine. With a sentence. */
    int (*link_open)(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err);
    /* Forgets what is in flight, and returns only when no byte of a body given to link_send is read any more.
     * What was sent in place and not begun is taken back; what was begun may still be worked in: first
     * link_settle. */
    void (*link_close)(struct ps_link *link);
    /* Sends without copying the body: it must stay as it is until its answer came or the link is closed. body
     * NULL: none. -EAGAIN: the window is full. -EMSGSIZE: larger than the port's slots; -ECONNRESET: as
     * link_recv. */
    int (*link_send)(struct ps_link *link, const void *head, const void *body, size_t body_bytes);
    /* Likewise, of a body that lies in a lent buffer: the port works in these very bytes, and nobody else may
     * touch them until the answer, which has no body, has come. -EINVAL: it does not lie in one. NULL: the
     * transport cannot. */
    int (*link_send_in_place)(struct ps_link *link, const void *head, void *body, size_t body_bytes);
    /* Before a link with bodies in place is closed: takes back those that the port has not begun, whose
     * answers will not come, and sends nothing any more. -EAGAIN: the port has begun others; their answers
     * come by link_recv, then it is to be called again. 0: nobody works in a vector, and every body that was
     * worked in has been answered, but for the one that a port was in when its process ended. Never waits.
     * NULL: nothing is ever in place here. */
    int (*link_settle)(struct ps_link *link);
    /* As port_recv. -ECONNRESET: the port is gone for good; what was sent will not be answered. */
    int (*link_recv)(struct ps_link *link, struct ps_message *m);
    /* Waits until one of the links, or extra_fd (-1: none), may be readable, timeout_ms at most. -EINTR,
     * -ETIMEDOUT. */
    int (*links_wait)(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms);
};

/* The transports built into this program; *n of them. */
const struct ps_transport *const *ps_transport_rows(size_t *n);
/* Requests in flight per peer and port on this transport, where the listener's has window_chunks. */
static inline uint32_t ps_transport_window(const struct ps_transport *t, uint32_t window_chunks)
{
    uint32_t window = window_chunks * (t->depth > 0 ? t->depth : 1);
    return window < PS_MAX_WINDOW ? window : PS_MAX_WINDOW;
}
/* By name or by a URL's scheme; NULL: no such transport. */
const struct ps_transport *ps_transport_find(const char *name);
const struct ps_transport *ps_transport_of_url(const char *url);

/* The rows. */
extern const struct ps_transport ps_transport_ipc, ps_transport_rdma, ps_transport_shm, ps_transport_tcp;

#endif
