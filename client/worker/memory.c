/* Vectors that lie where a server on this machine can reach them. */
#include "client/worker/memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int psc_alloc(struct psc *c, size_t n_floats, float **x)
{
    uint32_t at = PSC_BUFFER_OWN + 1;
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

/* Kept until the handle is closed: hubs know it. */
static float *own_x(struct psc *c)
{
    struct ps_buffer *b = &c->buffers[PSC_BUFFER_OWN];
    size_t bytes = c->shard.n_floats * sizeof(float);
    if (b->base == NULL && ps_buffer_alloc(bytes, b, &c->error) < 0)
        return NULL;
    return memset(b->base, 0, bytes);
}

bool psc_kept_make(struct psc *c, enum psc_kept k)
{
    c->kept[k] = k == PSC_KEPT_X ? own_x(c) : calloc(c->shard.n_floats, sizeof *c->kept[k]);
    return c->kept[k] != NULL;
}

void psc_kept_drop_but(struct psc *c, unsigned keeps)
{
    for (int k = 0; k < PSC_N_KEPT; k++) {
        if ((keeps & PSC_KEPT(k)) != 0)
            continue;
        if (k != PSC_KEPT_X) /* in its buffer */
            free(c->kept[k]);
        c->kept[k] = NULL;
    }
}

void psc_buffers_finish(struct psc *c)
{
    psc_kept_drop_but(c, 0);
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++)
        ps_buffer_free(&c->buffers[i]);
}

bool psc_buffers_share(const struct psc *c, const void *begin, size_t bytes)
{
    uintptr_t at = (uintptr_t)begin;
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++) {
        uintptr_t base = (uintptr_t)c->buffers[i].base;
        if (base != 0 && c->buffers[i].kind == PS_BUFFER_SHARED && at >= base &&
            at + bytes <= base + c->buffers[i].bytes)
            return true;
    }
    return false;
}
