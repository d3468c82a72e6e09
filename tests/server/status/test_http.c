/* The status server over real sockets: libcurl asks, a loop in a thread answers. */
#include <curl/curl.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/status/http.h"
#include "tests/support/unit.h"

static char directory[64];

static void say(struct psd_http_answer *a, int status, const char *text)
{
    a->status = status;
    a->body = strdup(text);
    a->len_bytes = strlen(text);
}

static void handle_status(void *arg, const char *query, struct psd_http_answer *a)
{
    char text[100];
    ++*(atomic_int *)arg;
    snprintf(text, sizeof text, "{\"state\":\"ready\",\"arg\":\"%s\"}", query != NULL ? query : "none");
    say(a, 200, text);
}

static void handle_empty(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)arg;
    (void)query;
    a->status = 503;
    a->content_type = "text/plain";
}

static void handle_drain(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    ++*(atomic_int *)arg;
    say(a, 202, "{\"drain\":\"started\"}");
}

static void handle_large(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)arg;
    (void)query;
    a->len_bytes = 3000000;
    a->body = malloc(a->len_bytes);
    memset(a->body, 'x', a->len_bytes);
}

static void handle_end(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    ++*(atomic_int *)arg;
    a->held = true;
}

static const struct psd_http_route routes[] = {
    {"GET", "/status", handle_status, NULL},
    {"GET", "/healthz", handle_empty, NULL},
    {"GET", "/large", handle_large, NULL},
    {"POST", "/drain", handle_drain, NULL},
    {"POST", "/end", handle_end, NULL},
    {"GET", "/end", handle_end, NULL},
    {.method = NULL},
};

struct server {
    uv_loop_t loop;
    uv_async_t stop;
    struct psd_http *http;
    pthread_t thread;
    atomic_int calls;
};

static void on_stop(uv_async_t *async)
{
    struct server *s = async->data;
    psd_http_release(s->http, 500, "{\"error\":\"not well\"}");
    psd_http_destroy(s->http);
    uv_close((uv_handle_t *)async, NULL);
}

static void *run_loop(void *arg)
{
    uv_run(arg, UV_RUN_DEFAULT);
    return NULL;
}

static void start(struct server *s, const char *http)
{
    struct ps_error err;
    s->calls = 0;
    ck_assert_int_eq(uv_loop_init(&s->loop), 0);
    ck_assert_int_eq(uv_async_init(&s->loop, &s->stop, on_stop), 0);
    s->stop.data = s;
    ck_assert_msg(psd_http_create(&s->loop, "psd.sock", http, routes, &s->calls, &s->http, &err) == 0, "%s",
                  err.text);
    ck_assert_int_eq(pthread_create(&s->thread, NULL, run_loop, &s->loop), 0);
}

/* The loop ends by itself when every handle of the server is closed. */
static void stop(struct server *s)
{
    uv_async_send(&s->stop);
    ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
    ck_assert_int_eq(uv_loop_close(&s->loop), 0);
}

struct reply {
    long status;
    char body[2048]; /* the beginning */
    size_t body_bytes;
    char headers[2048];
};

static size_t take_body(char *data, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    size_t room = sizeof r->body - 1 - strlen(r->body);
    strncat(r->body, data, n < room ? n : room);
    r->body_bytes += n;
    return one * n;
}

static size_t take_header(char *data, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    if (strlen(r->headers) + n < sizeof r->headers)
        strncat(r->headers, data, n);
    return one * n;
}

/* tcp: NULL for the UNIX socket, or the server's tcp:// address. body_bytes: of a POST. */
static CURLcode ask(const char *tcp, const char *method, const char *path, size_t body_bytes, struct reply *r)
{
    CURL *curl = curl_easy_init();
    char url[200], *body = calloc(1, body_bytes + 1);
    memset(r, 0, sizeof *r);
    snprintf(url, sizeof url, "http://%s%s", tcp != NULL ? tcp + strlen("tcp://") : "psd", path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 100L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, r);
    if (tcp == NULL)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, "psd.sock");
    if (strcmp(method, "HEAD") == 0)
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    if (strcmp(method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body_bytes);
    } else if (strcmp(method, "HEAD") != 0) {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    }
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r->status);
    curl_easy_cleanup(curl);
    free(body);
    return rc;
}

static void enter_directory(void)
{
    strcpy(directory, "/tmp/psd-test-http-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
}

static void leave_directory(void)
{
    unlink("psd.sock");
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}

static void assert_has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "'%s' is not in '%s'", part, text);
}

START_TEST(routes_are_served)
{
    struct server s;
    struct reply r;
    start(&s, "none");
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    ck_assert_str_eq(r.body, "{\"state\":\"ready\",\"arg\":\"none\"}");
    assert_has(r.headers, "Content-Type: application/json");
    assert_has(r.headers, "Cache-Control: no-store");
    assert_has(r.headers, "Content-Security-Policy: default-src 'self'; ");
    assert_has(r.headers, "X-Content-Type-Options: nosniff");
    ck_assert_int_eq(ask(NULL, "GET", "/status?arg=a%20b&other=1", 0, &r), CURLE_OK);
    assert_has(r.body, "\"arg\":\"a b\"");
    ck_assert_int_eq(ask(NULL, "GET", "/healthz", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 503);
    ck_assert_str_eq(r.body, "");
    assert_has(r.headers, "Content-Type: text/plain");
    ck_assert_int_eq(ask(NULL, "GET", "/large", 0, &r), CURLE_OK);
    ck_assert_uint_eq(r.body_bytes, 3000000);
    ck_assert_int_eq(ask(NULL, "HEAD", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    ck_assert_uint_eq(r.body_bytes, 0);
    assert_has(r.headers, "Content-Length: 30");
    ck_assert_int_eq(ask(NULL, "POST", "/drain", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 202);
    ck_assert_int_eq(ask(NULL, "POST", "/drain", 64 * 1024, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 202);
    stop(&s);
    ck_assert_int_eq(s.calls, 5);
    ck_assert_int_ne(access("psd.sock", F_OK), 0);
}
END_TEST

START_TEST(others_are_refused)
{
    struct server s;
    struct reply r;
    start(&s, "none");
    ck_assert_int_eq(ask(NULL, "GET", "/nothing%22%01", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 404);
    assert_has(r.body, "there is no /nothing\\\"? here");
    assert_has(r.body, "\"endpoints\":[\"GET /status\",");
    assert_has(r.body, "\"POST /drain\"");
    ck_assert_int_eq(ask(NULL, "POST", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 405);
    assert_has(r.headers, "Allow: GET, HEAD\r\n");
    ck_assert_int_eq(ask(NULL, "GET", "/drain", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 405);
    assert_has(r.headers, "Allow: POST\r\n");
    ck_assert_int_eq(ask(NULL, "HEAD", "/drain", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 405);
    ck_assert_int_eq(ask(NULL, "DELETE", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 405);
    ck_assert_int_eq(ask(NULL, "B\377D", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 405);
    assert_has(r.body, "{\"error\":\"B?D is not allowed for /status; allowed: GET, HEAD");
    ask(NULL, "POST", "/drain", 64 * 1024 + 1, &r); /* curl may see the close before it has sent all */
    ck_assert_int_ne(r.status, 202);
    stop(&s);
    ck_assert_int_eq(s.calls, 0);
}
END_TEST

/* For psd and libcurl: no name server is asked, which might map localhost to another address. */
int getaddrinfo(const char *restrict host, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    __typeof__(&getaddrinfo) real = (__typeof__(&getaddrinfo))(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
    struct addrinfo numeric = hints != NULL ? *hints : (struct addrinfo){.ai_flags = 0};
    numeric.ai_flags |= AI_NUMERICHOST;
    return real(host, port, &numeric, found);
}

START_TEST(tcp_is_read_only)
{
    struct server s;
    struct reply r;
    static const char *const urls[] = {"tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://LocalHost:0"};
    start(&s, urls[_i]);
    const char *tcp = psd_http_address(s.http);
    ck_assert_int_eq(strncmp(tcp, "tcp://127.0.0.1:", 16), 0);
    ck_assert_int_gt(atoi(tcp + 16), 0);
    ck_assert_int_eq(ask(tcp, "GET", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    ck_assert_int_eq(ask(tcp, "POST", "/drain", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 403);
    assert_has(r.body, "UNIX socket only");
    ck_assert_int_eq(ask(tcp, "GET", "/drain", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 404);
    ck_assert_ptr_null(strstr(r.body, "POST"));
    ck_assert_int_eq(ask(NULL, "POST", "/drain", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 202);
    stop(&s);
    ck_assert_int_eq(s.calls, 2);
}
END_TEST

static int create_fails(const char *path, const char *http, struct ps_error *err)
{
    struct psd_http *h;
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    int rc = psd_http_create(&loop, path, http, routes, NULL, &h, err);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return rc;
}

START_TEST(socket_file_is_private_and_exclusive)
{
    struct server s;
    struct stat st;
    struct ps_error err;
    struct reply r;
    mode_t mask = umask(0);

    start(&s, "none");
    umask(mask);
    ck_assert_int_eq(stat("psd.sock", &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(create_fails("psd.sock", "none", &err), -EADDRINUSE);
    assert_has(err.text, "psd.sock: the status socket is in use");
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK); /* and it still serves */
    stop(&s);
}
END_TEST

START_TEST(stale_socket_is_replaced)
{
    struct server s;
    struct reply r;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    start(&s, "none");
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    stop(&s);
}
END_TEST

START_TEST(another_socket_is_not_removed)
{
    struct server s;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    start(&s, "none");
    ck_assert_int_eq(unlink("psd.sock"), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    stop(&s);
    ck_assert_int_eq(access("psd.sock", F_OK), 0);
    close(fd);
}
END_TEST

START_TEST(bad_places_are_named)
{
    struct ps_error err;
    char path[200] = "";
    ck_assert_int_eq(create_fails("missing/psd.sock", "none", &err), -ENOENT);
    assert_has(err.text, "missing/psd.sock: ");
    memset(path, 'a', 108);
    ck_assert_int_eq(create_fails(path, "none", &err), -ENAMETOOLONG);
    assert_has(err.text, "108 bytes; the system allows 1 to 107");
    ck_assert_int_eq(create_fails("psd.sock", "tcp://0.0.0.0:0", &err), -EINVAL);
    assert_has(err.text, "not loopback");
    ck_assert_int_ne(access("psd.sock", F_OK), 0);
    ck_assert_int_eq(create_fails("psd.sock", "8080", &err), -EINVAL);
    close(open("psd.sock", O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(create_fails("psd.sock", "none", &err), -EEXIST);
    assert_has(err.text, "not a socket is there");
}
END_TEST

static const struct {
    const char *host;
    long status;
} hosts[] = {
    {"Host: evil.example", 403},
    {"Host: 127.0.0.1.evil.example:80", 403},
    {"Host: localhost.evil", 403},
    {"Host: 10.0.0.1", 403},
    {"Host: [::1].evil", 403},
    {"Host: @localhost", 403},
    {"Host: ::1", 403},
    {"Host: localhost", 200},
    {"Host: localhost:8080", 200},
    {"Host: LocalHost", 200},
    {"Host: 127.0.0.1", 200},
    {"Host: 127.3.2.1:1", 200},
    {"Host: [::1]:8080", 200},
    {"Host: [::1]", 200},
    {"Host:", 200},
};

static size_t drop(char *data, size_t one, size_t n, void *arg)
{
    (void)data;
    (void)arg;
    return one * n;
}

START_TEST(a_host_that_is_not_loopback_is_refused)
{
    struct server s;
    long status = 0;
    char url[100];
    start(&s, "tcp://127.0.0.1:0");
    snprintf(url, sizeof url, "http%s/status", psd_http_address(s.http) + strlen("tcp"));
    CURL *curl = curl_easy_init();
    struct curl_slist *header = curl_slist_append(NULL, hosts[_i].host);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, header);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    ck_assert_int_eq(curl_easy_perform(curl), CURLE_OK);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    ck_assert_msg(status == hosts[_i].status, "%s: %ld", hosts[_i].host, status);
    curl_slist_free_all(header);
    curl_easy_cleanup(curl);
    stop(&s);
    ck_assert_int_eq(s.calls, hosts[_i].status == 200);
}
END_TEST

static int open_descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

/* At four points of the life of a request: nothing said, half a line, all of it, in the middle of the answer.
 */
START_TEST(early_closes_leave_no_descriptor)
{
    static const char *const said[] = {"", "GET /sta", "GET /status HTTP/1.1\r\nHost: psd\r\n\r\n",
                                       "GET /large HTTP/1.1\r\nHost: psd\r\n\r\n"};
    struct server s;
    struct reply r;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    start(&s, "none");
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    int before = open_descriptors();
    for (int i = 0; i < 600; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
        size_t len = strlen(said[i % 4]);
        ck_assert_int_eq(send(fd, said[i % 4], len, MSG_NOSIGNAL), (ssize_t)len);
        char first;
        if (i % 4 == 3)
            ck_assert_int_eq(recv(fd, &first, 1, 0), 1);
        close(fd);
    }
    for (double end = unit_now_s() + UNIT_HANG_S; open_descriptors() > before && unit_now_s() < end;)
        unit_nap_ms(5);
    ck_assert_int_le(open_descriptors(), before);
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    stop(&s);
}
END_TEST

/* Clients that open and say nothing, or rubbish, do not keep others from an answer. */
START_TEST(bad_clients_do_not_block)
{
    static const char rubbish[] = "\x00\xff\r\n\r\nGET GET GET\r\n\r\n";
    struct server s;
    struct reply r;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    int fds[20];
    start(&s, "none");
    for (size_t i = 0; i < 20; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&at, sizeof at), 0);
        if (i % 2 == 1)
            ck_assert_int_eq(send(fds[i], rubbish, sizeof rubbish, MSG_NOSIGNAL), sizeof rubbish);
    }
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    stop(&s);
    for (size_t i = 0; i < 20; i++)
        close(fds[i]);
}
END_TEST

/* As many as are served, and some that wait: closed by the clients, or by the server when they have been
 * idle. */
START_TEST(who_fills_all_places_leaves_them)
{
    enum { SERVED = 64, WAIT = 8 };
    struct server s;
    struct reply r;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    int fds[SERVED + WAIT];
    start(&s, "none");
    int before = open_descriptors();
    for (size_t i = 0; i < SERVED + WAIT; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&at, sizeof at), 0);
    }
    for (double end = unit_now_s() + UNIT_HANG_S;
         open_descriptors() < before + 2 * SERVED + WAIT && unit_now_s() < end;)
        unit_nap_ms(5);
    ck_assert_int_ge(open_descriptors(), before + 2 * SERVED + WAIT);
    bool closes = _i == 0;
    for (size_t i = 0; closes && i < SERVED + WAIT; i++)
        close(fds[i]);
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    for (size_t i = 0; !closes && i < SERVED + WAIT; i++)
        close(fds[i]);
    stop(&s);
}
END_TEST

/* A connection that has asked for the end, which nobody has answered yet. method: GET as who watches, POST as
 * the operator who drains. */
static int ask_for_end(const char *method)
{
    char request[100];
    int len = snprintf(request, sizeof request, "%s /end HTTP/1.1\r\nHost: psd\r\nContent-Length: 0\r\n\r\n",
                       method);
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
    return fd;
}

/* One of them goes before the end; one more than may wait is told so; all others hear how it ended. */
START_TEST(requests_that_are_held_are_answered_at_the_end)
{
    struct server s;
    struct reply r = {.status = 0};
    int fds[PSD_HTTP_MOST_HELD];
    char text[2000];
    start(&s, "none");
    for (int i = 0; i < PSD_HTTP_MOST_HELD; i++)
        fds[i] = ask_for_end("GET");
    for (double end = unit_now_s() + UNIT_HANG_S; r.status != 503 && unit_now_s() < end;) {
        int one = ask_for_end("GET"); /* the server takes them in its own time: held, or told */
        struct timeval soon = {.tv_usec = 200000};
        setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
        ssize_t n = recv(one, text, sizeof text - 1, 0);
        r.status = n > 0 && strncmp(text, "HTTP/1.1 503", 12) == 0 ? 503 : 0;
        close(one);
    }
    ck_assert_int_eq(r.status, 503);
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK); /* nobody else waits for them */
    ck_assert_int_eq(r.status, 200);
    close(fds[0]);
    stop(&s);
    for (int i = 1; i < PSD_HTTP_MOST_HELD; i++) {
        size_t n = 0;
        for (ssize_t got = 1; got > 0 && n<sizeof text - 1; n += got> 0 ? (size_t)got : 0)
            got = recv(fds[i], text + n, sizeof text - 1 - n, 0);
        text[n] = 0;
        assert_has(text, "HTTP/1.1 500");
        assert_has(text, "{\"error\":\"not well\"}");
        close(fds[i]);
    }
}
END_TEST

static int ask_for_end_over_tcp(const char *address)
{
    static const char request[] = "GET /end HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
    return fd;
}

static int status_of(int fd)
{
    char text[2000];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return strncmp(text, "HTTP/1.1 ", 9) == 0 ? atoi(text + 9) : 0;
}

/* However many pages wait for the end, the operator's drain has its place. */
START_TEST(pages_that_wait_take_no_place_of_the_operators)
{
    enum { PAGES = PSD_HTTP_MOST_HELD + 1 };
    struct server s;
    int pages[PAGES], n_told = 0, n_refused = 0;
    start(&s, "tcp://127.0.0.1:0");
    for (int i = 0; i < PAGES; i++)
        pages[i] = ask_for_end_over_tcp(psd_http_address(s.http));
    int drain = ask_for_end("POST");
    for (double end = unit_now_s() + UNIT_HANG_S; s.calls < PAGES + 1 && unit_now_s() < end;)
        unit_nap_ms(2);
    stop(&s);
    ck_assert_int_eq(status_of(drain), 500);
    for (int i = 0; i < PAGES; i++) {
        int status = status_of(pages[i]);
        n_told += status == 500;
        n_refused += status == 503;
    }
    ck_assert_int_eq(n_told, PSD_HTTP_MOST_HELD);
    ck_assert_int_eq(n_refused, 1);
}
END_TEST

/* The same for those who watch by psctl top, over the operator's own socket. */
START_TEST(who_watches_takes_no_place_of_the_operators)
{
    enum { DRAINS = 2 };
    struct server s;
    int viewers[PSD_HTTP_MOST_HELD], drains[DRAINS];
    start(&s, "none");
    for (int i = 0; i < PSD_HTTP_MOST_HELD + DRAINS; i++) {
        int fd = ask_for_end(i < PSD_HTTP_MOST_HELD ? "GET" : "POST");
        *(i < PSD_HTTP_MOST_HELD ? &viewers[i] : &drains[i - PSD_HTTP_MOST_HELD]) = fd;
        for (double end = unit_now_s() + UNIT_HANG_S; s.calls <= i && unit_now_s() < end;)
            unit_nap_ms(2);
    }
    int late = ask_for_end("GET");
    ck_assert_int_eq(status_of(late), 503);
    stop(&s);
    for (int i = 0; i < PSD_HTTP_MOST_HELD; i++)
        ck_assert_int_eq(status_of(viewers[i]), 500);
    for (int i = 0; i < DRAINS; i++)
        ck_assert_int_eq(status_of(drains[i]), 500);
}
END_TEST

static atomic_bool is_short;
static atomic_int n_short;

/* For psd and libmicrohttpd: the process has no descriptor left while is_short is set. The real one may be
 * that of a sanitizer, which otherwise does not learn of the descriptor. */
int accept4(int fd, __SOCKADDR_ARG peer, socklen_t *restrict len, int flags)
{
    if (!is_short) {
        __typeof__(&accept4) real = (__typeof__(&accept4))(uintptr_t)dlsym(RTLD_NEXT, "accept4");
        return real(fd, peer, len, flags);
    }
    n_short++;
    errno = EMFILE;
    return -1;
}

/* Also while a connection is held, at which libmicrohttpd does not look. */
START_TEST(who_comes_while_descriptors_are_short_is_served_later)
{
    struct server s;
    struct reply r;
    start(&s, "none");
    int held = ask_for_end("GET");
    for (double end = unit_now_s() + UNIT_HANG_S; s.calls < 1 && unit_now_s() < end;)
        unit_nap_ms(2);
    is_short = true;
    int early = ask_for_end("GET");
    for (double end = unit_now_s() + UNIT_HANG_S; n_short < 1 && unit_now_s() < end;)
        unit_nap_ms(2);
    ck_assert_int_ge(n_short, 1);
    is_short = false;
    ck_assert_int_eq(ask(NULL, "GET", "/status", 0, &r), CURLE_OK);
    ck_assert_int_eq(r.status, 200);
    for (double end = unit_now_s() + UNIT_HANG_S; s.calls < 3 && unit_now_s() < end;)
        unit_nap_ms(2);
    stop(&s);
    ck_assert_int_eq(status_of(held), 500);
    ck_assert_int_eq(status_of(early), 500);
}
END_TEST

/* As psctl top and the page do each time that they are opened; in weeks that is often. */
START_TEST(who_has_hung_up_leaves_its_place)
{
    enum { OPENED = 2 * PSD_HTTP_MOST_HELD };
    struct server s;
    int fd = -1;
    start(&s, "tcp://127.0.0.1:0");
    for (int i = 0; i <= OPENED; i++) {
        if (fd >= 0)
            close(fd);
        fd = _i == 0 ? ask_for_end("GET") : ask_for_end_over_tcp(psd_http_address(s.http));
        for (double end = unit_now_s() + UNIT_HANG_S; s.calls <= i && unit_now_s() < end;)
            unit_nap_ms(2);
    }
    stop(&s);
    ck_assert_int_eq(status_of(fd), 500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-http");
    TCase *tc = tcase_create("http");
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_test(tc, routes_are_served);
    tcase_add_test(tc, others_are_refused);
    tcase_add_loop_test(tc, tcp_is_read_only, 0, 3);
    tcase_add_test(tc, socket_file_is_private_and_exclusive);
    tcase_add_test(tc, stale_socket_is_replaced);
    tcase_add_test(tc, another_socket_is_not_removed);
    tcase_add_test(tc, bad_places_are_named);
    tcase_add_test(tc, bad_clients_do_not_block);
    tcase_add_test(tc, requests_that_are_held_are_answered_at_the_end);
    tcase_add_test(tc, pages_that_wait_take_no_place_of_the_operators);
    tcase_add_test(tc, who_watches_takes_no_place_of_the_operators);
    tcase_add_test(tc, who_comes_while_descriptors_are_short_is_served_later);
    tcase_add_loop_test(tc, who_has_hung_up_leaves_its_place, 0, 2);
    tcase_add_test(tc, early_closes_leave_no_descriptor);
    tcase_add_loop_test(tc, who_fills_all_places_leaves_them, 0, 2);
    tcase_add_loop_test(tc, a_host_that_is_not_loopback_is_refused, 0, (int)ROWS(hosts));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
