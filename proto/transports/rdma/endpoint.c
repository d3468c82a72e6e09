/* One end of a connection: the common part of a port's clients and of links. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/transports/rdma/rdma.h"

enum { PAGE_BYTES = 4096, ACK_EVENTS = 64 };

/* The contents of wr_id. For writes, the number of writes that the completion covers. */
enum { OF_ARRIVAL = 0 };

int ps_rdma_unblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

bool ps_rdma_device_serves(const struct ibv_context *verbs)
{
    return verbs != NULL && verbs->device->transport_type == IBV_TRANSPORT_IB;
}

uint64_t ps_rdma_slot_bytes(size_t max_body_bytes)
{
    if (max_body_bytes > UINT32_MAX - 2 * PAGE_BYTES)
        return 0;
    return (PS_FRAME_BYTES + (uint64_t)max_body_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* fork is safe: kernels since 5.12 copy pinned pages for the child. Older ones need RDMAV_FORK_SAFE=1 in the
 * environment, which makes libibverbs keep such pages from the child. */
static int map_slots(struct ps_rdma_end *end, struct ibv_pd *pd, struct ps_error *err)
{
    end->mapped_bytes = end->local.n * end->local.slot_bytes;
    end->slots = mmap(NULL, end->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (end->slots == MAP_FAILED) {
        end->slots = NULL;
        return ps_fail(err, -ENOMEM, "no memory for %u slots of %llu bytes", end->local.n,
                       (unsigned long long)end->local.slot_bytes);
    }
    end->mr = ibv_reg_mr(pd, end->slots, end->mapped_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (end->mr == NULL)
        return ps_fail(err, -errno, "cannot register %zu bytes: %s (see ulimit -l)", end->mapped_bytes,
                       strerror(errno));
    end->local.rkey = end->mr->rkey;
    end->local.address = (uintptr_t)end->slots;
    return 0;
}

static int expect(struct ps_rdma_end *end, uint32_t n)
{
    struct ibv_recv_wr wr = {.wr_id = OF_ARRIVAL}, *bad;
    for (uint32_t i = 0; i < n; i++) {
        int rc = ibv_post_recv(end->id->qp, &wr, &bad);
        if (rc != 0)
            return -rc;
    }
    return 0;
}

static int create_queues(struct ps_rdma_end *end, struct ibv_pd *pd, struct ibv_comp_channel *channel,
                         void *owner, struct ps_error *err)
{
    /* A slot's answer may be posted again before the completion of the last one was seen. */
    end->depth = 2 * end->local.n;
    end->cq = ibv_create_cq(end->id->verbs, (int)(end->depth + end->local.n + 1), owner, channel, 0);
    if (end->cq == NULL)
        return ps_fail(err, -errno, "cannot create a completion queue: %s", strerror(errno));
    struct ibv_qp_init_attr attr = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = end->depth, .max_recv_wr = end->local.n, .max_send_sge = 2, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    if (rdma_create_qp(end->id, pd, &attr) != 0)
        return ps_fail(err, -errno, "cannot create a queue pair: %s", strerror(errno));
    int rc = expect(end, end->local.n);
    return rc < 0 ? ps_fail(err, rc, "cannot post receives: %s", strerror(-rc)) : 0;
}

int ps_rdma_end_init(struct ps_rdma_end *end, struct rdma_cm_id *id, struct ibv_pd *pd,
                     struct ibv_comp_channel *channel, void *owner, uint32_t n_slots, uint64_t slot_bytes,
                     struct ps_error *err)
{
    struct ibv_port_attr port;
    *end = (struct ps_rdma_end){.id = id, .local = {.n = n_slots, .slot_bytes = slot_bytes}};
    if (ibv_query_port(id->verbs, id->port_num, &port) == 0 && slot_bytes > port.max_msg_sz)
        return ps_fail(err, -EMSGSIZE, "%s takes messages of %u bytes at most; a chunk needs %llu",
                       ibv_get_device_name(id->verbs->device), port.max_msg_sz,
                       (unsigned long long)slot_bytes);
    int rc = map_slots(end, pd, err);
    if (rc == 0)
        rc = create_queues(end, pd, channel, owner, err);
    if (rc < 0) {
        ps_rdma_end_finish(end);
        ps_rdma_end_unmap(end);
    }
    return rc;
}

void ps_rdma_end_finish(struct ps_rdma_end *end)
{
    if (end->id != NULL && end->id->qp != NULL)
        rdma_destroy_qp(end->id);
    if (end->cq != NULL) {
        ibv_ack_cq_events(end->cq, end->events); /* otherwise ibv_destroy_cq waits for them */
        ibv_destroy_cq(end->cq);
    }
    if (end->mr != NULL)
        ibv_dereg_mr(end->mr);
    end->cq = NULL;
    end->mr = NULL;
    end->events = 0;
}

void ps_rdma_end_unmap(struct ps_rdma_end *end)
{
    if (end->slots != NULL)
        munmap(end->slots, end->mapped_bytes);
    end->slots = NULL;
}

unsigned char *ps_rdma_end_slot(const struct ps_rdma_end *end, uint32_t slot)
{
    return end->slots + slot * end->local.slot_bytes;
}

int ps_rdma_end_write(struct ps_rdma_end *end, uint32_t imm, struct ibv_sge *parts, int n_parts)
{
    uint32_t slot = imm & ~PS_RDMA_DROPPED, unsignaled = end->unsignaled + 1;
    bool tell = unsignaled >= (end->local.n + 1) / 2;
    struct ibv_send_wr *bad,
        wr = {
            .wr_id = unsignaled,
            .send_flags = tell ? IBV_SEND_SIGNALED : 0,
            .sg_list = parts,
            .num_sge = n_parts,
            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
            .imm_data = htonl(imm),
            .wr.rdma = {.remote_addr = end->remote.address + slot * end->remote.slot_bytes,
                        .rkey = end->remote.rkey},
        };
    int rc = ibv_post_send(end->id->qp, &wr, &bad);
    if (rc != 0)
        return -rc;
    end->sending++;
    end->unsignaled = tell ? 0 : unsignaled;
    return 0;
}

static int take_completion(struct ps_rdma_end *end, const struct ibv_wc *wc, struct ps_rdma_arrival *out,
                           struct ps_error *err)
{
    if (wc->status != IBV_WC_SUCCESS)
        return ps_fail(err, -ECONNRESET, "%s: %s (vendor error 0x%x)",
                       wc->wr_id == OF_ARRIVAL ? "waiting for the other end's writes"
                                               : "writing to the other end",
                       ibv_wc_status_str(wc->status), wc->vendor_err);
    if (wc->wr_id != OF_ARRIVAL) {
        end->sending -= (uint32_t)wc->wr_id;
        return 0;
    }
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
        return ps_fail(err, -ECONNRESET, "it sent an operation other than a write (opcode %d)",
                       (int)wc->opcode);
    int rc = expect(end, 1);
    if (rc < 0)
        return ps_fail(err, -ECONNRESET, "cannot post a receive: %s", strerror(-rc));
    *out = (struct ps_rdma_arrival){ntohl(wc->imm_data), wc->byte_len};
    return 1;
}

int ps_rdma_end_poll(struct ps_rdma_end *end, struct ps_rdma_arrival *out, int *n, struct ps_error *err)
{
    struct ibv_wc wc[PS_RDMA_BATCH];
    int got = ibv_poll_cq(end->cq, PS_RDMA_BATCH, wc), rc;
    *n = 0;
    if (got < 0)
        return ps_fail(err, -ECONNRESET, "cannot read the completion queue");
    for (int i = 0; i < got; i++, *n += rc)
        if ((rc = take_completion(end, &wc[i], &out[*n], err)) < 0)
            return rc;
    return got;
}

int ps_rdma_end_arm(struct ps_rdma_end *end)
{
    if (end->armed)
        return 0;
    int rc = ibv_req_notify_cq(end->cq, 0);
    end->armed = rc == 0;
    return -rc;
}

void ps_rdma_end_event(struct ps_rdma_end *end)
{
    end->armed = false;
    if (++end->events < ACK_EVENTS)
        return;
    ibv_ack_cq_events(end->cq, end->events);
    end->events = 0;
}
