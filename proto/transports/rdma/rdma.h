/* rdma.h: shared by the files of the rdma transport. See rdma.c for how it works. */
#ifndef PS_TRANSPORTS_RDMA_RDMA_H
#define PS_TRANSPORTS_RDMA_RDMA_H

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "proto/transports/rdma/wire.h"
#include "proto/transports/transport.h"
#include "proto/wire/frame.h"

/* The protection domain of a hub's links on one device, in which its buffers are registered once. */
struct ps_rdma_domain {
    struct ps_rdma_domain *next;
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct ibv_mr *registered[PS_MAX_BUFFERS]; /* NULL: not registered, so that bodies there are copied */
    uint32_t links;
};

struct ps_hub {
    struct ps_pass pass;
    pthread_mutex_t lock; /* protects the members below: several threads may open links of one hub */
    struct ps_buffer registered[PS_MAX_BUFFERS];
    size_t n_registered;
    struct ps_rdma_domain *domains;
};

/* Registered buffers as a link uses them. */
struct ps_rdma_registered {
    struct {
        uintptr_t base;
        size_t bytes;
        uint32_t lkey;
    } buffer[PS_MAX_BUFFERS];
    size_t n;
};

/* NULL with a sentence. *registered: the buffers registered with the hub so far. Each join must be undone by
 * a leave, while an id still holds the device. */
struct ps_rdma_domain *ps_rdma_domain_join(struct ps_hub *hub, struct ibv_context *verbs,
                                           struct ps_rdma_registered *registered, struct ps_error *err);
void ps_rdma_domain_leave(struct ps_hub *hub, struct ps_rdma_domain *domain);
/* The local key of the buffer that contains the bytes; false: none does. */
bool ps_rdma_registered_covers(const struct ps_rdma_registered *registered, const void *at, size_t bytes,
                               uint32_t *lkey);

/* One end of a connection: its queue pair, the completion queue, and the slots that the other end writes
 * to. */
struct ps_rdma_end {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    unsigned char *slots; /* whole pages; stays until ps_rdma_end_unmap */
    size_t mapped_bytes;
    struct ps_rdma_slots local, remote; /* remote: from the other end; has the same `n` */
    /* Writes that may be posted; that are posted; the latest of these, which will have no completion, since
     * each would wake the other thread for nothing. A failure always has one. */
    uint32_t depth, sending, unsignaled;
    uint32_t events; /* of the completion queue, not acknowledged yet */
    bool armed;      /* the next completion is an event */
};

enum { PS_RDMA_BATCH = 16 };

/* A completed write of the other end: its immediate data and the number of bytes. */
struct ps_rdma_arrival {
    uint32_t imm, bytes;
};

/* The slot size for such a body, in whole pages; 0: too large. */
uint64_t ps_rdma_slot_bytes(size_t max_body_bytes);
/* Creates the slots, whose key only the other end of this connection knows if pd is this connection's own,
 * and the queue pair, which expects a write to each of them. Completions are events of `channel`, with
 * `owner`. id has a device. -errno with a sentence; nothing is left then. */
int ps_rdma_end_init(struct ps_rdma_end *end, struct rdma_cm_id *id, struct ibv_pd *pd,
                     struct ibv_comp_channel *channel, void *owner, uint32_t n_slots, uint64_t slot_bytes,
                     struct ps_error *err);
/* After this no write to the slots and no read of posted memory happens. Keeps the id. May be called
 * twice. */
void ps_rdma_end_finish(struct ps_rdma_end *end);
void ps_rdma_end_unmap(struct ps_rdma_end *end);
unsigned char *ps_rdma_end_slot(const struct ps_rdma_end *end, uint32_t slot);
/* Posts a write into the other end's slot. Below `depth` it can only fail with the connection. -errno. */
int ps_rdma_end_write(struct ps_rdma_end *end, uint32_t imm, struct ibv_sge *parts, int n_parts);
/* Takes some completions: returns their number, 0 if there was none, with *n arrivals in out[PS_RDMA_BATCH].
 * Posts a new receive for each arrival. -ECONNRESET with a sentence: the connection is over. */
int ps_rdma_end_poll(struct ps_rdma_end *end, struct ps_rdma_arrival *out, int *n, struct ps_error *err);
/* Arms the queue: the next completion becomes an event. Earlier ones do not: poll once more. */
int ps_rdma_end_arm(struct ps_rdma_end *end);
/* An event of this end was taken from the channel. */
void ps_rdma_end_event(struct ps_rdma_end *end);

/* Checks both ends; false: the transport lacks write-with-immediate, or it is not an RDMA device. */
bool ps_rdma_device_serves(const struct ibv_context *verbs);
int ps_rdma_unblock(int fd);

/* The content of a message's storage: of a client that is attached to a port, or of a link. */
struct ps_rdma_client;
struct ps_rdma_kept {
    struct ps_rdma_client *client; /* NULL: it is a link's */
    struct ps_link *link;
    uint32_t slot;
    unsigned char head[PS_FRAME_BYTES];
};
_Static_assert(sizeof(struct ps_rdma_kept) <= sizeof(((struct ps_message *)0)->storage),
               "a message's storage is large enough");

/* Fills m with the message in a slot: copies its head, since the other end may still write to the slot. */
void ps_rdma_message_fill(struct ps_message *m, const struct ps_rdma_end *end, uint32_t slot, uint32_t bytes);
const struct ps_rdma_kept *ps_rdma_kept_of(const struct ps_message *m);

/* The members of the row. port.c */
int ps_rdma_port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                      struct ps_port **out, struct ps_error *err);
void ps_rdma_port_close(struct ps_port *port);
const char *ps_rdma_port_url(const struct ps_port *port);
int ps_rdma_port_admit(struct ps_port *port, const struct ps_pass *pass);
void ps_rdma_port_expel(struct ps_port *port, uint32_t client);
int ps_rdma_port_fd(const struct ps_port *port);
bool ps_rdma_port_rest(struct ps_port *port);
int ps_rdma_port_recv(struct ps_port *port, struct ps_message *m);

/* peer.c */
int ps_rdma_port_reply(struct ps_port *port, struct ps_message *m);
const struct ps_pass *ps_rdma_message_pass(const struct ps_message *m);
void ps_rdma_message_describe(const struct ps_message *m, char *text, size_t size);
int ps_rdma_message_body(struct ps_message *m, size_t len_bytes);
/* Returns the slot of a message that will not be answered. */
void ps_rdma_client_drop(struct ps_rdma_client *c, uint32_t slot);

/* link.c */
int ps_rdma_link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                      struct ps_link **out, struct ps_error *err);
void ps_rdma_link_close(struct ps_link *link);
int ps_rdma_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes);
int ps_rdma_link_recv(struct ps_link *link, struct ps_message *m);
int ps_rdma_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms);
void ps_rdma_link_drop(struct ps_link *link, uint32_t slot);

#endif
