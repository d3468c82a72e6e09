/* Gradients that leave chunk by chunk, while the worker computes the rest of them.
 *
 * A chunk leaves as soon as all of it was reported, and psd applies it when it arrives: the chunk is the unit
 * of atomicity and of replay. The caller's errors are refused before they can leave an incomplete message: a
 * range that was reported before, or lies outside the vector, is not taken; a hole is refused at the end of
 * the step, which stays open. So a message stays incomplete only when its session ends: psd then takes the
 * worker out of the rounds that wait for the rest, and does not count the message as an exchange.
 *
 * A value that is not finite is found before its chunk leaves. If no chunk has left, nothing is sent, as in a
 * step by one call. Else the message cannot be completed, and the session ends.
 *
 * Answers wait in a vector of their own: the caller still computes at x. */
#include <sys/eventfd.h>

#include "client/internal.h"
#include "client/worker/worker.h"

static uint64_t chunks_of(const struct ps_shard *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_lanes; i++)
        n += ps_shard_n_chunks(s, i);
    return n;
}

/* False in these cases:
 * - The gradient is in a device's memory.
 * - The members of a clique sum it first, so that all of it is needed.
 * - A round may close without some messages: one that has begun would count as one that has arrived.
 * - One worker computes at a time.
 * - With overlap, the exchange of the step before is still under way. */
bool psc_early_is_possible(const struct psc *c)
{
    const struct psc_prefetch *a = c->worker.prefetch;
    return c->memory.device == NULL && c->rule->sends_gradient && c->group.size == 1 &&
           c->admission != NULL && !c->admission->drops_late && !c->worker.hyper.serial &&
           !c->worker.hyper.overlap && !a->started && !a->landed && chunks_of(&c->shard) > 1;
}

int psc_early_begin(struct psc *c)
{
    struct psc_open_step *s = &c->worker.open;
    struct psc_early *e = &s->early;
    bool room = c->worker.vectors[PSC_VECTOR_ANSWER] != NULL || psc_vector_make(c, PSC_VECTOR_ANSWER);
    if (!room || !psc_gate_make(&e->gate, &c->shard))
        return ps_fail(&c->error, PSC_ENOMEM, "psc_step_begin: no memory for an answer of %llu floats",
                       (unsigned long long)c->shard.n_floats);
    int rc = psc_async_start(c);
    if (rc != PSC_OK)
        return rc;
    e->transfer =
        psc_exchange_of(c, psc_gradient_message(c, s->g), c->worker.vectors[PSC_VECTOR_ANSWER], s->n_samples);
    e->transfer.landed = psc_land_moved;
    e->transfer.gate = &e->gate;
    e->rc = PSC_OK;
    e->started = false;
    e->begun = true;
    return PSC_OK;
}

/* Starts the transfer. It needs no name, which is for the check of values: those were checked. */
static void start(struct psc *c)
{
    struct psc_early *e = &c->worker.open.early;
    struct psc_transfer t = e->transfer;
    t.name = NULL;
    e->ticket = psc_async_put(c, &t, &e->outcome);
    e->started = true;
}

static void withdraw(struct psc_early *e)
{
    atomic_store_explicit(&e->gate.withdrawn, true, memory_order_release);
}

void psc_early_put(struct psc *c, struct ps_range r)
{
    struct psc_open_step *s = &c->worker.open;
    struct psc_early *e = &s->early;
    if (e->rc != PSC_OK)
        return;
    psc_gradient_put(c, s->x, s->g, r);
    e->rc = psc_transfer_find_bad(
        c, &e->transfer, r,
        e->started ? "parts of the gradient that were ready before have been sent, and the session ends"
                   : "nothing was sent",
        &e->error);
    if (e->rc != PSC_OK)
        withdraw(e);
    else if (psc_gate_open(&e->gate, psc_ranges_around(&s->ready, r), r) && !e->started)
        start(c);
    eventfd_write(c->session.wake_fd, 1);
}

int psc_early_finish(struct psc *c)
{
    struct psc_early *e = &c->worker.open.early;
    e->begun = false;
    if (e->started)
        psc_async_await(c, e->ticket);
    c->pulled = true;
    if (e->rc != PSC_OK && e->started)
        psc_session_leave(&c->session, e->rc, e->error.text);
    if (e->rc == PSC_OK && e->outcome.rc == PSC_OK)
        return PSC_OK;
    c->error = e->rc != PSC_OK ? e->error : e->outcome.error;
    return e->rc != PSC_OK ? e->rc : e->outcome.rc;
}
