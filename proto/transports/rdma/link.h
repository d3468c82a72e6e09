/* link.h: a client's end of the rdma transport. */
#ifndef PS_TRANSPORTS_RDMA_LINK_H
#define PS_TRANSPORTS_RDMA_LINK_H

#include "proto/transports/rdma/rdma.h"

enum ps_rdma_link_slot {
    PS_RDMA_IDLE,
    PS_RDMA_ASKED,    /* a request was sent */
    PS_RDMA_ANSWERED, /* its answer has arrived and was not dropped yet */
};

/* After it was closed, it exists until the last of its messages was dropped: `held`. */
struct ps_link {
    struct ps_hub *hub;
    struct ps_rdma_domain *domain;
    struct ps_rdma_registered registered;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *completions;
    struct ps_rdma_end end;
    /* A slot for each request in flight: its header, and its body unless that is in a registered buffer. */
    unsigned char *out;
    size_t out_bytes;
    struct ibv_mr *out_mr;
    uint8_t *state; /* of each slot: ps_rdma_link_slot */
    uint32_t *idle; /* numbers of the n_idle idle slots */
    uint32_t n_idle;
    struct ps_rdma_arrival *arrived; /* a ring of answers that were not taken yet */
    uint32_t first, n_arrived;
    uint32_t held;
    uint32_t empty_calls; /* calls of link_recv since the connection was last checked */
    bool look, failed, closed;
};

void ps_rdma_link_free(struct ps_link *link);

#endif
