/* Sends copies of the center to a server that only stores them, where the workers are one clique. The members
 * continue meanwhile. */
#include "client/internal.h"

static bool has_server(const struct psc *c)
{
    return c->group.rank == 0 && !c->local;
}

/* Reads the result of the last copy. A center that is not finite is not sent: the next sum reports it. */
static int finish_previous(struct psc *c)
{
    struct psc_group *p = &c->group;
    if (p->publish_ticket == 0)
        return PSC_OK;
    psc_async_await(c, p->publish_ticket);
    p->publish_ticket = 0;
    p->lost = p->published.rc != PSC_OK && p->published.rc != PSC_EVALUE;
    return p->lost ? ps_fail(&c->error, p->published.rc, "%s", p->published.error.text) : PSC_OK;
}

static int send(struct psc *c, const float *center)
{
    struct psc_group *p = &c->group;
    struct psc_transfer t = {.kind = PS_FRAME_SET, .send = p->copy, .name = "x", .clock = c->worker.clock};
    int rc = finish_previous(c);
    if (rc != PSC_OK)
        return rc;
    psc_copy(&c->work, p->copy, center, c->shard.n_floats);
    p->unpublished = 0;
    p->publish_ticket = psc_async_put(c, &t, &p->published);
    return PSC_OK;
}

void psc_publish(struct psc *c, const float *center)
{
    if (++c->group.unpublished >= c->publish && has_server(c) && !c->group.lost)
        send(c, center);
}

int psc_publish_last(struct psc *c, const float *center)
{
    int rc = PSC_OK;
    if (!has_server(c))
        return PSC_OK;
    if (c->group.unpublished > 0)
        rc = send(c, center);
    return rc == PSC_OK ? finish_previous(c) : rc;
}
