/* What only the row ipc has: files of sockets, and peers that speak to them by hand. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/proto/transports/transport_fixture.h"

static void raw_file(char *path, size_t size)
{
    rig_any_url(ps_transport_find("ipc"), path, size);
    memmove(path, path + strlen("ipc://"), strlen(path + strlen("ipc://")) + 1);
}

START_TEST(ipc_sockets_are_private_and_removed)
{
    const struct ps_transport *t = ps_transport_find("ipc");
    struct rig_server s, second = {.t = t};
    struct ps_error err;
    struct stat st;
    char url[64];

    rig_any_url(t, url, sizeof url);
    rig_server_open(&s, t, url, NULL, NULL);
    const char *path = s.url + strlen("ipc://");
    ck_assert_str_eq(s.url, url);
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    /* A live one is not taken. */
    ck_assert_int_eq(t->hub_create(1, &second.hub), 0);
    ck_assert_int_eq(t->port_open(second.hub, url, &rig_limits, &second.port, &err), -EADDRINUSE);
    assert_says(err.text, path);
    assert_says(err.text, "in use by another process");
    t->hub_destroy(second.hub);
    ck_assert_int_eq(lstat(path, &st), 0);
    rig_server_close(&s);
    ck_assert_int_eq(lstat(path, &st), -1);
}
END_TEST

START_TEST(ipc_replaces_a_stale_socket_and_no_other_file)
{
    const struct ps_transport *t = ps_transport_find("ipc");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct rig_server s;
    struct rig_client c;
    struct ps_error err;
    char url[120];

    raw_file(at.sun_path, sizeof at.sun_path);
    snprintf(url, sizeof url, "ipc://%s", at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd); /* as a killed psd leaves it */
    ck_assert_int_eq(access(at.sun_path, F_OK), 0);
    rig_server_open(&s, t, url, NULL, NULL);
    rig_client_open(&c, t, url, 0);
    rig_trip(&c, 1, 100);
    rig_client_close(&c);
    rig_server_close(&s);

    fd = open(at.sun_path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    s = (struct rig_server){.t = t};
    ck_assert_int_eq(t->hub_create(1, &s.hub), 0);
    ck_assert_int_eq(t->port_open(s.hub, url, &rig_limits, &s.port, &err), -EEXIST);
    assert_says(err.text, "a file that is not a socket is there");
    t->hub_destroy(s.hub);
    ck_assert_int_eq(unlink(at.sun_path), 0);
}
END_TEST

START_TEST(lanes_listen_beside_the_control_road)
{
    char url[64];
    ps_transport_find("ipc")->lane_url("ipc:///run/psd/x.sock", 63, url, sizeof url);
    ck_assert_str_eq(url, "ipc:///run/psd/x.sock.63");
}
END_TEST

/* A greeting, and pieces of frames, cut off anywhere: nobody else hears of it. */
START_TEST(half_written_messages_do_not_disturb)
{
    /* ZMTP 3.1's greeting (NULL mechanism), its READY command of a DEALER, and the first byte of a frame of
     * 100 bytes. */
    static const unsigned char bytes[] = "\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                         "\4\x1c\5READY\xbSocket-Type\0\0\0\6DEALER"
                                         "\1\x64half";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct rig_server s;
    struct rig_client honest;
    rig_server_open(&s, ps_transport_find("ipc"), NULL, NULL, NULL);
    rig_client_open(&honest, s.t, s.url, 0);
    strcpy(at.sun_path, s.url + strlen("ipc://"));
    for (size_t len = 0; len < sizeof bytes; len += 3) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
        ck_assert_int_eq((int)send(fd, bytes, len, MSG_NOSIGNAL), (int)len);
        rig_trip(&honest, len, 1000);
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
    Suite *suite = suite_create("proto-transport-ipc");
    TCase *tc = tcase_create("ipc");
    tcase_add_test(tc, ipc_sockets_are_private_and_removed);
    tcase_add_test(tc, ipc_replaces_a_stale_socket_and_no_other_file);
    tcase_add_test(tc, lanes_listen_beside_the_control_road);
    tcase_add_test(tc, half_written_messages_do_not_disturb);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
