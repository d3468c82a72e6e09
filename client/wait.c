/* psc_wait. */
#include "client/internal.h"
#include "client/worker/worker.h"

/* A change of the method has refused an exchange of a step. There may be no next step: a worker alone makes
 * the change, which sends what that had. A clique makes it in its next step, together. */
static int follow_change(struct psc *c)
{
    c->error.text[0] = 0;
    if (c->group.size > 1)
        return PSC_OK;
    return psc_change_method(c, (float *)(uintptr_t)c->worker.caller_x);
}

int psc_wait(struct psc *c, uint64_t ticket)
{
    int rc = psc_async_check(c, "psc_wait", ticket);
    if (rc != PSC_OK)
        return rc;
    bool has_unflushed = c->worker.stepped || psc_sums(&c->group) > 0; /* sums also of a loaded state */
    bool flushes = ticket == PSC_ALL && c->rule->flush != NULL && has_unflushed;
    c->error.text[0] = 0;
    if (flushes)
        rc = psc_work_end(c, c->rule->flush(c, (float *)(uintptr_t)c->worker.caller_x));
    if (rc != PSC_OK)
        return rc;
    rc = psc_async_result(c, ticket);
    if (rc == PSC_METHOD_CHANGED)
        rc = follow_change(c);
    bool drains = rc == PSC_OK && !flushes && psc_refresh(c);
    if (rc == PSC_OK && (flushes || c->group.size > 1))
        drains = c->group.drains; /* members are drained together */
    return psc_work_end(c, drains ? PSC_DRAINED : rc);
}
