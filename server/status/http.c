/* libmicrohttpd without its own thread: a uv_poll handle watches its epoll descriptor and a timer its next
 * timeout; both call MHD_run, which calls the handlers. There is one daemon for each listening socket,
 * because the allowed requests depend on the socket.
 *
 * psd accepts the connections. libmicrohttpd, which has failed to do so for want of a descriptor, would not
 * try again before a connection of its own ends, and it does not look at those that are held. */
#include "server/status/http.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/text.h"
#include "proto/unix_socket.h"
#include "server/config/url.h"
#include "server/loop/timer.h"

#define BACKLOG 64

static int bound_address(int fd, char *address, size_t size)
{
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof at;
    char host[64], port[8];

    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return -errno;
    if (getnameinfo((const struct sockaddr *)&at, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EINVAL;
    snprintf(address, size, at.ss_family == AF_INET6 ? "tcp://[%s]:%s" : "tcp://%s:%s", host, port);
    return 0;
}

/* Listens at tcp://HOST:PORT, loopback only. *fd_out is the socket, address (size bytes) the bound URL, with
 * the actual port. */
static int listen_on_loopback(const char *text, int *fd_out, char *address, size_t size, struct ps_error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const int on = 1;
    struct addrinfo *found;
    struct ps_error why;
    struct psd_url url;
    char port[8];
    int rc;

    if (psd_url_parse(text, &url, &why) < 0)
        return ps_fail(err, -EINVAL, "status.http: %s", why.text);
    if (!psd_url_is_loopback(&url))
        return ps_fail(err, -EINVAL,
                       "status.http: %.200s is not loopback; allowed is none or tcp://127.0.0.1:PORT", text);
    snprintf(port, sizeof port, "%u", url.port);
    /* "localhost" is not resolved: a name server may map it to another address. */
    const char *host = strcasecmp(url.host, "localhost") == 0 ? "127.0.0.1" : url.host;
    if ((rc = getaddrinfo(host, port, &hints, &found)) != 0)
        return ps_fail(err, -EINVAL, "status.http: %.200s: %s", text, gai_strerror(rc));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
        bound_address(fd, address, size) < 0) {
        rc = ps_fail(err, -errno, "status.http: cannot listen at %.200s: %s", text, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    if (rc == 0)
        *fd_out = fd;
    return rc;
}

#define MAX_BODY_BYTES  (64 * 1024) /* of a request; read and ignored */
#define MAX_CONNECTIONS 64          /* per socket */
#define MEMORY_BYTES    (32 * 1024) /* per connection: request line and headers */
#define TIMEOUT_S       10u         /* of an idle connection */
#define ACCEPT_EVERY_MS 50          /* tried where all places or descriptors were taken */

struct face {
    struct psd_http *http;
    int n_held;
    struct MHD_Daemon *daemon;
    bool read_only;
    int listen_fd;
    bool is_short; /* of places or descriptors: the timer accepts, not the listener */
    uv_poll_t poll, listener;
    struct psd_timer timer;
};

struct psd_http {
    const struct psd_http_route *routes;
    void *arg;
    struct ps_unix_socket socket;
    char address[80]; /* of the TCP face; "" without TCP */
    struct face faces[2];
    int n_faces;
    int n_open; /* uv handles that are not closed yet */
    struct request *held;
    int held_status; /* the answer to held requests; 0: none yet */
    char *held_body;
};

/* A request being received; held requests form a list. */
struct request {
    size_t body_bytes;
    struct MHD_Connection *connection;
    struct face *holder; /* NULL: not held */
    struct request *next, **at;
    bool is_gone; /* its client has hung up while it was held */
};

/* Content security policy of every answer: scripts, styles, images and requests only from this address, and
 * no frames. Names from peers thus remain text even if a page fails to escape them. */
static const char policy[] =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static enum MHD_Result answer_with(struct MHD_Connection *c, int status, const char *content_type, char *body,
                                   size_t len, const char *allow)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, body, MHD_RESPMEM_MUST_FREE);
    if (r == NULL) {
        free(body);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_SECURITY_POLICY, policy);
    MHD_add_response_header(r, MHD_HTTP_HEADER_X_CONTENT_TYPE_OPTIONS, "nosniff");
    if (allow != NULL)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, allow);
    enum MHD_Result rc = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

/* Consumes `json`. */
static enum MHD_Result answer_json(struct MHD_Connection *c, int status, json_t *json, const char *allow)
{
    char *body = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return answer_with(c, status, "application/json", body, body != NULL ? strlen(body) : 0, allow);
}

static bool is_read(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static bool is_served(const struct face *f, const struct psd_http_route *r)
{
    return !f->read_only || is_read(r->method);
}

static json_t *list_endpoints(const struct face *f)
{
    json_t *list = json_array();
    for (const struct psd_http_route *r = f->http->routes; r->method != NULL; r++)
        if (is_served(f, r))
            json_array_append_new(list, json_sprintf("%s %s", r->method, r->path));
    return list;
}

static enum MHD_Result answer_unknown(const struct face *f, struct MHD_Connection *c, const char *path)
{
    char printable[100];
    size_t n = 0;
    for (; path[n] != 0 && n < sizeof printable - 1; n++) /* the path may contain any bytes */
        printable[n] = path[n] > 0x20 && path[n] < 0x7f ? path[n] : '?';
    printable[n] = 0;
    return answer_json(c, MHD_HTTP_NOT_FOUND,
                       json_pack("{s:o, s:o}", "error", json_sprintf("there is no %s here", printable),
                                 "endpoints", list_endpoints(f)),
                       NULL);
}

/* The path exists, but not for this method, or not on this socket. */
static enum MHD_Result answer_not_allowed(const struct face *f, struct MHD_Connection *c, const char *method,
                                          const char *path)
{
    char allow[32] = "", word[32]; /* the method may contain any bytes */
    bool elsewhere = false;

    for (const struct psd_http_route *r = f->http->routes; r->method != NULL; r++) {
        if (strcmp(r->path, path) != 0)
            continue;
        if (is_served(f, r))
            ps_text_join(allow, sizeof allow, ", ", is_read(r->method) ? "GET, HEAD" : r->method);
        elsewhere = elsewhere || (!is_served(f, r) && strcmp(r->method, method) == 0);
    }
    ps_text_copy(word, sizeof word, method);
    if (elsewhere)
        return answer_json(
            c, MHD_HTTP_FORBIDDEN,
            json_pack("{s:o}", "error", json_sprintf("%s %s is served on the UNIX socket only", word, path)),
            allow[0] != 0 ? allow : NULL);
    return answer_json(
        c, MHD_HTTP_METHOD_NOT_ALLOWED,
        json_pack("{s:o}", "error", json_sprintf("%s is not allowed for %s; allowed: %s", word, path, allow)),
        allow);
}

static enum MHD_Result answer_held(const struct psd_http *h, struct MHD_Connection *c)
{
    char *body = h->held_body != NULL ? strdup(h->held_body) : NULL;
    return answer_with(c, h->held_status, "application/json", body, body != NULL ? strlen(body) : 0, NULL);
}

static void unlink_held(struct request *r)
{
    *r->at = r->next;
    if (r->next != NULL)
        r->next->at = r->at;
    r->holder->n_held--;
    r->holder = NULL;
}

static bool has_hung_up(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd fd = {.fd = info != NULL ? info->connect_fd : -1, .events = POLLRDHUP};
    return ps_poll(&fd, 1, 0) > 0;
}

/* libmicrohttpd does not look at a suspended connection: it learns of its end when it is resumed. */
static void drop_gone(struct face *f)
{
    struct request *next;
    for (struct request *r = f->http->held; r != NULL; r = next) {
        next = r->next;
        if (r->holder != f || !has_hung_up(r->connection))
            continue;
        unlink_held(r);
        r->is_gone = true;
        MHD_resume_connection(r->connection);
    }
}

/* libmicrohttpd suspends the connection until it is resumed, and then calls on_request again. What a POST
 * asks for has been done: readers take no place of it. */
static enum MHD_Result hold(struct face *f, struct request *r, struct MHD_Connection *c, bool reads)
{
    struct psd_http *h = f->http;
    int most = reads ? PSD_HTTP_MOST_HELD : 2 * PSD_HTTP_MOST_HELD;
    if (h->held_status != 0)
        return answer_held(h, c);
    if (f->n_held >= most)
        drop_gone(f);
    if (f->n_held >= most)
        return answer_json(
            c, MHD_HTTP_SERVICE_UNAVAILABLE,
            json_pack("{s:o}", "error", json_sprintf("%d requests already wait for the end", f->n_held)),
            NULL);
    *r = (struct request){.connection = c, .holder = f, .next = h->held, .at = &h->held};
    if (r->next != NULL)
        r->next->at = &r->next;
    h->held = r;
    f->n_held++;
    MHD_suspend_connection(c);
    return MHD_YES;
}

static enum MHD_Result answer_request(struct face *f, struct MHD_Connection *c, const char *path,
                                      const char *method, struct request *request)
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method; /* libmicrohttpd omits HEAD's body */
    bool known = false;

    for (const struct psd_http_route *r = f->http->routes; r->method != NULL; r++) {
        if (strcmp(r->path, path) != 0)
            continue;
        known = known || is_served(f, r) || strcmp(r->method, wanted) == 0;
        if (!is_served(f, r) || strcmp(r->method, wanted) != 0)
            continue;
        struct psd_http_answer a = {.status = 200, .content_type = "application/json"};
        r->handle(
            f->http->arg,
            MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, r->argument != NULL ? r->argument : "arg"),
            &a);
        if (a.held)
            return hold(f, request, c, is_read(method));
        return answer_with(c, a.status, a.content_type, a.body, a.body != NULL ? a.len_bytes : 0, NULL);
    }
    return known ? answer_not_allowed(f, c, method, path) : answer_unknown(f, c, path);
}

/* Whether the request was addressed to loopback. A foreign page whose name resolves to this address (DNS
 * rebinding) runs in the browser of a user who may send requests, and must not read the answers. A request
 * without Host is not from a browser. */
static bool is_for_loopback(const char *host)
{
    char text[300];
    struct psd_url url;
    if (host == NULL)
        return true;
    const char *end = strrchr(host, ']'), *colon = strrchr(host, ':');
    bool has_port = colon != NULL && (end == NULL || colon > end);
    snprintf(text, sizeof text, "tcp://%.256s%s", host, has_port ? "" : ":80");
    return psd_url_parse(text, &url, NULL) == 0 && psd_url_is_loopback(&url);
}

static enum MHD_Result refuse_host(struct MHD_Connection *c)
{
    return answer_json(c, MHD_HTTP_FORBIDDEN,
                       json_pack("{s:s}", "error",
                                 "Host: allowed are localhost and loopback addresses; open psd's page by one "
                                 "of these, such as http://localhost:PORT/"),
                       NULL);
}

static enum MHD_Result refuse_body(struct MHD_Connection *c)
{
    return answer_json(
        c, MHD_HTTP_CONTENT_TOO_LARGE,
        json_pack("{s:o}", "error", json_sprintf("a body may have at most %d bytes", MAX_BODY_BYTES)), NULL);
}

/* libmicrohttpd calls this once with the headers, then with each part of a body, then without data. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **state)
{
    struct request *r = *state;
    (void)version;
    (void)upload;

    if (r == NULL) {
        if (((const struct face *)arg)->read_only &&
            !is_for_loopback(MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST)))
            return refuse_host(c);
        const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
        if (length != NULL && strtoull(length, NULL, 10) > MAX_BODY_BYTES)
            return refuse_body(c);
        *state = calloc(1, sizeof *r);
        return *state != NULL ? MHD_YES : MHD_NO;
    }
    if (r->is_gone)
        return MHD_NO;
    if (*upload_bytes > 0) {
        r->body_bytes += *upload_bytes;
        *upload_bytes = 0;
        return r->body_bytes <= MAX_BODY_BYTES ? MHD_YES
                                               : MHD_NO; /* a chunked body: no answer is possible, close */
    }
    return r->holder != NULL ? answer_held(r->holder->http, c) : answer_request(arg, c, path, method, r);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct request *r = *state;
    (void)arg;
    (void)c;
    (void)why;
    if (r != NULL && r->holder != NULL)
        unlink_held(r);
    free(r);
    *state = NULL;
}

static void on_timer(struct psd_timer *timer);
static void on_connection(uv_poll_t *poll, int status, int events);

static bool is_full(const struct face *f)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(f->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info != NULL && info->num_connections >= MAX_CONNECTIONS;
}

static void accept_all(struct face *f)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    int fd = -1;

    while (!(f->is_short = is_full(f)) &&
           (fd = accept4(f->listen_fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        MHD_add_connection(f->daemon, fd, (struct sockaddr *)&peer, len); /* closes it where it fails */
        len = sizeof peer;
    }
    f->is_short = f->is_short || errno != EAGAIN;
    if (f->is_short)
        uv_poll_stop(&f->listener);
    else
        uv_poll_start(&f->listener, UV_READABLE, on_connection);
}

static void run_face(struct face *f)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;

    if (f->is_short)
        accept_all(f);
    MHD_run(f->daemon);
    if (MHD_get_timeout(f->daemon, &timeout_ms) != MHD_YES)
        timeout_ms = UINT64_MAX;
    if (f->is_short && timeout_ms > ACCEPT_EVERY_MS)
        timeout_ms = ACCEPT_EVERY_MS;
    if (timeout_ms != UINT64_MAX)
        psd_timer_start(&f->timer, on_timer, timeout_ms, 0);
    else
        psd_timer_stop(&f->timer);
}

static void on_timer(struct psd_timer *timer)
{
    run_face(timer->data);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    accept_all(poll->data);
    run_face(poll->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run_face(poll->data);
}

static void close_one(struct psd_http *h)
{
    if (--h->n_open > 0)
        return;
    free(h->held_body);
    free(h);
}

static void on_poll_closed(uv_handle_t *handle)
{
    close_one(((struct face *)handle->data)->http);
}

static void on_timer_closed(uv_handle_t *handle)
{
    close_one(((struct face *)((struct psd_timer *)handle->data)->data)->http);
}

/* Serves listen_fd, which it owns from now on. After an error the loop may have a handle to close, which
 * frees h. */
static int open_face(struct psd_http *h, uv_loop_t *loop, int listen_fd, bool read_only, struct ps_error *err)
{
    struct face *f = &h->faces[h->n_faces];

    *f = (struct face){.http = h, .listen_fd = listen_fd, .read_only = read_only};
    f->poll.data = f->listener.data = f;
    f->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
                                 NULL, on_request, f, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 (size_t)MEMORY_BYTES, MHD_OPTION_END);
    if (f->daemon == NULL) {
        close(listen_fd);
        return ps_fail(err, -ENOMEM, "status server: cannot start libmicrohttpd");
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(f->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || uv_poll_init(loop, &f->poll, info->epoll_fd) < 0)
        goto stop_daemon;
    h->n_open++;
    if (uv_poll_init(loop, &f->listener, listen_fd) < 0)
        goto close_poll;
    psd_timer_init(loop, &f->timer, f);
    h->n_open += 2;
    h->n_faces++;
    uv_poll_start(&f->poll, UV_READABLE, on_poll);
    uv_poll_start(&f->listener, UV_READABLE, on_connection);
    return 0;
close_poll:
    uv_close((uv_handle_t *)&f->poll, on_poll_closed);
stop_daemon:
    MHD_stop_daemon(f->daemon);
    close(listen_fd);
    return ps_fail(err, -ENOMEM, "status server: cannot watch its descriptors");
}

int psd_http_create(uv_loop_t *loop, const char *socket_path, const char *http,
                    const struct psd_http_route *routes, void *arg, struct psd_http **out,
                    struct ps_error *err)
{
    struct psd_http *h = calloc(1, sizeof *h);
    int rc, fd = -1;

    if (h == NULL)
        return ps_fail(err, -ENOMEM, "status server: no memory");
    h->routes = routes;
    h->arg = arg;
    if ((rc = ps_unix_socket_listen(socket_path, "status socket", &h->socket, err)) < 0) {
        free(h);
        return rc;
    }
    if ((rc = open_face(h, loop, h->socket.fd, false, err)) < 0) {
        ps_unix_socket_remove(&h->socket);
        if (h->n_open == 0)
            free(h);
        return rc;
    }
    if (strcmp(http, "none") != 0 &&
        ((rc = listen_on_loopback(http, &fd, h->address, sizeof h->address, err)) < 0 ||
         (rc = open_face(h, loop, fd, true, err)) < 0)) {
        psd_http_destroy(h);
        return rc;
    }
    *out = h;
    return 0;
}

unsigned psd_http_n_held(const struct psd_http *h)
{
    unsigned n = 0;
    for (const struct request *r = h->held; r != NULL; r = r->next)
        n++;
    return n;
}

const char *psd_http_address(const struct psd_http *h)
{
    return h->address;
}

enum { MOST_RUNS = 100 }; /* of libmicrohttpd, which needs several to send the held answers */

void psd_http_release(struct psd_http *h, int status, const char *body)
{
    if (h->held_status != 0)
        return;
    h->held_status = status;
    h->held_body = strdup(body);
    for (struct request *r = h->held; r != NULL; r = r->next)
        MHD_resume_connection(r->connection);
    for (int k = 0; k < MOST_RUNS && h->held != NULL; k++)
        for (int i = 0; i < h->n_faces; i++) {
            accept_all(&h->faces[i]);
            MHD_run(h->faces[i].daemon);
        }
}

void psd_http_destroy(struct psd_http *h)
{
    if (h == NULL)
        return;
    psd_http_release(h, MHD_HTTP_SERVICE_UNAVAILABLE, "{\"error\":\"psd is stopping\"}");
    ps_unix_socket_remove(&h->socket);
    for (int i = 0; i < h->n_faces; i++) {
        uv_close((uv_handle_t *)&h->faces[i].poll, on_poll_closed); /* before its descriptor is closed */
        uv_close((uv_handle_t *)&h->faces[i].listener, on_poll_closed);
        MHD_stop_daemon(h->faces[i].daemon);
        close(h->faces[i].listen_fd);
        psd_timer_close(&h->faces[i].timer, on_timer_closed);
    }
}
