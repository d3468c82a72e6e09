/* resolve.h: resolves host names in a bounded time. */
#ifndef PS_RESOLVE_H
#define PS_RESOLVE_H

#include <netdb.h>
#include <stdint.h>

#include "proto/error.h"

enum { PS_RESOLVE_MS = 10000 }; /* if the caller has no other limit */

/* Like getaddrinfo, whose own timeout cannot be set. host NULL: any, depending on hints. *out: for
 * freeaddrinfo. -ETIMEDOUT when ps_now_ns reaches until_ns; -EINVAL: no such host; -ENOMEM. With a sentence.
 * Names are resolved by a thread, which may run on for a while after a timeout; numeric addresses need no
 * thread. */
int ps_resolve(const char *host, const char *port, const struct addrinfo *hints, uint64_t until_ns,
               struct addrinfo **out, struct ps_error *err);

#endif
