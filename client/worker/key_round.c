/* Rounds of keys: where the server's admission has members, a worker sends each tensor that moves once a
 * round, in the manifest's order. psd checks the same (server/lane/round_keys.c); here a wrong call is
 * refused before anything of it is sent. */
#include "client/internal.h"
#include "client/worker/worker.h"

/* The first tensor from `at` on that moves; n_tensors: none does. */
static uint32_t next_moving(const struct ps_manifest *m, uint32_t at)
{
    while (at < m->n_tensors && m->tensors[at].role == PS_ROLE_FROZEN)
        at++;
    return at;
}

static uint32_t index_of(const struct psc *c, const struct ps_tensor *t)
{
    return (uint32_t)(t - c->manifest->tensors);
}

/* If a started message of the round has failed, the messages behind it are not sent either, and the round
 * continues with the failed one. Until the caller has learned of the failure, a message that is started
 * counts as one behind it. */
static void settle(struct psc *c, const struct ps_tensor *t, bool started)
{
    struct psc_async *m = &c->async;
    if (!m->runs)
        return;
    bool follows = started && t != NULL && index_of(c, t) == next_moving(c->manifest, c->worker.next_key);
    pthread_mutex_lock(&m->lock);
    bool failed = m->round_rc != PSC_OK && (m->failure_told || !follows);
    uint64_t issued = m->issued;
    pthread_mutex_unlock(&m->lock);
    if (!failed)
        return;
    psc_async_await(c, issued);
    pthread_mutex_lock(&m->lock);
    bool begins = m->round_rc == PSC_METHOD_CHANGED || m->round_rc == PSC_ABORTED;
    c->worker.next_key = begins ? 0 : m->round_key;
    m->round_rc = PSC_OK;
    m->failure_told = false;
    pthread_mutex_unlock(&m->lock);
}

bool psc_key_round_is_open(const struct psc *c)
{
    return next_moving(c->manifest, 0) < next_moving(c->manifest, c->worker.next_key);
}

static int check_allowed(struct psc *c, const char *call)
{
    if (c->worker.hyper.serial)
        return ps_fail(
            &c->error, PSC_EUNSUPPORTED,
            "%s: parameters.serial lets one worker compute at a time; allowed are exchanges of the "
            "whole vector",
            call);
    if (c->worker.hyper.fragments > 1)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "%s: admission %s takes exchanges of a fragment each (parameters.fragments: %u)", call,
                       c->admission->name, c->worker.hyper.fragments);
    return c->admission->keys ? PSC_OK
                              : ps_fail(&c->error, PSC_EUNSUPPORTED,
                                        "%s: admission %s closes rounds without some workers; allowed are "
                                        "exchanges of the whole vector",
                                        call, c->admission->name);
}

int psc_key_round_check(struct psc *c, const char *call, const struct ps_tensor *t, bool started)
{
    if (c->admission == NULL || !c->admission->members)
        return PSC_OK;
    int rc = t != NULL ? check_allowed(c, call) : PSC_OK;
    if (rc != PSC_OK)
        return rc;
    settle(c, t, started);
    uint32_t next = next_moving(c->manifest, c->worker.next_key);
    const char *name = next < c->manifest->n_tensors ? c->manifest->tensors[next].name : "";
    if (t == NULL && psc_key_round_is_open(c))
        return ps_fail(&c->error, PSC_EINVAL,
                       "%s: the whole vector, in the middle of a round of keys; next is key '%s'", call,
                       name);
    if (t == NULL || index_of(c, t) == next)
        return PSC_OK;
    return ps_fail(
        &c->error, PSC_EINVAL,
        "%s: key '%s'%s; next is key '%s': a round has each key that moves once, in the manifest's "
        "order",
        call, t->name, index_of(c, t) < next ? " was sent in this round already" : " is before its turn",
        name);
}

enum psc_round_key psc_key_round_of(const struct psc *c, const struct ps_tensor *t)
{
    if (t == NULL || c->admission == NULL || !c->admission->members)
        return PSC_ROUND_NONE;
    return index_of(c, t) == next_moving(c->manifest, 0) ? PSC_ROUND_FIRST : PSC_ROUND_LATER;
}

void psc_key_round_sent(struct psc *c, const struct ps_tensor *t)
{
    if (psc_key_round_of(c, t) == PSC_ROUND_NONE)
        return;
    c->worker.next_key = next_moving(c->manifest, index_of(c, t) + 1);
    if (c->worker.next_key == c->manifest->n_tensors)
        c->worker.next_key = 0;
}
