/* collectives.c: sums and copies of the members' vectors over a clique. A vector on the host is complete when
 * the call begins. One on a device is complete when its queue has passed a mark. The thread that runs the
 * collective waits for the mark, so that the caller continues: a part of a gradient is summed while the next
 * one is computed. */
#include <stdlib.h>

#include "client/cliques/clique.h"
#include "client/internal.h"

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

int psc_collectives_prepare(struct psc *c)
{
    struct psc_group *p = &c->group;
    if (c->memory.device == NULL || p->size == 1)
        return PSC_OK;
    for (int i = 0; i < PSC_MAX_FILLED; i++) {
        struct psc_filled *f = &p->filled[i];
        f->c = c;
        int rc = f->mark == NULL ? c->memory.kind->mark_create(c->memory.device, &f->mark, &c->error) : 0;
        if (rc < 0)
            return psc_device_result(rc);
    }
    return PSC_OK;
}

void psc_collectives_finish(struct psc *c)
{
    for (int i = 0; i < PSC_MAX_FILLED; i++)
        if (c->group.filled[i].mark != NULL)
            c->memory.kind->mark_destroy(c->memory.device, c->group.filled[i].mark);
}

float *psc_group_alloc(struct psc *c)
{
    void *v = NULL;
    if (c->memory.device == NULL)
        return calloc(c->shard.n_floats, sizeof(float));
    return c->memory.kind->alloc(c->memory.device, c->shard.n_floats * sizeof(float), &v, &c->error) == 0
               ? v
               : NULL;
}

void psc_group_free(struct psc *c, float *v)
{
    if (c->memory.device == NULL)
        free(v);
    else if (v != NULL)
        c->memory.kind->free(c->memory.device, v);
}

static int await(void *arg, struct ps_error *err)
{
    const struct psc_filled *f = arg;
    return psc_device_result(f->c->memory.kind->wait(f->c->memory.device, f->mark, err));
}

/* The call before the last PSC_CLIQUE_MAX_STARTED has ended, and does not need its mark any more. */
static int start_on_device(struct psc *c, struct psc_collective *op, uint64_t *ticket)
{
    struct psc_group *p = &c->group;
    struct psc_filled *f = &p->filled[p->n_filled++ % PSC_MAX_FILLED];
    c->memory.kind->mark(c->work.queue, f->mark);
    op->await = await;
    op->await_arg = f;
    return psc_device_start(p->q, op, ticket);
}

int psc_group_sum_start(struct psc *c, enum psc_collective_kind kind, float *v, size_t n, uint64_t *ticket)
{
    struct psc_group *p = &c->group;
    struct psc_collective op = {
        .kind = kind, .data = v, .n = n, .codec = ps_codec_named_for_values(c->clique_codec)};
    int rc = c->memory.device != NULL ? start_on_device(c, &op, ticket)
             : kind == PSC_REDUCE     ? psc_reduce_start(p->q, v, n, 0, c->clique_codec, ticket)
                                      : psc_allreduce_start(p->q, v, n, c->clique_codec, ticket);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

static int wait_for(struct psc *c, uint64_t ticket)
{
    int rc = psc_clique_wait(c->group.q, ticket);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

int psc_group_sum(struct psc *c, enum psc_collective_kind kind, float *v, size_t n)
{
    uint64_t ticket;
    int rc = psc_group_sum_start(c, kind, v, n, &ticket);
    return rc == PSC_OK ? wait_for(c, ticket) : rc;
}

int psc_group_broadcast(struct psc *c, float *v, size_t n)
{
    struct psc_group *p = &c->group;
    struct psc_collective op = {.kind = PSC_BROADCAST, .type = PSC_BYTES, .data = v, .n = n * sizeof *v};
    uint64_t ticket;
    int rc = c->memory.device != NULL ? start_on_device(c, &op, &ticket)
                                      : psc_broadcast(p->q, v, n * sizeof *v, 0);
    if (rc != PSC_OK)
        return fail(c, rc);
    return c->memory.device != NULL ? wait_for(c, ticket) : PSC_OK;
}
