/* http_socket.h: the TCP face of the status server. Private to server/status/http.c. */
#ifndef PSD_STATUS_HTTP_SOCKET_H
#define PSD_STATUS_HTTP_SOCKET_H

#include <stddef.h>

#include "proto/error.h"

/* Listens at tcp://HOST:PORT, loopback only. *fd is the socket, address (size bytes) the URL that was bound,
 * with the port that the system chose for 0. */
int psd_loopback_listen(const char *url, int *fd, char *address, size_t size, struct ps_error *err);

#endif
