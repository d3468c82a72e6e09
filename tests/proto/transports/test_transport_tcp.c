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
    tcase_add_test(tc, malformed_part_counts_do_not_disturb);
    tcase_add_test(tc, half_written_messages_do_not_disturb);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
