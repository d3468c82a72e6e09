/* The rdma transport between two machines: test_rdma_pair NODE PEER, run on both. Node 1 has the port. Node 2
 * has three clients, whose messages come back exact and in order whatever the wire loses, and one that is
 * killed while it writes. PSD_RDMA_IP: this node's address. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proto/transports/rdma_fixture.h"

enum { PORT = 18515, CLIENTS = 3, ROUNDS = 60, VICTIM = 7, START_S = 60 };

static int be_the_port(void)
{
    struct rig_port p;
    char url[100];
    snprintf(url, sizeof url, "rdma://%s:%d", rig_address(), PORT);
    rig_port_open(&p, url, &rig_limits);
    rig_port_serve(&p); /* until it is told to stop */
    printf("port: %d messages, %d answers to nobody\n", p.served, p.unreachable);
    rdma->port_close(p.port);
    rdma->hub_destroy(p.hub);
    return 0;
}

/* The other machine may still be booting. */
static void open_patiently(struct rig_client *c, uint32_t client, const char *url)
{
    struct ps_error err = {""};
    double end = unit_now_s() + START_S;
    int rc;
    rig_client_hub(c, client);
    while ((rc = rdma->link_open(c->hub, url, &rig_limits, &c->link, &err)) < 0 && unit_now_s() < end)
        unit_nap_ms(200);
    ck_assert_msg(rc == 0, "%s", err.text);
}

static pid_t fork_victim(const char *url)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct rig_client c;
    open_patiently(&c, VICTIM, url);
    for (uint64_t n = 0;; n++)
        rig_trip(&c, n, RIG_CHUNK);
}

static void send_and_check(struct rig_client *c, uint64_t round)
{
    static unsigned char bodies[RIG_WINDOW][RIG_CHUNK];
    unsigned char head[PS_FRAME_BYTES];
    struct ps_message m;
    for (uint64_t k = 0; k < RIG_WINDOW; k++) {
        size_t len = (size_t)((round * 7919 + k * 104729) % RIG_CHUNK);
        for (size_t i = 0; i < len; i++)
            bodies[k][i] = (unsigned char)(i * 3 + round + k);
        rig_head(head, round * RIG_WINDOW + k, RIG_ECHO);
        ck_assert_int_eq(rdma->link_send(c->link, head, bodies[k], len), 0);
    }
    for (uint64_t k = 0; k < RIG_WINDOW; k++) {
        uint64_t number = round * RIG_WINDOW + k;
        ck_assert_int_eq(rig_client_recv(c, &m, RIG_PATIENCE_MS), 0);
        ck_assert_mem_eq(m.head + 8, &number, sizeof number);
        ck_assert_uint_eq(m.body_bytes, (round * 7919 + k * 104729) % RIG_CHUNK);
        for (size_t i = 0; i < m.body_bytes; i++)
            assert_quick(m.body[i] == (unsigned char)(i * 3 + round + k + 1));
        rdma->message_drop(&m);
    }
}

static int be_the_links(const char *peer)
{
    struct rig_client c[CLIENTS];
    unsigned char head[PS_FRAME_BYTES];
    struct ps_message m;
    char url[100];
    snprintf(url, sizeof url, "rdma://%s:%d", peer, PORT);
    pid_t victim = fork_victim(url);
    for (uint32_t i = 0; i < CLIENTS; i++)
        open_patiently(&c[i], i, url);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++)
            send_and_check(&c[i], round);
        if (round == ROUNDS / 2)
            kill(victim, SIGKILL);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(victim, &status, 0), victim);
    ck_assert(WIFSIGNALED(status)); /* it did not end by itself */
    rig_head(head, 0, RIG_STOP);
    ck_assert_int_eq(rdma->link_send(c[0].link, head, NULL, 0), 0);
    ck_assert_int_eq(rig_client_recv(&c[0], &m, RIG_PATIENCE_MS), 0);
    rdma->message_drop(&m);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_client_close(&c[i]);
    printf("links: %d messages came back exact\n", CLIENTS * ROUNDS * RIG_WINDOW);
    return 0;
}

static const char *peer;
static int node;

START_TEST(messages_come_back_exact)
{
    if (node == 1)
        be_the_port();
    else
        be_the_links(peer);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("rdma-pair");
    TCase *tc = tcase_create("pair");
    if (argc != 3 || rig_address() == NULL)
        return 2;
    node = atoi(argv[1]);
    peer = argv[2];
    tcase_add_test(tc, messages_come_back_exact);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
