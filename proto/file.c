#include "proto/file.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
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
