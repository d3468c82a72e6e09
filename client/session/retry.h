/* retry.h: which failures may pass, and how long to wait before the next attempt. One place decides it for
 * the control socket and for data. */
#ifndef PSC_SESSION_RETRY_H
#define PSC_SESSION_RETRY_H

#include <stdbool.h>
#include <stdint.h>

/* Waits that double, each of them a random part longer, so that those who lost the same server at the same
 * moment do not come back at the same moment. */
struct psc_retry {
    uint64_t dice;
    uint32_t n; /* waits since the last success */
};

/* seed: tells clients apart. */
void psc_retry_init(struct psc_retry *r, uint64_t seed);
/* A success: the next wait is the first again. */
void psc_retry_reset(struct psc_retry *r);
/* The next wait, in the unit of first and most: first, 2 first, 4 first and so on, at most `most`; and up to
 * half of that more. */
double psc_retry_next(struct psc_retry *r, double first, double most);

enum psc_remedy {
    PSC_REMEDY_NONE,   /* it will fail whenever it is tried */
    PSC_REMEDY_SERVER, /* nobody is there, or does not know us: so it is while a server is away or comes back
                        */
    PSC_REMEDY_TIME    /* what it needs is short, or slow, now */
};

/* Of a transport's -errno, as link_open and hub_create return it. */
enum psc_remedy psc_remedy_of(int rc);

#endif
