#include "proto/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ps_file_read(int fd, uint64_t at, void *to, size_t len, size_t *got)
{
    size_t have = 0;
    int rc = 0;
    while (rc == 0 && have < len) {
        ssize_t n = pread(fd, (char *)to + have, len - have, (off_t)(at + have));
        if (n > 0)
            have += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = n == 0 ? -ENODATA : -errno;
    }
    if (got != NULL)
        *got = have;
    return rc;
}

static int write_all(int fd, bool at_position, uint64_t at, const char *bytes, size_t len, size_t *written)
{
    size_t done = 0;
    int rc = 0;
    while (rc == 0 && done < len) {
        ssize_t n = at_position ? write(fd, bytes + done, len - done)
                                : pwrite(fd, bytes + done, len - done, (off_t)(at + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = n == 0 ? -ENOSPC : -errno;
    }
    if (written != NULL)
        *written = done;
    return rc;
}

int ps_file_append(int fd, const void *bytes, size_t len, size_t *written)
{
    return write_all(fd, true, 0, bytes, len, written);
}

int ps_file_write(int fd, uint64_t at, const void *bytes, size_t len, size_t *written)
{
    return write_all(fd, false, at, bytes, len, written);
}

/* *end: behind the last newline of the file's first `size` bytes. */
static int find_lines_end(int fd, uint64_t size, uint64_t *end)
{
    char block[4096];
    const char *newline = NULL;
    while (size > 0 && newline == NULL) {
        size_t n = size < sizeof block ? (size_t)size : sizeof block;
        int rc = ps_file_read(fd, size - n, block, n, NULL);
        if (rc < 0)
            return rc;
        newline = memrchr(block, '\n', n);
        size = newline != NULL ? size - n + (uint64_t)(newline - block) + 1 : size - n;
    }
    *end = size;
    return 0;
}

int ps_file_cut_torn_line(const char *path, const char *begins)
{
    char start[64];
    struct stat st;
    uint64_t end;
    size_t got, len = strlen(begins);
    int rc;
    if (len > sizeof start)
        return -EINVAL;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if ((rc = find_lines_end(fd, (uint64_t)st.st_size, &end)) == 0 && end < (uint64_t)st.st_size &&
        ((rc = ps_file_read(fd, end, start, len, &got)) == 0 || rc == -ENODATA))
        rc = memcmp(start, begins, got) == 0 && ftruncate(fd, (off_t)end) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

int ps_file_resolve(const char *path, char *out, size_t size)
{
    enum { MOST_LINKS = 40 };
    char target[PATH_MAX];
    if (snprintf(out, size, "%s", path) >= (int)size)
        return -ENAMETOOLONG;
    for (int i = 0; i < MOST_LINKS; i++) {
        ssize_t n = readlink(out, target, sizeof target);
        if (n < 0)
            return 0; /* no link; other errors are those of whoever opens the file */
        const char *slash = strrchr(out, '/');
        size_t kept = target[0] == '/' || slash == NULL ? 0 : (size_t)(slash - out) + 1;
        if ((size_t)n == sizeof target || kept + (size_t)n >= size)
            return -ENAMETOOLONG;
        memcpy(out + kept, target, (size_t)n);
        out[kept + (size_t)n] = 0;
    }
    return -ELOOP;
}
