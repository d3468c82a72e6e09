/* munge.h: MUNGE credentials, with which a site's daemons prove the user of a process. munge.c implements
 * them; munge_none.c replaces it in builds without libmunge.
 *
 * The environment variable PSD_MUNGE_SOCKET selects another munged than the system's. Both calls ask munged
 * and may take some seconds. */
#ifndef PS_SECURITY_MUNGE_H
#define PS_SECURITY_MUNGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/error.h"

#define PS_MUNGE_NONCE_BYTES 16
/* Larger than any payload of a client: the nonce, a Hello and a key. */
#define PS_MUNGE_MAX_BYTES 4096
/* Of a server: the nonce, an Enlist, which has its configuration, settings and lanes, and a key. */
#define PS_MUNGE_SERVER_MAX_BYTES (1 << 17)

/* Whether this build supports MUNGE; else a sentence that says what to install. */
bool ps_munge_built(struct ps_error *err);

/* Creates a credential of this process's user over the payload; the caller frees it. -EACCES with munged's
 * reason; -EAGAIN: munged does not answer; -ENOTSUP. */
int ps_munge_encode(const void *payload, size_t len, char **credential, struct ps_error *err);
/* Decodes a credential: its payload and its user. munged accepts a credential only once. The caller frees
 * *payload (NULL if empty). -EACCES; -EAGAIN: munged does not answer; -ENOTSUP. */
int ps_munge_decode(const char *credential, void **payload, size_t *len, uid_t *uid, struct ps_error *err);

#endif
