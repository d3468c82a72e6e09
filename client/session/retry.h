/* retry.h: which failures are worth a retry, and how long to wait before it: for the control socket and for
 * data. */
#ifndef PSC_SESSION_RETRY_H
#define PSC_SESSION_RETRY_H

#include <stdbool.h>
#include <stdint.h>

/* Exponential backoff with a random part, so that clients that lost the same server at once do not return at
 * once. */
struct psc_retry {
    uint64_t dice;
    uint32_t n; /* waits since the last success */
};

/* seed: differs from client to client. */
void psc_retry_init(struct psc_retry *r, uint64_t seed);
/* After a success: starts again with the first wait. */
void psc_retry_reset(struct psc_retry *r);
/* The next wait, in the unit of first and most: first, 2 first, 4 first, ..., at most `most`, plus a random
 * part of up to a half of that. */
double psc_retry_next(struct psc_retry *r, double first, double most);

enum psc_remedy {
    PSC_REMEDY_NONE,   /* permanent: every attempt will fail */
    PSC_REMEDY_SERVER, /* no peer listens, or the server does not know us: it is down or restarting */
    PSC_REMEDY_TIME    /* a resource is short, or the peer is slow, at the moment */
};

/* For a transport's -errno, as returned by link_open and hub_create. */
enum psc_remedy psc_remedy_of(int rc);

#endif
