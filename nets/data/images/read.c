/* Reads an image's file. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/data/images/images.h"
#include "proto/file.h"

enum { MAX_FILE_BYTES = 1 << 28 };

static int reserve(struct cnn_images_scratch *s, size_t bytes, struct ps_error *err)
{
    if (bytes <= s->room)
        return 0;
    uint8_t *file = malloc(bytes);
    if (file == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a file of %zu bytes", bytes);
    free(s->file);
    s->file = file;
    s->room = bytes;
    return 0;
}

static int read_bytes(int fd, uint64_t at, size_t wanted, struct cnn_images_scratch *s, size_t *len,
                      struct ps_error *err)
{
    int rc = reserve(s, wanted + 1, err);
    *len = 0;
    if (rc < 0)
        return rc;
    rc = ps_file_read(fd, at, s->file, wanted, len);
    if (rc < 0 && rc != -ENODATA) /* where the file shrank the decoder reports its end */
        return ps_fail(err, -EIO, "byte %zu: cannot be read: %s", *len, strerror(-rc));
    return 0;
}

static int check_size(uint64_t bytes, struct ps_error *err)
{
    if (bytes > MAX_FILE_BYTES)
        return ps_fail(err, -EBADMSG, "a file of %llu bytes; allowed: at most %d", (unsigned long long)bytes,
                       MAX_FILE_BYTES);
    return 0;
}

static int read_open(int fd, struct cnn_images_scratch *s, size_t *len, struct ps_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ps_fail(err, -errno, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ps_fail(err, -EBADMSG, "not a regular file");
    int rc = check_size((uint64_t)st.st_size, err);
    return rc == 0 ? read_bytes(fd, 0, (size_t)st.st_size, s, len, err) : rc;
}

int cnn_images_read(const struct cnn_images *set, const struct cnn_entry *e,
                    struct cnn_images_scratch *scratch, size_t *len, struct ps_error *err)
{
    if (set->n_shards > 0) {
        int bad = check_size(e->bytes, err);
        return bad == 0 ? read_bytes(set->shards[e->shard], e->at, e->bytes, scratch, len, err) : bad;
    }
    /* opening a pipe must not block */
    int fd =
        openat(set->root, cnn_list_name(&set->list, e->path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ps_fail(err, -errno, "cannot be opened: %s", strerror(errno));
    int rc = read_open(fd, scratch, len, err);
    close(fd);
    return rc;
}

void cnn_images_expect(const struct cnn_images *set, const struct cnn_entry *e)
{
    posix_fadvise(set->shards[e->shard], (off_t)e->at, e->bytes, POSIX_FADV_WILLNEED);
}
