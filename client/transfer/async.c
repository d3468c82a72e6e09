/* The async thread. It runs started transfers one after the other, in the order in which they were started,
 * so that a program's transfers take effect in program order. It is created with the first of them. While its
 * queue is empty the caller's thread runs transfers itself, without waking another thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/internal.h"
#include "proto/clock.h"
#include "proto/thread.h"

static struct psc_started *slot_of(struct psc_async *m, uint64_t ticket)
{
    return &m->slots[ticket % PSC_MAX_STARTED];
}

/* With the lock held. */
static void finish_oldest(struct psc_async *m, const struct psc_flight *f)
{
    struct psc_started *s = slot_of(m, m->finished + 1);
    int rc = f->rc;
    bool is_inner = rc == PSC_METHOD_CHANGED || (rc == PSC_ABORTED && s->transfer.round != PSC_ROUND_NONE);
    s->out->rc = is_inner && s->out == &s->own ? PSC_EREFUSED : rc; /* else the true result */
    s->out->rate = f->rate;
    s->out->version = f->version;
    s->out->run = f->run;
    s->out->error.text[0] = 0;
    if (rc != PSC_OK)
        s->out->error = f->error;
    m->finished++;
    if (rc != PSC_OK && m->failed_ticket == 0 && s->out == &s->own) {
        m->failed_ticket = m->finished;
        m->failed = *s->out;
    }
    eventfd_write(m->ended_fd, 1);
    ps_cond_wake(&m->landed);
}

/* The failure of what the transfer is sent behind, if that has failed: its result is the same. */
static int failure_before(struct psc *c, const struct psc_transfer *t, struct ps_error *err)
{
    struct psc_async *m = &c->async;
    int rc = t->behind ? m->list_rc : PSC_OK;
    *err = m->list_error;
    pthread_mutex_lock(&m->lock);
    if (t->round != PSC_ROUND_NONE && m->round_rc != PSC_OK) {
        rc = m->round_rc;
        *err = m->round_error;
    } else if (t->is_fragment && m->fragments_rc != PSC_OK) {
        rc = m->fragments_rc;
        *err = m->fragments_error;
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

/* With the lock held. What follows it in its round of keys or its cycle of fragments is not sent. */
static void note_failure(struct psc *c, const struct psc_transfer *t, const struct psc_flight *f)
{
    struct psc_async *m = &c->async;
    if (t->round != PSC_ROUND_NONE) {
        m->round_rc = f->rc;
        m->failure_told = false;
        m->round_key = (uint32_t)(t->tensor - c->manifest->tensors);
        m->round_error = f->error;
    } else if (t->is_fragment && m->fragments_rc == PSC_OK) {
        m->fragments_rc = f->rc;
        m->fragments_error = f->error;
    }
}

/* The transfer behind those in progress. */
static const struct psc_transfer *next_in_queue(struct psc *c)
{
    struct psc_async *m = &c->async;
    const struct psc_transfer *next = NULL;
    pthread_mutex_lock(&m->lock);
    uint64_t ticket = m->finished + c->transfer_state.n_flights + 1;
    if (ticket <= m->issued && !m->stop && m->fragments_rc == PSC_OK)
        next = &slot_of(m, ticket)->transfer; /* unchanged until the transfer has ended */
    pthread_mutex_unlock(&m->lock);
    return next;
}

static void end_oldest(struct psc *c, const struct psc_flight *f, bool was_sent)
{
    struct psc_async *m = &c->async;
    pthread_mutex_lock(&m->lock);
    const struct psc_transfer *t = &slot_of(m, m->finished + 1)->transfer;
    m->list_error = f->error;
    m->list_rc = t->more ? f->rc : PSC_OK;
    if (f->rc != PSC_OK && was_sent)
        note_failure(c, t, f);
    finish_oldest(m, f);
    pthread_mutex_unlock(&m->lock);
}

static void ended(struct psc *c, const struct psc_flight *f)
{
    end_oldest(c, f, true);
}

static void run_next(struct psc *c, const struct psc_transfer *t)
{
    static const struct psc_followers followers = {next_in_queue, ended};
    struct psc_flight unsent = {.rate = c->transfer_state.counts.rate};
    unsent.rc = failure_before(c, t, &unsent.error);
    if (unsent.rc != PSC_OK)
        end_oldest(c, &unsent, false);
    else
        psc_transfer_run(c, t, &followers);
}

static void *async_thread(void *arg)
{
    struct psc *c = arg;
    struct psc_async *m = &c->async;
    pthread_mutex_lock(&m->lock);
    while (!m->stop) {
        if (m->finished == m->issued) {
            pthread_cond_wait(&m->queued, &m->lock);
            continue;
        }
        struct psc_started *s = slot_of(m, m->finished + 1); /* unchanged until the transfer has ended */
        pthread_mutex_unlock(&m->lock);
        run_next(c, &s->transfer);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void finish(struct psc_async *m)
{
    pthread_cond_destroy(&m->queued);
    pthread_cond_destroy(&m->landed);
    pthread_mutex_destroy(&m->lock);
    free(m->slots);
    m->slots = NULL;
    if (m->ended_fd >= 0)
        close(m->ended_fd);
    m->ended_fd = -1;
}

int psc_async_start(struct psc *c)
{
    struct psc_async *m = &c->async;
    if (m->runs)
        return PSC_OK;
    if ((m->slots = calloc(PSC_MAX_STARTED, sizeof *m->slots)) == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory for started transfers");
    if ((m->ended_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
        free(m->slots);
        m->slots = NULL;
        return ps_fail(&c->error, PSC_ESYSTEM, "no descriptor for started transfers: %s", strerror(errno));
    }
    pthread_mutex_init(&m->lock, NULL);
    ps_cond_init(&m->queued);
    ps_cond_init(&m->landed);
    int rc = ps_thread_create(&m->thread, async_thread, c);
    m->runs = rc == 0;
    if (rc != 0)
        finish(m);
    return rc == 0 ? PSC_OK
                   : ps_fail(&c->error, PSC_ESYSTEM, "cannot start the async thread: %s", strerror(rc));
}

/* With the lock held: waits until `ticket` has ended. A transfer ends by itself when the server stays silent,
 * or when the caller interrupts the wait. One that keeps this worker's turn gives it up: the caller has
 * stopped computing. */
static void await(struct psc *c, uint64_t ticket)
{
    struct psc_async *m = &c->async;
    if (m->finished < ticket) {
        atomic_store_explicit(&c->transfer_state.awaited, true, memory_order_release);
        eventfd_write(c->session.wake_fd, 1);
    }
    while (m->finished < ticket) {
        ps_cond_wait_until(&m->landed, &m->lock, ps_ns_after(psc_ask_again_s(&c->session)));
        pthread_mutex_unlock(&m->lock);
        psc_ask_to_go_on(&c->session);
        pthread_mutex_lock(&m->lock);
    }
}

uint64_t psc_async_put(struct psc *c, const struct psc_transfer *t, struct psc_outcome *out)
{
    struct psc_async *m = &c->async;
    psc_work_goes(c);
    pthread_mutex_lock(&m->lock);
    if (m->issued >= PSC_MAX_STARTED)
        await(c, m->issued + 1 - PSC_MAX_STARTED);
    uint64_t ticket = ++m->issued;
    struct psc_started *s = slot_of(m, ticket);
    s->transfer = *t;
    s->transfer.in_background = true;
    s->own.rc = PSC_OK;
    s->out = out != NULL ? out : &s->own;
    ps_cond_wake(&m->queued);
    if (m->finished + 1 < ticket) /* it may be sent beside those in progress */
        eventfd_write(c->session.wake_fd, 1);
    pthread_mutex_unlock(&m->lock);
    return ticket;
}

uint64_t psc_async_put_ended(struct psc *c, const struct psc_outcome *out)
{
    struct psc_async *m = &c->async;
    pthread_mutex_lock(&m->lock);
    await(c, m->issued);
    uint64_t ticket = ++m->issued;
    struct psc_started *s = slot_of(m, ticket);
    s->transfer = (struct psc_transfer){.kind = 0};
    s->own = *out;
    s->out = &s->own;
    m->finished = ticket;
    if (out->rc != PSC_OK && m->failed_ticket == 0) {
        m->failed_ticket = ticket;
        m->failed = *out;
    }
    eventfd_write(m->ended_fd, 1);
    pthread_mutex_unlock(&m->lock);
    return ticket;
}

void psc_async_await(struct psc *c, uint64_t ticket)
{
    double begin = ps_now_s();
    pthread_mutex_lock(&c->async.lock);
    await(c, ticket);
    pthread_mutex_unlock(&c->async.lock);
    psc_work_returns(c);
    c->worker.exchange_s += ps_now_s() - begin;
}

static bool is_idle(struct psc_async *m)
{
    if (!m->runs)
        return true;
    pthread_mutex_lock(&m->lock);
    bool idle = m->finished == m->issued;
    pthread_mutex_unlock(&m->lock);
    return idle;
}

/* The values of its message were watched in this thread's queue. */
static int move_checked(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer checked = *t;
    int rc = psc_transfer_check(c, t, &c->error);
    checked.watched = false;
    checked.name = NULL;
    return rc == PSC_OK ? psc_move(c, &checked) : rc;
}

int psc_move(struct psc *c, const struct psc_transfer *t)
{
    struct psc_outcome out = {.rc = PSC_OK};
    c->pulled = true;
    if (t->watched)
        return move_checked(c, t);
    if (!is_idle(&c->async)) {
        psc_async_await(c, psc_async_put(c, t, &out));
    } else {
        double begin = ps_now_s();
        psc_work_goes(c);
        out.rc = psc_transfer_run(c, t, NULL);
        psc_work_returns(c);
        c->worker.exchange_s += ps_now_s() - begin;
        if (out.rc != PSC_OK)
            out.error = c->transfer_state.error;
    }
    if (out.rc != PSC_OK)
        c->error = out.error;
    return out.rc;
}

void psc_async_stop(struct psc *c)
{
    struct psc_async *m = &c->async;
    if (!m->runs)
        return;
    psc_give_up(&c->session, PSC_EINVAL);
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    ps_cond_wake(&m->queued);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    finish(m);
    m->runs = false;
}

void psc_async_take_fragments(struct psc *c)
{
    if (!c->async.runs)
        return;
    pthread_mutex_lock(&c->async.lock);
    c->async.fragments_rc = PSC_OK;
    pthread_mutex_unlock(&c->async.lock);
}

/* The first failure of exchanges that steps have started. NULL: none. */
static const struct psc_outcome *outcome_of_steps(const struct psc *c)
{
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++) {
        const struct psc_prefetch *a = &c->worker.prefetch[i];
        if (a->started && a->outcome.rc != PSC_OK && a->outcome.rc != PSC_ABORTED)
            return &a->outcome;
    }
    return NULL;
}

/* With the lock held. The next step reports the outcome of an exchange that a step started; there may be no
 * next step. */
static int outcome_of_all(struct psc *c)
{
    struct psc_async *m = &c->async;
    const struct psc_outcome *out = NULL;
    await(c, m->issued);
    if (m->failed_ticket != 0)
        out = &m->failed;
    else
        out = outcome_of_steps(c);
    m->failed_ticket = 0;
    if (out == NULL)
        return PSC_OK;
    m->failure_told = m->failure_told || out->rc != PSC_METHOD_CHANGED;
    c->error = out->error;
    return out->rc;
}

/* With the lock held. When the ticket's slot has been reused, only the first failure is known, and every
 * later ticket counts as failed. */
static int outcome_of(struct psc *c, uint64_t ticket)
{
    struct psc_async *m = &c->async;
    const struct psc_outcome *out = NULL;
    await(c, ticket);
    if (ticket + PSC_MAX_STARTED > m->issued)
        out = &slot_of(m, ticket)->own;
    else if (m->failed_ticket != 0 && ticket >= m->failed_ticket)
        out = &m->failed;
    if (out == NULL || out->rc == PSC_OK)
        return PSC_OK;
    m->failure_told = true;
    c->error = out->error;
    return out->rc;
}

int psc_async_check(struct psc *c, const char *call, uint64_t ticket)
{
    int rc = psc_check_use(&c->session, call, &c->error);
    if (rc != PSC_OK || (rc = psc_check_no_open_step(c, call)) != PSC_OK)
        return rc;
    if (!c->begun)
        return ps_fail(&c->error, PSC_EINVAL, "%s: call psc_begin first", call);
    if (ticket > (c->async.runs ? c->async.issued : 0)) /* tickets are issued by this thread alone */
        return ps_fail(&c->error, PSC_EINVAL, "%s: ticket %" PRIu64 " was never issued", call, ticket);
    return PSC_OK;
}

/* What has ended until now is about to be looked at. */
static void clear_ended(struct psc_async *m)
{
    eventfd_t count;
    if (m->runs)
        eventfd_read(m->ended_fd, &count);
}

int psc_test(struct psc *c, uint64_t ticket, int *ended)
{
    struct psc_async *m = &c->async;
    int rc = psc_async_check(c, "psc_test", ticket);
    if (rc != PSC_OK)
        return rc;
    if (ended == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "psc_test: `ended` is missing");
    c->error.text[0] = 0;
    *ended = 1;
    if (!m->runs)
        return PSC_OK;
    clear_ended(m);
    pthread_mutex_lock(&m->lock);
    *ended = m->finished >= (ticket == PSC_ALL ? m->issued : ticket);
    pthread_mutex_unlock(&m->lock);
    return PSC_OK;
}

int psc_ended_fd(struct psc *c, int *fd)
{
    int rc = psc_async_check(c, "psc_ended_fd", PSC_ALL);
    if (rc != PSC_OK)
        return rc;
    if (fd == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "psc_ended_fd: `fd` is missing");
    if ((rc = psc_async_start(c)) == PSC_OK)
        *fd = c->async.ended_fd;
    return rc;
}

int psc_async_result(struct psc *c, uint64_t ticket)
{
    struct psc_async *m = &c->async;
    double begin = ps_now_s();
    clear_ended(m);
    if (!m->runs)
        return PSC_OK;
    pthread_mutex_lock(&m->lock);
    int rc = ticket == PSC_ALL ? outcome_of_all(c) : outcome_of(c, ticket);
    pthread_mutex_unlock(&m->lock);
    psc_work_returns(c);
    c->worker.exchange_s += ps_now_s() - begin;
    return rc;
}

bool psc_refresh(struct psc *c)
{
    pthread_mutex_lock(&c->session.shared.lock);
    bool draining = c->session.shared.draining;
    c->session.shared.clock = c->worker.clock;
    if (c->session.shared.welcome.generation == c->generation)
        c->worker.hyper = c->session.shared.hyper; /* a restarted server may have other parameters */
    c->session.shared.steps_per_second = c->worker.pacing.steps_per_second;
    c->worker.save_version = c->session.shared.save_version;
    pthread_mutex_unlock(&c->session.shared.lock);
    return draining;
}
