/* resolve.h: resolves host names in a bounded time. */
#ifndef PS_RESOLVE_H
#define PS_RESOLVE_H

#include <netdb.h>
#include <stdint.h>

#include "proto/error.h"

enum { PS_RESOLVE_MS = 10000 }; /* when the caller has no other limit */

/* getaddrinfo, whose own patience with a name server that does not answer nobody can set. host NULL: any, as
 * hints say. *out: for freeaddrinfo. -ETIMEDOUT at ps_now_ns of until_ns; -EINVAL: no such host; -ENOMEM.
 * With a sentence. A name is asked for by a thread that may live on for a while after its time is up; numbers
 * ask nobody. */
int ps_resolve(const char *host, const char *port, const struct addrinfo *hints, uint64_t until_ns,
               struct addrinfo **out, struct ps_error *err);

#endif
