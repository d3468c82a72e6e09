/* A client's end: its messages, and waiting for answers. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

#include "proto/transports/rdma/link.h"

enum {
    LOOK_EVERY = 256, /* calls in vain, until the connection is looked at although nobody waited */
    REST_US = 20,     /* looked for before sleeping */
    MAX_LINKS = 64,
};

/* The answer to a slot's message has come, or word that there will be none. */
static int arrive(struct ps_link *link, const struct ps_rdma_arrival *a)
{
    uint32_t slot = a->imm & ~PS_RDMA_DROPPED;
    if (slot >= link->end.theirs.n || link->state[slot] != PS_RDMA_ASKED)
        return -EPROTO;
    if ((a->imm & PS_RDMA_DROPPED) != 0) {
        link->state[slot] = PS_RDMA_IDLE;
        link->idle[link->n_idle++] = slot;
        return 0;
    }
    if (a->bytes < PS_FRAME_BYTES || a->bytes > link->end.mine.slot_bytes)
        return -EPROTO;
    link->state[slot] = PS_RDMA_ANSWERED;
    link->arrived[(link->first + link->n_arrived++) % link->end.mine.n] = *a;
    return 0;
}

/* Takes what completed; false: nothing did. */
static bool take_completions(struct ps_link *link)
{
    struct ps_rdma_arrival arrival[PS_RDMA_BATCH];
    int n, got;
    if (link->failed)
        return false;
    got = ps_rdma_end_poll(&link->end, arrival, &n, NULL);
    link->failed = got < 0;
    for (int i = 0; i < n; i++)
        link->failed = arrive(link, &arrival[i]) < 0 || link->failed;
    return got > 0;
}

/* Whether the connection manager says that it is over. What came before is taken first. */
static void look_at_connection(struct ps_link *link)
{
    struct rdma_cm_event *event;
    bool over = false;
    link->look = false;
    link->calls_in_vain = 0;
    while (rdma_get_cm_event(link->channel, &event) == 0) {
        over = over || event->event != RDMA_CM_EVENT_ADDR_CHANGE;
        rdma_ack_cm_event(event);
    }
    while (over && take_completions(link))
        ;
    link->failed = link->failed || over;
}

/* A body that lies in a lent buffer is read there; others are copied behind the header. */
int ps_rdma_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes)
{
    struct ibv_sge part[2];
    uint32_t lkey;
    if (body == NULL)
        body_bytes = 0;
    if (body_bytes > link->end.theirs.slot_bytes - PS_FRAME_BYTES)
        return -EMSGSIZE;
    if (link->n_idle == 0 || link->end.sending == link->end.depth)
        take_completions(link);
    if (link->failed)
        return -ECONNRESET;
    if (link->n_idle == 0 || link->end.sending == link->end.depth)
        return -EAGAIN;
    uint32_t slot = link->idle[--link->n_idle];
    unsigned char *at = link->out + slot * link->end.mine.slot_bytes;
    bool lent = body_bytes > 0 && ps_rdma_lent_covers(&link->lent, body, body_bytes, &lkey);
    memcpy(at, head, PS_FRAME_BYTES);
    part[0] = (struct ibv_sge){(uintptr_t)at, PS_FRAME_BYTES, link->out_mr->lkey};
    if (lent) {
        part[1] = (struct ibv_sge){(uintptr_t)body, (uint32_t)body_bytes, lkey};
    } else if (body_bytes > 0) {
        memcpy(at + PS_FRAME_BYTES, body, body_bytes);
        part[0].length += (uint32_t)body_bytes;
    }
    link->state[slot] = PS_RDMA_ASKED;
    link->failed = ps_rdma_end_write(&link->end, slot, part, lent ? 2 : 1) < 0;
    return link->failed ? -ECONNRESET : 0;
}

int ps_rdma_link_recv(struct ps_link *link, struct ps_message *m)
{
    if (link->n_arrived == 0 && !take_completions(link) && !link->failed &&
        (link->look || ++link->calls_in_vain >= LOOK_EVERY))
        look_at_connection(link);
    if (link->n_arrived == 0)
        return link->failed ? -ECONNRESET : -EAGAIN;
    const struct ps_rdma_arrival *a = &link->arrived[link->first];
    link->first = (link->first + 1) % link->end.mine.n;
    link->n_arrived--;
    link->held++;
    ps_rdma_message_fill(m, &link->end, a->imm, a->bytes);
    ((struct ps_rdma_kept *)m->storage)->link = link;
    return 0;
}

void ps_rdma_link_drop(struct ps_link *link, uint32_t slot)
{
    link->held--;
    if (!link->closed) {
        link->state[slot] = PS_RDMA_IDLE;
        link->idle[link->n_idle++] = slot;
    } else if (link->held == 0) {
        ps_rdma_link_free(link);
    }
}

static bool has_something(struct ps_link *link)
{
    take_completions(link);
    return link->n_arrived > 0 || link->failed;
}

static bool any_has_something(struct ps_link *const *links, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (links[i] != NULL && has_something(links[i]))
            return true;
    return false;
}

static void take_events(struct ps_link *link)
{
    struct ibv_cq *cq;
    void *owner;
    while (ibv_get_cq_event(link->completions, &cq, &owner) == 0)
        ps_rdma_end_event(&link->end);
}

/* Polls for a moment, then arms every link's queue and looks once more. True: one may be readable. */
static bool ready_before_sleep(struct ps_link *const *links, size_t n)
{
    uint64_t end = ps_now_us() + REST_US;
    do {
        if (any_has_something(links, n))
            return true;
    } while (ps_now_us() < end);
    for (size_t i = 0; i < n; i++)
        if (links[i] != NULL && !links[i]->failed)
            links[i]->failed = ps_rdma_end_arm(&links[i]->end) < 0;
    return any_has_something(links, n);
}

int ps_rdma_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms)
{
    struct pollfd fds[2 * MAX_LINKS + 1];
    struct ps_link *of[2 * MAX_LINKS + 1];
    nfds_t n_fds = 0;

    if (ready_before_sleep(links, n))
        return 0;
    for (size_t i = 0; i < n && n_fds < 2 * MAX_LINKS; i++)
        if (links[i] != NULL) {
            of[n_fds] = of[n_fds + 1] = links[i];
            fds[n_fds++] = (struct pollfd){.fd = links[i]->completions->fd, .events = POLLIN};
            fds[n_fds++] = (struct pollfd){.fd = links[i]->channel->fd, .events = POLLIN};
        }
    nfds_t n_link = n_fds;
    if (extra_fd >= 0)
        fds[n_fds++] = (struct pollfd){.fd = extra_fd, .events = POLLIN};
    int rc = ps_poll(fds, n_fds, timeout_ms);
    if (rc <= 0)
        return rc < 0 ? -errno : -ETIMEDOUT;
    for (nfds_t i = 0; i < n_link; i++) {
        if (fds[i].revents == 0)
            continue;
        take_events(of[i]);
        of[i]->look = of[i]->look || i % 2 == 1;
    }
    return 0;
}
