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
#include <time.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/daemon.h"
#include "tests/support/suite.h"

enum { WATCHDOG_MS = 1000 };

static const char *const settings[] = {"method=async-sgd", "checkpoint.every_s=0", "lanes=2", NULL};

/* The manager's end: a socket in the daemon's folder. */
static int listen_as_manager(struct daemon *d)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char number[32];
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/manager", d->dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    snprintf(number, sizeof number, "%d", WATCHDOG_MS * 1000);
    setenv("NOTIFY_SOCKET", at.sun_path, 1);
    setenv("WATCHDOG_USEC", number, 1);
    unsetenv("WATCHDOG_PID");
    return fd;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether a state that begins so comes within the time; others are passed over. */
static bool hears(int fd, const char *state, double seconds)
{
    char text[200];
    double end = now_s() + test_slow_s(seconds);
    while (now_s() < end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((end - now_s()) * 1000) + 1) <= 0)
            return false;
        ssize_t n = recv(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        if (strncmp(text, state, strlen(state)) == 0)
            return true;
    }
    return false;
}

/* What has come so far is thrown away. */
static void forget(int fd)
{
    char text[200];
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) >= 0)
        continue;
}

START_TEST(ready_reloading_ready_stopping)
{
    struct daemon d;
    int fd = listen_as_manager(&d);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert(hears(fd, "READY=1", 10));
    ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
    ck_assert(hears(fd, "RELOADING=1\nMONOTONIC_USEC=", 10));
    ck_assert(hears(fd, "READY=1", 10));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, 20), 0);
    ck_assert(hears(fd, "STOPPING=1", 1));
    close(fd);
    daemon_remove(&d);
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
    int status, fd = listen_as_manager(&d);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    for (int i = 0; i < 4; i++) /* idle lanes, which wait for longer than that, are woken */
        ck_assert(hears(fd, "WATCHDOG=1", WATCHDOG_MS / 1e3));

    pid_t lane = lane_thread(d.pid, "psd-lane-1");
    ck_assert_int_gt(lane, 0);
    if (ptrace(PTRACE_SEIZE, lane, 0, 0) != 0) {
        fputs("no ptrace here: the lane is not stopped\n", stderr);
    } else {
        ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, lane, 0, 0), 0);
        ck_assert_int_eq(waitpid(lane, &status, __WALL), lane);
        hears(fd, "WATCHDOG=1", WATCHDOG_MS / 1e3); /* one may have been on its way */
        forget(fd);
        ck_assert_msg(!hears(fd, "WATCHDOG=1", 3 * WATCHDOG_MS / 1e3),
                      "a watchdog's word for a lane that stands still");
        ck_assert_int_eq(ptrace(PTRACE_DETACH, lane, 0, 0), 0);
        ck_assert(hears(fd, "WATCHDOG=1", 5));
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
    ck_assert(daemon_will_log(&d, "SIGUSR1: there is no center yet", 10));
    struct crew_task task = {.server = d.endpoint, .floats = 5000, .heartbeat_ms = 200, .pause_s = 0.005};
    crew_start(&w, &task);
    ck_assert(crew_reaches(&w, 3, 20));
    ck_assert_int_eq(kill(d.pid, SIGUSR1), 0);
    ck_assert(daemon_will_log(&d, "checkpoint.written", 10));
    ck_assert(crew_stop(&w, 10));
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        ready_reloading_ready_stopping,
        no_watchdog_while_a_lane_stands_still,
        sigusr1_makes_a_checkpoint,
    };
    return suite_run("notify", tests, sizeof tests / sizeof *tests, 60);
}
