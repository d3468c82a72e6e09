/* transport.h: a transport for data messages, both ends of it. One file and one row each, in transports/.
 *
 * A data message is a header of PS_FRAME_BYTES and a body. The server end (a port) receives it, processes the
 * body in place and sends the same message back, so that it needs no buffers of its own; the client end (a
 * link) likewise sends from and receives into messages. Ports and links belong to one thread at a time; a hub
 * may be shared.
 *
 * Any peer may send to the ports of some transports (tcp, ipc). With the others (shm, rdma) a client is
 * attached to a port: its link presents the pass from psd's Welcome, the port reserves slots for a window of
 * messages, and every message from there belongs to that client. */
#ifndef PS_TRANSPORTS_TRANSPORT_H
#define PS_TRANSPORTS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/security/curve.h"
#include "proto/transports/registered_memory.h"

struct ps_hub;  /* shared by the ports or links of one process: I/O threads */
struct ps_port; /* server end: one for each lane */
struct ps_link; /* client end: one for each lane */

/* Lets a client's links attach to a psd's ports: created by psd for one session and sent in its Welcome. */
enum { PS_PASS_TOKEN_BYTES = 16 };
struct ps_pass {
    uint32_t client, incarnation;
    unsigned char token[PS_PASS_TOKEN_BYTES]; /* random; compared in constant time */
    uint64_t identity; /* psd's number for the owner of the session; 0: not authenticated */
};

/* Which process may write to the body of a received message. */
enum ps_ownership {
    PS_BODY_PRIVATE, /* no other process */
    /* Its sender, at any time: checked values may change before they are used. Copy them first, or check the
     * result. Values for other clients are computed in private memory only. */
    PS_BODY_SHARED,
    /* Its sender, in whose own vector body and answer are, [body_bytes]: see link_send_in_place. The answer
     * has no body (message_body of 0 leaves the vector alone). Access the body only after message_begin has
     * allowed it. */
    PS_BODY_IN_PLACE,
};

/* A received message. The transport owns the storage until reply or drop. */
struct ps_message {
    unsigned char *head; /* writable; private */
    size_t head_bytes;   /* as received; not checked */
    unsigned char *body; /* writable; at any alignment */
    size_t body_bytes;
    enum ps_ownership ownership;             /* of the body */
    _Alignas(16) unsigned char storage[192]; /* the transport's */
};

/* Memory that clients register at one port; counted by its thread. Outlives the port's messages. */
struct ps_registered {
    _Atomic uint64_t bytes;
    _Atomic uint64_t max_bytes; /* of all clients together; registering more is refused */
};

struct ps_transport_limits {
    size_t max_body_bytes;  /* a larger part ends the peer's connection */
    uint32_t window_chunks; /* requests in flight per peer */
    uint32_t clients;       /* that may be attached to a port at once, for transports with attached clients */
    struct ps_registered *registered; /* of ports; NULL: no limit */
};

enum { PS_ATTACH_MS = 2000, PS_MAX_WINDOW = 64 };

struct ps_transport {
    const char *name; /* the URL's scheme */
    uint32_t depth;   /* windows that a peer may have in flight, if unused room costs nothing; 0: one */
    uint32_t spare;   /* messages beyond the window for which a port reserves room, for each client */
    bool exposed;     /* bodies leave the machine, and hub_secure does not encrypt them */
    bool shares;      /* bodies that its ports receive are never private */

    int (*hub_create)(uint32_t io_threads, struct ps_hub **out);
    /* All ports and links must have been closed. */
    void (*hub_destroy)(struct ps_hub *hub);

    /* CURVE on every port and link opened from now on: ports use `pair` and ask the hub's ZAP handler whether
     * a peer is accepted; links authenticate with `pair` and require a server with the secret of server_key
     * (NULL: no links are opened). pair NULL: plain. Copies both. */
    void (*hub_secure)(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key);
    /* The ZeroMQ context of the hub's sockets, for a ZAP handler. NULL: none. */
    void *(*hub_context)(struct ps_hub *hub);
    /* For transports with attached clients; else NULL. Links opened from now on present this pass. Copies. */
    void (*hub_pass)(struct ps_hub *hub, const struct ps_pass *pass);
    /* Links opened from now on know the buffer: bodies in it are read there by the network device or the
     * port, or accessed in place. It must stay valid until the hub is destroyed. -ENOTSUP: the transport
     * copies from this kind as from any other memory, or, for device memory, cannot send it at all; -ENOSPC:
     * PS_MAX_BUFFERS are registered; NULL: the transport copies, or does not need to know. */
    int (*hub_register)(struct ps_hub *hub, const struct ps_buffer *buffer, struct ps_error *err);

    /* The URL for port_open on which lane `lane` is to listen if the control socket listens at
     * control_url. shm: control_url is shm://PATH, the prefix of the sockets' paths; rdma: the control
     * socket's own URL. */
    void (*lane_url)(const char *control_url, uint32_t lane, char *url, size_t size);
    /* url: tcp://HOST:PORT, port 0 for any; ipc://PATH; shm://PATH; rdma://HOST:PORT. -errno with a sentence;
     * -ENODEV: this machine lacks the hardware. */
    int (*port_open)(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err);
    void (*port_close)(struct ps_port *port);
    /* The bound URL; owned by the port. */
    const char *(*port_url)(const struct ps_port *port);
    /* The port's ps_watch (proto/security/socket_monitor.h), for the thread that opened the port, until the
     * port is closed; NULL: none, as on plain hubs. */
    void *(*port_watch)(const struct ps_port *port);
    /* From now on a link with this pass may attach, and none with an older pass of this client: those that
     * have are detached. Allocates nothing, may be called any number of times. -ENOSPC: the port has as many
     * clients as its limits allow. NULL: clients do not attach to this transport. */
    int (*port_admit)(struct ps_port *port, const struct ps_pass *pass);
    /* The client's pass is no longer valid, and its links are detached; received messages stay valid until
     * reply or drop. */
    void (*port_expel)(struct ps_port *port, uint32_t client);
    /* Readable when port_recv may have a message. Level or edge triggered: always call port_recv until
     * -EAGAIN, and then port_rest, before waiting. */
    int (*port_fd)(const struct ps_port *port);
    /* Call before a wait on port_fd. Polls for a moment (some ten microseconds at most) for messages that may
     * come at once, if that is cheaper than to sleep. true: port_recv may have a message; false: there is
     * none, and any later message makes port_fd readable. NULL: false. */
    bool (*port_rest)(struct ps_port *port);
    /* Never waits. -EAGAIN: no message. -EBADMSG: the message is not a header and a body; it can only be
     * answered or dropped. */
    int (*port_recv)(struct ps_port *port, struct ps_message *m);
    /* The pass with which its sender is attached, valid until reply or drop; NULL: clients do not attach to
     * this transport. */
    const struct ps_pass *(*message_pass)(const struct ps_message *m);
    /* The sender's identity, as numbered by the ZAP handler, or from its pass; 0: not authenticated.
     * Allocates nothing. Without passes, only for ports of a secured hub: on others a peer could claim any
     * identity. */
    uint64_t (*message_sender)(const struct ps_message *m);
    /* The same as text: "NAME at ADDRESS". */
    void (*message_describe)(const struct ps_message *m, char *text, size_t size);
    /* For a message in place, right before its body is read or written: true: the body belongs to the port
     * until reply or drop; false: the peer has taken it back, and the message must be dropped. NULL: no
     * message is ever in place here. */
    bool (*message_begin)(struct ps_message *m);
    /* Replaces the body by a new one of len bytes, and a header of another length by a zeroed one of
     * PS_FRAME_BYTES. -ENOMEM. */
    int (*message_body)(struct ps_message *m, size_t len_bytes);
    /* Sends header and body back to the sender and consumes m, also on failure. Never waits: -EAGAIN if the
     * peer does not read its answers, -EHOSTUNREACH if it is gone. */
    int (*port_reply)(struct ps_port *port, struct ps_message *m);
    void (*message_drop)(struct ps_message *m);
    /* Moves the content of *m to *to, which must be empty. A message is never copied as a struct: it may
     * contain pointers into itself. */
    void (*message_move)(struct ps_message *to, struct ps_message *m);

    /* With attached clients this waits for the port, at most PS_ATTACH_MS: -ETIMEDOUT; -EACCES: the port does
     * not know the pass; -EHOSTUNREACH: no port there, or on another machine. With a sentence. */
    int (*link_open)(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err);
    /* Drops messages in flight, and returns only when bodies given to link_send are no longer read, or what
     * is read of them is thrown away. It waits for that, but not for a name server: a link whose host is
     * being looked up has read none, and reads none afterwards. Messages sent in place that the port has not
     * begun are taken back; the port may still access those that it has begun: call link_settle first. */
    void (*link_close)(struct ps_link *link);
    /* Sends the body, perhaps without a copy: it must not change until its answer has arrived or the link is
     * closed. body NULL: none. -EAGAIN: the window is full. -EMSGSIZE: larger than the port's slots;
     * -ECONNRESET: as link_recv. */
    int (*link_send)(struct ps_link *link, const void *head, const void *body, size_t body_bytes);
    /* The same for a body in a registered buffer: the port accesses these bytes directly, and no other access
     * is allowed until the answer, which has no body, has arrived. -EINVAL: the body is not in such a buffer.
     * NULL: not supported. */
    int (*link_send_in_place)(struct ps_link *link, const void *head, void *body, size_t body_bytes);
    /* Call before a link with bodies in place is closed: takes back bodies that the port has not begun, whose
     * answers will not come, and sends nothing more. -EAGAIN: the port has begun others; receive their
     * answers by link_recv, then call again. 0: no port accesses a vector, and every body that was begun has
     * been answered, except *cut, which the port was processing when its process ended: it may be changed, in
     * part or whole. *cut NULL: there is none. Never waits. NULL: no message is ever in place here. */
    int (*link_settle)(struct ps_link *link, const void **cut);
    /* Where the bodies of all messages that the link receives lie, so that it can be registered with a device
     * until the link is closed. So many may be held, beside the window: `spare`. NULL: anywhere. */
    void (*link_memory)(struct ps_link *link, void **base, size_t *bytes);
    /* As port_recv. -ECONNRESET: the port is gone for good; messages in flight will not be answered. */
    int (*link_recv)(struct ps_link *link, struct ps_message *m);
    /* Waits until one of the links, or extra_fd (-1: none), may be readable, timeout_ms at most. -EINTR,
     * -ETIMEDOUT. */
    int (*links_wait)(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms);
};

/* The transports built into this program; *n of them. */
const struct ps_transport *const *ps_transport_rows(size_t *n);
/* Requests in flight per peer and port on this transport, given the listener's window_chunks. */
static inline uint32_t ps_transport_window(const struct ps_transport *t, uint32_t window_chunks)
{
    uint32_t window = window_chunks * (t->depth > 0 ? t->depth : 1);
    return window < PS_MAX_WINDOW ? window : PS_MAX_WINDOW;
}
/* By name or by a URL's scheme; NULL: unknown. */
const struct ps_transport *ps_transport_find(const char *name);
const struct ps_transport *ps_transport_of_url(const char *url);

/* The rows. */
extern const struct ps_transport ps_transport_ipc, ps_transport_rdma, ps_transport_shm, ps_transport_tcp;

#endif
