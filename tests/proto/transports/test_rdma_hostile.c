/* Peers that do against a port of the rdma transport what the library never does. Each time the connection of
 * who did it ends; an honest client, and the memory of all others, are as before. Runs where PSD_RDMA_IP
 * names a device's address. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/transports/rdma/port.h"
#include "tests/proto/transports/rdma_fixture.h"

enum { RUDE = 1, HONEST = 2, VICTIM = 3, WAIT_S = 60 };

/* Posts `bytes` of the link's own memory; the link's view of the other end says where to. */
static void post(struct ps_link *l, uint32_t imm, uint32_t bytes)
{
    struct ibv_sge part = {(uintptr_t)l->out, bytes, l->out_mr->lkey};
    memset(l->out, 0x66, bytes);
    ck_assert_int_eq(ps_rdma_end_write(&l->end, imm, &part, 1), 0);
}

static void post_raw(struct ps_link *l, enum ibv_wr_opcode opcode)
{
    struct ibv_sge part = {(uintptr_t)l->end.slots, 64, l->end.mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.sg_list = &part, .num_sge = 1, .opcode = opcode, .wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = l->end.remote.address;
    wr.wr.rdma.rkey = l->end.remote.rkey;
    if (ibv_post_send(l->id->qp, &wr, &bad) == 0)
        l->end.sending++;
}

static void with_another_key(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    l->end.remote.rkey ^= 0x5500;
    post(l, 0, 100);
}

static void with_the_last_bits_of_the_key_changed(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    l->end.remote.rkey ^= 1;
    post(l, 0, 100);
}

static void behind_its_slots(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    l->end.remote.address += l->end.remote.n * l->end.remote.slot_bytes;
    post(l, 0, 100);
}

static void before_its_slots(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    l->end.remote.address -= 1;
    post(l, 0, 100);
}

static void over_the_end_of_its_slots(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    l->end.remote.address += l->end.remote.n * l->end.remote.slot_bytes - 99;
    post(l, 0, 100);
}

/* With the right key and address: keys are worth nothing in another protection domain. */
static void into_the_slots_of_another(struct ps_link *l, const struct ps_link *victim)
{
    l->end.remote = victim->end.remote;
    post(l, 0, 100);
}

static void at_the_keys_of_another_with_its_own_address(struct ps_link *l, const struct ps_link *victim)
{
    l->end.remote.rkey = victim->end.remote.rkey;
    post(l, 0, 100);
}

static void with_a_slot_number_out_of_range(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    uint64_t step = l->end.remote.slot_bytes;
    l->end.remote.slot_bytes = 0;
    post(l, l->end.remote.n, 100);
    l->end.remote.slot_bytes = step;
}

static void with_the_number_of_a_dropped_slot(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    post(l, PS_RDMA_DROPPED, 0);
}

static void with_half_a_header(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    post(l, 0, PS_FRAME_BYTES - 1);
}

static void with_nothing(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    post(l, 1, 0);
}

static void more_than_a_slot(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    post(l, 0, (uint32_t)l->end.remote.slot_bytes + 1);
}

/* While its first message is parked. */
static void into_a_slot_that_is_not_answered(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    rig_head(l->out, 1, RIG_PARK);
    struct ibv_sge part = {(uintptr_t)l->out, 100, l->out_mr->lkey};
    ck_assert_int_eq(ps_rdma_end_write(&l->end, 2, &part, 1), 0);
    unit_nap_ms(100);
    ck_assert_int_eq(ps_rdma_end_write(&l->end, 2, &part, 1), 0);
}

static void as_many_as_it_can(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    while (l->end.sending < l->end.depth)
        post(l, 3, 200);
}

static void a_send_in_place_of_a_write(struct ps_link *l, const struct ps_link *victim)
{
    (void)victim;
    post_raw(l, IBV_WR_SEND);
}

typedef void act_fn(struct ps_link *l, const struct ps_link *victim);
static act_fn *const acts[] = {
    with_another_key,
    with_the_last_bits_of_the_key_changed,
    behind_its_slots,
    before_its_slots,
    over_the_end_of_its_slots,
    into_the_slots_of_another,
    at_the_keys_of_another_with_its_own_address,
    with_a_slot_number_out_of_range,
    with_the_number_of_a_dropped_slot,
    with_half_a_header,
    with_nothing,
    more_than_a_slot,
    into_a_slot_that_is_not_answered,
    as_many_as_it_can,
    a_send_in_place_of_a_write,
};

/* Ends within the deadline, whatever answers come before. */
static void await_end(struct rig_client *c)
{
    double deadline = unit_now_s() + WAIT_S;
    struct ps_message m;
    int rc = 0;
    while (rc != -ECONNRESET && unit_now_s() < deadline) {
        rc = rig_client_recv(c, &m, 1000);
        if (rc == 0)
            rdma->message_drop(&m);
    }
    ck_assert_int_eq(rc, -ECONNRESET);
}

/* What the victim's first slot in the port holds; the port is in this process. */
static const unsigned char *slot_of(struct rig_port *p, uint32_t client, uint32_t slot)
{
    for (uint32_t i = 0; i < p->port->n_admitted; i++)
        if (p->port->admitted[i].pass.client == client && p->port->admitted[i].client != NULL)
            return ps_rdma_end_slot(&p->port->admitted[i].client->end, slot);
    ck_abort_msg("client %u is not attached", client);
}

START_TEST(its_connection_ends_and_nobody_elses)
{
    struct rig_port p;
    struct rig_client rude, honest, victim;
    unsigned char head[PS_FRAME_BYTES], kept[4096];
    struct ps_message m;
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    rig_client_open(&rude, RUDE, p.url, &rig_limits);
    rig_client_open(&honest, HONEST, p.url, &rig_limits);
    rig_client_open(&victim, VICTIM, p.url, &rig_limits);
    ck_assert_int_eq(rig_trip(&rude, 1, 1000), 0);
    ck_assert_int_eq(rig_trip(&victim, 1, 4000), 0);
    memset(kept, 0x77, sizeof kept);
    rig_head(head, 5, RIG_PARK); /* waits in its slot while all this happens */
    ck_assert_int_eq(rdma->link_send(victim.link, head, kept, sizeof kept), 0);
    while (p.n_parked == 0)
        unit_nap_ms(1);
    uint32_t slot = ps_rdma_kept_of(&p.parked[0])->slot;

    acts[_i](rude.link, victim.link);
    await_end(&rude);
    ck_assert_int_eq(rig_trip(&honest, 2, RIG_CHUNK), 0);
    for (uint32_t i = 0; i < RIG_WINDOW;
         i++) { /* no byte of the rude one is anywhere in the victim's slots */
        const unsigned char *at = slot_of(&p, VICTIM, i);
        for (size_t k = 0; k < 128; k++)
            assert_quick(at[k] != 0x66 || at[k + 1] != 0x66);
    }
    ck_assert_mem_eq(slot_of(&p, VICTIM, slot) + PS_FRAME_BYTES, kept, sizeof kept);
    p.release = true;
    ck_assert_int_eq(rig_client_recv(&victim, &m, RIG_PATIENCE_MS), 0);
    ck_assert_uint_eq(m.body[0], 0x78);
    rdma->message_drop(&m);
    rig_client_close(&rude);
    rig_client_open(&rude, RUDE, p.url, &rig_limits); /* it may come again */
    ck_assert_int_eq(rig_trip(&rude, 3, 1000), 0);
    rig_client_close(&rude);
    rig_client_close(&victim);
    rig_client_close(&honest);
    rig_port_close(&p);
}
END_TEST

/* Writes into its own slot while psd works there: what was checked may change, but only for itself. */
START_TEST(scribbling_over_its_own_message_harms_only_itself)
{
    struct rig_port p;
    struct rig_client rude, honest;
    unsigned char head[PS_FRAME_BYTES];
    struct ps_message m;
    static unsigned char body[RIG_CHUNK];
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    rig_client_open(&rude, RUDE, p.url, &rig_limits);
    rig_client_open(&honest, HONEST, p.url, &rig_limits);
    for (int i = 0; i < 50; i++) {
        rig_head(head, (uint64_t)i, RIG_ECHO);
        while (rdma->link_send(rude.link, head, body, sizeof body) == -EAGAIN)
            rdma->links_wait(&rude.link, 1, -1, 100);
        for (int k = 0; k < 2; k++)
            post_raw(rude.link, IBV_WR_RDMA_WRITE); /* over slot 0, header and all; tells nobody */
        ck_assert_int_eq(rig_client_recv(&rude, &m, RIG_PATIENCE_MS), 0);
        ck_assert_mem_eq(m.head, head, 8);
        rdma->message_drop(&m);
        ck_assert_int_eq(rig_trip(&honest, 1, 300), 0);
    }
    rig_client_close(&rude);
    rig_client_close(&honest);
    rig_port_close(&p);
}
END_TEST

/* A peer without the library, which asks for a connection with what it likes. */
struct raw {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
};

static enum rdma_cm_event_type raw_event(struct raw *r, void *data, size_t len)
{
    struct rdma_cm_event *event;
    ck_assert_int_eq(rdma_get_cm_event(r->channel, &event), 0);
    enum rdma_cm_event_type kind = event->event;
    if (len > 0 && event->param.conn.private_data_len >= len)
        memcpy(data, event->param.conn.private_data, len);
    rdma_ack_cm_event(event);
    return kind;
}

static void raw_ask(struct raw *r, const char *url, const void *data, size_t len)
{
    struct sockaddr_storage at;
    socklen_t size;
    struct ps_error err;
    struct rdma_conn_param param = {
        .private_data = data, .private_data_len = (uint8_t)len, .retry_count = 7, .initiator_depth = 1};
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    ck_assert_ptr_nonnull(r->channel = rdma_create_event_channel());
    ck_assert_int_eq(ps_rdma_resolve(url, false, &at, &size, &err), 0);
    ck_assert_int_eq(rdma_create_id(r->channel, &r->id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_resolve_addr(r->id, NULL, (struct sockaddr *)&at, WAIT_S * 1000), 0);
    ck_assert_int_eq(raw_event(r, NULL, 0), RDMA_CM_EVENT_ADDR_RESOLVED);
    ck_assert_int_eq(rdma_resolve_route(r->id, WAIT_S * 1000), 0);
    ck_assert_int_eq(raw_event(r, NULL, 0), RDMA_CM_EVENT_ROUTE_RESOLVED);
    ck_assert_int_eq(rdma_create_qp(r->id, NULL, &attr), 0);
    ck_assert_int_eq(rdma_connect(r->id, &param), 0);
}

static void raw_close(struct raw *r)
{
    rdma_destroy_qp(r->id);
    rdma_destroy_id(r->id);
    rdma_destroy_event_channel(r->channel);
}

static void raw_request(uint32_t client, unsigned char *data)
{
    struct ps_pass pass = rig_pass(client);
    struct ps_rdma_request r = {.client = client,
                                .incarnation = pass.incarnation,
                                .answers = {.n = 6, .slot_bytes = 4096, .address = 4096}};
    memcpy(r.token, pass.token, sizeof r.token);
    ps_rdma_request_pack(&r, data);
}

/* Connections that are never completed, and requests of garbage. */
START_TEST(half_open_connections_hold_up_nobody)
{
    enum { ASKED = 24 };
    struct rig_port p;
    struct rig_client honest, rude;
    struct raw raw[ASKED];
    unsigned char data[PS_RDMA_REQUEST_BYTES];
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    rig_client_open(&honest, HONEST, p.url, &rig_limits);
    for (int i = 0; i < ASKED; i++) {
        raw_request(RUDE, data);
        if (i % 3 == 1)
            memset(data, i, sizeof data); /* garbage */
        if (i % 3 == 2)
            data[20] ^= 1; /* a forged token */
        raw_ask(&raw[i], p.url, data, i % 4 == 3 ? 7 : sizeof data);
        ck_assert_int_eq(rig_trip(&honest, (uint64_t)i, 200), 0);
    }
    rig_client_open(&rude, RUDE, p.url, &rig_limits); /* takes the half-open one's place */
    ck_assert_int_eq(rig_trip(&rude, 1, 100), 0);
    ck_assert_uint_eq(p.port->n_admitted, RIG_CLIENTS);
    for (int i = 0; i < ASKED; i++)
        raw_close(&raw[i]);
    ck_assert_int_eq(rig_trip(&rude, 2, 100), 0);
    ck_assert_int_eq(rig_trip(&honest, 3, RIG_CHUNK), 0);
    rig_client_close(&rude);
    rig_client_close(&honest);
    rig_port_close(&p);
}
END_TEST

/* Who holds a pass may write to its slots; psd's memory is read by nobody, not even that. */
START_TEST(reads_are_refused)
{
    struct rig_port p;
    struct rig_client honest;
    struct raw r;
    struct ps_rdma_slots slots;
    static unsigned char mine[4096];
    unsigned char data[PS_RDMA_REQUEST_BYTES], answer[PS_RDMA_ACCEPT_BYTES];
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    rig_client_open(&honest, HONEST, p.url, &rig_limits);
    raw_request(RUDE, data);
    raw_ask(&r, p.url, data, sizeof data);
    ck_assert_int_eq(raw_event(&r, answer, sizeof answer), RDMA_CM_EVENT_ESTABLISHED);
    ck_assert_int_eq(ps_rdma_accept_parse(&slots, answer, sizeof answer, NULL), 0);
    struct ibv_mr *mr = ibv_reg_mr(r.id->pd, mine, sizeof mine, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_ptr_nonnull(mr);
    memset(mine, 0x55, sizeof mine);
    struct ibv_sge part = {(uintptr_t)mine, sizeof mine, mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &part,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = slots.address, .rkey = slots.rkey}};
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    ck_assert_int_eq(ibv_post_send(r.id->qp, &wr, &bad), 0);
    int n = 0;
    for (double end = unit_now_s() + 1; n == 0 && unit_now_s() < end;)
        n = ibv_poll_cq(r.id->send_cq, 1, &wc);
    ck_assert(n == 0 || wc.status != IBV_WC_SUCCESS);
    for (size_t i = 0; i < sizeof mine; i++)
        assert_quick(mine[i] == 0x55);
    ck_assert_int_eq(rig_trip(&honest, 1, 1000), 0);
    ibv_dereg_mr(mr);
    raw_close(&r);
    rig_client_close(&honest);
    rig_port_close(&p);
}
END_TEST

/* Who attaches again and again while its messages are parked does not hold more and more memory. */
START_TEST(parked_messages_of_old_connections_are_bounded)
{
    struct rig_port p;
    struct rig_client c;
    unsigned char head[PS_FRAME_BYTES];
    struct ps_error err = {""};
    int attached = 0, rc = 0;
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    for (; attached < 20 && rc == 0; attached += rc == 0) {
        rig_client_hub(&c, RUDE);
        if ((rc = rig_client_link(&c, p.url, &rig_limits, &err)) == 0) {
            rig_head(head, 1, RIG_PARK);
            ck_assert_int_eq(rdma->link_send(c.link, head, "abc", 3), 0);
            while (p.served <= attached)
                unit_nap_ms(1);
        }
        rig_client_close(&c);
    }
    ck_assert_int_eq(rc, -EBUSY);
    ck_assert_int_le(attached, 5);
    assert_says(err.text, "earlier connections are still in use");
    p.release = true;
    while (p.unreachable < attached)
        unit_nap_ms(1);
    rig_client_open(&c, RUDE, p.url, &rig_limits);
    ck_assert_int_eq(rig_trip(&c, 2, 100), 0);
    rig_client_close(&c);
    rig_port_close(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-rdma-hostile");
    TCase *tc = tcase_create("rdma");
    if (rig_address() == NULL) {
        puts("PSD_RDMA_IP is not set: no RDMA device to run on");
        return 77;
    }
    tcase_add_loop_test(tc, its_connection_ends_and_nobody_elses, 0, ROWS(acts));
    tcase_add_test(tc, scribbling_over_its_own_message_harms_only_itself);
    tcase_add_test(tc, half_open_connections_hold_up_nobody);
    tcase_add_test(tc, reads_are_refused);
    tcase_add_test(tc, parked_messages_of_old_connections_are_bounded);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
