#include "server/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Who holds it, as the lock file says; it may just be writing its pid. */
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

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return ps_fail(err, -errno, "%s: cannot make the state directory: %s", dir, strerror(errno));
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

void psd_state_unlock(int fd)
{
    if (ftruncate(fd, 0) < 0)
        (void)0; /* the text is for people; the lock goes with the descriptor */
    close(fd);
}
