/* port.h: a lane's end of the rdma transport, and the clients that are attached to it. */
#ifndef PS_TRANSPORTS_RDMA_PORT_H
#define PS_TRANSPORTS_RDMA_PORT_H

#include "proto/transports/rdma/rdma.h"

/* A device through which clients are attached: its completions wake the port. */
struct ps_rdma_device {
    struct ps_rdma_device *next;
    struct ibv_context *verbs;
    struct ibv_comp_channel *channel;
    uint32_t clients;
};

enum ps_rdma_slot_state {
    PS_RDMA_FREE,    /* the client can write there */
    PS_RDMA_ARRIVED, /* a message: queued at the port, or in use by the lane */
    PS_RDMA_LEAVING, /* its answer waits for room in the send queue */
};

struct ps_rdma_slot {
    struct ps_rdma_client *client;
    struct ps_rdma_slot *next; /* in the port's queue of arrivals, or the client's of answers */
    uint32_t bytes;            /* of header and body; 0 in an answer: it was dropped */
    uint8_t state;
};

struct ps_rdma_queue {
    struct ps_rdma_slot *first, *last;
};

/* NULL: it is empty. */
struct ps_rdma_slot *ps_rdma_queue_take(struct ps_rdma_queue *q);

/* After it was detached, it exists until the last of its messages was answered or dropped: `held`. */
struct ps_rdma_client {
    struct ps_rdma_client *next; /* of the detached ones */
    struct ps_port *port;        /* NULL: closed */
    struct ps_rdma_device *device;
    struct ibv_pd *pd;
    struct ps_rdma_end end;
    struct ps_rdma_slot *slots;
    struct ps_rdma_queue leaving;
    struct ps_pass pass;
    char address[64];
    uint32_t held;
    int awake; /* index in port->awake, -1: not there */
    bool detached;
};

struct ps_rdma_admitted {
    struct ps_pass pass;
    struct ps_rdma_client *client; /* NULL: not attached */
};

struct ps_port {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    int epoll;
    char url[300];
    struct ps_transport_limits limits;
    struct ps_rdma_device *devices;
    struct ps_rdma_admitted *admitted; /* n_admitted of limits.clients */
    uint32_t n_admitted;
    struct ps_rdma_client **awake; /* clients whose completions are polled, because they are not armed */
    uint32_t n_awake;
    struct ps_rdma_client *detached; /* clients with messages in use by the lane */
    struct ps_rdma_queue arrived;
    uint32_t calls;
    uint64_t logged_us; /* time of the last log line about refusals, and refusals since */
    uint32_t refused;
};

/* Accepts a connection request with a valid pass. -errno with a sentence: not attached, and the caller keeps
 * the id. */
int ps_rdma_client_attach(struct ps_port *port, struct ps_rdma_admitted *a, struct rdma_cm_id *id,
                          const struct ps_rdma_request *r, struct ps_error *err);
/* Revokes all its rights at once. why: for the log; NULL: the client left. */
void ps_rdma_client_detach(struct ps_rdma_client *c, const char *why);
/* Takes completions. 1: there were some, 0: none; -ECONNRESET: the client was detached, and may be freed. */
int ps_rdma_client_poll(struct ps_rdma_client *c);
/* Polls the client from now on; stops polling until it is woken. */
void ps_rdma_client_wake(struct ps_rdma_client *c);
void ps_rdma_client_rest(struct ps_rdma_client *c);

#endif
