#include "server/ctl/http_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/unix_socket.h"

#define MAX_REPLY_BYTES (64u * 1024 * 1024)

struct ctl_client {
    CURL *curl;
    char *socket_path;
};

int ctl_client_create(const char *socket_path, struct ctl_client **out, struct ps_error *err)
{
    struct ctl_client *c = calloc(1, sizeof *c);
    if (c == NULL || (c->socket_path = strdup(socket_path)) == NULL || (c->curl = curl_easy_init()) == NULL) {
        ctl_client_destroy(c);
        return ps_fail(err, -ENOMEM, "no memory for a connection");
    }
    *out = c;
    return 0;
}

void ctl_client_destroy(struct ctl_client *c)
{
    if (c == NULL)
        return;
    curl_easy_cleanup(c->curl);
    free(c->socket_path);
    free(c);
}

/* curl stops when this returns less than it was given. */
static size_t append_body(char *data, size_t one, size_t n, void *arg)
{
    struct ctl_reply *r = arg;
    if (r->len_bytes + n > MAX_REPLY_BYTES)
        return 0;
    char *more = realloc(r->body, r->len_bytes + n + 1);
    if (more == NULL)
        return 0;
    memcpy(more + r->len_bytes, data, n);
    r->body = more;
    r->len_bytes += n;
    r->body[r->len_bytes] = 0;
    return one * n;
}

static int code_of(CURLcode rc)
{
    return rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO;
}

/* A UNIX socket's address has at most PS_UNIX_PATH_MAX bytes: a longer path is addressed relative to its
 * directory, which is opened for that. *folder: -1 if the path is short enough. */
static int shorten(const char *path, char at[PS_UNIX_PATH_MAX + 1], int *folder)
{
    const char *name = strrchr(path, '/');
    *folder = -1;
    if (strlen(path) <= PS_UNIX_PATH_MAX) {
        strcpy(at, path);
        return 0;
    }
    char *dir = name != NULL ? strndup(path, (size_t)(name - path) + 1) : NULL;
    *folder = dir != NULL ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int rc = *folder >= 0 ? 0 : dir != NULL ? -errno : -ENAMETOOLONG;
    free(dir);
    if (rc < 0)
        return rc;
    int len = snprintf(at, PS_UNIX_PATH_MAX + 1, "/proc/self/fd/%d%s", *folder, name);
    if (len <= PS_UNIX_PATH_MAX)
        return 0;
    close(*folder);
    return -ENAMETOOLONG;
}

/* Sets up the request; the answer goes to *r. timeout_ms 0: none. False: no memory. A request is never cut: a
 * part of it would be another request. */
static bool prepare(CURL *curl, const char *socket_path, const char *path, uint32_t timeout_ms,
                    struct ctl_reply *r)
{
    char *url = NULL;
    if (asprintf(&url, "http://psd%s", path) < 0)
        return false;
    curl_easy_reset(curl);
    CURLcode rc = curl_easy_setopt(curl, CURLOPT_URL, url); /* curl copies it */
    free(url);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket_path);
    curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* whatever the environment says */
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    return rc == CURLE_OK;
}

static int ask(struct ctl_client *c, const char *socket_path, const char *method, const char *path,
               uint32_t timeout_ms, struct ctl_reply *reply, struct ps_error *err)
{
    struct ctl_reply r = {.body = calloc(1, 1)};
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;

    if (r.body == NULL || !prepare(c->curl, socket_path, path, timeout_ms, &r)) {
        free(r.body);
        return ps_fail(err, -ENOMEM, "no memory for a request");
    }
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, why);
    if (strcmp(method, "POST") == 0)
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, "");
    CURLcode rc = curl_easy_perform(c->curl);
    if (rc == CURLE_COULDNT_CONNECT) { /* curl's own message would name a port, which a UNIX socket has not */
        long cause = 0;
        free(r.body);
        curl_easy_getinfo(c->curl, CURLINFO_OS_ERRNO, &cause);
        return ps_fail(err, -ECONNREFUSED, "cannot reach psd at %.200s: %s", c->socket_path,
                       cause != 0 ? strerror((int)cause) : "no connection");
    }
    if (rc != CURLE_OK) {
        free(r.body);
        return ps_fail(err, code_of(rc), "cannot reach psd at %.200s: %s", c->socket_path,
                       why[0] != 0 ? why : curl_easy_strerror(rc));
    }
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    r.status = (int)status;
    *reply = r;
    return 0;
}

int ctl_client_ask(struct ctl_client *c, const char *method, const char *path, uint32_t timeout_ms,
                   struct ctl_reply *reply, struct ps_error *err)
{
    char at[PS_UNIX_PATH_MAX + 1];
    int folder, rc = shorten(c->socket_path, at, &folder);
    if (rc < 0)
        return ps_fail(err, -ECONNREFUSED, "cannot reach psd at %.400s: %s", c->socket_path, strerror(-rc));
    rc = ask(c, at, method, path, timeout_ms, reply, err);
    if (folder >= 0)
        close(folder);
    return rc;
}

enum { MOST_STEPS = 20 }; /* of one look, as an answer may arrive in pieces */

struct ctl_question {
    CURLM *multi;
    CURL *curl;
    int folder; /* directory of a long path, open as long as the question */
    struct ctl_reply reply;
};

int ctl_question_create(const struct ctl_client *c, const char *path, struct ctl_question **out)
{
    char at[PS_UNIX_PATH_MAX + 1];
    struct ctl_question *q = calloc(1, sizeof *q);
    if (q == NULL)
        return -ENOMEM;
    q->folder = -1;
    int rc = shorten(c->socket_path, at, &q->folder);
    q->reply.body = calloc(1, 1);
    if (rc < 0 || q->reply.body == NULL || (q->curl = curl_easy_init()) == NULL ||
        (q->multi = curl_multi_init()) == NULL || !prepare(q->curl, at, path, 0, &q->reply)) {
        ctl_question_destroy(q);
        return rc < 0 ? rc : -ENOMEM;
    }
    curl_multi_add_handle(q->multi, q->curl);
    *out = q;
    return 0;
}

int ctl_question_look(struct ctl_question *q, uint32_t wait_ms, const struct ctl_reply **out)
{
    int running = 1, ready = 1, left;
    long status = 0;
    for (int i = 0; q->reply.status == 0 && running > 0 && ready > 0 && i < MOST_STEPS; i++) {
        curl_multi_perform(q->multi, &running);
        if (running > 0)
            curl_multi_poll(q->multi, NULL, 0, (int)wait_ms, &ready);
    }
    if (q->reply.status == 0 && running > 0)
        return 0;
    const CURLMsg *m = curl_multi_info_read(q->multi, &left);
    if (q->reply.status == 0 && (m == NULL || m->data.result != CURLE_OK))
        return -EIO;
    curl_easy_getinfo(q->curl, CURLINFO_RESPONSE_CODE, &status);
    q->reply.status = (int)status;
    *out = &q->reply;
    return 1;
}

void ctl_question_destroy(struct ctl_question *q)
{
    if (q == NULL)
        return;
    if (q->multi != NULL && q->curl != NULL)
        curl_multi_remove_handle(q->multi, q->curl);
    curl_easy_cleanup(q->curl);
    curl_multi_cleanup(q->multi);
    if (q->folder >= 0)
        close(q->folder);
    free(q->reply.body);
    free(q);
}
