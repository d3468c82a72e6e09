/* http_client.h: psctl's connection to psd: HTTP over the status socket. */
#ifndef PSD_CTL_HTTP_CLIENT_H
#define PSD_CTL_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct ctl_client; /* one connection, kept between requests; one thread */

struct ctl_reply {
    int status; /* of HTTP */
    char *body; /* followed by a zero byte; the caller frees it */
    size_t len_bytes;
};

/* -ENOMEM; does not open the socket. */
int ctl_client_create(const char *socket_path, struct ctl_client **out, struct ps_error *err);
void ctl_client_destroy(struct ctl_client *c);

/* Sends a request and waits for the answer, at most timeout_ms. Any status counts as success. -ECONNREFUSED:
 * no process listens there; -ETIMEDOUT; -EIO: the answer is incomplete or larger than 64 MiB. */
int ctl_client_ask(struct ctl_client *c, const char *method, const char *path, uint32_t timeout_ms,
                   struct ctl_reply *reply, struct ps_error *err);

/* A GET that may be answered only when psd stops, on its own connection. No function blocks, except look,
 * for wait_ms. look: 0: no answer yet; 1: *out is the answer, owned by the question; -EIO: the connection
 * broke. */
struct ctl_question;
int ctl_question_create(const struct ctl_client *c, const char *path, struct ctl_question **out);
int ctl_question_look(struct ctl_question *q, uint32_t wait_ms, const struct ctl_reply **out);
void ctl_question_destroy(struct ctl_question *q);

#endif
