/* Peers that are half there: connections whose far end has gone without a word, readers that are slow, and
 * too few descriptors for all who come. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/system/security/hostile_fixture.h"
#include "tests/system/faults/timelapse.h"

enum { WAIT_S = 60, DESCRIPTORS = 96, CROWD = 200, MOST = 256 };

static int connect_to(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Every TCP socket of the process is put into repair: it is closed without a packet, as if the machine had
 * lost its power. False where that is not allowed. */
static bool pull_the_plug(struct crew_worker *w)
{
    int taken[MOST], n = 0, on = 1;
    int process = (int)syscall(SYS_pidfd_open, w->pid, 0);
    crew_signal(w, SIGSTOP);
    for (int fd = 3; fd < MOST; fd++) {
        int copy = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
        if (copy >= 0 && setsockopt(copy, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) == 0)
            taken[n++] = copy;
        else if (copy >= 0)
            close(copy);
    }
    crew_kill(w);
    for (int i = 0; i < n; i++)
        close(taken[i]);
    close(process);
    return n > 0;
}

static void start_worker(const struct siege *s, struct crew_worker *w, int32_t rank)
{
    struct crew_task task = {
        .server = s->d.endpoint, .rank = rank, .floats = SIEGE_FLOATS, .heartbeat_ms = 300};
    crew_start(w, &task);
    ck_assert_msg(crew_reaches(w, 3, WAIT_S), "%s", w->page->error);
}

/* Only silence tells of it; then its rank is free. Until then the others go on as if nothing had been. */
START_TEST(a_peer_without_power_is_given_up_after_silence)
{
    struct siege s;
    struct crew_worker lost, heir;
    static const char *const silence[] = {TIMELAPSE_SILENCE, NULL};
    siege_prepare(&s, silence);
    struct shim_page *page = timelapse_prepare(&s.d);
    s.heartbeat_ms = 50;
    siege_begin(&s);
    shim_unset();
    start_worker(&s, &lost, 1);
    if (!pull_the_plug(&lost))
        fprintf(stderr, "a_peer_without_power: its sockets were closed in the usual way\n");
    ck_assert(crew_reaches(&s.honest, s.honest.page->exchanges + 100, WAIT_S));
    ck_assert_double_eq(daemon_workers(&s.d), 2); /* it is in the job still */
    timelapse_until_given_up(&s.d, page, (const int[]){0}, 1);
    siege_holds(&s);
    start_worker(&s, &heir, 1);
    ck_assert_int_eq(heir.page->rank, 1);
    ck_assert(crew_stop(&heir, WAIT_S));
    ck_assert_int_eq(heir.page->rc, PSC_OK);
    siege_holds(&s);
    ck_assert(crew_stop(&s.honest, WAIT_S));
    ck_assert_int_eq(s.honest.page->rc, PSC_OK);
    daemon_remove(&s.d);
}
END_TEST

/* Connections that say nothing, or half a greeting, on every port. */
START_TEST(connections_that_say_nothing_cost_nothing)
{
    struct siege s;
    uint16_t ports[1 + SIEGE_LANES];
    int fds[60];
    siege_start(&s);
    siege_ports(&s, ports);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        fds[i] = connect_to(ports[i % (1 + SIEGE_LANES)]);
        ck_assert_int_ge(fds[i], 0);
    }
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i += 2) {
        ck_assert_int_eq(poll(&(struct pollfd){.fd = fds[i], .events = POLLOUT}, 1, WAIT_S * 1000), 1);
        ck_assert_int_eq(write(fds[i], "\xff\0\0\0\0\0\0\0\1\x7f\3", 11 - (i % 11)), 11 - (int)(i % 11));
    }
    siege_holds(&s);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close(fds[i]);
    siege_end(&s);
}
END_TEST

static int descriptors_of(pid_t pid)
{
    char path[40];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    while (folder != NULL && readdir(folder) != NULL)
        n++;
    if (folder != NULL)
        closedir(folder);
    return n - 2; /* . and .. */
}

/* More connections than psd has descriptors for: who is in the job goes on undisturbed; when the crowd has
 * gone, newcomers get in and checkpoints are written. */
START_TEST(a_crowd_beyond_the_descriptors_keeps_nobody_out_for_long)
{
    struct siege s;
    struct crew_worker late;
    struct rlimit all;
    uint16_t ports[1 + SIEGE_LANES];
    int fds[CROWD];
    siege_start(&s);
    siege_ports(&s, ports);
    /* psd has raised its own limit as far as it may. */
    ck_assert_int_eq(prlimit(s.d.pid, RLIMIT_NOFILE, NULL, &all), 0);
    ck_assert_uint_eq(all.rlim_cur, all.rlim_max);
    ck_assert_int_eq(prlimit(s.d.pid, RLIMIT_NOFILE, &(struct rlimit){DESCRIPTORS, DESCRIPTORS}, NULL), 0);
    for (int i = 0; i < CROWD; i++)
        fds[i] = connect_to(ports[i % (1 + SIEGE_LANES)]);
    for (double end = test_now_s() + test_slow_s(WAIT_S); descriptors_of(s.d.pid) < DESCRIPTORS - 1;) {
        ck_assert_msg(test_now_s() < end, "the crowd is none: %d descriptors", descriptors_of(s.d.pid));
        test_nap_s(0.01);
    }
    ck_assert(crew_reaches(&s.honest, s.honest.page->exchanges + 100, WAIT_S));
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    start_worker(&s, &late, 1);
    ck_assert(daemon_checkpoint(&s.d, WAIT_S));
    ck_assert(crew_stop(&late, WAIT_S));
    ck_assert_int_eq(late.page->rc, PSC_OK);
    ck_assert(crew_stop(&s.honest, WAIT_S));
    ck_assert_msg(s.honest.page->rc == PSC_OK, "%s", s.honest.page->error);
    ck_assert_uint_eq(s.honest.page->info.reconnects, 0);
    daemon_remove(&s.d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_peer_without_power_is_given_up_after_silence,
        connections_that_say_nothing_cost_nothing,
        a_crowd_beyond_the_descriptors_keeps_nobody_out_for_long,
    };
    return suite_run("peers", tests, sizeof tests / sizeof *tests, 500);
}
