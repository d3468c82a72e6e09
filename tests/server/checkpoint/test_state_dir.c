/* The state directory: its owner, and the checkpoints that stay, are found and survive a failing write. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/checkpoint/state_dir.h"
#include "tests/server/checkpoint/checkpoint_fixture.h"
#include "tests/support/unit.h"

static struct {
    ino_t inodes[8];
    int n;
} synced; /* by fsync; each test has its process */

/* Instead of the C library's. */
int fsync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && synced.n < (int)ROWS(synced.inodes))
        synced.inodes[synced.n++] = st.st_ino;
    return (int)syscall(SYS_fsync, fd);
}

static bool is_synced(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    for (int i = 0; i < synced.n; i++)
        if (synced.inodes[i] == st.st_ino)
            return true;
    return false;
}

static char
    skipped_text[2048]; /* what read_newest reported, one sentence a line; each test has its process */

static void note_skipped(const char *sentence)
{
    strncat(skipped_text, sentence, sizeof skipped_text - strlen(skipped_text) - 2);
    strcat(skipped_text, "\n");
}

START_TEST(newest_are_kept)
{
    static const char junk[] = "not a checkpoint";
    store(".center.tmp-99999", junk, sizeof junk);
    store("center-000000000009.safetensors", junk, sizeof junk);
    store("center-other.safetensors", junk, sizeof junk);
    for (uint64_t v = 1; v <= 5; v++)
        write_snapshot(v, 1000 + v, 2);
    ck_assert_int_eq(access("center-000000000005.safetensors", F_OK), 0);
    ck_assert_int_eq(access("center-000000000004.safetensors", F_OK), 0);
    ck_assert_int_ne(access("center-000000000003.safetensors", F_OK), 0);
    ck_assert_int_ne(access(".center.tmp-99999", F_OK), 0); /* left by a writer that died */
    ck_assert_int_eq(count_files(), 4);                     /* what is not ours, or damaged, stays */
    write_snapshot(5, 1006, 0);
    ck_assert_int_eq(access("center-000000000005.safetensors", F_OK), 0);
    ck_assert_int_eq(count_files(), 3);
}
END_TEST

static bool has_version(uint64_t version)
{
    char name[64];
    snprintf(name, sizeof name, "center-%012u.safetensors", (unsigned)version);
    return access(name, F_OK) == 0;
}

START_TEST(a_version_that_other_servers_need_is_kept_beside_the_newest)
{
    static const struct {
        uint64_t version, spare;
        int n; /* files after it */
    } writes[] = {{1, 9, 1}, {2, 1, 2}, {3, 1, 3}, {4, 1, 3}, {5, 1, 3}, {6, 4, 3}, {7, 7, 2}, {8, 6, 3}};
    for (size_t i = 0; i < ROWS(writes); i++) {
        struct psd_snapshot s;
        struct ps_error err;
        char path[256];
        make_snapshot(&s, writes[i].version, 1);
        s.saved_at_s += i;
        ck_assert_msg(psd_checkpoint_write(".", &s, 2, &writes[i].spare, path, sizeof path, &err) == 0, "%s",
                      err.text);
        psd_snapshot_finish(&s);
        ck_assert_int_eq(count_files(), writes[i].n);
        ck_assert(has_version(writes[i].version));
        ck_assert(has_version(writes[i].spare) || writes[i].spare == 9);
    }
}
END_TEST

/* The other model has another name for its first tensor, which a file has to be read to know the hash of. */
static void make_other_model(struct psd_snapshot *s)
{
    struct ps_error err;
    char path[256];
    s->manifest->tensors[0].name[0] = '_';
    ck_assert_int_eq(psd_checkpoint_write(".", s, UINT32_MAX, NULL, path, sizeof path, &err), 0);
    psd_snapshot_finish(s);
    ck_assert_int_eq(psd_checkpoint_read(path, 1000, s, &err), 0);
}

static void write_of(uint64_t job, uint64_t version, uint32_t keep, bool other_model)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    make_snapshot(&s, version, 1);
    s.job = job;
    if (other_model)
        make_other_model(&s);
    ck_assert_msg(psd_checkpoint_write(".", &s, keep, NULL, path, sizeof path, &err) == 0, "%s", err.text);
    psd_snapshot_finish(&s);
}

START_TEST(no_other_jobs_files_are_deleted)
{
    struct psd_snapshot s;
    write_of(7, 1, 1, false);
    for (uint64_t v = 10; v < 13; v++)
        write_of(8, v, 1, false); /* of the same model */
    for (uint64_t v = 20; v < 23; v++)
        write_of(7, v, 1, true); /* of another */
    ck_assert_int_eq(access("center-000000000001.safetensors", F_OK), 0);
    ck_assert_int_eq(access("center-000000000012.safetensors", F_OK), 0);
    ck_assert_int_eq(access("center-000000000022.safetensors", F_OK), 0);
    ck_assert_int_eq(count_files(), 3);
    make_snapshot(&s, 2, 1);
    s.job = 8;
    psd_checkpoint_forget_after(".", &s); /* going back: what is undone is this job's */
    psd_snapshot_finish(&s);
    ck_assert_int_ne(access("center-000000000012.safetensors", F_OK), 0);
    ck_assert_int_eq(count_files(), 2);
}
END_TEST

START_TEST(a_used_directory_asks_what_is_wanted)
{
    struct ps_error err;
    struct psd_snapshot s;
    struct psd_aside aside;
    char again[400] = "", path[500];
    ck_assert_int_eq(mkdir("state", 0700), 0);
    ck_assert_int_eq(psd_state_checkpoints("state", false, false, &aside, &err), 0);
    ck_assert_int_eq(psd_state_checkpoints("state", false, false, &aside, &err), 0); /* empty */
    for (int round = 0; round < 2; round++) {
        make_snapshot(&s, 34, 1);
        ck_assert_int_eq(psd_checkpoint_write("state/checkpoints", &s, 1, NULL, path, sizeof path, &err), 0);
        psd_snapshot_finish(&s);
        ck_assert_int_eq(psd_state_checkpoints("state", false, false, &aside, &err), -EEXIST);
        assert_error_says(&err, "state/checkpoints holds 1 checkpoints of a job, the newest of version 34");
        assert_error_says(&err, "--resume");
        assert_error_says(&err, "--fresh");
        ck_assert_int_eq(psd_state_checkpoints("state", true, false, &aside, &err), 0);
        ck_assert_str_eq(aside.path, "");
        ck_assert_uint_eq(aside.n, 0);

        ck_assert_int_eq(psd_state_checkpoints("state", false, true, &aside, &err), 0);
        ck_assert_uint_eq(aside.n, 1);
        ck_assert_uint_eq(aside.newest, 34);
        ck_assert_str_ne(aside.path, again); /* in the same second */
        strcpy(again, aside.path);
        snprintf(path, sizeof path, "%s/center-000000000034.safetensors", aside.path);
        ck_assert_int_eq(access(path, F_OK), 0);
        ck_assert_int_ne(access("state/checkpoints/center-000000000034.safetensors", F_OK), 0);
    }
    ck_assert_int_eq(system("rm -r state"), 0);
}
END_TEST

/* What every job that uses the directory hears, however it begins. */
static void assert_unusable(const char *says)
{
    struct ps_error err;
    struct psd_aside aside;
    for (int way = 0; way < 3; way++) {
        err.text[0] = 0;
        ck_assert_int_lt(psd_state_checkpoints("state", way == 1, way == 2, &aside, &err), 0);
        assert_error_says(&err, "state/checkpoints: cannot be used for checkpoints: ");
        assert_error_says(&err, says);
    }
}

START_TEST(a_directory_that_cannot_be_used_is_refused)
{
    const bool is_root = geteuid() == 0;
    ck_assert_int_eq(mkdir("state", 0755), 0);
    ck_assert_int_eq(symlink("../not-mounted", "state/checkpoints"), 0);
    assert_unusable("No such file or directory");
    ck_assert_int_eq(unlink("state/checkpoints"), 0);
    store("state/checkpoints", "x", 1);
    assert_unusable("Not a directory");
    ck_assert_int_eq(unlink("state/checkpoints"), 0);

    ck_assert_int_eq(mkdir("state/checkpoints", 0700), 0);
    ck_assert_int_eq(chmod(".", 0755), 0);
    for (mode_t mode = 0; mode <= 0555; mode += 0555) { /* not readable; readable, but not writable */
        ck_assert_int_eq(chmod("state/checkpoints", mode), 0);
        ck_assert(!is_root || setresuid(65534, 65534, 0) == 0); /* permissions do not bind root */
        assert_unusable("Permission denied");
        ck_assert(!is_root || setresuid(0, 0, 0) == 0);
    }
    ck_assert_int_eq(rmdir("state/checkpoints"), 0);
    ck_assert_int_eq(rmdir("state"), 0);
}
END_TEST

/* A run that started anew beside the files of a longer one: its files are the newest all the same. */
START_TEST(newest_is_by_time)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    write_snapshot(10000, 1000, 3);
    write_snapshot(20, 2000, 3);
    write_snapshot(30, 2000, 3);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, note_skipped, &err), 0);
    ck_assert_uint_eq(s.version, 30);
    ck_assert_str_eq(path, "./center-000000000030.safetensors");
    psd_snapshot_finish(&s);
    write_snapshot(40, 3000, 2);
    ck_assert_int_ne(access("center-000000010000.safetensors", F_OK), 0);
}
END_TEST

START_TEST(damaged_newest_falls_back)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    size_t len;

    for (uint64_t v = 1; v <= 3; v++)
        write_snapshot(v, 1000 + v, 3);
    unsigned char *bytes = load("center-000000000003.safetensors", &len);
    bytes[len - 3] ^= 4; /* in the data */
    store("center-000000000003.safetensors", bytes, len);
    store("center-000000000002.safetensors", bytes, 100); /* in the header; newest by the file's time */
    free(bytes);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, note_skipped, &err), 0);
    ck_assert_uint_eq(s.version, 1);
    psd_snapshot_finish(&s);
    ck_assert_ptr_nonnull(strstr(skipped_text, "center-000000000003.safetensors: the data"));
    ck_assert_ptr_nonnull(strstr(skipped_text, "center-000000000002.safetensors: byte 0 gives a header of"));

    ck_assert_int_eq(psd_checkpoint_read_newest(".", 44, &s, path, sizeof path, NULL, &err), -EFBIG);
    ck_assert_int_eq(truncate("center-000000000001.safetensors", 0), 0);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), -EBADMSG);
    assert_error_says(&err, "none of 3 checkpoints is readable");
}
END_TEST

START_TEST(empty_directory_has_none)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), -ENOENT);
    assert_error_says(&err, "no checkpoint");
    ck_assert_int_eq(psd_checkpoint_read_newest("missing", 1000, &s, path, sizeof path, NULL, &err), -ENOENT);
    assert_error_says(&err, "missing: cannot read the checkpoint directory");
    ck_assert_int_eq(psd_checkpoint_read("missing", 1000, &s, &err), -ENOENT);
    ck_assert_int_eq(psd_checkpoint_read(".", 1000, &s, &err), -EBADMSG);
    assert_error_says(&err, "not a regular file");
}
END_TEST

START_TEST(failed_write_leaves_the_old_file)
{
    struct psd_snapshot s, back;
    struct ps_error err;
    char path[256];

    make_snapshot(&s, 1, 1);
    ck_assert_int_eq(psd_checkpoint_write("missing/deep", &s, 1, NULL, path, sizeof path, &err), -ENOENT);
    assert_error_says(&err, "missing/deep: ");
    write_snapshot(1, 1, 1);
    s.version = 2;
    ck_assert_int_eq(mkdir("center-000000000002.safetensors", 0700), 0); /* rename cannot replace it */
    ck_assert_int_lt(psd_checkpoint_write(".", &s, 1, NULL, path, sizeof path, &err), 0);
    assert_error_says(&err, "center-000000000002.safetensors: cannot write the checkpoint: ");
    ck_assert_int_eq(rmdir("center-000000000002.safetensors"), 0);
    ck_assert_int_eq(count_files(), 1);

    if (geteuid() != 0) { /* permissions do not bind root */
        ck_assert_int_eq(chmod(".", 0500), 0);
        ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, NULL, path, sizeof path, &err), -EACCES);
        ck_assert_int_eq(chmod(".", 0700), 0);
    }
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, NULL, path, 20, &err), -ENAMETOOLONG);
    ck_assert_int_eq(psd_checkpoint_read("center-000000000001.safetensors", 1000, &back, &err), 0);
    psd_snapshot_finish(&back);
    psd_snapshot_finish(&s);
}
END_TEST

/* Somebody has removed it while psd runs. */
START_TEST(a_directory_that_is_gone_is_made_anew)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    make_snapshot(&s, 1, 1);
    ck_assert_msg(psd_checkpoint_write("gone", &s, 1, NULL, path, sizeof path, &err) == 0, "%s", err.text);
    ck_assert_int_eq(access("gone/center-000000000001.safetensors", F_OK), 0);
    ck_assert_int_eq(unlink("gone/center-000000000001.safetensors"), 0);
    ck_assert_int_eq(rmdir("gone"), 0);
    s.evaluated = true;
    ck_assert_msg(psd_checkpoint_write_best("gone", &s, false, path, sizeof path, &err) == 0, "%s", err.text);
    ck_assert_int_eq(unlink("gone/best.safetensors"), 0);
    ck_assert_int_eq(rmdir("gone"), 0);
    psd_snapshot_finish(&s);
}
END_TEST

static int write_best(double accuracy, uint64_t evaluated, uint64_t version, bool set_aside)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    make_snapshot(&s, version, 1);
    s.evaluated = true;
    s.test_accuracy = accuracy;
    s.evaluated_version = evaluated;
    int rc = psd_checkpoint_write_best(".", &s, set_aside, path, sizeof path, &err);
    if (rc == 0)
        ck_assert_str_eq(path, "./best.safetensors");
    psd_snapshot_finish(&s);
    return rc;
}

START_TEST(best_is_kept_apart)
{
    struct psd_snapshot s;
    struct psd_best best;
    struct ps_error err;
    char path[256];

    ck_assert_int_eq(psd_checkpoint_read_best(".", &best, &err), -ENOENT);
    ck_assert_int_eq(write_best(0.875, 7, 9, false), 0);
    for (uint64_t i = 10; i < 15; i++)
        write_snapshot(i, 1700000000 + i, 2); /* the best one's is 1700000000 */
    ck_assert_int_eq(count_files(), 3);
    ck_assert_msg(psd_checkpoint_read_best(".", &best, &err) == 0, "%s", err.text);
    ck_assert_double_eq(best.accuracy, 0.875);
    ck_assert_uint_eq(best.evaluated_version, 7);
    ck_assert_uint_eq(best.version, 9);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), 0);
    ck_assert_uint_eq(s.version, 14); /* not the best */
    ck_assert(!s.evaluated);
    psd_snapshot_finish(&s);

    ck_assert_int_eq(write_best(0.9914, 20, 21, false), 0); /* in its place */
    ck_assert_int_eq(count_files(), 3);
    ck_assert_int_eq(write_best(0.5, 1, 2, true), 0); /* beside it */
    ck_assert_int_eq(count_files(), 4);
    ck_assert_int_eq(psd_checkpoint_read_best(".", &best, &err), 0);
    ck_assert_double_eq(best.accuracy, 0.5);

    /* It is a checkpoint like any other: a job goes on from it when nothing newer is there, or by itself. */
    for (unsigned v = 13; v < 15; v++) {
        snprintf(path, sizeof path, "center-%012u.safetensors", v);
        ck_assert_int_eq(unlink(path), 0);
    }
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), 0);
    ck_assert_str_eq(path, "./best.safetensors");
    psd_snapshot_finish(&s);
    ck_assert_int_eq(rename("best.safetensors", "center-000000000000.safetensors"), 0);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), 0);
    ck_assert_uint_eq(s.version, 2);
    psd_snapshot_finish(&s);
}
END_TEST

/* A best one is written at any time, of a center that may be older than the newest checkpoint's. */
START_TEST(the_newest_is_one_to_resume_from)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    uint64_t newest;
    uint32_t n;
    make_snapshot(&s, 10, 0);
    s.saved_at_s += 100;
    s.has_average = false;
    s.evaluated = s.bare = true;
    s.evaluated_version = 10;
    ck_assert_msg(psd_checkpoint_write_best(".", &s, false, path, sizeof path, &err) == 0, "%s", err.text);
    psd_snapshot_finish(&s);
    ck_assert_int_eq(psd_checkpoint_count(".", &n, &newest, &err), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(newest, 10);
    write_snapshot(14, 1700000014, 2);
    ck_assert_int_eq(psd_checkpoint_count(".", &n, &newest, &err), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(newest, 14);
}
END_TEST

START_TEST(best_is_never_lost)
{
    struct psd_snapshot s;
    struct psd_best best;
    struct ps_error err;
    char path[256];

    ck_assert_int_eq(write_best(0.5, 1, 2, false), 0);
    make_snapshot(&s, 3, 1);
    s.evaluated = true;
    s.test_accuracy = 0.75;
    s.center[44] = NAN;
    ck_assert_int_eq(psd_checkpoint_write_best(".", &s, false, path, sizeof path, &err), -EINVAL);
    assert_error_says(&err, "best.safetensors: not written: value 44 of the center is not finite");
    ck_assert_int_eq(psd_checkpoint_read_best(".", &best, &err), 0);
    ck_assert_double_eq(best.accuracy, 0.5);
    psd_snapshot_finish(&s);
    store("best.safetensors", "rubbish", 7);
    ck_assert_int_eq(psd_checkpoint_read_best(".", &best, &err), -EBADMSG);
    write_snapshot(4, 4, 1);
    ck_assert_int_eq(rename("center-000000000004.safetensors", "best.safetensors"), 0);
    ck_assert_int_eq(psd_checkpoint_read_best(".", &best, &err), -EBADMSG);
    assert_error_says(&err, "no psd.test_accuracy");
}
END_TEST

/* A write that stops in the middle: the file-size limit stands in for a full disk. */
START_TEST(short_write_leaves_nothing)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    write_snapshot(1, 1, 1);
    make_snapshot(&s, 2, 1);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        int rc = psd_checkpoint_write(".", &s, 1, NULL, path, sizeof path, &err);
        _exit(rc == -EFBIG && strstr(err.text, "cannot write the checkpoint") != NULL ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(count_files(), 1);
    ck_assert_int_eq(access("center-000000000001.safetensors", F_OK), 0);
    psd_snapshot_finish(&s);
}
END_TEST

START_TEST(state_directory_has_one_owner)
{
    struct ps_error err;
    struct stat st;
    char want[64];
    int first, second;

    ck_assert_msg(psd_state_lock("state", &first, &err) == 0, "%s", err.text);
    ck_assert_int_eq(stat("state", &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(psd_state_lock("state", &second, &err), -EBUSY);
    snprintf(want, sizeof want, "in use by the psd with pid %ld", (long)getpid());
    assert_error_says(&err, want);
    psd_state_unlock(first);
    ck_assert_int_eq(psd_state_lock("state", &second, &err), 0);
    psd_state_unlock(second);

    pid_t child = fork(); /* one that dies without a word */
    if (child == 0)
        _exit(psd_state_lock("state", &first, &err) == 0 ? 0 : 1);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(psd_state_lock("state", &first, &err), 0);
    psd_state_unlock(first);
    unlink("state/lock");

    ck_assert_int_eq(psd_state_lock("a/b", &first, &err), -ENOENT);
    assert_error_says(&err, "a/b: cannot make the state directory");
    store("file", "x", 1);
    ck_assert_int_eq(psd_state_lock("file", &first, &err), -ENOTDIR);
    assert_error_says(&err, "file: cannot use it");
}
END_TEST

/* A power cut may not take what a checkpoint lies in. */
START_TEST(new_directories_are_made_for_good)
{
    struct psd_aside aside;
    struct ps_error err;
    int lock;
    ck_assert_int_eq(psd_state_lock("state", &lock, &err), 0);
    ck_assert(is_synced("."));
    ck_assert(!is_synced("state"));
    ck_assert_int_eq(psd_state_checkpoints("state", false, false, &aside, &err), 0);
    ck_assert(is_synced("state"));
    psd_state_unlock(lock);
    ck_assert_int_eq(rmdir("state/checkpoints"), 0);
    ck_assert_int_eq(unlink("state/lock"), 0);
    ck_assert_int_eq(rmdir("state"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-statedir");
    TCase *tc = tcase_create("statedir");
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_test(tc, newest_are_kept);
    tcase_add_test(tc, a_version_that_other_servers_need_is_kept_beside_the_newest);
    tcase_add_test(tc, no_other_jobs_files_are_deleted);
    tcase_add_test(tc, a_used_directory_asks_what_is_wanted);
    tcase_add_test(tc, a_directory_that_cannot_be_used_is_refused);
    tcase_add_test(tc, newest_is_by_time);
    tcase_add_test(tc, damaged_newest_falls_back);
    tcase_add_test(tc, empty_directory_has_none);
    tcase_add_test(tc, failed_write_leaves_the_old_file);
    tcase_add_test(tc, a_directory_that_is_gone_is_made_anew);
    tcase_add_test(tc, best_is_kept_apart);
    tcase_add_test(tc, best_is_never_lost);
    tcase_add_test(tc, the_newest_is_one_to_resume_from);
    tcase_add_test(tc, short_write_leaves_nothing);
    tcase_add_test(tc, state_directory_has_one_owner);
    tcase_add_test(tc, new_directories_are_made_for_good);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
