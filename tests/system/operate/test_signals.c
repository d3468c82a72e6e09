/* Signals that come while psd has no loop: as it starts, as it restarts in place, and as it ends. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"

static const char *const settings[] = {"method=async-sgd", "checkpoint.every_s=0", "lanes=2", NULL};

static void block(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    ck_assert_int_eq(pthread_sigmask(how, &set, NULL), 0);
}

/* What a shell sends to itself while it is blocked comes when psd, which the shell becomes, can take it. */
START_TEST(what_comes_before_psd_has_started_is_taken)
{
    struct daemon d;
    char path[160];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    snprintf(path, sizeof path, "%s/early", d.dir);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\nkill -HUP $$\nkill -USR1 $$\nexec '%s' \"$@\"\n", d.program);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, 0700), 0);
    snprintf(d.program, sizeof d.program, "%s", path);
    block(SIG_BLOCK);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    block(SIG_UNBLOCK);
    ck_assert(daemon_will_log(&d, "reload.unchanged", TEST_HANG_S));
    ck_assert(daemon_will_log(&d, "SIGUSR1: there is no center yet", TEST_HANG_S));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

static atomic_bool enough;

static void *signal_all_the_time(void *pid)
{
    while (!atomic_load(&enough)) {
        kill(*(pid_t *)pid, SIGUSR1);
        test_nap_s(0.001);
    }
    return NULL;
}

/* Under rounds the servers restart from a checkpoint that all of them have when the head is back. */
START_TEST(what_comes_during_a_restart_in_place_ends_nobody)
{
    static const char *const in_rounds[] = {"method=sync-sgd", "workers=1", "checkpoint.every_s=3600", NULL};
    struct servers t;
    struct crew_worker w;
    pthread_t sender;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, in_rounds), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(daemon_start(&t.d[i], NULL), 0);
    struct crew_task task = {
        .server = t.d[0].endpoint, .floats = 50000, .heartbeat_ms = 200, .pause_s = 0.005};
    crew_start(&w, &task);
    ck_assert(crew_reaches(&w, 3, TEST_HANG_S));
    for (int i = 0; i < 2; i++)
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", TEST_HANG_S));
    daemon_stop(&t.d[0], SIGKILL, TEST_HANG_S);
    atomic_store(&enough, false);
    ck_assert_int_eq(pthread_create(&sender, NULL, signal_all_the_time, &t.d[1].pid), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], "--resume"), 0);
    ck_assert(daemon_will_log(&t.d[1], "and restarts", TEST_HANG_S));
    ck_assert(crew_reaches(&w, w.page->exchanges + 3, TEST_HANG_S));
    atomic_store(&enough, true);
    ck_assert_int_eq(pthread_join(sender, NULL), 0);
    ck_assert(crew_stop(&w, TEST_HANG_S));
    ck_assert(servers_end(&t, TEST_HANG_S));
    servers_remove(&t);
}
END_TEST

static struct shim_page *start_with_shim(struct daemon *d)
{
    struct shim_page *page = shim_set(PSD_SHIM, d->dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    shim_unset();
    return page;
}

/* Its loop has ended, and its lanes have stopped. */
START_TEST(what_comes_while_psd_ends_harms_nobody)
{
    struct daemon d;
    struct hand h;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    struct shim_page *page = start_with_shim(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, 1000), 0);
    ck_assert(hand_left(&h));
    hand_close(&h);
    shim_hold_end(page);
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    ck_assert(shim_holds_end(page));
    ck_assert_int_eq(kill(d.pid, SIGUSR1), 0);
    ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    shim_let_end(page);
    ck_assert_int_eq(daemon_wait_exit(&d, TEST_HANG_S), 0);
    ck_assert_uint_eq(daemon_logged(&d, "reload."), 0);
    daemon_remove(&d);
}
END_TEST

/* Under rounds the head restarts with another server that is back. It reads SIGTERM when it has started. */
START_TEST(sigterm_during_a_restart_in_place_is_kept)
{
    static const char *const in_rounds[] = {"method=sync-sgd", "workers=1", "checkpoint.every_s=3600", NULL};
    struct servers t;
    struct crew_worker w;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, in_rounds), 0);
    struct shim_page *page = start_with_shim(&t.d[0]);
    ck_assert_int_eq(daemon_start(&t.d[1], NULL), 0);
    struct crew_task task = {
        .server = t.d[0].endpoint, .floats = 50000, .heartbeat_ms = 200, .pause_s = 0.005};
    crew_start(&w, &task);
    ck_assert(crew_reaches(&w, 3, TEST_HANG_S));
    for (int i = 0; i < 2; i++)
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", TEST_HANG_S));
    daemon_stop(&t.d[1], SIGKILL, TEST_HANG_S);
    shim_hold_end(page);
    ck_assert_int_eq(daemon_start(&t.d[1], "--resume"), 0);
    ck_assert(shim_holds_end(page));
    ck_assert_int_eq(kill(t.d[0].pid, SIGTERM), 0);
    shim_let_end(page);
    ck_assert(daemon_will_log(&t.d[0], "job.draining", TEST_HANG_S));
    int status = daemon_wait_exit(&t.d[0], TEST_HANG_S);
    ck_assert_msg(status >= 0 && WIFEXITED(status), "the head ended with %x", status);
    crew_kill(&w); /* the other server may not have found the head in time to hear of the drain */
    servers_kill(&t);
    servers_remove(&t);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_comes_before_psd_has_started_is_taken, what_comes_during_a_restart_in_place_ends_nobody,
        what_comes_while_psd_ends_harms_nobody, sigterm_during_a_restart_in_place_is_kept};
    return suite_run("signals", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
