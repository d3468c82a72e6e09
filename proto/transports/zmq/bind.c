#include "proto/transports/zmq/bind.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static const char ipc[] = "ipc://";

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
    if (zmq_bind(socket, url) == 0 && zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size) == 0)
        return 0;
    int rc = -zmq_errno();
    return rc == -ENODEV
               ? ps_fail(
                     err, rc,
                     "cannot listen on %s: its host does not resolve, or is neither an address nor a network "
                     "interface of this machine",
                     url)
               : ps_fail(err, rc, "cannot listen on %s: %s", url, zmq_strerror(-rc));
}
