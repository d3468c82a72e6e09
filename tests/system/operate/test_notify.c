/* What psd tells a service manager: READY, RELOADING and READY again, STOPPING, and WATCHDOG for as long as
 * every lane comes round. SIGUSR1 makes a checkpoint. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"

/* psd speaks at half of it, by its own clock, which leaps. */
enum { WATCHDOG_S = 7200, LEAP_S = 4000 };

static const char *const settings[] = {"method=async-sgd", "checkpoint.every_s=0", "lanes=2", NULL};

/* The manager's end: a socket in the daemon's folder, which a psd that is started next finds. */
static int bind_manager(const struct daemon *d, unsigned watchdog_s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char number[32];
    snprintf(at.sun_path, sizeof at.sun_path, "%s/manager", d->dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    snprintf(number, sizeof number, "%u000000", watchdog_s);
    setenv("NOTIFY_SOCKET", at.sun_path, 1);
    setenv("WATCHDOG_USEC", number, 1);
    unsetenv("WATCHDOG_PID");
    return fd;
}

/* *page: for time to pass. */
static int listen_as_manager(struct daemon *d, struct shim_page **page)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    int fd = bind_manager(d, WATCHDOG_S);
    *page = shim_set(PSD_SHIM, d->dir);
    ck_assert_ptr_nonnull(*page);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    shim_unset();
    return fd;
}

/* Whether a state that begins so comes; others are passed over. */
static bool hears(int fd, const char *state)
{
    char text[200];
    double left_s, end = test_now_s() + test_slow_s(TEST_HANG_S);
    while ((left_s = end - test_now_s()) > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)(left_s * 1000) + 1) <= 0)
            return false;
        ssize_t n = recv(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        if (strncmp(text, state, strlen(state)) == 0)
            return true;
    }
    return false;
}

/* Of what has come so far, the states that begin so. */
static unsigned heard(int fd, const char *state)
{
    char text[200];
    unsigned n = 0;
    ssize_t len;
    while ((len = recv(fd, text, sizeof text - 1, MSG_DONTWAIT)) >= 0) {
        text[len] = 0;
        n += strncmp(text, state, strlen(state)) == 0;
    }
    return n;
}

START_TEST(ready_reloading_ready_stopping)
{
    struct daemon d;
    struct shim_page *page;
    int fd = listen_as_manager(&d, &page);
    ck_assert(hears(fd, "READY=1"));
    ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
    ck_assert(hears(fd, "RELOADING=1\nMONOTONIC_USEC="));
    ck_assert(hears(fd, "READY=1"));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    ck_assert(hears(fd, "STOPPING=1"));
    close(fd);
    daemon_remove(&d);
}
END_TEST

/* Each server has a manager of its own. */
START_TEST(another_server_tells_its_manager_the_same)
{
    struct servers t;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], NULL), 0);
    int fd = bind_manager(&t.d[1], 1);
    ck_assert_int_eq(daemon_start(&t.d[1], NULL), 0);
    ck_assert(hears(fd, "READY=1"));
    for (int i = 0; i < 3; i++)
        ck_assert(hears(fd, "WATCHDOG=1"));
    ck_assert_int_eq(kill(t.d[1].pid, SIGHUP), 0);
    ck_assert(hears(fd, "RELOADING=1\nMONOTONIC_USEC="));
    ck_assert(hears(fd, "READY=1"));
    ck_assert(servers_end(&t, TEST_HANG_S));
    ck_assert(hears(fd, "STOPPING=1"));
    close(fd);
    servers_remove(&t);
}
END_TEST

/* Under rounds the servers restart from a checkpoint that all of them have when one of them is back. They
 * read it while no lane runs, which may take long. */
START_TEST(a_restart_within_the_process_takes_its_time)
{
    static const char *const in_rounds[] = {"method=sync-sgd", "workers=1", "checkpoint.every_s=3600", NULL};
    struct servers t;
    struct crew_worker w;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, in_rounds), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], NULL), 0);
    int fd = bind_manager(&t.d[1], 1);
    ck_assert_int_eq(daemon_start(&t.d[1], NULL), 0);
    unsetenv("NOTIFY_SOCKET");
    struct crew_task task = {
        .server = t.d[0].endpoint, .floats = 50000, .heartbeat_ms = 200, .pause_s = 0.005};
    crew_start(&w, &task);
    ck_assert(crew_reaches(&w, 3, TEST_HANG_S));
    for (int i = 0; i < 2; i++)
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", TEST_HANG_S));
    daemon_stop(&t.d[0], SIGKILL, TEST_HANG_S);
    ck_assert_int_eq(daemon_start(&t.d[0], "--resume"), 0);
    ck_assert(hears(fd, "WATCHDOG=1\nWATCHDOG_USEC=10000000"));
    ck_assert(hears(fd, "READY=1"));
    ck_assert(hears(fd, "WATCHDOG=1\nWATCHDOG_USEC=1000000"));
    ck_assert(crew_stop(&w, TEST_HANG_S));
    ck_assert(servers_end(&t, TEST_HANG_S));
    close(fd);
    servers_remove(&t);
}
END_TEST

/* The thread of a lane, by its name. */
static pid_t lane_thread(pid_t pid, const char *lane)
{
    char path[300], name[32];
    pid_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; found == 0 && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", pid, e->d_name);
        FILE *f = fopen(path, "re");
        if (f != NULL && fgets(name, sizeof name, f) != NULL && strncmp(name, lane, strlen(lane)) == 0)
            found = (pid_t)strtol(e->d_name, NULL, 10);
        if (f != NULL)
            fclose(f);
    }
    closedir(dir);
    return found;
}

/* One thread alone stands still as one that is stuck would: stopped by ptrace. */
START_TEST(no_watchdog_while_a_lane_stands_still)
{
    struct daemon d;
    struct shim_page *page;
    int status, fd = listen_as_manager(&d, &page);
    for (int i = 0; i < 4; i++) { /* idle lanes, which wait for longer than that, are woken */
        ck_assert_uint_eq(heard(fd, "WATCHDOG=1"), 0);
        ck_assert(shim_leap(page, &d, LEAP_S));
        ck_assert(hears(fd, "WATCHDOG=1"));
    }

    pid_t lane = lane_thread(d.pid, "psd-lane-1");
    ck_assert_int_gt(lane, 0);
    if (ptrace(PTRACE_SEIZE, lane, 0, 0) != 0) {
        fputs("no ptrace here: the lane is not stopped\n", stderr);
    } else {
        ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, lane, 0, 0), 0);
        ck_assert_int_eq(waitpid(lane, &status, __WALL), lane);
        for (int i = 0; i < 4; i++) /* each tells of a tick; the first asks the lanes */
            ck_assert(shim_leap(page, &d, LEAP_S));
        ck_assert_msg(heard(fd, "WATCHDOG=1") == 0, "a watchdog's word for a lane that stands still");
        ck_assert_int_eq(ptrace(PTRACE_DETACH, lane, 0, 0), 0);
        ck_assert(hears(fd, "WATCHDOG=1"));
    }
    close(fd);
    daemon_remove(&d);
}
END_TEST

START_TEST(sigusr1_makes_a_checkpoint)
{
    struct daemon d;
    struct crew_worker w;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(kill(d.pid, SIGUSR1), 0); /* nobody has joined */
    ck_assert(daemon_will_log(&d, "SIGUSR1: there is no center yet", TEST_HANG_S));
    struct crew_task task = {.server = d.endpoint, .floats = 5000, .heartbeat_ms = 200, .pause_s = 0.005};
    crew_start(&w, &task);
    ck_assert(crew_reaches(&w, 3, TEST_HANG_S));
    ck_assert_int_eq(kill(d.pid, SIGUSR1), 0);
    ck_assert(daemon_will_log(&d, "checkpoint.written", TEST_HANG_S));
    ck_assert(crew_stop(&w, TEST_HANG_S));
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        ready_reloading_ready_stopping,
        another_server_tells_its_manager_the_same,
        a_restart_within_the_process_takes_its_time,
        no_watchdog_while_a_lane_stands_still,
        sigusr1_makes_a_checkpoint,
    };
    return suite_run("notify", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
