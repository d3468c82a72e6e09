#include "client/session/retry.h"

#include <errno.h>

enum { MOST_DOUBLINGS = 16 };

void psc_retry_init(struct psc_retry *r, uint64_t seed)
{
    *r = (struct psc_retry){.dice = seed};
}

void psc_retry_reset(struct psc_retry *r)
{
    r->n = 0;
}

/* Knuth's MMIX generator: the high bits are random enough. */
static double dice_unit(struct psc_retry *r)
{
    r->dice = r->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(r->dice >> 11) * 0x1p-53;
}

double psc_retry_next(struct psc_retry *r, double first, double most)
{
    double wait = first * (double)(UINT64_C(1) << r->n);
    if (wait >= most)
        wait = most;
    else if (r->n < MOST_DOUBLINGS)
        r->n++;
    return wait * (1 + 0.5 * dice_unit(r));
}

enum psc_remedy psc_remedy_of(int rc)
{
    switch (-rc) {
    case EHOSTUNREACH: /* no peer listens there, or it closed the connection */
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EACCES: /* the pass is of an older session, or has not reached that lane yet */
        return PSC_REMEDY_SERVER;
    case ETIMEDOUT:
    case EAGAIN:
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
    case ENOSPC: /* the port has no room for another client */
        return PSC_REMEDY_TIME;
    default:
        return PSC_REMEDY_NONE;
    }
}
