/* http_client.h: psctl's way to psd: HTTP over the status socket. */
#ifndef PSD_CTL_HTTP_CLIENT_H
#define PSD_CTL_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct ctl_client; /* one connection, kept between requests; one thread */

struct ctl_reply {
    int status; /* HTTP's */
    char *body; /* with a zero byte behind it; the caller frees it */
    size_t len_bytes;
};

/* -ENOMEM; the socket is not touched. */
int ctl_client_create(const char *socket_path, struct ctl_client **out, struct ps_error *err);
void ctl_client_destroy(struct ctl_client *c);

/* Asks and waits for the answer, timeout_ms at most. Any status is a success here. -ECONNREFUSED: nobody
 * listens there; -ETIMEDOUT; -EIO: the answer broke off or is beyond 64 MiB. */
int ctl_client_ask(struct ctl_client *c, const char *method, const char *path, uint32_t timeout_ms,
                   struct ctl_reply *reply, struct ps_error *err);

/* A GET whose answer may take as long as psd runs, on a connection of its own; nothing of it waits, but for
 * wait_ms. look: 0: no answer yet; 1: *out is it, the question's; -EIO: the connection broke off. */
struct ctl_question;
int ctl_question_create(const struct ctl_client *c, const char *path, struct ctl_question **out);
int ctl_question_look(struct ctl_question *q, uint32_t wait_ms, const struct ctl_reply **out);
void ctl_question_destroy(struct ctl_question *q);

#endif
