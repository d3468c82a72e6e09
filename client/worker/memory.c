/* Vectors in memory that a server on this machine can map. */
#include "client/internal.h"
#include "client/worker/worker.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int psc_alloc(struct psc *c, size_t n_floats, float **x)
{
    uint32_t at = PSC_BUFFER_OWN + 1;
    void *device = NULL;
    int rc = psc_check_process(&c->session, "psc_alloc", &c->error);
    if (rc != PSC_OK)
        return rc;
    if (x == NULL || n_floats == 0 || n_floats > SIZE_MAX / sizeof **x)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_alloc: %zu floats; allowed are 1 and more, and a pointer that is not NULL",
                       n_floats);
    if (c->memory.device != NULL) {
        rc = c->memory.kind->alloc(c->memory.device, n_floats * sizeof **x, &device, &c->error);
        if (rc == 0) /* the zeros are there, whatever stream the caller uses */
            rc = c->memory.kind->finish(c->work.queue, &c->error);
        if (rc == 0)
            *x = device;
        return psc_device_result(rc);
    }
    while (at < PS_MAX_BUFFERS && psc_has_buffer(c, at))
        at++;
    if (at == PS_MAX_BUFFERS)
        return ps_fail(&c->error, PSC_EINVAL, "psc_alloc: the handle has %d vectors already",
                       PS_MAX_BUFFERS - 1);
    if (psc_buffer_make(c, at, n_floats * sizeof **x, &c->error) < 0)
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
    if (c->memory.device != NULL)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "psc_keep: memory of a device ends with psc_close; allowed is memory 'host'");
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

/* Floats of a copy: enough for the bus to run at its rate. */
enum { COPY_FLOATS = 1 << 20 };

/* Copies piece by piece through pinned memory. */
static int copy_pieces(struct psc *c, float *device, float *host, size_t n, bool is_up)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    size_t piece = n < COPY_FLOATS ? n : COPY_FLOATS;
    struct ps_buffer room = {.fd = -1};
    if (ps_buffer_alloc(piece * sizeof *host, &room, &c->error) < 0)
        return PSC_ENOMEM;
    float *pinned = room.base;
    int rc = kind->pin(c->memory.device, pinned, piece * sizeof *host, &c->error);
    bool is_pinned = rc == 0;
    for (size_t at = 0; at < n && rc == 0; at += piece) {
        size_t count = n - at < piece ? n - at : piece;
        if (is_up) {
            memcpy(pinned, host + at, count * sizeof *host);
            kind->up(c->work.queue, device + at, pinned, count * sizeof *host);
        } else {
            kind->down(c->work.queue, pinned, device + at, count * sizeof *host);
        }
        rc = kind->finish(c->work.queue, &c->error);
        if (rc == 0 && !is_up)
            memcpy(host + at, pinned, count * sizeof *host);
    }
    if (is_pinned)
        kind->unpin(c->memory.device, pinned);
    ps_buffer_free(&room);
    return psc_device_result(rc);
}

int psc_vector_read(struct psc *c, float *host, const float *x, size_t n)
{
    if (c->memory.device != NULL)
        return copy_pieces(c, (float *)(uintptr_t)x, host, n, false);
    memcpy(host, x, n * sizeof *host);
    return PSC_OK;
}

int psc_vector_write(struct psc *c, float *x, const float *host, size_t n)
{
    if (c->memory.device != NULL)
        return copy_pieces(c, x, (float *)(uintptr_t)host, n, true);
    memcpy(x, host, n * sizeof *host);
    return PSC_OK;
}

int psc_vector_search(struct psc *c, const float *x, size_t n, uint64_t *bad)
{
    if (c->memory.device != NULL) {
        c->memory.kind->search_begin(c->work.queue);
        c->memory.kind->search(c->work.queue, x, n, 0);
        return psc_device_result(c->memory.kind->search_end(c->work.queue, bad, &c->error));
    }
    size_t first = c->vec->first_nonfinite(x, n);
    *bad = first < n ? first : UINT64_MAX;
    return PSC_OK;
}

static int check_copy(struct psc *c, const char *call, const void *x, const void *host)
{
    int rc = psc_check_process(&c->session, call, &c->error);
    if (rc != PSC_OK)
        return rc;
    if (x == NULL || host == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "%s: a vector is missing", call);
    return psc_check_memory(c, call, x);
}

int psc_read(struct psc *c, float *host, const float *x, size_t n_floats)
{
    int rc = check_copy(c, "psc_read", x, host);
    return rc == PSC_OK ? psc_vector_read(c, host, x, n_floats) : rc;
}

int psc_write(struct psc *c, float *x, const float *host, size_t n_floats)
{
    int rc = check_copy(c, "psc_write", x, host);
    return rc == PSC_OK ? psc_vector_write(c, x, host, n_floats) : rc;
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
