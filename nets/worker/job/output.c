#include "nets/worker/job/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/worker/job/job.h"
#include "proto/file.h"
#include "proto/log.h"

bool cnn_output_is_stdout(const char *path)
{
    struct stat there, own;
    return stat(path, &there) == 0 && fstat(STDOUT_FILENO, &own) == 0 && there.st_dev == own.st_dev &&
           there.st_ino == own.st_ino;
}

bool cnn_output_is_in_place(const char *path)
{
    struct stat there;
    return cnn_output_is_stdout(path) || (stat(path, &there) == 0 && !S_ISREG(there.st_mode));
}

/* out: [PATH_MAX]. 0 or -errno. */
static int folder_of(const char *path, char *out)
{
    int rc = ps_file_resolve(path, out, PATH_MAX);
    if (rc < 0)
        return rc;
    char *slash = strrchr(out, '/');
    if (slash == NULL)
        snprintf(out, PATH_MAX, ".");
    else
        slash[slash == out] = 0;
    return 0;
}

int cnn_output_check(const char *option, const char *event, const char *path)
{
    char folder[PATH_MAX] = "";
    struct stat there;
    if (path != NULL && stat(path, &there) == 0 && S_ISDIR(there.st_mode)) {
        ps_log(PS_LOG_ERROR, event, "--%s %s: it is a folder; allowed: a file", option, path);
        return CNN_EXIT_USAGE;
    }
    if (path == NULL || cnn_output_is_in_place(path))
        return CNN_EXIT_OK;
    int rc = folder_of(path, folder);
    if (rc == 0 && faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        rc = -errno;
    if (rc == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, event, "--%s %s: cannot be saved in the folder %s: %s", option, path, folder,
           rc == -ENAMETOOLONG ? "its name is too long" : strerror(-rc));
    return CNN_EXIT_USAGE;
}
