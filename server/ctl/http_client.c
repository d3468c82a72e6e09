#include "server/ctl/http_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
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

/* Returning less than it was given makes curl give up. */
static size_t take(char *data, size_t one, size_t n, void *arg)
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

/* A UNIX socket's address has PS_UNIX_PATH_MAX bytes at most: a deeper one is reached from its folder, which
 * is opened for that. *folder: -1 where the path is short enough. */
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

static int ask(struct ctl_client *c, const char *socket_path, const char *method, const char *path,
               uint32_t timeout_ms, struct ctl_reply *reply, struct ps_error *err)
{
    struct ctl_reply r = {.body = calloc(1, 1)};
    char url[256], why[CURL_ERROR_SIZE] = "";
    long status = 0;

    if (r.body == NULL)
        return ps_fail(err, -ENOMEM, "no memory for an answer");
    snprintf(url, sizeof url, "http://psd%s", path);
    curl_easy_reset(c->curl);
    curl_easy_setopt(c->curl, CURLOPT_URL, url);
    curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, socket_path);
    curl_easy_setopt(c->curl, CURLOPT_PROXY, ""); /* whatever the environment says */
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &r);
    if (strcmp(method, "POST") == 0)
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, "");
    CURLcode rc = curl_easy_perform(c->curl);
    if (rc == CURLE_COULDNT_CONNECT) { /* curl's sentence would name a port, which there is none of */
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
