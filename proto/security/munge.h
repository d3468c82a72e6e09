/* munge.h: credentials of MUNGE, by which a site's daemons vouch for a process's user. munge.c has
 * them; munge_none.c is in builds without libmunge.
 *
 * The environment variable PSD_MUNGE_SOCKET names a munged other than the system's. Both calls ask munged and
 * may wait for it, some seconds at worst. */
#ifndef PS_SECURITY_MUNGE_H
#define PS_SECURITY_MUNGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/error.h"

#define PS_MUNGE_NONCE_BYTES 16
/* More than a payload takes: the nonce, a Hello and a key. */
#define PS_MUNGE_MAX_BYTES 4096

/* Whether this build has it; the sentence says what to install. */
bool ps_munge_built(struct ps_error *err);

/* A credential of this process's user over the payload; the caller frees it. -EACCES with munged's reason;
 * -ENOTSUP. */
int ps_munge_encode(const void *payload, size_t len, char **credential, struct ps_error *err);
/* What is in a credential, and whose it is, once: munged knows it the second time. *payload (NULL when empty)
 * is the caller's to free. -EACCES, -ENOTSUP. */
int ps_munge_decode(const char *credential, void **payload, size_t *len, uid_t *uid, struct ps_error *err);

#endif
