/* DIR/job: one of its two copies is whole whatever happens to a write. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "server/checkpoint/job_file.h"
#include "tests/server/checkpoint/checkpoint_fixture.h"
#include "tests/support/unit.h"

enum { COPY_BYTES = 12288 };

static struct psd_job_record read_it(bool *found)
{
    struct psd_job_file f;
    struct psd_job_record r;
    struct ps_error err;
    ck_assert_msg(psd_job_file_open(".", &f, &r, found, &err) == 0, "%s", err.text);
    psd_job_file_close(&f);
    return r;
}

static uint64_t version_read(void)
{
    bool found;
    struct psd_job_record r = read_it(&found);
    ck_assert(found);
    return r.version;
}

static struct psd_job_file open_it(void)
{
    struct psd_job_file f;
    struct psd_job_record r;
    bool found;
    ck_assert_int_eq(psd_job_file_open(".", &f, &r, &found, NULL), 0);
    return f;
}

static void write_it(struct psd_job_file *f, uint64_t version, bool sync)
{
    struct psd_job_record r = {.job = 7, .version = version, .names_to = 9, .n_members = 2, .n_active = 1};
    r.members[0] = (struct psd_job_member){3, 8};
    r.members[1] = (struct psd_job_member){1, 9};
    strcpy(r.settings, "parameters.period=4\n");
    ck_assert_int_eq(psd_job_file_write(f, &r), 0);
    if (sync)
        ck_assert_int_eq(psd_job_file_sync(f), 0);
}

static void spoil(unsigned copy, off_t at)
{
    int fd = open(PSD_JOB_FILE, O_RDWR);
    char byte;
    ck_assert_int_eq(pread(fd, &byte, 1, copy * COPY_BYTES + at), 1);
    byte = (char)~byte;
    ck_assert_int_eq(pwrite(fd, &byte, 1, copy * COPY_BYTES + at), 1);
    close(fd);
}

START_TEST(what_is_written_is_read)
{
    bool found;
    struct stat st;
    struct psd_job_record r = read_it(&found);
    ck_assert(!found);
    ck_assert_uint_eq(r.job, 0);
    struct psd_job_file f = open_it();
    write_it(&f, 5, true);
    psd_job_file_close(&f);
    r = read_it(&found);
    ck_assert(found);
    ck_assert_uint_eq(r.job, 7);
    ck_assert_uint_eq(r.names_to, 9);
    ck_assert_uint_eq(r.n_members, 2);
    ck_assert_uint_eq(r.members[1].incarnation, 9);
    ck_assert_str_eq(r.settings, "parameters.period=4\n");
    ck_assert_int_eq(stat(PSD_JOB_FILE, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    off_t size = st.st_size;
    f = open_it(); /* and takes no more room ever after */
    for (uint64_t v = 6; v < 60; v++)
        write_it(&f, v, v % 3 == 0);
    psd_job_file_close(&f);
    ck_assert_uint_eq(version_read(), 59);
    ck_assert_int_eq(stat(PSD_JOB_FILE, &st), 0);
    ck_assert_int_eq(st.st_size, size);
}
END_TEST

/* Each byte of the newest copy: the one before is taken. */
START_TEST(a_write_that_was_cut_leaves_the_one_before)
{
    struct psd_job_file f = open_it();
    write_it(&f, 1, true);
    write_it(&f, 2, true);
    psd_job_file_close(&f);
    for (off_t at = 0; at < 8900; at++) {
        unsigned newest = 1;
        spoil(newest, at);
        uint64_t version = version_read();
        spoil(newest, at);
        ck_assert_uint_eq(version_read(), 2);
        if (at < 8 * (2 + 4 + PSD_JOB_FORMER) + 24 + PSD_JOB_MEMBERS * 8)
            ck_assert_uint_eq(version, 1);
    }
    spoil(0, 100);
    spoil(1, 100);
    bool found;
    read_it(&found);
    ck_assert(!found);
}
END_TEST

/* Of a psd that kept no settings: its magic, and its checksum at once behind what it had. */
START_TEST(a_record_of_the_format_before_is_read)
{
    size_t at = 16 + offsetof(struct psd_job_record, settings);
    static char copy[COPY_BYTES], settings[PSD_SETTINGS_BYTES + 1];
    bool found;
    struct psd_job_file f = open_it();
    write_it(&f, 5, true);
    psd_job_file_close(&f);
    int fd = open(PSD_JOB_FILE, O_RDWR);
    ck_assert_int_eq(pread(fd, copy, sizeof copy, 0), sizeof copy);
    memcpy(copy, "psd-job2", 8);
    uint64_t checksum = XXH3_64bits(copy, at);
    memcpy(copy + at, &checksum, sizeof checksum);
    ck_assert_int_eq(pwrite(fd, copy, sizeof copy, 0), sizeof copy);
    struct psd_job_record r = read_it(&found);
    ck_assert(found);
    ck_assert_uint_eq(r.version, 5);
    ck_assert_uint_eq(r.members[1].incarnation, 9);
    ck_assert_mem_eq(r.settings, settings, sizeof r.settings);
    copy[at - 1] ^= 1;
    ck_assert_int_eq(pwrite(fd, copy, sizeof copy, 0), sizeof copy);
    close(fd);
    read_it(&found);
    ck_assert(!found);
}
END_TEST

/* What was not brought to disk is written over, never the copy that was. */
START_TEST(the_copy_on_disk_stays_until_there_is_another)
{
    struct psd_job_file f = open_it();
    write_it(&f, 1, true);
    for (uint64_t v = 2; v < 5; v++)
        write_it(&f, v, false);
    psd_job_file_close(&f);
    ck_assert_uint_eq(version_read(), 4);
    spoil(1, 0);
    ck_assert_uint_eq(version_read(), 1);
}
END_TEST

/* Somebody has emptied the state directory while psd runs. */
START_TEST(a_file_that_is_gone_is_made_anew)
{
    struct psd_job_file f = open_it();
    write_it(&f, 1, true);
    ck_assert_int_eq(unlink(PSD_JOB_FILE), 0);
    write_it(&f, 2, true);
    ck_assert_uint_eq(version_read(), 2);
    psd_job_file_close(&f);
}
END_TEST

START_TEST(what_is_no_such_file_is_said)
{
    struct psd_job_file f;
    struct psd_job_record r;
    struct ps_error err;
    bool found;
    ck_assert_int_eq(mkdir("job", 0700), 0);
    ck_assert_int_eq(psd_job_file_open(".", &f, &r, &found, &err), -EISDIR);
    assert_error_says(&err, "./job: cannot open it");
    ck_assert_int_eq(rmdir("job"), 0);
    ck_assert_int_eq(psd_job_file_open("missing", &f, &r, &found, &err), -ENOENT);
    store("job", "rubbish", 7);
    read_it(&found);
    ck_assert(!found);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-jobfile");
    TCase *tc = tcase_create("jobfile");
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_test(tc, what_is_written_is_read);
    tcase_add_test(tc, a_write_that_was_cut_leaves_the_one_before);
    tcase_add_test(tc, a_record_of_the_format_before_is_read);
    tcase_add_test(tc, the_copy_on_disk_stays_until_there_is_another);
    tcase_add_test(tc, a_file_that_is_gone_is_made_anew);
    tcase_add_test(tc, what_is_no_such_file_is_said);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
