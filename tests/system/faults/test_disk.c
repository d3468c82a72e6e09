/* The disk fails while checkpoints are written: exchanges go on, psd says so and tries again, and the last
 * good checkpoint stays readable. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/checkpoint/checkpoint.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/suite.h"
#include "tests/system/security/hostile_fixture.h"

/* By psd's clock, which leaps when one is to be due. */
enum { EVERY_S = 3600 };
static const char *const every_hour[] = {"checkpoint.every_s=3600", NULL};

static struct shim_page *start(struct siege *s)
{
    struct shim_page *page = shim_set(PSD_SHIM, s->d.dir);
    ck_assert_ptr_nonnull(page);
    siege_begin(s);
    shim_unset();
    return page;
}

/* In the log, in /status and in /metrics; twice: psd tries again when the next checkpoint is due. */
static void assert_goes_on_saying(const struct siege *s, struct shim_page *page, const char *why)
{
    double failures = daemon_number(&s->d, "/status", "checkpoint.failures");
    char error[600];
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (daemon_number(&s->d, "/status", "checkpoint.failures") < failures + 2) {
        ck_assert_msg(test_now_s() < deadline, "no checkpoint fails");
        ck_assert(shim_leap(page, &s->d, EVERY_S));
    }
    ck_assert(daemon_text(&s->d, "/status", "checkpoint.last_error", error, sizeof error));
    ck_assert_msg(strstr(error, why) != NULL, "/status says '%s'", error);
    ck_assert_uint_ge(daemon_logged(&s->d, why), 2);
    char *metrics = daemon_ask(&s->d, "GET", "/metrics");
    const char *row = strstr(metrics, "\npsd_checkpoint_failures_total ");
    ck_assert(row != NULL && atof(strchr(row, ' ')) >= failures + 2);
    free(metrics);
    siege_holds(s);
}

static void no_word(const char *sentence)
{
    ck_abort_msg("a damaged checkpoint: %s", sentence);
}

/* A lane's slice is what its clock says; chunks of the exchange that was open have one message more. */
static void assert_readable(const struct siege *s)
{
    char dir[200], path[400], last[400];
    struct psd_snapshot snap;
    struct ps_error err = {""};
    snprintf(dir, sizeof dir, "%s/checkpoints", s->d.state_dir);
    ck_assert_msg(psd_checkpoint_read_newest(dir, SIEGE_FLOATS, &snap, path, sizeof path, no_word, &err) == 0,
                  "%s", err.text);
    ck_assert(daemon_text(&s->d, "/status", "checkpoint.last_path", last, sizeof last));
    ck_assert_str_eq(strrchr(path, '/'), strrchr(last, '/'));
    const struct ps_shard shard = {SIEGE_FLOATS, snap.map.lanes, snap.map.chunk_floats};
    for (uint32_t lane = 0; lane < snap.map.lanes; lane++) {
        struct ps_range r = ps_shard_slice(&shard, lane);
        for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
            double is = (double)-snap.center[i];
            ck_assert_msg(is == crew_sum(SIEGE_SALT, snap.lane_clocks[lane], i) ||
                              is == crew_sum(SIEGE_SALT, snap.lane_clocks[lane] + 1, i),
                          "value %lu of the checkpoint is %g", (unsigned long)i, -is);
        }
    }
    psd_snapshot_finish(&snap);
}

static void assert_no_temporaries(const struct siege *s)
{
    char dir[200];
    snprintf(dir, sizeof dir, "%s/checkpoints", s->d.state_dir);
    DIR *folder = opendir(dir);
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder))
        ck_assert_msg(e->d_name[0] == '.' || strncmp(e->d_name, "center-", 7) == 0, "%s is left", e->d_name);
    closedir(folder);
}

static void assert_written_again(const struct siege *s)
{
    char error[600];
    ck_assert(daemon_checkpoint(&s->d, TEST_HANG_S));
    ck_assert(!daemon_text(&s->d, "/status", "checkpoint.last_error", error, sizeof error) || error[0] == 0);
    assert_no_temporaries(s);
    assert_readable(s);
}

/* A file system of 1 MB, in a mount namespace of this test: two checkpoints of 400 KB fit, the third does
 * not. */
START_TEST(a_full_disk_stops_no_exchange)
{
    struct siege s;
    char dir[200];
    siege_prepare(&s, every_hour);
    snprintf(dir, sizeof dir, "%s/checkpoints", s.d.state_dir);
    ck_assert(mkdir(s.d.state_dir, 0700) == 0 && mkdir(dir, 0700) == 0);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("full", dir, "tmpfs", 0, "size=1m") != 0) {
        fprintf(stderr, "a_full_disk_stops_no_exchange: not run, it may not mount: %s\n", strerror(errno));
        daemon_remove(&s.d);
        return;
    }
    struct shim_page *page = start(&s);
    assert_goes_on_saying(&s, page, "No space left on device");
    assert_readable(&s);
    ck_assert_int_eq(mount("full", dir, "tmpfs", MS_REMOUNT, "size=8m"), 0);
    assert_written_again(&s);
    umount2(dir, MNT_DETACH); /* psd does without it to the end */
    siege_end(&s);
}
END_TEST

static const struct {
    size_t offset; /* in struct shim_page */
    int code;
    const char *says;
} failures[] = {
    {offsetof(struct shim_page, write_errno), EIO, "Input/output error"},
    {offsetof(struct shim_page, write_errno), ENOSPC, "No space left on device"},
    {offsetof(struct shim_page, fsync_errno), EIO, "Input/output error"},
    {offsetof(struct shim_page, rename_errno), EIO, "Input/output error"},
    {offsetof(struct shim_page, rename_errno), EROFS, "Read-only file system"},
};

START_TEST(a_failing_disk_stops_no_exchange)
{
    struct siege s;
    siege_prepare(&s, every_hour);
    struct shim_page *page = start(&s);
    ck_assert(daemon_checkpoint(&s.d, TEST_HANG_S));
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        _Atomic int *code = (_Atomic int *)(void *)((char *)page + failures[i].offset);
        uint64_t before = atomic_load(&page->failed);
        atomic_store(code, failures[i].code);
        assert_goes_on_saying(&s, page, failures[i].says);
        ck_assert_uint_ge(atomic_load(&page->failed), before + 2);
        assert_no_temporaries(&s);
        assert_readable(&s);
        atomic_store(code, 0);
        assert_written_again(&s);
    }
    siege_end(&s);
}
END_TEST

/* history.jsonl is a pipe that is full, and its reader stands still. */
static int make_full_history(const struct siege *s)
{
    char path[200];
    snprintf(path, sizeof path, "%s/history.jsonl", s->d.state_dir);
    ck_assert(mkdir(s->d.state_dir, 0700) == 0 && mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int writer = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert(reader >= 0 && writer >= 0);
    while (write(writer, path, 1) == 1)
        continue;
    close(writer);
    return reader;
}

START_TEST(a_disk_that_stands_still_stops_nobody)
{
    struct siege s;
    char byte = 0;
    siege_prepare(&s, NULL);
    int reader = make_full_history(&s);
    siege_begin(&s);
    ck_assert_msg(daemon_reaches(&s.d, "/history", "history.2.center_version", 1, TEST_HANG_S),
                  "there are no three records, of which the first is being written");
    siege_holds(&s);
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    for (unsigned lines = 0; lines < 3; lines += byte == '\n') { /* it goes on, and nothing is lost */
        ck_assert_msg(test_now_s() < deadline, "the lines that waited do not come");
        if (read(reader, &byte, 1) != 1)
            byte = 0, test_nap_s(0.001);
    }
    siege_end(&s);
    close(reader);
}
END_TEST

static void assert_cannot_write_endpoint(struct daemon *d, const char *why)
{
    char sentence[200];
    snprintf(sentence, sizeof sentence, "endpoint file '%s': %s", d->endpoint + 1, why);
    ck_assert_int_eq(daemon_run(d, NULL, TEST_HANG_S), 4);
    ck_assert_uint_eq(daemon_logged(d, "\"level\":\"error\""), 1);
    ck_assert_uint_eq(daemon_logged(d, sentence), 1);
    unlink(d->log);
}

/* psd has bound, and its lanes run: it ends as after any start that fails. */
START_TEST(an_endpoint_file_that_cannot_be_written_is_named)
{
    struct daemon d;
    char folder[80], page[8192] = "";
    ck_assert_int_eq(daemon_prepare(&d, NULL, NULL), 0);
    snprintf(folder, sizeof folder, "%.60s/ep", d.dir);
    snprintf(d.endpoint, sizeof d.endpoint, "@%.60s/missing/ep", d.dir);
    assert_cannot_write_endpoint(&d, "No such file or directory");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    snprintf(d.endpoint, sizeof d.endpoint, "@%s", folder);
    assert_cannot_write_endpoint(&d, "Is a directory");
    snprintf(d.endpoint, sizeof d.endpoint, "@%.70s/file", folder);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("full", folder, "tmpfs", 0, "size=4k") != 0) {
        fprintf(stderr, "a full disk: not tried, it may not mount: %s\n", strerror(errno));
        daemon_remove(&d);
        return;
    }
    char filler[120];
    snprintf(filler, sizeof filler, "%s/filler", folder);
    FILE *f = fopen(filler, "we");
    ck_assert_ptr_nonnull(f);
    setbuf(f, NULL);
    while (fwrite(page, sizeof page, 1, f) == 1)
        continue;
    fclose(f);
    assert_cannot_write_endpoint(&d, "No space left on device");
    ck_assert_int_eq(mount("full", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=4k"), 0);
    assert_cannot_write_endpoint(&d, "Read-only file system");
    umount2(folder, MNT_DETACH);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_full_disk_stops_no_exchange, a_failing_disk_stops_no_exchange,
                                  a_disk_that_stands_still_stops_nobody,
                                  an_endpoint_file_that_cannot_be_written_is_named};
    return suite_run("disk", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
