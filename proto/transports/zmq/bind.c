#include "proto/transports/zmq/bind.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/clock.h"
#include "proto/resolve.h"

static const char ipc[] = "ipc://", tcp[] = "tcp://";

/* With IPv6, libzmq would also look up names as IPv6 addresses, and bind "*" to them. */
static int set_ipv6(void *socket, const char *url)
{
    int on = strncmp(url, "tcp://[", 7) == 0;
    return zmq_setsockopt(socket, ZMQ_IPV6, &on, sizeof on);
}

int ps_connect(void *socket, const char *url)
{
    return set_ipv6(socket, url) == 0 ? zmq_connect(socket, url) : -1;
}

int ps_resolve_url(const char *url, uint64_t until_ns, char *out, size_t size, struct ps_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    const char *name = url + sizeof tcp - 1, *port = strrchr(url, ':');
    struct addrinfo *found = NULL;
    struct ps_error why;
    char host[256], address[INET_ADDRSTRLEN];
    if (strncmp(url, tcp, sizeof tcp - 1) != 0 || name[0] == '[' || port < name ||
        (size_t)(port - name) >= sizeof host) {
        snprintf(out, size, "%s", url);
        return 0;
    }
    snprintf(host, sizeof host, "%.*s", (int)(port - name), name);
    if (strcasecmp(host, "localhost") == 0) /* needs no key, so no name server may map it elsewhere */
        strcpy(host, "127.0.0.1");
    if (ps_resolve(host, "0", &hints, until_ns, &found, &why) < 0)
        return ps_fail(err, -ENOENT, "the host '%.200s' does not resolve: %.200s", host, why.text);
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr, address,
              sizeof address);
    freeaddrinfo(found);
    snprintf(out, size, "%s%s%s", tcp, address, port);
    return 0;
}

/* libzmq binds to addresses and to network interfaces, and not to the names of hosts. */
static int bind_tcp(void *socket, const char *url)
{
    char numeric[300];
    if (set_ipv6(socket, url) == 0 && zmq_bind(socket, url) == 0)
        return 0;
    if (zmq_errno() != ENODEV)
        return -zmq_errno();
    if (ps_resolve_url(url, ps_ns_after(1e-3 * PS_RESOLVE_MS), numeric, sizeof numeric, NULL) < 0)
        return -ENODEV;
    return zmq_bind(socket, numeric) == 0 ? 0 : -zmq_errno();
}

/* libzmq closes the descriptor when it is done with it, and leaves alone a file that it did not create. */
static int bind_file(void *socket, const char *url, struct ps_unix_socket *file, struct ps_error *err)
{
    int rc = ps_unix_socket_listen(url + sizeof ipc - 1, "workers' socket", file, err);
    if (rc < 0)
        return rc;
    if (zmq_setsockopt(socket, ZMQ_USE_FD, &file->fd, sizeof file->fd) == 0 && zmq_bind(socket, url) == 0)
        return 0;
    rc = ps_fail(err, -zmq_errno(), "cannot listen on %s: %s", url, zmq_strerror(zmq_errno()));
    ps_unix_socket_remove(file);
    close(file->fd);
    file->path[0] = 0;
    return rc;
}

int ps_bind(void *socket, const char *url, char *bound, size_t size, struct ps_unix_socket *file,
            struct ps_error *err)
{
    file->path[0] = 0;
    if (strncmp(url, ipc, sizeof ipc - 1) == 0) {
        int rc = bind_file(socket, url, file, err);
        if (rc == 0)
            snprintf(bound, size, "%s", url);
        return rc;
    }
    int rc = bind_tcp(socket, url);
    if (rc == 0 && zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0)
        rc = -zmq_errno();
    if (rc == 0)
        return 0;
    return rc == -ENODEV
               ? ps_fail(
                     err, rc,
                     "cannot listen on %s: its host does not resolve, or is neither an address nor a network "
                     "interface of this machine",
                     url)
               : ps_fail(err, rc, "cannot listen on %s: %s", url, zmq_strerror(-rc));
}
