/* http.h: the status socket's HTTP server: libmicrohttpd driven by the uv loop, on one UNIX socket (0600)
 * and, if configured, read-only on loopback TCP. Handlers run on the loop's thread.
 *
 * Answers without a handler: 404 with the list of endpoints, 405 with Allow, 403 for a POST on TCP and for a
 * Host there that is not loopback, 413 for a body above 64 KiB; all as {"error": sentence}. HEAD is GET
 * without the body. The headers of every answer forbid browsers to load or run anything from elsewhere.
 * Connections, their idle time and their memory are bounded. At most PSD_HTTP_MOST_HELD requests of each
 * socket may wait for an answer without a time limit; further ones get 503. For a POST there are as many
 * places more, that no reader gets. */
#ifndef PSD_STATUS_HTTP_H
#define PSD_STATUS_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "proto/error.h"

struct psd_http;

#define PSD_HTTP_MOST_HELD 16

struct psd_http_answer {
    int status;               /* 200, 202, 400, 404, 409, 500, 503; preset to 200 */
    const char *content_type; /* static; preset to "application/json" */
    char *body;               /* malloc'ed by the handler, freed by the server; NULL: empty */
    size_t len_bytes;
    bool held; /* there is no answer yet: psd_http_release sends it */
};

struct psd_http_route {
    const char *method; /* "GET" or "POST"; POST is served on the UNIX socket only */
    const char *path;
    /* query is the decoded value of ?argument=…, which may contain any bytes but 0; or NULL. Called on the
     * loop's thread; must not block. */
    void (*handle)(void *arg, const char *query, struct psd_http_answer *answer);
    const char *argument; /* name of the argument; NULL: arg */
};

/* routes end with a row whose method is NULL, and must outlive the server. socket_path: bound with mode 0600;
 * replaces a socket file there on which no process listens. http: "none" or "tcp://127.0.0.1:PORT"
 * ("tcp://[::1]:PORT"); loopback only. After an error run the loop once more, as after psd_http_destroy.
 * -EADDRINUSE: another process serves there; -EEXIST: the path is not a socket; -ENAMETOOLONG: longer than
 * 107 bytes. */
int psd_http_create(uv_loop_t *loop, const char *socket_path, const char *http,
                    const struct psd_http_route *routes, void *arg, struct psd_http **out,
                    struct ps_error *err);

/* "tcp://127.0.0.1:PORT" with the bound port, or "" without TCP. Valid as long as h. */
const char *psd_http_address(const struct psd_http *h);

/* Number of held requests. */
unsigned psd_http_n_held(const struct psd_http *h);

/* Answers the held requests, and later ones that would be held, with this JSON. Sends as much as their
 * connections accept at once. */
void psd_http_release(struct psd_http *h, int status, const char *body);

/* Stops serving, closes its uv handles (asynchronously: run the loop once more) and removes the socket file,
 * if it is still its own. Not from within a handler. h may be NULL. */
void psd_http_destroy(struct psd_http *h);

#endif
