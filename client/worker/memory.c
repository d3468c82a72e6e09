/* Vectors in memory that a server on this machine can map. */
#include "client/internal.h"
#include "client/worker/worker.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int psc_alloc(struct psc *c, size_t n_floats, float **x)
{
    uint32_t at = PSC_BUFFER_OWN + 1;
    int rc = psc_check_process(&c->session, "psc_alloc", &c->error);
    if (rc != PSC_OK)
        return rc;
    if (x == NULL || n_floats == 0 || n_floats > SIZE_MAX / sizeof **x)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_alloc: %zu floats; allowed are 1 and more, and a pointer that is not NULL",
                       n_floats);
    while (at < PS_MAX_BUFFERS && c->buffers[at].base != NULL)
        at++;
    if (at == PS_MAX_BUFFERS)
        return ps_fail(&c->error, PSC_EINVAL, "psc_alloc: the handle has %d vectors already",
                       PS_MAX_BUFFERS - 1);
    if (ps_buffer_alloc(n_floats * sizeof **x, &c->buffers[at], &c->error) < 0)
        return PSC_ENOMEM;
    *x = c->buffers[at].base;
    return PSC_OK;
}

struct psc_memory {
    struct psc *c; /* NULL once it is closed */
    uint32_t at;   /* in c->buffers */
    struct ps_buffer buffer;
    pid_t owner;
};

int psc_keep(struct psc *c, const float *x, struct psc_memory **out)
{
    uint32_t at = PSC_BUFFER_OWN + 1;
    int rc = psc_check_process(&c->session, "psc_keep", &c->error);
    if (rc != PSC_OK)
        return rc;
    while (at < PS_MAX_BUFFERS && (x == NULL || c->buffers[at].base != x))
        at++;
    if (at == PS_MAX_BUFFERS || c->memories[at] != NULL || out == NULL)
        return ps_fail(
            &c->error, PSC_EINVAL,
            "psc_keep: allowed is a vector of psc_alloc that is not kept yet, and an owner that is not NULL");
    struct psc_memory *m = calloc(1, sizeof *m);
    if (m == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory to keep a vector");
    *m = (struct psc_memory){.c = c, .at = at, .owner = getpid()};
    c->memories[at] = *out = m;
    return PSC_OK;
}

void psc_memory_free(struct psc_memory *m)
{
    if (m == NULL || getpid() != m->owner)
        return;
    if (m->c != NULL)
        m->c->memories[m->at] = NULL;
    else
        ps_buffer_free(&m->buffer);
    free(m);
}

void psc_buffers_finish(struct psc *c)
{
    psc_vectors_drop_but(c, 0);
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++) {
        if (c->memories[i] == NULL) {
            ps_buffer_free(&c->buffers[i]);
            continue;
        }
        c->memories[i]->buffer = c->buffers[i];
        c->memories[i]->c = NULL;
    }
}
