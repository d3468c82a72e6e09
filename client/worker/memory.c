/* Vectors that lie where a server on this machine can reach them. */
#include "client/worker/memory.h"
#include "client/worker/worker.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int psc_alloc(struct psc *c, size_t n_floats, float **x)
{
    uint32_t at = PSC_BUFFER_OWN + 1;
    int rc = psc_check_process(c, "psc_alloc");
    if (rc != PSC_OK)
        return rc;
    if (x == NULL || n_floats == 0 || n_floats > SIZE_MAX / sizeof **x)
        return psc_fail(c, PSC_EINVAL, "psc_alloc: %zu floats; allowed are 1 and more, and a place for them",
                        n_floats);
    while (at < PS_MAX_BUFFERS && c->buffers[at].base != NULL)
        at++;
    if (at == PS_MAX_BUFFERS)
        return psc_fail(c, PSC_EINVAL, "psc_alloc: the handle has %d vectors already", PS_MAX_BUFFERS - 1);
    if (ps_buffer_alloc(n_floats * sizeof **x, &c->buffers[at], &c->error) < 0)
        return PSC_ENOMEM;
    *x = c->buffers[at].base;
    return PSC_OK;
}

void psc_buffers_finish(struct psc *c)
{
    psc_kept_drop_but(c, 0);
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++)
        ps_buffer_free(&c->buffers[i]);
}
