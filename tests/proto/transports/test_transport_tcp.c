/* What only the row tcp has: raw sockets, which say what no link would. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <zmq.h>

#include "tests/proto/transports/transport_fixture.h"

START_TEST(lanes_take_any_port_of_the_control_roads_host)
{
    char url[64];
    ps_transport_find("tcp")->lane_url("tcp://[::1]:5555", 1, url, sizeof url);
    ck_assert_str_eq(url, "tcp://[::1]:*");
}
END_TEST

/* One message to a lane that listens at `url`, from a link to `host` or, if that is NULL, to where the lane
 * says it listens. */
static void assert_reached(const char *url, const char *host)
{
    struct rig_server s;
    struct rig_client c;
    char at[320];
    rig_server_open(&s, ps_transport_find("tcp"), url, NULL, NULL);
    snprintf(at, sizeof at, "%s", s.url);
    if (host != NULL)
        snprintf(at, sizeof at, "tcp://%s%s", host, strrchr(s.url, ':'));
    rig_client_open(&c, s.t, at, 0);
    rig_trip(&c, 1, 1000);
    rig_client_close(&c);
    rig_server_close(&s);
}

START_TEST(lanes_listen_at_names_and_interfaces)
{
    assert_reached("tcp://localhost:*", NULL);
    assert_reached("tcp://localhost:*", "localhost");
    assert_reached("tcp://LocalHost:0", "127.0.0.1");
    assert_reached("tcp://lo:*", "127.0.0.1");
    assert_reached("tcp://*:*", "localhost");
}
END_TEST

START_TEST(lanes_listen_at_ipv6_addresses_in_brackets)
{
    if (!unit_has_ipv6("a lane at an IPv6 address"))
        return;
    assert_reached("tcp://[::1]:*", NULL);
    assert_reached("tcp://[::]:*", "[::1]");
    assert_reached("tcp://[::]:*", "localhost"); /* which a link looks up as IPv4 */
}
END_TEST

START_TEST(a_host_that_is_none_is_refused)
{
    struct ps_error err;
    struct rig_server s = {.t = ps_transport_find("tcp")};
    ck_assert_int_eq(s.t->hub_create(1, &s.hub), 0);
    ck_assert_int_eq(s.t->port_open(s.hub, "tcp://no-such-host.invalid:*", &rig_limits, &s.port, &err),
                     -ENODEV);
    assert_says(err.text, "cannot listen on tcp://no-such-host.invalid:*: its host does not resolve");
    s.t->hub_destroy(s.hub);
}
END_TEST

/* Messages of another number of parts, over a raw socket. Each is answered, and the next one is read whole.
 */
START_TEST(malformed_part_counts_do_not_disturb)
{
    struct rig_server s;
    struct rig_client honest;
    void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_DEALER);
    int zero = 0, patience = PATIENCE_MS;
    unsigned char head[PS_FRAME_BYTES] = {1}, buffer[256];

    rig_server_open(&s, ps_transport_find("tcp"), NULL, NULL, NULL);
    rig_client_open(&honest, s.t, s.url, 0);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_RCVTIMEO, &patience, sizeof patience);
    ck_assert_int_eq(zmq_connect(raw, s.url), 0);
    for (int parts = 1; parts <= 6; parts++)
        for (size_t len = 0; len <= sizeof head; len += 32) {
            for (int i = 0; i < parts; i++)
                ck_assert_int_ge(zmq_send(raw, head, i == 0 ? len : 5, i + 1 < parts ? ZMQ_SNDMORE : 0), 0);
            int head_bytes = zmq_recv(raw, buffer, sizeof buffer, 0);
            ck_assert_int_eq(head_bytes, parts == 2 ? (int)len : PS_FRAME_BYTES);
            int body_bytes = zmq_recv(raw, buffer, sizeof buffer, 0);
            ck_assert_int_eq(body_bytes, parts == 2 ? 5 : 3);
            int more;
            size_t size = sizeof more;
            zmq_getsockopt(raw, ZMQ_RCVMORE, &more, &size);
            ck_assert_int_eq(more, 0);
            rig_trip(&honest, (uint64_t)parts, 77);
        }
    ck_assert_int_eq(s.malformed, 5 * 3);
    zmq_close(raw);
    zmq_ctx_term(context);
    rig_client_close(&honest);
    rig_server_close(&s);
}
END_TEST

/* Half a greeting, half a header, half a body, then silence or a reset. */
START_TEST(half_written_messages_do_not_disturb)
{
    static const unsigned char greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L'};
    static const unsigned char ready[] = "\4\x1c\5READY\xbSocket-Type\0\0\0\6DEALER";
    static const unsigned char head[] = {1, PS_FRAME_BYTES, 0xaa}; /* more parts follow; one byte of it */
    struct rig_server s;
    struct rig_client honest;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned char bytes[sizeof greeting + sizeof ready + sizeof head];

    memcpy(bytes, greeting, sizeof greeting);
    memcpy(bytes + sizeof greeting, ready, sizeof ready - 1);
    memcpy(bytes + sizeof greeting + sizeof ready - 1, head, sizeof head);
    rig_server_open(&s, ps_transport_find("tcp"), NULL, NULL, NULL);
    rig_client_open(&honest, s.t, s.url, 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(s.url, ':') + 1));
    for (size_t len = 0; len < sizeof bytes; len += 3) {
        const struct linger reset = {1, 0};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
        ck_assert_int_eq((int)send(fd, bytes, len, MSG_NOSIGNAL), (int)len);
        rig_trip(&honest, len, 1000);
        if (len % 2 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
        rig_trip(&honest, len, 1000);
    }
    ck_assert_int_eq(s.malformed, 0);
    rig_client_close(&honest);
    rig_server_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-transport-tcp");
    TCase *tc = tcase_create("tcp");
    tcase_add_test(tc, lanes_take_any_port_of_the_control_roads_host);
    tcase_add_test(tc, lanes_listen_at_names_and_interfaces);
    tcase_add_test(tc, lanes_listen_at_ipv6_addresses_in_brackets);
    tcase_add_test(tc, a_host_that_is_none_is_refused);
    tcase_add_test(tc, malformed_part_counts_do_not_disturb);
    tcase_add_test(tc, half_written_messages_do_not_disturb);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
