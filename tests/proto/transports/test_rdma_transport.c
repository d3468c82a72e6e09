/* The transport of RDMA on a device: what proto/transports/transport.h promises, and what only this transport
 * has. Runs where PSD_RDMA_IP names a device's address, as in the guests of tests/system/rdma.sh. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proto/transports/rdma_fixture.h"

/* Bodies in lent buffers of both kinds, at their ends, and beside them; answers are those of copied ones. */
START_TEST(lent_buffers_are_sent_from)
{
    enum { BYTES = 1 << 20, CHUNK = 60000 };
    struct rig_port p;
    struct rig_client c;
    struct ps_buffer shared, host = {PS_BUFFER_HOST, malloc(BYTES), BYTES, -1};
    struct ps_buffer device = {PS_BUFFER_DEVICE, NULL, BYTES, -1};
    struct ps_error err = {""};
    struct ps_message m;
    unsigned char head[PS_FRAME_BYTES];
    ck_assert_ptr_nonnull(host.base);
    ck_assert_int_eq(ps_buffer_alloc(BYTES, &shared, &err), 0);
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    rig_client_hub(&c, 9);
    ck_assert_int_eq(rdma->hub_register(c.hub, &device, &err), -ENOTSUP);
    ck_assert_int_eq(rdma->hub_register(c.hub, &shared, &err), 0);
    ck_assert_int_eq(rdma->hub_register(c.hub, &host, &err), 0);
    ck_assert_int_eq(rig_client_link(&c, p.url, &rig_limits, &err), 0);
    ck_assert_uint_eq(c.link->registered.n, 2);
    unsigned char *bases[] = {shared.base, host.base};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < BYTES; i++)
            bases[k][i] = (unsigned char)(i * 13 + i / 251);
        for (size_t at = 0; at < BYTES; at += CHUNK) {
            size_t len = BYTES - at < CHUNK ? BYTES - at : CHUNK;
            rig_head(head, at, RIG_ECHO);
            ck_assert_int_eq(rdma->link_send(c.link, head, bases[k] + at, len), 0);
            ck_assert_int_eq(rig_client_recv(&c, &m, RIG_PATIENCE_MS), 0);
            ck_assert_uint_eq(m.body_bytes, len);
            for (size_t i = 0; i < len; i++)
                assert_quick(m.body[i] == (unsigned char)(bases[k][at + i] + 1));
            rdma->message_drop(&m);
        }
    }
    uint32_t lkey;
    ck_assert(!ps_rdma_registered_covers(&c.link->registered, bases[1] + BYTES - 10, 11, &lkey));
    ck_assert(!ps_rdma_registered_covers(&c.link->registered, bases[1] - 1, 10, &lkey));
    ck_assert(ps_rdma_registered_covers(&c.link->registered, bases[1] + BYTES - 10, 10, &lkey));
    for (int i = 1; i < PS_MAX_BUFFERS - 1; i++)
        ck_assert_int_eq(rdma->hub_register(c.hub, &host, &err), 0);
    ck_assert_int_eq(rdma->hub_register(c.hub, &host, &err), -ENOSPC);
    rig_client_close(&c);
    rig_port_close(&p);
    ps_buffer_free(&shared);
    free(host.base);
}
END_TEST

START_TEST(large_bodies_are_exact)
{
    struct ps_transport_limits large = {.max_body_bytes = (7u << 20) + 12, .window_chunks = 1, .clients = 2};
    struct rig_port p;
    struct rig_client c;
    rig_port_open(&p, NULL, &large);
    rig_port_start(&p);
    rig_client_open(&c, 1, p.url, &large);
    ck_assert_int_eq(rig_trip(&c, 1, large.max_body_bytes), 0);
    ck_assert_int_eq(rig_trip(&c, 2, large.max_body_bytes - 1), 0);
    rig_client_close(&c);
    rig_port_close(&p);
}
END_TEST

/* Its writes are cut anywhere; the others, and the port, go on. */
START_TEST(clients_killed_mid_write_harm_nobody)
{
    enum { KILLS = 10 };
    struct dice dice = {4};
    struct rig_port p;
    struct rig_client honest;
    pid_t victims[KILLS];
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    for (int i = 0; i < KILLS; i++)
        if ((victims[i] = fork()) == 0) { /* before this process has anything to do with RDMA */
            struct rig_client c;
            char url[300];
            if (read(fds[0], url, sizeof url) != (ssize_t)sizeof url)
                _exit(1);
            rig_client_open(&c, (uint32_t)i + 10, url, &rig_limits);
            for (uint64_t n = 0;; n++)
                rig_trip(&c, n, RIG_CHUNK);
        }
    rig_port_open(&p, NULL, &rig_limits);
    rig_port_start(&p);
    rig_client_open(&honest, 1, p.url, &rig_limits);
    for (int i = 0; i < KILLS; i++)
        ck_assert_int_eq((int)write(fds[1], p.url, sizeof p.url), (int)sizeof p.url);
    for (int i = 0; i < KILLS; i++) {
        for (int before = p.served; p.served < before + 20;)
            ck_assert_int_eq(rig_trip(&honest, 1, 500), 0);
        unit_nap_ms((long)dice_below(&dice, 30));
        kill(victims[i], SIGKILL);
        ck_assert_int_eq(rig_trip(&honest, 2, RIG_CHUNK), 0);
    }
    for (int i = 0; i < KILLS; i++)
        waitpid(victims[i], NULL, 0);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(rig_trip(&honest, 3, RIG_CHUNK), 0);
    struct rig_client again; /* of a client that was killed */
    rig_client_open(&again, 10, p.url, &rig_limits);
    ck_assert_int_eq(rig_trip(&again, 4, RIG_CHUNK), 0);
    rig_client_close(&again);
    rig_client_close(&honest);
    rig_port_close(&p);
}
END_TEST

START_TEST(links_say_why_they_cannot_attach)
{
    struct rig_port p;
    struct rig_client c;
    struct ps_error err = {""};
    char url[100];
    rig_port_open(&p, NULL, &rig_limits);
    rig_client_hub(&c, 7); /* nobody serves the port until link_open has returned */
    ck_assert_int_eq(rdma->link_open(c.hub, p.url, &rig_limits, &c.link, &err), -ETIMEDOUT);
    assert_says(err.text, "did not answer within");
    snprintf(url, sizeof url, "rdma://%s:9", rig_address());
    ck_assert_int_eq(rig_client_link(&c, url, &rig_limits, &err), -EHOSTUNREACH);
    assert_says(err.text, "no process listens at");
    rig_port_start(&p);
    ck_assert_int_eq(rig_client_link(&c, p.url, &rig_limits, &err), 0);
    ck_assert_int_eq(rig_trip(&c, 1, 100), 0);
    rig_client_close(&c);
    rig_port_close(&p);
}
END_TEST

START_TEST(every_interface_is_listened_at)
{
    struct rig_port p;
    struct rig_client c;
    char url[100];
    rig_port_open(&p, "rdma://0.0.0.0:0", &rig_limits);
    assert_says(p.url, "rdma://0.0.0.0:");
    rig_port_start(&p);
    snprintf(url, sizeof url, "rdma://%s%s", rig_address(), strrchr(p.url, ':'));
    rig_client_open(&c, 8, url, &rig_limits);
    ck_assert_int_eq(rig_trip(&c, 1, 100), 0);
    rig_client_close(&c);
    rig_port_close(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-rdma-road");
    TCase *tc = tcase_create("rdma");
    if (rig_address() == NULL) {
        puts("PSD_RDMA_IP is not set: no RDMA device to run on");
        return 77;
    }
    tcase_add_test(tc, lent_buffers_are_sent_from);
    tcase_add_test(tc, large_bodies_are_exact);
    tcase_add_test(tc, clients_killed_mid_write_harm_nobody);
    tcase_add_test(tc, links_say_why_they_cannot_attach);
    tcase_add_test(tc, every_interface_is_listened_at);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
