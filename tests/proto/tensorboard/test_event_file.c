/* Event files: the bytes of a record are those that TensorBoard's own writer makes, and a disk that is full
 * or stands still costs events alone. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/tensorboard/event_file.h"
#include "tests/support/driven_clock.h"
#include "tests/support/event_reader.h"
#include "tests/support/unit.h"

static char dir[] = "/tmp/psd-events-XXXXXX";

static void make_dir(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void remove_dir(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

/* A disk that stands still: writes wait for the test, which waits for them. */
static atomic_bool stands_still, was_asked;
ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    atomic_store(&was_asked, true);
    while (atomic_load(&stands_still))
        unit_nap_ms(1);
    return __real_pwrite64(fd, bytes, n, at);
}

static void assert_hex(const char *hex, uint8_t *bytes, size_t len)
{
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(strlen(hex), 2 * len);
    for (size_t i = 0; i < len; i++) {
        char pair[3];
        snprintf(pair, sizeof pair, "%02x", bytes[i]);
        ck_assert_msg(memcmp(pair, hex + 2 * i, 2) == 0, "byte %zu is %s, not %.2s", i, pair, hex + 2 * i);
    }
    free(bytes);
}

/* RFC 3720, B.4, and the check value of the CRC catalogue. */
START_TEST(the_crc_is_castagnolis)
{
    uint8_t zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    ck_assert_uint_eq(ps_crc32c("123456789", 9), UINT32_C(0xe3069283));
    ck_assert_uint_eq(ps_crc32c(zeros, 32), UINT32_C(0x8a9136aa));
    ck_assert_uint_eq(ps_crc32c(ones, 32), UINT32_C(0x62a8ab43));
    ck_assert_uint_eq(ps_crc32c("", 0), 0);
    ck_assert_uint_eq(ps_crc32c_masked("", 0), UINT32_C(0xa282ead8));
}
END_TEST

static struct ps_histogram four_values(void)
{
    struct ps_histogram h;
    ps_histogram_init(&h, 1, 16, 2);
    ck_assert_uint_eq(h.n_buckets, 5);
    const double values[] = {0.25, 0.5, 2, 9};
    for (size_t i = 0; i < ROWS(values); i++)
        ps_histogram_add(&h, values[i]);
    return h;
}

/* What tensorboard 2.20's RecordWriter makes of the same events. */
START_TEST(records_are_those_of_tensorboard)
{
    const struct ps_histogram h = four_values();
    struct ps_histogram none = h;
    ps_histogram_clear(&none);
    const struct ps_event_value values[] = {{"loss", 0.5, NULL},     {"unknown", NAN, NULL},
                                            {"zero", 0, NULL},       {"empty", 0, &none},
                                            {"infinite", -INFINITY}, {"distance", 0, &h}};
    size_t len;
    uint8_t *record = ps_event_version(1700000000.25, &len);
    assert_hex("1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9", record,
               len);
    record = ps_event_start(1700000000.5, 7, &len);
    assert_hex("0f000000000000006d532b090900002040fc54d94110073a0208019beb06a7", record, len);
    record = ps_event_values(1700000001.5, 300, values, ROWS(values), &len);
    ck_assert_uint_eq(ps_record_bytes(record), len);
    assert_hex(
        "ba0000000000000011ad320f0900006040fc54d94110ac022aab010a0b0a046c6f7373150000003f0a0b0a047a65726f1500"
        "0000000a8e010a0864697374616e63652a810109000000000000d03f11000000000000224019000000000000104021000000"
        "00008027402900000000005455403228000000000000f03f0000000000000040000000000000104000000000000020400000"
        "00000000"
        "30403a2800000000000000400000000000000000000000000000f03f0000000000000000000000000000f03f72795ea1",
        record, len);
}
END_TEST

START_TEST(every_value_is_counted_in_its_bucket)
{
    struct ps_histogram h;
    ps_histogram_init(&h, 1, 4, 2);
    const double values[] = {0, 1, 1.5, 2, 3.9, 4, 1e300, NAN, INFINITY};
    for (size_t i = 0; i < ROWS(values); i++)
        ps_histogram_add(&h, values[i]);
    ck_assert_uint_eq(h.n_buckets, 3);
    ck_assert_uint_eq(h.counts[0], 1); /* below 1 */
    ck_assert_uint_eq(h.counts[1], 2); /* below 2 */
    ck_assert_uint_eq(h.counts[2], 4); /* the rest */
    ck_assert_uint_eq(h.n, 7);
    ck_assert_double_eq(h.min, 0);
    ck_assert_double_eq(h.max, 1e300);
    ps_histogram_init(&h, 1e-300, 1e300, 1.01);
    ck_assert_uint_eq(h.n_buckets, PS_HISTOGRAM_BUCKETS);
}
END_TEST

/* The steps of a file's events of values. Before these it has its version and a start. */
struct steps {
    int64_t *list;
    size_t n, n_events, max;
};

static void see_step(void *arg, const PsBoard__Event *event)
{
    struct steps *s = arg;
    ck_assert_int_eq(event->what_case, s->n_events == 0   ? PS_BOARD__EVENT__WHAT_FILE_VERSION
                                       : s->n_events == 1 ? PS_BOARD__EVENT__WHAT_SESSION_LOG
                                                          : PS_BOARD__EVENT__WHAT_SUMMARY);
    if (s->n_events++ < 2)
        return;
    ck_assert_uint_lt(s->n, s->max);
    s->list[s->n++] = event->step;
}

static size_t read_steps(const char *run, int64_t *steps, size_t max)
{
    char folder[200];
    struct steps s = {.list = steps, .max = max};
    snprintf(folder, sizeof folder, "%s/%s", dir, run);
    ck_assert_uint_eq(event_each(folder, see_step, &s), 1);
    return s.n;
}

static struct ps_event_file *open_file(const char *run)
{
    struct ps_event_file *f = NULL;
    struct ps_error err;
    ck_assert_msg(ps_event_file_open(dir, run, &f, &err) == 0, "%s", err.text);
    return f;
}

static void add(struct ps_event_file *f, int64_t step)
{
    ps_event_file_add(f, 1.5, step, &(struct ps_event_value){"loss", 0.25, NULL}, 1);
}

START_TEST(a_file_has_what_was_added)
{
    int64_t steps[8];
    struct ps_event_file *f = open_file("deep/er/run");
    for (int64_t step = 3; step < 6; step++)
        add(f, step);
    ck_assert_uint_eq(ps_event_file_close(f), 0);
    ck_assert_uint_eq(read_steps("deep/er/run", steps, ROWS(steps)), 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(steps[i], 3 + i);
    ck_assert_uint_eq(ps_event_file_close(NULL), 0);
    ps_event_file_add(NULL, 0, 0, NULL, 0);
}
END_TEST

START_TEST(files_of_one_run_have_names_of_their_own)
{
    char pattern[100];
    glob_t found;
    struct ps_event_file *first = open_file("run"), *second = open_file("run");
    ps_event_file_close(first);
    ps_event_file_close(second);
    snprintf(pattern, sizeof pattern, "%s/run/*tfevents*", dir);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    ck_assert_uint_eq(found.gl_pathc, 2);
    globfree(&found);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_named)
{
    char path[100];
    struct ps_event_file *f = NULL;
    struct ps_error err;
    snprintf(path, sizeof path, "%s/file", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(ps_event_file_open(path, "run", &f, &err), -ENOTDIR);
    ck_assert_ptr_null(f);
    ck_assert_msg(strstr(err.text, "tensorboard: ") == err.text && strstr(err.text, path) != NULL &&
                      strstr(err.text, strerror(ENOTDIR)) != NULL,
                  "%s", err.text);
}
END_TEST

/* stderr becomes a pipe; the end to read. */
static FILE *take_stderr(void)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    return fdopen(ends[0], "r");
}

static void await_line(FILE *log, const char *event, const char *part)
{
    char line[1000];
    do
        ck_assert_ptr_nonnull(fgets(line, sizeof line, log));
    while (strstr(line, event) == NULL);
    ck_assert_msg(strstr(line, part) != NULL, "%s", line);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The limit of a file's size stands for the disk: what fits of a record is written, and then nothing. */
START_TEST(a_full_disk_costs_events_alone)
{
    enum { ROOM_BYTES = 150 }; /* the record of step 3 goes over it */
    int64_t steps[8];
    FILE *log = take_stderr();
    signal(SIGXFSZ, SIG_IGN);
    limit_files(ROOM_BYTES);
    struct ps_event_file *f = open_file("run");
    for (int64_t step = 1; step <= 4; step++)
        add(f, step);
    await_line(log, "tensorboard.write", strerror(EFBIG));
    limit_files(RLIM_INFINITY);
    add(f, 100);
    uint64_t lost = ps_event_file_close(f);
    ck_assert_uint_gt(lost, 0);
    await_line(log, "tensorboard.lacks", "lacks");
    size_t n = read_steps("run", steps, ROWS(steps));
    ck_assert_uint_eq(n + lost, 5);
    ck_assert_int_eq(steps[0], 1);
    ck_assert_int_eq(steps[n - 1], 100);
    fclose(log);
}
END_TEST

struct closing {
    struct ps_event_file *f;
    uint64_t lost;
};

static void *close_it(void *arg)
{
    struct closing *c = arg;
    c->lost = ps_event_file_close(c->f);
    return NULL;
}

static size_t read_file(const char *run, uint8_t *bytes, size_t size)
{
    char pattern[200];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/%s/events.out.tfevents.*", dir, run);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    ck_assert_uint_eq(found.gl_pathc, 1);
    int fd = open(found.gl_pathv[0], O_RDONLY);
    ssize_t len = read(fd, bytes, size);
    ck_assert_int_ge(len, 0);
    close(fd);
    globfree(&found);
    return (size_t)len;
}

/* Records that are there in full. */
static size_t count_whole(const uint8_t *bytes, size_t len)
{
    size_t n = 0, at = 0;
    while (len - at > PS_RECORD_HEAD_BYTES && ps_record_bytes(bytes + at) <= len - at) {
        at += ps_record_bytes(bytes + at);
        n++;
    }
    return n;
}

START_TEST(a_disk_that_stands_still_keeps_nobody_waiting)
{
    enum { MANY = 20000 };
    static uint8_t bytes[1 << 20];
    static int64_t steps[MANY];
    pthread_t thread;
    FILE *log = take_stderr();
    atomic_store(&stands_still, true);
    struct closing closing = {.f = open_file("run")};
    while (!atomic_load(&was_asked))
        unit_nap_ms(1);
    for (int64_t step = 0; step < MANY; step++)
        add(closing.f, step); /* with a caller that waits this never ends */
    await_line(log, "tensorboard.write", "the disk stands still");
    ck_assert_int_eq(pthread_create(&thread, NULL, close_it, &closing), 0);
    test_clock_await_waiters(1);
    test_clock_advance_ms(10000);
    pthread_join(thread, NULL);
    await_line(log, "tensorboard.lacks", "a disk that stands still");
    fclose(log);

    atomic_store(&stands_still, false); /* the thread goes on by itself, and what it writes is whole */
    size_t kept = MANY - (size_t)closing.lost;
    ck_assert_uint_gt(kept, 0);
    while (count_whole(bytes, read_file("run", bytes, sizeof bytes)) < kept + 2)
        unit_nap_ms(1);
    ck_assert_uint_eq(read_steps("run", steps, MANY), kept);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tensorboard");
    TCase *tcase = tcase_create("tensorboard");
    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    tcase_add_test(tcase, the_crc_is_castagnolis);
    tcase_add_test(tcase, records_are_those_of_tensorboard);
    tcase_add_test(tcase, every_value_is_counted_in_its_bucket);
    tcase_add_test(tcase, a_file_has_what_was_added);
    tcase_add_test(tcase, files_of_one_run_have_names_of_their_own);
    tcase_add_test(tcase, a_folder_that_cannot_be_made_is_named);
    tcase_add_test(tcase, a_full_disk_costs_events_alone);
    tcase_add_test(tcase, a_disk_that_stands_still_keeps_nobody_waiting);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
