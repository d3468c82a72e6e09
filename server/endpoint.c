#include "server/endpoint.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    if (host == NULL || port <= host) {
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

int psd_endpoint_write(const char *path, const char *url, struct ps_error *err)
{
    char temp[320];
    int n = snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof temp)
        return ps_fail(err, -ENAMETOOLONG, "endpoint file '%s': the name is too long", path);
    FILE *f = fopen(temp, "we");
    if (f == NULL)
        return ps_fail(err, -errno, "endpoint file '%s': %s", path, strerror(errno));
    bool ok = fprintf(f, "%s\n", url) > 0;
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(temp, path) != 0) {
        int rc = ps_fail(err, -errno, "endpoint file '%s': %s", path, strerror(errno));
        unlink(temp);
        return rc;
    }
    return 0;
}
