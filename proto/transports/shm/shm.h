/* shm.h: internals of the shared-memory transport. shm.c has the row; port.c a port's messages, attach.c its
 * handshakes; link.c the client's end, connect.c its handshake; region.c the shared layout, wire.c the checks
 * of both ends.
 *
 * A link connects to the port's UNIX socket and sends its hello: its pass, and the files of the buffers that
 * it registers. The port maps these, creates a region for this client alone and sends it back with two
 * descriptors:
 * - the port's bell, an eventfd that the link writes and the port only watches;
 * - an epoll instance that watches the link's bell. The link never has that eventfd itself: it could fill its
 * counter and make the port's next write block.
 * The socket stays open, and reports when the other end is gone. A port that detaches a link shuts its end
 * down, and closes it when it holds no message of that link any more. */
#ifndef PS_TRANSPORTS_SHM_SHM_H
#define PS_TRANSPORTS_SHM_SHM_H

#include <sys/socket.h>

#include "proto/log.h"
#include "proto/transports/shm/region.h"
#include "proto/unix_socket.h"

enum {
    PS_SHM_SPARE_SLOTS = 2, /* beyond the window: for answers that are still being read */
    PS_SHM_HALVES = 16,     /* handshakes at a time; a new one replaces the oldest */
    PS_SHM_REPLY_FILES = 3, /* with a port's reply: see struct ps_shm_reply */
};

struct ps_hub {
    struct ps_pass pass;
    struct ps_buffer buffers[PS_MAX_BUFFERS];
    uint32_t n_buffers;
    _Atomic uint32_t n_links; /* open */
    uint32_t n_cores;         /* of the machine */
};

/* A client of a port. After it was detached it exists until its last message is returned. */
struct ps_shm_client {
    struct ps_port *port; /* NULL: detached */
    struct ps_pass pass;
    struct ucred peer;
    int socket, bell, link_bell; /* -1 once detached */
    uint32_t seat, refs;         /* refs: messages in use, and the port's own while attached */
    uint32_t active_at;          /* in port->active; PS_SHM_RESTS: asleep */
    bool heard;                  /* since the port's last check */
    struct ps_shm_region region;
    unsigned char *taken; /* [n_slots]: the port's */
    void *buffers[PS_MAX_BUFFERS];
    uint64_t buffer_bytes[PS_MAX_BUFFERS];
    uint32_t n_buffers, cpu, clients; /* cpu, clients: what the region says */
    struct ps_registered *registered; /* where mapped buffers are counted; NULL: nowhere */
};

#define PS_SHM_RESTS UINT32_MAX

/* A client that may attach. `generation` increases with each client, so that events of an earlier one are
 * recognised. */
struct ps_shm_seat {
    bool admitted;
    uint32_t generation;
    struct ps_pass pass;
    struct ps_shm_client *client; /* NULL: not attached */
};

/* A connection with an incomplete hello. */
struct ps_shm_half {
    bool used;
    int socket;
    uint32_t generation, n_files;
    uint64_t deadline_ns;
    struct ucred peer;
    size_t got;
    unsigned char bytes[PS_SHM_HELLO_BYTES];
    int files[PS_MAX_BUFFERS];
};

struct ps_port {
    int epoll;
    struct ps_unix_socket file;
    char url[sizeof "shm://" + PS_UNIX_PATH_MAX];
    struct ps_transport_limits limits;
    struct ps_shm_seat *seats; /* [limits.clients] */
    struct ps_shm_half halves[PS_SHM_HALVES];
    struct ps_shm_client **active; /* [limits.clients]: their rings are polled; others ring the bell */
    uint32_t n_active, rotor, until_look;
    bool was_empty;                /* the last call found no message */
    uint64_t paused_until_ns;      /* not 0: out of descriptors; accepts nothing until this time */
    struct ps_log_limit log_limit; /* a client may connect again and again */
};

/* What an event of a port's epoll refers to. */
enum ps_shm_event { PS_SHM_LISTENER, PS_SHM_HALF, PS_SHM_SOCKET, PS_SHM_BELL };

int ps_shm_watch(const struct ps_port *port, int fd, uint32_t events, enum ps_shm_event kind, uint32_t index,
                 uint32_t generation);
void ps_shm_unwatch(const struct ps_port *port, int fd);

/* attach.c */
int ps_shm_listen(struct ps_port *port);
void ps_shm_accept(struct ps_port *port);
void ps_shm_half_read(struct ps_port *port, struct ps_shm_half *half);
void ps_shm_half_end(struct ps_port *port, struct ps_shm_half *half);
/* Ends handshakes that have taken too long. */
void ps_shm_halves_expire(struct ps_port *port);

/* port.c */
void ps_shm_detach(struct ps_shm_client *c);
void ps_shm_client_wake(struct ps_shm_client *c);
void ps_shm_client_free(struct ps_shm_client *c);

int ps_shm_port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err);
void ps_shm_port_close(struct ps_port *port);
int ps_shm_port_admit(struct ps_port *port, const struct ps_pass *pass);
void ps_shm_port_expel(struct ps_port *port, uint32_t client);
bool ps_shm_port_rest(struct ps_port *port);
int ps_shm_port_recv(struct ps_port *port, struct ps_message *m);
int ps_shm_port_reply(struct ps_port *port, struct ps_message *m);

/* connect.c: a link's side of the handshake. files: [PS_SHM_REPLY_FILES], -1 before. *socket and those that
 * are not -1 are the caller's, also on failure. Errors as of link_open. */
int ps_shm_connect(const struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                   int *socket, struct ps_shm_reply *reply, int *files, struct ps_error *err);

/* link.c */
int ps_shm_link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err);
void ps_shm_link_close(struct ps_link *link);
int ps_shm_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes);
int ps_shm_link_send_in_place(struct ps_link *link, const void *head, void *body, size_t body_bytes);
int ps_shm_link_settle(struct ps_link *link, const void **cut);
void ps_shm_link_memory(struct ps_link *link, void **base, size_t *bytes);
int ps_shm_link_recv(struct ps_link *link, struct ps_message *m);
int ps_shm_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms);

/* A message of either end, in ps_message.storage. */
struct ps_shm_held {
    unsigned char head[PS_FRAME_BYTES];
    struct ps_shm_client *client; /* of a received message at a port; else NULL */
    struct ps_link *link;
    uint32_t slot;
    bool works_in_place; /* its body is in the peer's vector */
};

static inline struct ps_shm_held *ps_shm_held_of(const struct ps_message *m)
{
    return (struct ps_shm_held *)(uintptr_t)m->storage;
}

bool ps_shm_port_begin(struct ps_message *m);
void ps_shm_port_drop(struct ps_message *m);
void ps_shm_link_drop(struct ps_message *m);

/* The path in "shm://PATH"; NULL: it is another URL. */
const char *ps_shm_path(const char *url);
void ps_shm_close(int *fd);

#endif
