#include "tests/proto/transports/rdma_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

const char *rig_address(void)
{
    return getenv("PSD_RDMA_IP");
}

struct ps_pass rig_pass(uint32_t client)
{
    struct ps_pass pass = {.client = client, .incarnation = client + 1, .identity = client + 100};
    for (uint32_t i = 0; i < PS_PASS_TOKEN_BYTES; i++)
        pass.token[i] = (unsigned char)(client * 31 + i * 7 + 1);
    return pass;
}

void rig_port_open(struct rig_port *p, const char *url, const struct ps_transport_limits *limits)
{
    struct ps_error err = {""};
    char any[64];
    *p = (struct rig_port){.stop = false};
    snprintf(any, sizeof any, "rdma://%s:0", rig_address());
    ck_assert_int_eq(rdma->hub_create(1, &p->hub), 0);
    int rc = rdma->port_open(p->hub, url != NULL ? url : any, limits, &p->port, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    snprintf(p->url, sizeof p->url, "%s", rdma->port_url(p->port));
    for (uint32_t i = 0; i < limits->clients; i++) {
        struct ps_pass pass = rig_pass(i);
        ck_assert_int_eq(rdma->port_admit(p->port, &pass), 0);
    }
}

static void answer(struct rig_port *p, struct ps_message *m)
{
    for (size_t i = 0; i < m->body_bytes; i++)
        m->body[i]++;
    int rc = rdma->port_reply(p->port, m);
    atomic_fetch_add(&p->unreachable, rc == -EHOSTUNREACH);
}

static void take_message(struct rig_port *p, struct ps_message *m)
{
    atomic_fetch_add(&p->served, 1);
    if (m->head[16] == RIG_STOP)
        atomic_store(&p->stop, true);
    if (m->head[16] != RIG_PARK || p->n_parked == (int)ROWS(p->parked)) {
        answer(p, m);
        return;
    }
    rdma->message_move(&p->parked[p->n_parked], m);
    p->n_parked++;
}

void rig_port_serve(struct rig_port *p)
{
    struct pollfd fd = {.fd = rdma->port_fd(p->port), .events = POLLIN};
    struct ps_message m;
    while (!atomic_load(&p->stop)) {
        while (rdma->port_recv(p->port, &m) == 0)
            take_message(p, &m);
        if (atomic_exchange(&p->release, false))
            while (p->n_parked > 0)
                answer(p, &p->parked[--p->n_parked]);
        if (!rdma->port_rest(p->port))
            poll(&fd, 1, 20);
    }
}

static void *serve(void *arg)
{
    rig_port_serve(arg);
    return NULL;
}

void rig_port_start(struct rig_port *p)
{
    ck_assert_int_eq(pthread_create(&p->thread, NULL, serve, p), 0);
}

void rig_port_close(struct rig_port *p)
{
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    while (p->n_parked > 0)
        rdma->message_drop(&p->parked[--p->n_parked]);
    rdma->port_close(p->port);
    rdma->hub_destroy(p->hub);
}

void rig_client_hub(struct rig_client *c, uint32_t client)
{
    struct ps_pass pass = rig_pass(client);
    *c = (struct rig_client){NULL, NULL};
    ck_assert_int_eq(rdma->hub_create(1, &c->hub), 0);
    rdma->hub_pass(c->hub, &pass);
}

int rig_client_link(struct rig_client *c, const char *url, const struct ps_transport_limits *l,
                    struct ps_error *err)
{
    double deadline = unit_now_s() + RIG_PATIENCE_MS / 1e3;
    int rc;
    while ((rc = rdma->link_open(c->hub, url, l, &c->link, err)) == -ETIMEDOUT && unit_now_s() < deadline)
        ;
    return rc;
}

void rig_client_open(struct rig_client *c, uint32_t client, const char *url,
                     const struct ps_transport_limits *l)
{
    struct ps_error err = {""};
    rig_client_hub(c, client);
    int rc = rig_client_link(c, url, l, &err);
    ck_assert_msg(rc == 0, "client %u: %s", client, err.text);
}

void rig_client_close(struct rig_client *c)
{
    rdma->link_close(c->link);
    rdma->hub_destroy(c->hub);
}

int rig_client_recv(struct rig_client *c, struct ps_message *m, int patience_ms)
{
    double deadline = unit_now_s() + patience_ms / 1e3;
    int rc;
    while ((rc = rdma->link_recv(c->link, m)) == -EAGAIN) {
        double left_ms = (deadline - unit_now_s()) * 1e3;
        if (left_ms <= 0)
            return -ETIMEDOUT;
        rdma->links_wait(&c->link, 1, -1, (int)left_ms + 1);
    }
    return rc;
}

void rig_head(unsigned char *head, uint64_t number, uint32_t act)
{
    memset(head, 0xaa, PS_FRAME_BYTES);
    memcpy(head + 8, &number, sizeof number);
    memcpy(head + 16, &act, sizeof act);
}

int rig_trip(struct rig_client *c, uint64_t number, size_t len)
{
    unsigned char head[PS_FRAME_BYTES], *body = malloc(len + 1);
    struct ps_message m;
    assert_quick(body != NULL);
    for (size_t i = 0; i < len; i++)
        body[i] = (unsigned char)(i * 7 + number);
    rig_head(head, number, RIG_ECHO);
    int rc = rdma->link_send(c->link, head, len > 0 ? body : NULL, len);
    if (rc == 0)
        rc = rig_client_recv(c, &m, RIG_PATIENCE_MS);
    if (rc == 0) {
        assert_quick(m.head_bytes == PS_FRAME_BYTES && memcmp(m.head, head, PS_FRAME_BYTES) == 0);
        assert_quick(m.body_bytes == len);
        for (size_t i = 0; i < len; i++)
            assert_quick(m.body[i] == (unsigned char)(i * 7 + number + 1));
        rdma->message_drop(&m);
    }
    free(body);
    return rc;
}
