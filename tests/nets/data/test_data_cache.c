/* The cache of decoded images: the same pixels with it and without, and what becomes of one that is stale,
 * damaged, cut short or none. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nets/data/dataset.h"
#include "nets/data/images/cache.h"
#include "tests/nets/data/image_files.h"
#include "tests/nets/data/suite.h"

enum { SIDE = 32, VIEW = 28, N = 12, BYTES = N * VIEW * VIEW * 3 };

static char cache_path[128];
static bool has_no_locks;

/* In place of the C library's: some file systems of clusters have no locks. */
int flock(int fd, int how)
{
    if (!has_no_locks)
        return (int)syscall(SYS_flock, fd, how);
    errno = ENOSYS;
    return -1;
}

static bool (*go_on)(void *arg); /* NULL: never ended */

static int open_set(const char *view, bool has_cache, uint32_t threads, struct cnn_data **data,
                    struct ps_error *err)
{
    char spec[128];
    struct cnn_data_options opt = {.view = view,
                                   .max_damaged = 10,
                                   .cache = has_cache ? cache_path : NULL,
                                   .height = VIEW,
                                   .width = VIEW,
                                   .threads = threads,
                                   .go_on = go_on};
    snprintf(spec, sizeof spec, "images:%s", image_folder());
    return cnn_data_open_with(spec, &opt, data, err);
}

static struct cnn_data *open_well(const char *view, bool has_cache)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_msg(open_set(view, has_cache, 2, &data, &err) == 0, "%s", err.text);
    return data;
}

/* Images of many shapes: larger than the side, and smaller, that JPEG decodes at 1/1 to 1/8. */
static void write_set(void)
{
    static uint8_t rgb[400 * 300 * 3];
    char path[64];
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i / 900 * 7 + i % 900 / 3);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t width = 20 + 33 * i, height = 300 - 24 * i;
        snprintf(path, sizeof path, "train/%c/%02u.%s", 'a' + (int)(i % 3), i, i % 4 == 0 ? "png" : "jpg");
        write_image(path, i % 4 == 0
                              ? png_of(PNG_PLAIN, rgb, width, height)
                              : jpeg_of(i % 2 == 0 ? JPEG_PROGRESSIVE : JPEG_HALF, rgb, width, height));
    }
    write_image("val/a/1.jpg", jpeg_of(JPEG_PLAIN, rgb, 200, 100));
    snprintf(cache_path, sizeof cache_path, "%s.cache", image_folder());
}

static void remove_all(void)
{
    char lock[160];
    snprintf(lock, sizeof lock, "%s.lock", cache_path);
    unlink(cache_path);
    unlink(lock);
    image_folder_remove();
    has_no_locks = false;
    go_on = NULL;
}

static void read_views(const struct cnn_data *data, uint8_t out[BYTES])
{
    struct cnn_stream *s = NULL;
    struct cnn_batch b;
    struct cnn_stream_options opt = {
        .seed = 5, .batch = N, .height = VIEW, .width = VIEW, .prefetch = 1, .threads = 2};
    ck_assert_int_eq(cnn_stream_create(data, &opt, &s, NULL), 0);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), N);
    memcpy(out, b.images, BYTES);
    cnn_stream_destroy(s);
}

static ino_t cache_inode(void)
{
    struct stat st;
    ck_assert_int_eq(stat(cache_path, &st), 0);
    return st.st_ino;
}

/* Opens with the cache and expects the pixels; returns which file the cache then is. */
static ino_t expect_views(const uint8_t expected[BYTES])
{
    static uint8_t got[BYTES];
    struct cnn_data *data = open_well("crop", true);
    read_views(data, got);
    cnn_data_close(data);
    ck_assert_mem_eq(got, expected, BYTES);
    return cache_inode();
}

START_TEST(views_have_the_same_bits_with_and_without)
{
    static const char *const views[] = {"crop", "centre", "crop:jitter=0.3", "crop:side=47"};
    static uint8_t plain[BYTES], cached[BYTES];
    write_set();
    for (size_t i = 0; i < ROWS(views); i++) {
        struct cnn_data *without = open_well(views[i], false), *with = open_well(views[i], true);
        read_views(without, plain);
        read_views(with, cached);
        ck_assert_mem_eq(plain, cached, BYTES);
        cnn_data_close(without);
        cnn_data_close(with);
    }
}
END_TEST

/* Made once: afterwards the files are not looked into. One that has other bytes, and the old size and time,
 * is not noticed. */
START_TEST(what_is_there_is_used)
{
    static uint8_t plain[BYTES];
    struct stat st;
    char path[160];
    write_set();
    struct cnn_data *data = open_well("crop", false);
    read_views(data, plain);
    cnn_data_close(data);
    ino_t made = expect_views(plain);
    snprintf(path, sizeof path, "%s/train/a/00.png", image_folder());
    ck_assert_int_eq(stat(path, &st), 0);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "no PNG", 6, 0), 6);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    close(fd);
    ck_assert_uint_eq(expect_views(plain), made);
}
END_TEST

START_TEST(a_stale_one_is_made_anew)
{
    static uint8_t before[BYTES], after[BYTES];
    write_set();
    struct cnn_data *data = open_well("crop", true);
    read_views(data, before);
    cnn_data_close(data);
    ino_t made = cache_inode();
    write_image("train/a/00.png", flat_png(90, 90, (uint8_t[]){1, 2, 3}));
    data = open_well("crop", false);
    read_views(data, after);
    cnn_data_close(data);
    ck_assert_mem_ne(before, after, BYTES);
    ck_assert_uint_ne(expect_views(after), made);
}
END_TEST

/* Bytes of the file spoilt: in the header, the index, the last byte missing, and one too many. */
START_TEST(a_damaged_one_is_made_anew)
{
    static const off_t places[] = {17, 56, 64 + 5, 64 + 24 * N};
    static uint8_t plain[BYTES];
    struct stat st;
    write_set();
    struct cnn_data *data = open_well("crop", true);
    read_views(data, plain);
    cnn_data_close(data);
    for (size_t i = 0; i < ROWS(places) + 2; i++) {
        ino_t before = cache_inode();
        ck_assert_int_eq(stat(cache_path, &st), 0);
        int fd = open(cache_path, O_RDWR);
        uint8_t byte = 0;
        if (i >= ROWS(places))
            ck_assert_int_eq(ftruncate(fd, st.st_size + (i == ROWS(places) ? -1 : 1)), 0);
        else {
            ck_assert_int_eq(pread(fd, &byte, 1, places[i]), 1);
            byte ^= 0x10;
            ck_assert_int_eq(pwrite(fd, &byte, 1, places[i]), 1);
        }
        ck_assert_uint_ne(expect_views(plain), before);
        close(fd); /* until here, so that the new file has another number */
    }
}
END_TEST

START_TEST(a_damaged_image_is_read_from_its_file)
{
    static uint8_t plain[BYTES];
    struct stat st;
    write_set();
    struct cnn_data *data = open_well("crop", true);
    read_views(data, plain);
    cnn_data_close(data);
    ck_assert_int_eq(stat(cache_path, &st), 0);
    int fd = open(cache_path, O_RDWR);
    for (off_t at = 64 + 24 * (N + 1); at < st.st_size; at += 700) /* of most images */
        ck_assert_int_eq(pwrite(fd, "xyz", 3, at), 3);
    close(fd);
    ino_t made = cache_inode();
    ck_assert_uint_eq(expect_views(plain), made);
}
END_TEST

START_TEST(another_file_is_left_alone)
{
    char text[32] = "";
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    write_set();
    FILE *f = fopen(cache_path, "w");
    fputs("somebody's thesis", f);
    fclose(f);
    ck_assert_int_eq(open_set("crop", true, 1, &data, &err), -EINVAL);
    assert_says(err.text, ".cache: not an image cache; allowed: an image cache, or a new path");
    f = fopen(cache_path, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    ck_assert_str_eq(text, "somebody's thesis");
    fclose(f);
}
END_TEST

static void expect_no_file(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s.new", cache_path);
    ck_assert(access(path, F_OK) != 0 && access(cache_path, F_OK) != 0);
}

/* Several processes would write it at once. One that is there is used. */
START_TEST(a_file_system_without_locks)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    write_set();
    has_no_locks = true;
    ck_assert_int_eq(open_set("crop", true, 1, &data, &err), -ENOSYS);
    assert_says(err.text, ".cache.lock: cannot be locked: Function not implemented; allowed: a file system");
    expect_no_file();
    has_no_locks = false;
    cnn_data_close(open_well("crop", true));
    has_no_locks = true;
    cnn_data_close(open_well("crop", true));
}
END_TEST

/* What could not be written is not left behind, and what could not be decoded is as without a cache. */
START_TEST(a_full_disk)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    write_set();
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {5000, RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int rc = open_set("crop", true, 3, &data, &err);
    limit.rlim_cur = RLIM_INFINITY;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(rc, -EFBIG);
    assert_says(err.text, "cannot be written: File too large");
    expect_no_file();
}
END_TEST

static atomic_uint asked;

static bool until_the_third(void *arg)
{
    (void)arg;
    return atomic_fetch_add(&asked, 1) < 3;
}

START_TEST(its_creation_can_be_ended)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    write_set();
    go_on = until_the_third;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        atomic_store(&asked, 0);
        ck_assert_int_eq(open_set("crop", true, threads, &data, &err), -EINTR);
        assert_says(err.text, ".cache: ended before it was complete");
        ck_assert_uint_le(atomic_load(&asked), 3 + threads);
        expect_no_file();
    }
    go_on = NULL;
    cnn_data_close(open_well("crop", true));
}
END_TEST

static int taken; /* a descriptor of FILE.lock, locked */

static void take_lock(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s.lock", cache_path);
    taken = open(path, O_RDWR | O_CREAT, 0666);
    ck_assert_int_ge(taken, 0);
    ck_assert_int_eq(flock(taken, LOCK_EX), 0);
}

static bool until_it_is_free(void *arg)
{
    (void)arg;
    if (atomic_fetch_add(&asked, 1) == 1)
        close(taken);
    return true;
}

/* While another process has the lock. */
START_TEST(waiting_for_it_can_be_ended)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    write_set();
    take_lock();
    go_on = until_the_third;
    atomic_store(&asked, 0);
    ck_assert_int_eq(open_set("crop", true, 1, &data, &err), -EINTR);
    assert_says(err.text, ".cache: ended before it was complete");
    expect_no_file();
    go_on = until_it_is_free;
    atomic_store(&asked, 0);
    cnn_data_close(open_well("crop", true));
    ck_assert_uint_ge(atomic_load(&asked), 2);
}
END_TEST

START_TEST(damaged_files_are_left_out_as_without)
{
    static uint8_t plain[BYTES];
    write_set();
    write_file("train/a/00.png", "text", 4);
    write_file("train/b/01.jpg", "", 0);
    struct cnn_data *data = open_well("crop", false);
    read_views(data, plain);
    cnn_data_close(data);
    expect_views(plain);
    data = open_well("crop", true);
    read_views(data, plain);
    ck_assert_uint_eq(((struct cnn_images *)data->self)->n_damaged, 2);
    cnn_data_close(data);
}
END_TEST

START_TEST(views_of_another_side_are_refused)
{
    struct cnn_stream *s = NULL;
    struct ps_error err = {""};
    write_set();
    struct cnn_data *data = open_well("crop", true);
    struct cnn_stream_options opt = {.batch = 1, .height = 56, .width = 56};
    ck_assert_int_eq(cnn_stream_create(data, &opt, &s, &err), -EINVAL);
    assert_says(err.text, "the cache has images of side=32, and views of 56x56 want side=64");
    cnn_data_close(data);
}
END_TEST

/* Several processes at once: one makes it, all use it. */
START_TEST(workers_share_one)
{
    enum { WORKERS = 4 };
    static uint8_t plain[BYTES];
    write_set();
    struct cnn_data *data = open_well("crop", false);
    read_views(data, plain);
    cnn_data_close(data);
    for (int i = 0; i < WORKERS; i++)
        if (fork() == 0) {
            static uint8_t got[BYTES];
            data = open_well("crop", true);
            read_views(data, got);
            _exit(memcmp(got, plain, BYTES) == 0 ? 0 : 1);
        }
    for (int i = 0; i < WORKERS; i++) {
        int status = 1;
        ck_assert_int_gt(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
    ino_t made = cache_inode();
    ck_assert_uint_eq(expect_views(plain), made);
}
END_TEST

/* Rows that point elsewhere, with sums that fit: nothing outside of the file is read. */
START_TEST(rows_that_point_out_of_the_file)
{
    static const struct {
        uint64_t at;
        uint32_t width, height;
    } rows[] = {{UINT64_MAX, 1, 1}, {90, 1, 1},         {64, 0, 1},
                {64, 1, 0},         {64, 70000, 70000}, {64, UINT32_MAX, 1}};
    uint8_t bytes[91] = {0};
    const struct cnn_cache_wish wish = {.side = 32, .n_train = 1};
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct cnn_cache c;
        struct ps_error err = {""};
        cnn_cache_pack_row(rows[i].at, rows[i].width, rows[i].height, 0, bytes + 64);
        cnn_cache_pack_header(&wish, sizeof bytes, cnn_cache_sum(bytes + 64, 24), bytes);
        ck_assert_int_eq(cnn_cache_check(bytes, sizeof bytes, &wish, &c, &err), -EBADMSG);
        assert_says(err.text, "byte 64: an index row that points outside the file");
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cache");
    tcase_add_checked_fixture(tc, NULL, remove_all);
    tcase_add_test(tc, views_have_the_same_bits_with_and_without);
    tcase_add_test(tc, what_is_there_is_used);
    tcase_add_test(tc, a_stale_one_is_made_anew);
    tcase_add_test(tc, a_damaged_one_is_made_anew);
    tcase_add_test(tc, a_damaged_image_is_read_from_its_file);
    tcase_add_test(tc, another_file_is_left_alone);
    tcase_add_test(tc, a_file_system_without_locks);
    tcase_add_test(tc, a_full_disk);
    tcase_add_test(tc, its_creation_can_be_ended);
    tcase_add_test(tc, waiting_for_it_can_be_ended);
    tcase_add_test(tc, damaged_files_are_left_out_as_without);
    tcase_add_test(tc, views_of_another_side_are_refused);
    tcase_add_test(tc, workers_share_one);
    tcase_add_test(tc, rows_that_point_out_of_the_file);
    return run_case(tc, "data_cache");
}
