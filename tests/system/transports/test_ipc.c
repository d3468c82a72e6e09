/* The transport over UNIX sockets, with real processes: private, found again after kill -9, taken from the
 * dead only, removed at the end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"

enum { FLOATS = 200003, WORKERS = 2, LANES = 2 };

#define JOB                                                                                                  \
    "method=async-sgd", "parameters.learning_rate=1", "parameters.schedule.warmup_steps=0",                  \
        "checkpoint.every_s=0", "chunk_floats=16384", "lanes=2"

static const char *const settings[] = {JOB, "listen=ipc://data", NULL};

static void start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void start_crew(const char *server, struct crew_worker *crew)
{
    for (int i = 0; i < WORKERS; i++) {
        struct crew_task task = {.server = server,
                                 .rank = i,
                                 .floats = FLOATS,
                                 .heartbeat_ms = 250,
                                 .retry_ms = 500,
                                 .pause_s = 0.005,
                                 .salt = (uint32_t)i};
        crew_start(&crew[i], &task);
        ck_assert_msg(crew_joined(&crew[i], TEST_HANG_S), "worker %d: %s", i, crew[i].page->error);
    }
}

static void go_on(const struct crew_worker *crew, uint64_t exchanges)
{
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(crew_reaches(&crew[i], crew[i].page->exchanges + exchanges, TEST_HANG_S), "rank %d: %s",
                      i, crew[i].page->error);
}

static void stop_crew(struct crew_worker *crew)
{
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(crew_stop(&crew[i], TEST_HANG_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "%s", crew[i].page->error);
    }
}

/* i: -1 the control socket, else a lane. */
static const char *socket_of(const struct daemon *d, int i)
{
    static char path[160];
    snprintf(path, sizeof path, i < 0 ? "%s/data" : "%s/data.%d", d->state_dir, i);
    return path;
}

static void assert_center(const char *server, const struct crew_worker *crew)
{
    struct psc_options opt;
    struct psc *c;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {FLOATS}};
    static float x[FLOATS];
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    ck_assert_int_eq(psc_begin(c, &tensor, 1, x), PSC_OK);
    for (uint64_t i = 0; i < FLOATS; i += 997) {
        double sum = 0;
        for (int w = 0; w < WORKERS; w++)
            sum -= crew_sum((uint32_t)w, crew[w].page->exchanges, i);
        ck_assert_msg((double)x[i] == sum, "x[%lu] is %g, not %g", (unsigned long)i, (double)x[i], sum);
    }
    psc_close(c);
}

START_TEST(every_exchange_lands_once)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    struct stat st;
    char url[200], address[64];
    start(&d);
    for (int i = -1; i < LANES; i++) {
        ck_assert_int_eq(lstat(socket_of(&d, i), &st), 0);
        ck_assert(S_ISSOCK(st.st_mode));
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
    }
    ck_assert(daemon_text(&d, "/status", "listen", url, sizeof url));
    ck_assert_msg(strncmp(url, "ipc:///", 7) == 0 && access(url + 6, F_OK) == 0, "%s", url);
    start_crew(url, crew); /* the URL, not the endpoint file */
    go_on(crew, 20);
    ck_assert(daemon_text(&d, "/workers", "workers.0.address", address, sizeof address));
    ck_assert_msg(strstr(address, "pid ") != NULL, "%s", address);
    stop_crew(crew);
    assert_center(url, crew);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    for (int i = -1; i < LANES; i++)
        ck_assert_int_ne(lstat(socket_of(&d, i), &st), 0);
    daemon_remove(&d);
}
END_TEST

/* Asked for by the checkpoint that the kill follows, so that nothing is lost while the workers pause. */
START_TEST(a_killed_psd_is_found_again)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d);
    start_crew(d.endpoint, crew);
    go_on(crew, 10);
    ck_assert(daemon_checkpoint(&d, TEST_HANG_S));
    go_on(crew, 10);
    ck_assert_int_ge(daemon_stop(&d, SIGKILL, TEST_HANG_S), 0);
    for (int i = -1; i < LANES; i++)
        ck_assert_int_eq(access(socket_of(&d, i), F_OK), 0); /* stale */
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    go_on(crew, 10);
    for (int i = 0; i < WORKERS; i++)
        ck_assert_uint_ge(crew[i].page->info.reconnects + (uint64_t)crew[i].page->joined, 1);
    ck_assert_uint_eq(daemon_logged(&d, "session.revived"), WORKERS);
    ck_assert_double_ge(daemon_number(&d, "/status", "center.lost_updates"), 1);
    stop_crew(crew);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_live_psd_keeps_its_sockets)
{
    struct daemon d, second;
    struct crew_worker crew[WORKERS];
    char listen_at[200] = "listen=", url[180];
    const char *const same[] = {JOB, listen_at, NULL};
    start(&d);
    ck_assert(daemon_text(&d, "/status", "listen", url, sizeof url));
    strcat(listen_at, url);
    ck_assert_int_eq(daemon_prepare(&second, NULL, same), 0);
    ck_assert_int_eq(daemon_run(&second, NULL, TEST_HANG_S), 4);
    ck_assert_uint_eq(daemon_logged(&second, "in use by another process"), 1);
    start_crew(d.endpoint, crew);
    go_on(crew, 2);
    stop_crew(crew);
    daemon_remove(&second);
    daemon_remove(&d);
}
END_TEST

START_TEST(others_may_not_enter_the_directory)
{
    struct daemon d;
    char dir[100], listen_at[160];
    const char *const strict[] = {JOB, listen_at, NULL};
    const char *const loose[] = {JOB, listen_at, "insecure=true", NULL};
    struct stat st;
    ck_assert_int_eq(daemon_prepare(&d, NULL, strict), 0);
    snprintf(dir, sizeof dir, "%s/road", d.dir);
    snprintf(listen_at, sizeof listen_at, "listen=ipc://%s/data", dir);
    ck_assert_int_eq(mkdir(dir, 0755), 0);
    ck_assert_int_eq(daemon_run(&d, NULL, TEST_HANG_S), 4);
    ck_assert_uint_eq(daemon_logged(&d, "others may enter it"), 1);
    d.settings = loose;
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    ck_assert_int_eq(rmdir(dir), 0); /* nothing was left in it */
    d.settings = strict;
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_exchange_lands_once,
        a_killed_psd_is_found_again,
        a_live_psd_keeps_its_sockets,
        others_may_not_enter_the_directory,
    };
    return suite_run("ipc", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
