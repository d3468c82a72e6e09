#include "server/checkpoint/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/clock.h"
#include "server/checkpoint/checkpoint.h"

/* Reads the holder from the lock file, which may not contain its pid yet. */
static int fail_taken(const char *dir, int fd, struct ps_error *err)
{
    char text[24] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    size_t digits = n > 0 ? strspn(text, "0123456789") : 0;
    if (digits == 0)
        return ps_fail(err, -EBUSY, "%s: the state directory is in use by another psd", dir);
    return ps_fail(err, -EBUSY, "%s: the state directory is in use by the psd with pid %.*s", dir,
                   (int)digits, text);
}

int psd_state_lock(const char *dir, int *fd_out, struct ps_error *err)
{
    char text[24];
    int fd, rc;

    if ((rc = psd_checkpoint_make_directory(dir)) < 0)
        return ps_fail(err, rc, "%s: cannot make the state directory: %s", dir, strerror(-rc));
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return ps_fail(err, -errno, "%s: cannot use it as the state directory: %s", dir, strerror(errno));
    fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    rc = fd < 0 ? -errno : 0;
    close(dir_fd);
    if (rc < 0)
        return ps_fail(err, rc, "%s/lock: cannot open it: %s", dir, strerror(-rc));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        rc = errno == EWOULDBLOCK ? fail_taken(dir, fd, err)
                                  : ps_fail(err, -errno, "%s/lock: cannot lock it: %s", dir, strerror(errno));
        close(fd);
        return rc;
    }
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len) {
        rc = ps_fail(err, errno != 0 ? -errno : -EIO, "%s/lock: cannot write our pid: %s", dir,
                     strerror(errno));
        close(fd);
        return rc;
    }
    *fd_out = fd;
    return 0;
}

/* Finds an unused name: two psd processes may do this in the same second. */
static int set_aside(const char *path, char *aside, size_t size, struct ps_error *err)
{
    unsigned long long now_s = ps_wall_us() / 1000000;
    for (unsigned k = 0;; k++) {
        int n = k == 0 ? snprintf(aside, size, "%s-%llu", path, now_s)
                       : snprintf(aside, size, "%s-%llu-%u", path, now_s, k);
        if (n < 0 || (size_t)n >= size)
            return ps_fail(err, -ENAMETOOLONG, "%s: the path is too long to set it aside", path);
        if (access(aside, F_OK) != 0)
            break;
    }
    if (rename(path, aside) == 0)
        return 0;
    int rc = ps_fail(err, -errno, "%s: cannot set it aside as %s: %s", path, aside, strerror(errno));
    aside[0] = 0;
    return rc;
}

/* Creates the directory, or checks the one that is there: a link may lead to storage that is not mounted, and
 * the checkpoints may be another user's. */
static int make_checkpoints(const char *path, struct ps_error *err)
{
    int rc = psd_checkpoint_make_directory(path);
    if (rc < 0)
        return ps_fail(err, rc, "%s: cannot make it: %s", path, strerror(-rc));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 || faccessat(fd, ".", W_OK | X_OK, 0) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return rc < 0 ? ps_fail(err, rc, "%s: cannot be used for checkpoints: %s", path, strerror(-rc)) : 0;
}

int psd_state_checkpoints(const char *dir, bool resume, bool fresh, struct psd_aside *aside,
                          struct ps_error *err)
{
    char path[400];
    uint64_t newest = 0;
    uint32_t n = 0;
    int rc;
    *aside = (struct psd_aside){.path = ""};
    if ((size_t)snprintf(path, sizeof path, "%s/checkpoints", dir) >= sizeof path)
        return ps_fail(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    if ((rc = make_checkpoints(path, err)) < 0 ||
        (!resume && (rc = psd_checkpoint_count(path, &n, &newest, err)) < 0))
        return rc;
    if (n > 0 && !fresh)
        return ps_fail(err, -EEXIST,
                       "%s holds %u checkpoints of a job, the newest of version %" PRIu64
                       ": use --resume to resume from it, or --fresh to begin a new job (they are kept, set "
                       "aside)",
                       path, n, newest);
    if (n == 0)
        return 0;
    if ((rc = set_aside(path, aside->path, sizeof aside->path, err)) < 0)
        return rc;
    aside->n = n;
    aside->newest = newest;
    return make_checkpoints(path, err);
}

void psd_state_unlock(int fd)
{
    if (ftruncate(fd, 0) < 0)
        (void)0; /* the text is for people; the lock ends with the descriptor */
    close(fd);
}
