/* Tar files: their members in order, every way to write a name, what is wrong with bad ones; and image sets
 * made of them. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nets/data/dataset.h"
#include "nets/data/images/images.h"
#include "nets/data/images/tar.h"
#include "tests/nets/data/image_files.h"
#include "tests/nets/data/suite.h"
#include "tests/nets/data/tar_bytes.h"

static int open_bytes(const struct tar_bytes *t, struct cnn_tar *tar)
{
    int fd = memfd_create("tar", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, t->bytes, t->len), (ssize_t)t->len);
    ck_assert_int_eq(cnn_tar_open(tar, fd, NULL), 0);
    return fd;
}

static void expect_member(struct cnn_tar *tar, const struct tar_bytes *t, const char *name, const char *text)
{
    struct cnn_tar_member m;
    struct ps_error err = {""};
    ck_assert_msg(cnn_tar_next(tar, &m, &err) == 1, "%s", err.text);
    ck_assert_str_eq(m.name, name);
    ck_assert_ptr_null(m.link);
    ck_assert_uint_eq(m.bytes, strlen(text));
    ck_assert_mem_eq(t->bytes + m.at, text, m.bytes);
}

static void expect_end(struct cnn_tar *tar)
{
    struct cnn_tar_member m;
    ck_assert_int_eq(cnn_tar_next(tar, &m, NULL), 0);
    ck_assert_int_eq(cnn_tar_next(tar, &m, NULL), 0);
}

START_TEST(members_come_in_order)
{
    struct tar_bytes t = {0};
    struct cnn_tar tar;
    struct cnn_tar_member m;
    tar_header(&t, '5', "", "folder/", 0);
    tar_file(&t, "folder/one", "first", 5);
    tar_link(&t, '2', "link", "folder/one");
    tar_header(&t, '0', "", "empty", 0);
    tar_header(&t, '\0', "", "old", 3); /* as the oldest programs wrote files */
    tar_body(&t, "old", 3);
    tar_end(&t);
    int fd = open_bytes(&t, &tar);
    expect_member(&tar, &t, "folder/one", "first");
    ck_assert_int_eq(cnn_tar_next(&tar, &m, NULL), 1);
    ck_assert_str_eq(m.name, "link");
    ck_assert_str_eq(m.link, "folder/one");
    ck_assert(m.is_symbolic && m.bytes == 0);
    expect_member(&tar, &t, "empty", "");
    expect_member(&tar, &t, "old", "old");
    expect_end(&tar);
    close(fd);
    free(t.bytes);
}
END_TEST

START_TEST(long_names)
{
    char name[301], folder[151], expected[300], record[400];
    struct tar_bytes t = {0};
    struct cnn_tar tar;
    memset(name, 'n', 300);
    name[300] = '\0';
    memset(folder, 'f', 150);
    folder[150] = '\0';
    tar_header(&t, '0', folder, "ustar", 1); /* in two fields */
    tar_body(&t, "u", 1);
    tar_header(&t, 'L', "", "././@LongLink", 301); /* GNU: in a member before */
    tar_body(&t, name, 301);
    tar_file(&t, "cut off", "g", 1);
    snprintf(record, sizeof record, "310 path=%s\n11 mtime=1\n", name); /* pax */
    tar_header(&t, 'x', "", "pax", 321);
    tar_body(&t, record, 321);
    tar_file(&t, "cut off", "p", 1);
    tar_file(&t, "short again", "s", 1);
    int fd = open_bytes(&t, &tar);
    snprintf(expected, sizeof expected, "%s/ustar", folder);
    expect_member(&tar, &t, expected, "u");
    expect_member(&tar, &t, name, "g");
    expect_member(&tar, &t, name, "p");
    expect_member(&tar, &t, "short again", "s");
    expect_end(&tar); /* without the two blocks */
    close(fd);
    free(t.bytes);
}
END_TEST

START_TEST(sizes_in_bytes_and_in_pax)
{
    struct tar_bytes t = {0};
    struct cnn_tar tar;
    tar_file(&t, "binary", "12345", 5);
    memset(t.bytes + 124, 0, 12);
    t.bytes[124] = 0x80;
    t.bytes[135] = 5;
    tar_sum(&t, 0);
    tar_header(&t, 'x', "", "pax", 9);
    tar_body(&t, "9 size=4\n", 9);
    tar_header(&t, '0', "", "pax", 0);
    tar_body(&t, "1234", 4);
    tar_file(&t, "last", "x", 1);
    int fd = open_bytes(&t, &tar);
    expect_member(&tar, &t, "binary", "12345");
    expect_member(&tar, &t, "pax", "1234");
    expect_member(&tar, &t, "last", "x");
    expect_end(&tar);
    close(fd);
    free(t.bytes);
}
END_TEST

/* Archives that are bad, after one good member of two blocks. */
static struct tar_bytes bad_archive(int i)
{
    struct tar_bytes t = {0};
    tar_file(&t, "good", "good", 4);
    switch (i) {
    case 0: /* cut within a header */
        tar_file(&t, "cut", "cut", 3);
        t.len = 1024 + 100;
        break;
    case 1: /* a size beyond the end */
        tar_header(&t, '0', "", "far", 1 << 20);
        break;
    case 2:
        tar_file(&t, "spoilt", "x", 1);
        t.bytes[1024] ^= 1;
        break;
    case 3: /* 2^63 + */
        tar_file(&t, "huge", "x", 1);
        memset(t.bytes + 1024 + 124, 0xff, 12);
        tar_sum(&t, 1024);
        break;
    case 4:
        tar_file(&t, "words", "x", 1);
        memcpy(t.bytes + 1024 + 124, "ten bytes", 9);
        tar_sum(&t, 1024);
        break;
    case 5:
        tar_header(&t, 'x', "", "pax", 6);
        tar_body(&t, "99 a=b", 6);
        break;
    case 6:
        tar_header(&t, 'L', "", "long", 5000);
        tar_body(&t, (char[5000]){0}, 5000);
        break;
    case 7:
        tar_header(&t, 'S', "", "sparse", 0);
        break;
    case 8: /* size= moves a member behind the end */
        tar_header(&t, 'x', "", "pax", 28);
        tar_body(&t, "28 size=1844674407370955161\n", 28);
        tar_file(&t, "far", "x", 1);
        break;
    default:
        break;
    }
    return t;
}

static const char *const bad_parts[] = {
    "byte 1024: the archive ends within a header",
    "byte 1024: a member extends past the end of the archive",
    "byte 1024: the header's checksum is wrong",
    "byte 1024: a member's size that cannot be read",
    "byte 1024: a member's size that cannot be read",
    "byte 1536: a pax record that cannot be read",
    "byte 1536: an extension header that is empty or too long",
    "byte 1024: a sparse member; allowed: whole files",
    "byte 2048: a member extends past the end of the archive",
};

START_TEST(bad_archives_are_named_by_their_byte)
{
    struct tar_bytes t = bad_archive(_i);
    struct cnn_tar tar;
    struct cnn_tar_member m;
    struct ps_error err = {""};
    int fd = open_bytes(&t, &tar);
    expect_member(&tar, &t, "good", "good");
    ck_assert_int_eq(cnn_tar_next(&tar, &m, &err), -EBADMSG);
    assert_says(err.text, bad_parts[_i]);
    close(fd);
    free(t.bytes);
}
END_TEST

START_TEST(a_compressed_archive_is_refused)
{
    struct tar_bytes t = {0};
    struct cnn_tar tar;
    struct cnn_tar_member m;
    struct ps_error err = {""};
    tar_file(&t, "good", "good", 4);
    memcpy(t.bytes, "\x1f\x8b\x08", 3);
    int fd = open_bytes(&t, &tar);
    ck_assert_int_eq(cnn_tar_next(&tar, &m, &err), -EBADMSG);
    assert_says(err.text, "byte 0: not a tar file");
    assert_says(err.text, "allowed: tar without compression");
    close(fd);
    free(t.bytes);
}
END_TEST

static void add_image(struct tar_bytes *t, const char *name, uint8_t shade)
{
    struct file_bytes f = flat_png(20, 20, (uint8_t[]){shade, shade, shade});
    tar_file(t, name, f.bytes, f.len);
    free(f.bytes);
}

static void write_tar(const char *path, struct tar_bytes *t)
{
    tar_end(t);
    write_file(path, t->bytes, t->len);
    free(t->bytes);
    *t = (struct tar_bytes){0};
}

static int open_below(const char *path, struct cnn_data **data, struct ps_error *err)
{
    char spec[128];
    snprintf(spec, sizeof spec, "images:%s%s", image_folder(), path);
    return cnn_data_open(spec, data, err);
}

/* Labels and shades of a whole split, in its order. */
static void expect_split(const struct cnn_data *data, enum cnn_split split, uint32_t n,
                         const uint16_t *labels, const uint8_t *shades)
{
    struct cnn_stream *s = NULL;
    struct cnn_batch b;
    struct cnn_stream_options opt = {.split = split,
                                     .batch = n,
                                     .height = 8,
                                     .width = 8,
                                     .prefetch = 1,
                                     .sampling = {.kind = CNN_SAMPLING_BUFFER, .buffer = 1}};
    ck_assert_int_eq(cnn_stream_create(data, &opt, &s, NULL), 0);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), (int)n);
    uint32_t start = 0; /* a buffer of one is the set's order, from anywhere on */
    while (start < n && ((const uint8_t *)b.images)[start * 192] != shades[0])
        start++;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (start + i) % n;
        ck_assert_uint_eq(((const uint8_t *)b.images)[at * 192], shades[i]);
        ck_assert_uint_eq(b.labels[at], labels[i]);
    }
    cnn_stream_destroy(s);
}

START_TEST(one_archive_is_a_set)
{
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    add_image(&t, "./set/train/b/2.png", 10);
    add_image(&t, "./set/train/a/1.png", 20);
    tar_file(&t, "./set/README", "text", 4);
    add_image(&t, "./set/train/b/1.png", 30);
    add_image(&t, "./set/val/a/1.png", 40);
    write_tar("set.tar", &t);
    ck_assert_msg(open_below("/set.tar", &data, &err) == 0, "%s", err.text);
    ck_assert(data->info.is_sequential && data->info.classes == 2);
    expect_split(data, CNN_TRAIN, 3, (uint16_t[]){1, 0, 1}, (uint8_t[]){10, 20, 30});
    expect_split(data, CNN_TEST, 1, (uint16_t[]){0}, (uint8_t[]){40});
    cnn_data_close(data);
}
END_TEST

START_TEST(a_folder_of_archives_is_a_set)
{
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    add_image(&t, "a/1.png", 10);
    add_image(&t, "b/1.png", 20);
    write_tar("train/0.tar", &t);
    add_image(&t, "a/2.png", 30);
    write_tar("train/1.tar", &t);
    add_image(&t, "b/2.png", 40);
    write_tar("val/0.tar", &t);
    ck_assert_msg(open_below("", &data, &err) == 0, "%s", err.text);
    expect_split(data, CNN_TRAIN, 3, (uint16_t[]){0, 1, 0}, (uint8_t[]){10, 20, 30});
    expect_split(data, CNN_TEST, 1, (uint16_t[]){1}, (uint8_t[]){40});
    cnn_data_close(data);
    add_image(&t, "a/3.png", 30);
    t.len -= 512;
    t.bytes[t.len - 1] ^= 1;
    write_file("train/2.tar", t.bytes, t.len - 400);
    free(t.bytes);
    ck_assert_int_eq(open_below("", &data, &err), -EBADMSG);
    assert_says(err.text, "/train/2.tar: byte ");
    ck_assert_int_eq(open_below("/none.tar", &data, &err), -ENOENT);
    assert_says(err.text, "allowed: a folder of images or a tar file");
}
END_TEST

/* macOS writes a member ._NAME with attributes before many a NAME. */
START_TEST(hidden_members_are_ignored)
{
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    tar_file(&t, "./train/a/._1.png", "attributes", 10);
    add_image(&t, "./train/a/1.png", 10);
    add_image(&t, "./train/b/1.png", 20);
    add_image(&t, "./train/.thumbnails/1.png", 30);
    add_image(&t, "../val/b/1.png", 40);
    write_tar("set.tar", &t);
    ck_assert_msg(open_below("/set.tar", &data, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(data->info.classes, 2);
    expect_split(data, CNN_TRAIN, 2, (uint16_t[]){0, 1}, (uint8_t[]){10, 20});
    expect_split(data, CNN_TEST, 1, (uint16_t[]){1}, (uint8_t[]){40});
    cnn_data_close(data);
}
END_TEST

/* As tar writes a file of several names: a link has the image of its target, under its own name. */
START_TEST(links_are_images)
{
    char pax[64];
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    add_image(&t, "./set/train/a/1.png", 10);
    add_image(&t, "./set/train/b/1.png", 20);
    tar_link(&t, '2', "./set/val/a/2.png", "1.png"); /* which comes later */
    tar_link(&t, '1', "./set/val/a/1.png", "./set/train/a/1.png");
    tar_link(&t, '2', "./set/val/b/1.png", ".././../train/b//1.png");
    snprintf(pax, sizeof pax, "30 linkpath=set/train/b/1.png\n");
    tar_header(&t, 'x', "", "pax", strlen(pax));
    tar_body(&t, pax, strlen(pax));
    tar_link(&t, '1', "./set/val/b/2.png", "cut off");
    tar_header(&t, 'K', "", "././@LongLink", 20);
    tar_body(&t, "./set/train/b/1.png", 20);
    tar_link(&t, '1', "./set/val/b/3.png", "cut off");
    tar_link(&t, '2', "./set/val/b/4.png", "/elsewhere/1.png"); /* left out, as the next four */
    tar_link(&t, '2', "./set/val/b/5.png", "../../../../1.png");
    tar_link(&t, '1', "./set/val/b/6.png", "./set/train/b/7.png");
    tar_link(&t, '2', "./set/val/b/loop.png", "loop.png");
    tar_link(&t, '2', "./set/val/c", "../train/b");                  /* as a folder of images */
    tar_link(&t, '1', "./set/val/b/._1.png", "./set/train/b/1.png"); /* these do not count: no images */
    tar_link(&t, '2', "./set/val/notes", "b/notes");
    write_tar("set.tar", &t);
    ck_assert_msg(open_below("/set.tar", &data, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(data->info.n_train, 2);
    ck_assert_uint_eq(data->info.n_test, 5);
    expect_split(data, CNN_TRAIN, 2, (uint16_t[]){0, 1}, (uint8_t[]){10, 20});
    expect_split(data, CNN_TEST, 5, (uint16_t[]){0, 1, 1, 1, 0}, (uint8_t[]){10, 20, 20, 20, 10});
    ck_assert_uint_eq(((struct cnn_images *)data->self)->n_lost_links, 5);
    cnn_data_close(data);
}
END_TEST

static void write_png(const char *path, uint8_t shade)
{
    write_image(path, flat_png(20, 20, (uint8_t[]){shade, shade, shade}));
}

/* A test set in a folder beside training images in a tar file: neither is dropped silently. */
START_TEST(tar_files_and_image_files_are_refused)
{
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    add_image(&t, "a/1.png", 10);
    add_image(&t, "b/1.png", 20);
    write_tar("train/0.tar", &t);
    write_file("val/a/notes.txt", "text", 4); /* and other files do not matter */
    ck_assert_msg(open_below("", &data, &err) == 0, "%s", err.text);
    cnn_data_close(data);
    write_png("val/a/1.png", 30);
    ck_assert_int_eq(open_below("", &data, &err), -EBADMSG);
    assert_says(err.text, "both tar files and image files: ");
    assert_says(err.text, "/train/0.tar and ");
    assert_says(err.text, "/val/a/1.png; allowed: one of the two");
}
END_TEST

START_TEST(tar_files_without_images_do_not_matter)
{
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    tar_file(&t, "labels.txt", "a b", 3);
    write_tar("labels.tar", &t);
    ck_assert_int_eq(open_below("", &data, &err), -EBADMSG);
    assert_says(err.text, "no training images");
    write_png("train/a/1.png", 10);
    write_png("train/b/1.png", 20);
    write_png("val/b/1.png", 30);
    ck_assert_msg(open_below("", &data, &err) == 0, "%s", err.text);
    ck_assert(!data->info.is_sequential && data->info.n_train == 2);
    expect_split(data, CNN_TEST, 1, (uint16_t[]){1}, (uint8_t[]){30});
    cnn_data_close(data);
}
END_TEST

/* As another user's, of mode 700. A link that leads to itself cannot be read by root either. */
START_TEST(a_split_that_cannot_be_read_is_an_error)
{
    char path[128];
    struct tar_bytes t = {0};
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    add_image(&t, "a/1.png", 10);
    add_image(&t, "b/1.png", 20);
    write_tar("train/0.tar", &t);
    write_file("test", "text", 4); /* no folder, and no error */
    ck_assert_msg(open_below("", &data, &err) == 0, "%s", err.text);
    cnn_data_close(data);
    snprintf(path, sizeof path, "%s/val", image_folder());
    ck_assert_int_eq(symlink("val", path), 0);
    ck_assert_int_eq(open_below("", &data, &err), -ELOOP);
    assert_says(err.text, "/val/: cannot be read: Too many levels of symbolic links");
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("tar");
    tcase_add_checked_fixture(tc, NULL, image_folder_remove);
    tcase_add_test(tc, members_come_in_order);
    tcase_add_test(tc, long_names);
    tcase_add_test(tc, sizes_in_bytes_and_in_pax);
    tcase_add_loop_test(tc, bad_archives_are_named_by_their_byte, 0, (int)ROWS(bad_parts));
    tcase_add_test(tc, a_compressed_archive_is_refused);
    tcase_add_test(tc, one_archive_is_a_set);
    tcase_add_test(tc, a_folder_of_archives_is_a_set);
    tcase_add_test(tc, hidden_members_are_ignored);
    tcase_add_test(tc, links_are_images);
    tcase_add_test(tc, tar_files_and_image_files_are_refused);
    tcase_add_test(tc, tar_files_without_images_do_not_matter);
    tcase_add_test(tc, a_split_that_cannot_be_read_is_an_error);
    return run_case(tc, "data_tar");
}
