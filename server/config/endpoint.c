#include "server/config/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/unix_socket.h"

#define IPC            "ipc://"
#define LANE_SUFFIX    3 /* bytes of ".63", which proto/transports/zmq/ipc.c appends for a lane */
#define LONGEST_SOCKET (PS_UNIX_PATH_MAX - LANE_SUFFIX)

static bool is_ipc(const char *url)
{
    return strncmp(url, IPC, sizeof IPC - 1) == 0;
}

/* The directory that relative socket paths are based on, with a trailing slash. */
static int base_of(const struct psd_config *cfg, char *base, size_t size, struct ps_error *err)
{
    char here[4096] = "";
    if (cfg->state_dir[0] != '/' && getcwd(here, sizeof here) == NULL)
        return ps_fail(err, -errno, "listen: cannot find the working directory: %s", strerror(errno));
    int n = snprintf(base, size, "%s%s%s/", here, here[0] != 0 ? "/" : "", cfg->state_dir);
    return n < 0 || (size_t)n >= size ? ps_fail(err, -ENAMETOOLONG, "state_dir: the path is too long") : 0;
}

int psd_endpoint_listen(const struct psd_config *cfg, char *url, size_t size, struct ps_error *err)
{
    char base[4400] = "";
    const char *path = cfg->listen + sizeof IPC - 1;
    int rc;

    if (!is_ipc(cfg->listen)) {
        snprintf(url, size, "%s", cfg->listen);
        return 0;
    }
    if (path[0] == 0 || path[0] == '*' || path[0] == '@' || path[strlen(path) - 1] == '/')
        return ps_fail(err, -EINVAL,
                       "'%.100s' names no file; allowed is ipc://PATH, PATH a file in a directory that only "
                       "you may enter, or a name in the state directory",
                       cfg->listen);
    if (path[0] != '/' && (rc = base_of(cfg, base, sizeof base, err)) < 0)
        return rc;
    size_t len = strlen(base) + strlen(path);
    if (len > LONGEST_SOCKET || len + sizeof IPC > size)
        return ps_fail(err, -ENAMETOOLONG,
                       "%.60s%.100s has %zu bytes; a socket's path has at most %d, and the lanes' sockets "
                       "append .0 to .63; allowed are %d",
                       base, path, len, PS_UNIX_PATH_MAX, LONGEST_SOCKET);
    snprintf(url, size, "%s%s%s", IPC, base, path);
    return 0;
}

int psd_endpoint_directory(const struct psd_config *cfg, const char *url, struct ps_error *err)
{
    char path[PS_UNIX_PATH_MAX + 1];
    struct stat st;

    if (!is_ipc(url))
        return 0;
    snprintf(path, sizeof path, "%s", url + sizeof IPC - 1);
    const char *dir = dirname(path);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return ps_fail(err, -errno, "listen: cannot make the directory %s: %s", dir, strerror(errno));
    if (stat(dir, &st) != 0)
        return ps_fail(err, -errno, "listen: %s: %s", dir, strerror(errno));
    if ((st.st_mode & 077) != 0 && !cfg->insecure)
        return ps_fail(err, -EACCES,
                       "listen: %s has mode %04o: others may enter it; allowed is a directory of mode 0700, "
                       "which psd makes when it is missing, or set insecure: true",
                       dir, st.st_mode & 07777);
    return 0;
}

static bool is_every_interface(const char *host, size_t len)
{
    static const char *const wild[] = {"0.0.0.0", "[::]", "*"};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++)
        if (strlen(wild[i]) == len && strncmp(host, wild[i], len) == 0)
            return true;
    return false;
}

void psd_endpoint_advertised(const char *bound, const char *advertise, char *url, size_t size)
{
    char host_name[256] = "localhost";
    const char *host = strstr(bound, "://"), *port = strrchr(bound, ':');
    if (is_ipc(bound) || host == NULL || port <= host) {
        snprintf(url, size, "%s", bound);
        return;
    }
    host += 3;
    if (advertise[0] == 0 && is_every_interface(host, (size_t)(port - host))) {
        gethostname(host_name, sizeof host_name - 1);
        advertise = host_name;
    }
    if (advertise[0] == 0)
        snprintf(url, size, "%s", bound);
    else
        snprintf(url, size, "%.*s%s%s", (int)(host - bound), bound, advertise, port);
}

int psd_endpoint_read(const char *path, char *url, size_t size, struct ps_error *err)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return ps_fail(err, -errno, "endpoint file '%s': %s", path, strerror(errno));
    bool got = fgets(url, (int)size, f) != NULL;
    fclose(f);
    url[strcspn(got ? url : "", "\r\n")] = 0;
    return got && url[0] != 0 ? 0 : ps_fail(err, -EINVAL, "endpoint file '%s' holds no URL", path);
}

/* Whether the folders that the files lie in are one. */
static bool share_folder(const char *a, const char *b)
{
    char first[320], second[320];
    struct stat one, other;
    snprintf(first, sizeof first, "%s", a);
    snprintf(second, sizeof second, "%s", b);
    return stat(dirname(first), &one) == 0 && stat(dirname(second), &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool psd_endpoint_is_of_head(const struct psd_config *cfg)
{
    const char *own = cfg->endpoint_file, *head = cfg->servers.head + 1;
    return cfg->servers.head[0] == '@' &&
           (strcmp(own, head) == 0 || (strcmp(name_of(own), name_of(head)) == 0 && share_folder(own, head)));
}

int psd_endpoint_write(const char *path, const char *url, const char *curve_key, struct ps_error *err)
{
    char temp[320];
    struct stat there;
    int n = snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid());
    /* A device, such as /dev/null, would become a file. */
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
        return ps_fail(err, -EINVAL, "endpoint file '%s': it is not a regular file", path);
    if (n < 0 || (size_t)n >= sizeof temp)
        return ps_fail(err, -ENAMETOOLONG, "endpoint file '%s': the name is too long", path);
    unlink(temp); /* of a process that died */
    /* Never writable by others, whatever the umask, and made here, also in a directory where others may make
     * files: clients take psd's public key from it. */
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL)
        return ps_fail(err, -errno, "endpoint file '%s': %s", path, strerror(errno));
    bool ok = fprintf(f, "%s\n", url) > 0;
    if (curve_key[0] != 0)
        ok = fprintf(f, "curve: %s\n", curve_key) > 0 && ok;
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(temp, path) != 0) {
        int rc = ps_fail(err, -errno, "endpoint file '%s': %s", path, strerror(errno));
        unlink(temp);
        return rc;
    }
    return 0;
}
