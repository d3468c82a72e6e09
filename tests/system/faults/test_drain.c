/* SIGTERM under load: everything that was begun ends, is saved, and everyone is told. */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/suite.h"
#include "tests/system/psworker.h"

enum { FLOATS = 100003, WORKERS = 4 };

/* psd's patience is up only where psd's clock leaps. */
enum { DRAIN_S = 7200, SOME_S = 5000 };

static const char *const settings[] = {"method=async-sgd",
                                       "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0",
                                       "limits.drain_s=7200",
                                       "limits.silence_s=600",
                                       "checkpoint.every_s=0",
                                       "chunk_floats=16384",
                                       NULL};

static void start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static struct shim_page *start_to_leap(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    struct shim_page *page = shim_set(PSD_SHIM, d->dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    shim_unset();
    return page;
}

static void start_crew(const struct daemon *d, struct crew_worker *crew, int n, bool stubborn)
{
    for (int i = 0; i < n; i++) {
        struct crew_task task = {.server = d->endpoint,
                                 .rank = i,
                                 .floats = FLOATS,
                                 .heartbeat_ms = 10000, /* after four without an answer psd is silent */
                                 .salt = (uint32_t)i,
                                 .ignore_drain = stubborn};
        crew_start(&crew[i], &task);
    }
    for (int i = 0; i < n; i++)
        ck_assert_msg(crew_reaches(&crew[i], 10, TEST_HANG_S), "worker %d: %s", i, crew[i].page->error);
}

static void assert_exit_0(int status)
{
    ck_assert_msg(status >= 0 && WIFEXITED(status), "psd did not end by itself");
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* psd drains, and its workers exchange all the same, though they have heard of it: their control connection
 * may be later than many exchanges. */
static void assert_is_waited_for(const struct daemon *d, const struct crew_worker *crew, int n)
{
    char state[32];
    for (int i = 0; i < n; i++)
        ck_assert_msg(crew_has_drained(&crew[i], crew[i].page->drained + 10, TEST_HANG_S), "rank %d: %s", i,
                      crew[i].page->error);
    ck_assert(daemon_text(d, "/status", "state", state, sizeof state));
    ck_assert_str_eq(state, "draining");
}

static unsigned checkpoints_in(const struct daemon *d)
{
    char path[200];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/checkpoints", d->state_dir);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += strstr(e->d_name, ".safetensors") != NULL;
    closedir(dir);
    return n;
}

/* The center in the last checkpoint, through a psd that resumes from it. */
static void pull_saved(struct daemon *d, float *x)
{
    struct hand h;
    ck_assert_int_eq(daemon_start(d, "--resume"), 0);
    ck_assert_int_eq(hand_join(&h, d->endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_PULL, NULL, x), 0);
    hand_close(&h);
}

START_TEST(sigterm_under_load_loses_nothing)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    float *x = calloc(FLOATS, sizeof *x);
    uint64_t total = 0;
    char last[64];
    start(&d);
    start_crew(&d, crew, WORKERS, false);
    assert_exit_0(daemon_stop(&d, SIGTERM, TEST_HANG_S));
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(crew_ended(&crew[i], TEST_HANG_S));
        ck_assert_msg(crew[i].page->rc == PSC_DRAINED, "%s: %s", psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
        ck_assert_uint_eq(crew[i].page->drained, 1);
        ck_assert_msg(strstr(crew[i].page->said, "drain") != NULL &&
                          strstr(crew[i].page->said, "SIGTERM") != NULL,
                      "the worker was told '%s'", crew[i].page->said);
        total += crew[i].page->exchanges;
        crew_stop(&crew[i], TEST_HANG_S);
    }
    ck_assert_uint_eq(daemon_logged(&d, "did not leave in time"), 0);
    snprintf(last, sizeof last, "psd stops at version %lu", (unsigned long)total);
    ck_assert_msg(daemon_logged(&d, last) == 1, "%s was not logged", last);
    snprintf(last, sizeof last, "version %lu: ", (unsigned long)total);
    ck_assert_uint_eq(daemon_logged(&d, last), 1);

    pull_saved(&d, x);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0;
        for (int k = 0; k < WORKERS; k++)
            want -= crew_sum((uint32_t)k, crew[k].page->exchanges, i);
        ck_assert_msg((double)x[i] == want, "value %lu is %.1f; the exchanges sum to %.1f", (unsigned long)i,
                      (double)x[i], want);
    }
    free(x);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_worker_that_will_not_go_is_waited_for_drain_s)
{
    struct daemon d;
    struct crew_worker crew[2], late;
    struct shim_page *page = start_to_leap(&d);
    start_crew(&d, crew, 2, true);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_will_log(&d, "job.draining", TEST_HANG_S));
    struct crew_task task = {.server = d.endpoint, .rank = -1, .floats = FLOATS};
    crew_start(&late, &task);
    ck_assert(crew_ended(&late, TEST_HANG_S));
    ck_assert_int_eq(late.page->rc, PSC_DRAINED);
    ck_assert_ptr_nonnull(strstr(late.page->error, "no new joins"));
    crew_stop(&late, TEST_HANG_S);

    ck_assert(shim_leap(page, &d, SOME_S));
    assert_is_waited_for(&d, crew, 2);
    atomic_fetch_add(&page->ahead_ms, (DRAIN_S - SOME_S) * 1000);
    assert_exit_0(daemon_wait_exit(&d, TEST_HANG_S));
    ck_assert_uint_eq(daemon_logged(&d, "did not leave in time"), 2);
    ck_assert_uint_eq(daemon_logged(&d, "checkpoint.written"), 1);
    for (int i = 0; i < 2; i++) {
        ck_assert(crew_ended(&crew[i], TEST_HANG_S));
        /* On either connection. Nobody was told who says that the server has ended: it has been silent. */
        ck_assert_msg(strstr(crew[i].page->error, "the server has drained and ended") == NULL &&
                          strlen(crew[i].page->error) > 20,
                      "rank %d was not told that psd is gone: '%s'", i, crew[i].page->error);
        ck_assert_msg(crew[i].page->rc == PSC_DRAINED, "%s: %s", psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
        ck_assert_uint_gt(crew[i].page->drained, 1);
        crew_stop(&crew[i], TEST_HANG_S);
    }
    daemon_remove(&d);
}
END_TEST

START_TEST(a_second_sigterm_ends_psd_at_once)
{
    struct daemon d;
    struct crew_worker crew[2];
    start(&d);
    start_crew(&d, crew, 2, true);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_will_log(&d, "job.draining", TEST_HANG_S));
    assert_is_waited_for(&d, crew, 2);
    assert_exit_0(daemon_stop(&d, SIGTERM, TEST_HANG_S));
    ck_assert_uint_eq(daemon_logged(&d, "checkpoint.written"), 1);
    for (int i = 0; i < 2; i++) {
        ck_assert(crew_ended(&crew[i], TEST_HANG_S));
        ck_assert_int_eq(crew[i].page->rc, PSC_DRAINED);
        crew_stop(&crew[i], TEST_HANG_S);
    }
    ck_assert_uint_eq(checkpoints_in(&d), 1);
    daemon_remove(&d);
}
END_TEST

START_TEST(an_idle_psd_goes_at_once)
{
    struct daemon d;
    start(&d);
    assert_exit_0(daemon_stop(&d, SIGTERM, TEST_HANG_S));
    ck_assert_uint_eq(checkpoints_in(&d), 0);
    daemon_remove(&d);
}
END_TEST

/* Says that it offers, and offers nothing. */
static void half_offer(const struct daemon *d, struct hand *h)
{
    Ps__Hello hello = PS__HELLO__INIT;
    bool offer = false;
    hand_open(h, d->endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)"half";
    ck_assert_int_eq(hand_hello(h, &hello), 0);
    ck_assert_int_eq(hand_begin(h, FLOATS, &offer), 0);
    ck_assert(offer);
}

/* Whoever comes next is the first worker. */
START_TEST(an_offer_left_unfinished_is_withdrawn)
{
    struct daemon d;
    struct hand h;
    start(&d);
    half_offer(&d, &h);
    ck_assert(hand_left(&h));
    hand_close(&h);
    ck_assert(daemon_will_log(&d, "job.withdrawn", TEST_HANG_S));
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS + 1), 0);
    ck_assert(hand_left(&h));
    hand_close(&h);
    assert_exit_0(daemon_stop(&d, SIGTERM, TEST_HANG_S));
    ck_assert_uint_eq(checkpoints_in(&d), 1);
    daemon_remove(&d);
}
END_TEST

/* Half an initial x is no center: a drain must not save it. */
START_TEST(an_unfinished_offer_is_not_saved)
{
    struct daemon d;
    struct hand h;
    struct shim_page *page = start_to_leap(&d);
    half_offer(&d, &h);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_will_log(&d, "job.draining", TEST_HANG_S));
    atomic_fetch_add(&page->ahead_ms, DRAIN_S * 1000);
    assert_exit_0(daemon_wait_exit(&d, TEST_HANG_S));
    ck_assert_uint_eq(checkpoints_in(&d), 0);
    hand_close(&h);
    daemon_remove(&d);
}
END_TEST

static void read_text(const struct daemon *d, const char *name, char *out, size_t room)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    out[fread(out, 1, room - 1, f)] = '\0';
    fclose(f);
}

/* psd waits for who has said that it offers, and takes nobody else. */
START_TEST(an_evaluator_that_comes_too_late_says_so_and_ends_well)
{
    struct daemon d;
    struct hand h;
    char said[4096];
    start(&d);
    half_offer(&d, &h);
    kill(d.pid, SIGTERM);
    ck_assert(daemon_will_log(&d, "job.draining", TEST_HANG_S));
    ck_assert_int_eq(
        psworker_wait(psworker_start(&d, "late", (const char *const[]){"--evaluate", NULL}), TEST_HANG_S), 0);
    read_text(&d, "late.err", said, sizeof said);
    ck_assert_msg(strstr(said, "nothing was evaluated: ") && strstr(said, "no new joins"), "%s", said);
    ck_assert_ptr_null(strstr(said, "\"error\""));
    hand_close(&h);
    assert_exit_0(daemon_stop(&d, SIGTERM, TEST_HANG_S));
    daemon_remove(&d);
}
END_TEST

/* A connection to the status socket that has asked for the page. */
static int ask(const struct daemon *d, const char *page)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char request[100];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%.107s", d->socket);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: psd\r\n\r\n", page);
    ck_assert_int_eq(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* All that psd says until it closes the connection. */
static void hear(int fd, char *text, size_t size)
{
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n<size - 1; n += got> 0 ? (size_t)got : 0)
        got = recv(fd, text + n, size - 1 - n, 0);
    text[n] = 0;
    close(fd);
}

/* One waits for the end and others ask for more: after psd's lanes have stopped, and before its socket is
 * closed.
 */
START_TEST(what_is_asked_while_psd_ends_harms_nobody)
{
    static const char *const pages[] = {"/status", "/metrics", "/workers"};
    enum { ASKED = 12 };
    struct daemon d;
    struct hand h;
    int asked[ASKED];
    static char text[1 << 17];
    setenv("MALLOC_PERTURB_", "165", 1); /* a read of freed memory shows */
    struct shim_page *page = start_to_leap(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    ck_assert(hand_left(&h));
    hand_close(&h);
    int end = ask(&d, "/end");
    ck_assert(daemon_reaches(&d, "/status", "wait_for_end", 1, TEST_HANG_S));
    shim_hold_end(page);
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    ck_assert(shim_holds_end(page));
    for (int i = 0; i < ASKED; i++)
        asked[i] = ask(&d, pages[i % 3]);
    shim_let_end(page);
    assert_exit_0(daemon_wait_exit(&d, TEST_HANG_S));
    hear(end, text, sizeof text);
    ck_assert_msg(strstr(text, "\"drain\":\"done\"") != NULL, "the end is '%s'", text);
    for (int i = 0; i < ASKED; i++) {
        hear(asked[i], text, sizeof text);
        ck_assert_msg(text[0] == 0 || i % 3 != 0 || strstr(text, "\"updates_rejected\":0,") != NULL, "'%s'",
                      text);
    }
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        sigterm_under_load_loses_nothing,
        a_worker_that_will_not_go_is_waited_for_drain_s,
        a_second_sigterm_ends_psd_at_once,
        an_idle_psd_goes_at_once,
        an_unfinished_offer_is_not_saved,
        an_offer_left_unfinished_is_withdrawn,
        an_evaluator_that_comes_too_late_says_so_and_ends_well,
        what_is_asked_while_psd_ends_harms_nobody,
    };
    return suite_run("drain", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
