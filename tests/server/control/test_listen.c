/* Where the control socket listens: as configured or, after a restart, where it listened before. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "server/psd.h"
#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

#define HOST "127.65.0.1"

static struct psd d;
static struct ps_error err;
static int rc;
static const char *before;
static atomic_int opening; /* threads in psd_control_open */

/* Another process's socket. *port: 0 for any, and then the one it has. */
static int listen_elsewhere(uint16_t *port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t size = sizeof a;
    ck_assert_int_eq(inet_pton(AF_INET, HOST, &a.sin_addr), 1);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static const char *url_of(uint16_t port)
{
    static char url[64];
    snprintf(url, sizeof url, "tcp://" HOST ":%u", port);
    return url;
}

static void begin(const char *listen)
{
    memset(&d, 0, sizeof d);
    psd_config_defaults(&d.cfg);
    snprintf(d.cfg.listen, sizeof d.cfg.listen, "%s", listen);
    psd_wire(&d);
    ck_assert_int_eq(uv_loop_init(&d.loop), 0);
}

static void end(void)
{
    psd_control_close(&d.control);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&d.loop), 0);
}

static void *open_control(void *arg)
{
    (void)arg;
    rc = psd_control_open(&d.control, before, &err);
    atomic_store(&opening, 0);
    return NULL;
}

/* In a thread of its own. It waits, for time to be advanced, since the address is taken. */
static pthread_t open_where_it_was(const char *url)
{
    pthread_t thread;
    before = url;
    atomic_store(&opening, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, open_control, NULL), 0);
    test_clock_await_waiters(1);
    return thread;
}

static int threads(void *arg)
{
    (void)arg;
    return atomic_load(&opening);
}

static void drive_to_the_end(pthread_t thread)
{
    test_clock_drive(threads, NULL);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(psd_listens_again_where_it_did)
{
    char url[sizeof d.control.url];
    begin("tcp://" HOST ":0");
    ck_assert_msg(psd_control_open(&d.control, "", &err) == 0, "%s", err.text);
    snprintf(url, sizeof url, "%s", d.control.url);
    end();
    begin("tcp://" HOST ":0");
    ck_assert_msg(psd_control_open(&d.control, url, &err) == 0, "%s", err.text);
    ck_assert_str_eq(d.control.url, url);
    end();
}
END_TEST

START_TEST(an_address_that_is_taken_for_a_moment_is_waited_for)
{
    uint16_t port = 0;
    int fd = listen_elsewhere(&port);
    begin("tcp://" HOST ":0");
    pthread_t thread = open_where_it_was(url_of(port));
    test_clock_advance_ms(1000);
    test_clock_await_waiters(1); /* looks again */
    close(fd);
    drive_to_the_end(thread);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_str_eq(d.control.url, url_of(port));
    end();
}
END_TEST

/* Another process got the port from the kernel while psd restarted. */
START_TEST(an_address_that_stays_taken_gives_way_to_the_configured_one)
{
    uint16_t port = 0;
    int fd = listen_elsewhere(&port);
    begin("tcp://" HOST ":0");
    pthread_t thread = open_where_it_was(url_of(port));
    drive_to_the_end(thread);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_str_ne(d.control.url, url_of(port));
    ck_assert_int_eq(strncmp(d.control.url, "tcp://" HOST ":", strlen("tcp://" HOST ":")), 0);
    end();
    close(fd);
}
END_TEST

START_TEST(a_configured_address_that_stays_taken_is_an_error)
{
    uint16_t port = 0;
    char wanted[200];
    int fd = listen_elsewhere(&port);
    begin(url_of(port));
    pthread_t thread = open_where_it_was(url_of(port));
    drive_to_the_end(thread);
    ck_assert_int_eq(rc, -EADDRINUSE);
    snprintf(wanted, sizeof wanted, "cannot listen on %s: Address already in use", url_of(port));
    ck_assert_str_eq(err.text, wanted);
    end();
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-listen");
    TCase *tc = tcase_create("listen");
    tcase_add_test(tc, psd_listens_again_where_it_did);
    tcase_add_test(tc, an_address_that_is_taken_for_a_moment_is_waited_for);
    tcase_add_test(tc, an_address_that_stays_taken_gives_way_to_the_configured_one);
    tcase_add_test(tc, a_configured_address_that_stays_taken_is_an_error);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
