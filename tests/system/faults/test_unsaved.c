/* A job whose last save fails: psd, psctl and psworker end with a status that says so and with a sentence,
 * and nothing is reported as saved that was not. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"
#include "tests/support/clock.h"
#include "tests/support/unit.h"

enum { FLOATS = 50021, PSD_UNSAVED = 7, PSCTL_REFUSED = 1 };

static const char *const settings[] = {
    "method=async-sgd",   "parameters.learning_rate=1", "lanes=2", "checkpoint.every_s=0",
    "limits.drain_s=600", "limits.silence_s=600",       NULL};

/* psctl's exit status; what it wrote to either stream is in text. */
static int psctl(const struct daemon *d, const char *arguments, char *text, size_t size)
{
    char line[700];
    snprintf(line, sizeof line, "%s --socket %s --timeout 600 %s 2>&1", PSCTL, d->socket, arguments);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The center moves once more, and its worker leaves. */
static void move(const struct daemon *d)
{
    static float g[FLOATS], x[FLOATS];
    struct hand h;
    for (size_t i = 0; i < FLOATS; i++)
        g[i] = 1;
    ck_assert_int_eq(hand_join(&h, d->endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_EXCHANGE, g, x), 0);
    ck_assert(hand_left(&h));
    hand_close(&h);
}

static void assert_ended_unsaved(struct daemon *d, int status, const char *why)
{
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == PSD_UNSAVED, "psd ended with %x", status);
    ck_assert_uint_eq(daemon_logged(d, "stop.unsaved"), 1);
    ck_assert_msg(daemon_logged(d, why) > 0, "the log does not say '%s'", why);
}

static const struct {
    bool drain; /* by psctl, else by signals */
    int errors; /* of write, fsync, rename: which fails */
} ways[] = {{true, 0}, {true, 1}, {true, 2}, {false, 0}};

static void fail_saves(struct shim_page *page, int which)
{
    atomic_store(which == 0   ? &page->write_errno
                 : which == 1 ? &page->fsync_errno
                              : &page->rename_errno,
                 ENOSPC);
}

START_TEST(a_last_checkpoint_that_fails_is_no_success)
{
    struct daemon d;
    char text[1200];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    struct shim_page *page = shim_set(PSD_SHIM, d.dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    shim_unset();
    move(&d);
    ck_assert(daemon_checkpoint(&d, TEST_HANG_S));
    move(&d);
    fail_saves(page, ways[_i].errors);
    if (ways[_i].drain) {
        ck_assert_int_eq(psctl(&d, "drain", text, sizeof text), PSCTL_REFUSED);
        ck_assert_msg(strstr(text, "the last checkpoint was not written") != NULL &&
                          strstr(text, "No space left on device") != NULL &&
                          strstr(text, "center-000000000001.safetensors") != NULL &&
                          strstr(text, "drained") == NULL,
                      "psctl says '%s'", text);
    } else {
        ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    }
    assert_ended_unsaved(&d, daemon_wait_exit(&d, TEST_HANG_S), "No space left on device");
    daemon_remove(&d);
}
END_TEST

START_TEST(psctl_waits_for_a_last_checkpoint_that_is_written)
{
    struct daemon d;
    char text[1200], path[300];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    move(&d);
    ck_assert_int_eq(psctl(&d, "drain", text, sizeof text), 0);
    ck_assert_str_eq(text, "drained\n");
    ck_assert_int_eq(daemon_wait_exit(&d, TEST_HANG_S), 0);
    snprintf(path, sizeof path, "%s/checkpoints/center-000000000001.safetensors", d.state_dir);
    ck_assert_int_eq(access(path, R_OK), 0);
    daemon_remove(&d);
}
END_TEST

/* psd dies while psctl waits for its end: nobody knows whether it has saved. */
START_TEST(psctl_does_not_say_drained_of_a_psd_that_died)
{
    struct daemon d;
    struct hand h;
    char text[1200], line[700];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0); /* it does not leave */
    snprintf(line, sizeof line, "%s --socket %s --timeout 600 drain 2>&1", PSCTL, d.socket);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert(daemon_will_log(&d, "job.draining", TEST_HANG_S));
    daemon_stop(&d, SIGKILL, TEST_HANG_S);
    text[fread(text, 1, sizeof text - 1, pipe)] = 0;
    int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == PSCTL_REFUSED, "psctl ended with %x", status);
    ck_assert_msg(strstr(text, "has ended without a result") != NULL, "psctl says '%s'", text);
    hand_close(&h);
    daemon_remove(&d);
}
END_TEST

static void start_two(struct servers *t, const char *const *with)
{
    struct crew_worker w;
    ck_assert_int_eq(servers_prepare(t, 2, NULL, with), 0);
    ck_assert_int_eq(servers_start(t), 0);
    struct crew_task task = {
        .server = t->d[0].endpoint, .floats = FLOATS, .count = 3, .heartbeat_ms = 1000, .salt = 1};
    crew_start(&w, &task);
    ck_assert_msg(crew_stop(&w, TEST_HANG_S) && w.page->rc == PSC_OK, "%s", w.page->error);
    /* The other server's lanes answer the worker before the head has heard that its part is there. */
    ck_assert(daemon_will_log(&t->d[0], "job.ready", TEST_HANG_S));
}

/* A file where the other server's checkpoints were: its disk fails, and the head's does not. */
START_TEST(another_servers_save_that_fails_is_no_success)
{
    struct servers t;
    char text[1200], path[200], command[500];
    start_two(&t, settings);
    snprintf(path, sizeof path, "%s/checkpoints", t.d[1].state_dir);
    snprintf(command, sizeof command, "rm -r %s && touch %s", path, path);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(psctl(&t.d[0], "checkpoint", text, sizeof text), PSCTL_REFUSED);
    ck_assert_msg(strstr(text, "server 1 ") != NULL && strstr(text, path) != NULL, "psctl says '%s'", text);
    ck_assert_int_eq(psctl(&t.d[0], "drain", text, sizeof text), PSCTL_REFUSED);
    ck_assert_msg(strstr(text, "server 1 ") != NULL && strstr(text, "lacks a part") != NULL,
                  "psctl says '%s'", text);
    assert_ended_unsaved(&t.d[0], daemon_wait_exit(&t.d[0], TEST_HANG_S), "server 1 ");
    assert_ended_unsaved(&t.d[1], daemon_wait_exit(&t.d[1], TEST_HANG_S), "Not a directory");
    servers_remove(&t);
}
END_TEST

START_TEST(a_server_that_is_lost_is_a_part_that_is_not_saved)
{
    static const char *const brisk[] = {"method=async-sgd", "lanes=2", "checkpoint.every_s=0",
                                        "limits.silence_s=4", NULL};
    struct servers t;
    char text[1200];
    start_two(&t, brisk);
    daemon_stop(&t.d[1], SIGKILL, TEST_HANG_S);
    if (_i == 0)
        ck_assert(daemon_will_log(&t.d[0], "server.lost", TEST_HANG_S));
    int rc = psctl(&t.d[0], "drain", text, sizeof text);
    ck_assert_msg(rc == PSCTL_REFUSED && strstr(text, "server 1 ") != NULL && strstr(text, "is lost") != NULL,
                  "psctl ends with %d: '%s'", rc, text);
    assert_ended_unsaved(&t.d[0], daemon_wait_exit(&t.d[0], TEST_HANG_S), "is lost");
    servers_remove(&t);
}
END_TEST

enum { WORKER_INTERNAL = 1 };

/* psworker's exit status; what it wrote to either stream is in text. */
static int psworker(const char *arguments, char *text, size_t size)
{
    char line[900];
    snprintf(line, sizeof line, "%s --net lenet --data digits --batch 8 %s 2>&1", PSWORKER, arguments);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(a_last_state_that_is_not_saved_is_no_success)
{
    struct daemon d; /* its folder alone */
    char text[4000], arguments[300];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    struct shim_page *page = shim_set(PSD_SHIM, d.dir);
    ck_assert_ptr_nonnull(page);
    snprintf(arguments, sizeof arguments, "%s/checkpoints", d.dir);
    ck_assert_int_eq(mkdir(arguments, 0700), 0);
    snprintf(arguments, sizeof arguments, "--method sgd --steps 2 --state %s/checkpoints/worker", d.dir);
    ck_assert_int_eq(psworker(arguments, text, sizeof text), 0);
    ck_assert_ptr_nonnull(strstr(text, "state.saved"));
    fail_saves(page, 0);
    snprintf(arguments, sizeof arguments, "--method sgd --steps 4 --state %s/checkpoints/worker", d.dir);
    ck_assert_int_eq(psworker(arguments, text, sizeof text), WORKER_INTERNAL);
    ck_assert_msg(strstr(text, "No space left on device") != NULL && strstr(text, "state.lost") != NULL &&
                      strstr(text, "state.saved") == NULL,
                  "psworker says '%s'", text);
    atomic_store(&page->write_errno, 0); /* what was saved before is there still */
    ck_assert_int_eq(psworker(arguments, text, sizeof text), 0);
    ck_assert_msg(strstr(text, "resuming after 2 steps") != NULL, "psworker says '%s'", text);
    shim_unset();
    daemon_remove(&d);
}
END_TEST

START_TEST(a_history_that_lacks_lines_is_no_success)
{
    char text[4000];
    ck_assert_int_eq(psworker("--method sgd --steps 2 --history /dev/full", text, sizeof text),
                     WORKER_INTERNAL);
    ck_assert_msg(strstr(text, "No space left on device") != NULL && strstr(text, "history.lacks") != NULL,
                  "psworker says '%s'", text);
}
END_TEST

/* The center is what counts: psd ends well, and says how many lines its history lacks. */
START_TEST(psd_counts_the_lines_that_its_history_lacks)
{
    struct daemon d;
    char path[300];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(mkdir(d.state_dir, 0700), 0);
    snprintf(path, sizeof path, "%s/history.jsonl", d.state_dir);
    ck_assert_int_eq(symlink("/dev/full", path), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    move(&d);
    ck_assert(daemon_reaches(&d, "/status", "history_lines_lost", 1, TEST_HANG_S));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    ck_assert_uint_eq(daemon_logged(&d, "history.lacks"), 1);
    ck_assert_uint_gt(daemon_logged(&d, "No space left on device"), 0);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unsaved");
    TCase *c = tcase_create("unsaved");
    tcase_set_timeout(c, test_slow_s(10 * TEST_HANG_S));
    tcase_add_loop_test(c, a_last_checkpoint_that_fails_is_no_success, 0, sizeof ways / sizeof *ways);
    tcase_add_test(c, psctl_waits_for_a_last_checkpoint_that_is_written);
    tcase_add_test(c, psctl_does_not_say_drained_of_a_psd_that_died);
    suite_add_tcase(suite, c);
    c = tcase_create("two");
    tcase_set_timeout(c, test_slow_s(10 * TEST_HANG_S));
    tcase_add_test(c, another_servers_save_that_fails_is_no_success);
    tcase_add_loop_test(c, a_server_that_is_lost_is_a_part_that_is_not_saved, 0, 2);
    suite_add_tcase(suite, c);
    c = tcase_create("worker");
    tcase_set_timeout(c, test_slow_s(10 * TEST_HANG_S));
    tcase_add_test(c, a_last_state_that_is_not_saved_is_no_success);
    tcase_add_test(c, a_history_that_lacks_lines_is_no_success);
    tcase_add_test(c, psd_counts_the_lines_that_its_history_lacks);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
