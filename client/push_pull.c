/* The explicit calls: init, pull, pull_average, push, pushpull and exchange, and their _start variants. */
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"

/* Whether the job keeps an average, by the last Welcome. */
static int check_average(struct psc *c, const char *call)
{
    char averaging[sizeof c->session.shared.welcome.averaging];
    pthread_mutex_lock(&c->session.shared.lock);
    memcpy(averaging, c->session.shared.welcome.averaging, sizeof averaging);
    pthread_mutex_unlock(&c->session.shared.lock);
    return strcmp(averaging, "none") != 0
               ? PSC_OK
               : ps_fail(&c->error, PSC_EINVAL, "%s: the job keeps no average (averaging: none)", call);
}

static int check(struct psc *c, const struct psc_call *h)
{
    if (h->kind != PS_FRAME_PULL)
        return psc_check_vectors(c, h->call, h->send, h->kind == PS_FRAME_EXCHANGE ? h->answer : h->send);
    int rc = psc_check_use(&c->session, h->call, &c->error);
    if (rc == PSC_OK)
        rc = psc_check_no_open_step(c, h->call);
    if (rc != PSC_OK)
        return rc;
    if (!c->begun || h->answer == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "%s: needs a call of psc_begin before it, and a vector",
                       h->call);
    if ((rc = psc_check_memory(c, h->call, h->answer)) != PSC_OK)
        return rc;
    return (h->flags & PS_FLAG_AVERAGE) != 0 ? check_average(c, h->call) : PSC_OK;
}

int psc_call_find_tensor(struct psc *c, const struct psc_call *h, const struct ps_tensor **out)
{
    int64_t index = h->tensor != NULL ? ps_manifest_find(c->manifest, h->tensor) : -1;
    if (h->tensor != NULL && index < 0)
        return ps_fail(&c->error, PSC_EINVAL, "%s: no tensor of the manifest is named '%.127s'", h->call,
                       h->tensor);
    *out = h->tensor != NULL ? &c->manifest->tensors[index] : NULL;
    return PSC_OK;
}

int psc_call_check_overlap(struct psc *c, const struct psc_call *h, uint64_t n)
{
    uintptr_t a = (uintptr_t)h->send, b = (uintptr_t)h->answer, bytes = n * sizeof *h->send;
    if (h->send == NULL || h->answer == NULL || a >= b + bytes || b >= a + bytes)
        return PSC_OK;
    return ps_fail(&c->error, PSC_EINVAL, "%s: message and answer overlap", h->call);
}

int psc_call_check_moves(struct psc *c, const struct psc_call *h, const struct ps_tensor *t)
{
    return t == NULL || t->role != PS_ROLE_FROZEN || !psc_call_is_message(h)
               ? PSC_OK
               : ps_fail(&c->error, PSC_EINVAL, "%s: tensor '%s' is frozen: no rule moves it", h->call,
                         t->name);
}

/* Whether the job is of one clique, whose members move x among themselves. */
static int check_method(struct psc *c, const struct psc_call *h)
{
    if (c->local)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "%s: method '%s' has no server to exchange with; allowed is psc_pushpull", h->call,
                       c->method_name);
    if (c->group.size > 1 && c->rule->collective && !h->alone)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "%s: under method '%s' the workers are one clique of %d, which moves values by "
                       "psc_step; the only other call allowed is a pull of the whole vector",
                       h->call, c->method_name, c->group.size);
    return PSC_OK;
}

int psc_call_make(struct psc *c, const struct psc_call *h, struct psc_transfer *out)
{
    const struct ps_tensor *t;
    int rc = check(c, h);
    if (rc != PSC_OK)
        return rc;
    if ((rc = check_method(c, h)) != PSC_OK || (rc = psc_call_find_tensor(c, h, &t)) != PSC_OK)
        return rc;
    *out = (struct psc_transfer){.kind = h->kind,
                                 .tensor = t,
                                 .flags = h->flags,
                                 .send = h->send,
                                 .name = h->kind == PS_FRAME_SET ? "x" : "the message",
                                 .samples = h->n_samples > UINT32_MAX ? UINT32_MAX : (uint32_t)h->n_samples,
                                 .clock = c->worker.clock,
                                 .generation = c->generation,
                                 .round = psc_call_is_message(h) ? psc_key_round_of(c, t) : PSC_ROUND_NONE,
                                 .behind = h->behind,
                                 .more = h->more,
                                 .target = h->answer};
    if (h->answer != NULL)
        out->landed = h->kind == PS_FRAME_PULL ? psc_land_all : psc_land_moved;
    if ((rc = psc_call_check_overlap(c, h, psc_tensor_scope(c, t).count)) != PSC_OK ||
        (rc = psc_call_check_moves(c, h, t)) != PSC_OK)
        return rc;
    if (psc_call_is_message(h) && (rc = psc_key_round_check(c, h->call, t, h->started)) != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    if (h->kind == PS_FRAME_PULL && t == NULL && h->answer == c->worker.caller_x) {
        psc_start_over(c);
        out->restarts = true;
        if (c->rule->land_restart != NULL && psc_vectors_are_there(c))
            out->landed = c->rule->land_restart;
    }
    return PSC_OK;
}

/* The server has changed its method. A message that means the same under the new one is sent. Any other is
 * refused once, so that the caller notices; later calls count as made for the new method. A round of keys is
 * of one method: it begins again. */
static int follow_method(struct psc *c, const struct psc_call *h)
{
    enum ps_message_kind was = c->rule_info->message;
    bool in_round = psc_call_is_message(h) && psc_key_round_is_open(c);
    int rc = psc_change_method(c, c->worker.caller_x);
    if (rc != PSC_OK || (!in_round && c->rule_info->message == was))
        return rc;
    if (in_round)
        return ps_fail(
            &c->error, PSC_EREFUSED,
            "%s: the method has changed to '%s' in the middle of a round of keys: the round begins "
            "again with its first key",
            h->call, c->method_name);
    return ps_fail(&c->error, PSC_EREFUSED,
                   "%s: the method has changed to '%s', and rule %s takes other messages: nothing was sent",
                   h->call, c->method_name, c->rule_name);
}

static int make_in_time(struct psc *c, const struct psc_call *h, struct psc_transfer *out)
{
    int rc = psc_call_make(c, h, out);
    if (rc == PSC_OK && psc_call_is_message(h) && psc_method_has_changed(c) &&
        (rc = follow_method(c, h)) == PSC_OK)
        rc = psc_call_make(c, h, out);
    return rc;
}

int psc_call_alone(struct psc *c, const struct psc_call *h)
{
    struct psc_transfer t;
    int rc = make_in_time(c, h, &t);
    if (rc == PSC_OK)
        rc = psc_move(c, &t);
    while (rc == PSC_METHOD_CHANGED && (rc = follow_method(c, h)) == PSC_OK)
        if ((rc = psc_call_make(c, h, &t)) == PSC_OK)
            rc = psc_move(c, &t);
    if (rc == PSC_ABORTED) { /* all workers begin the round of keys again */
        c->worker.next_key = 0;
        rc = PSC_EREFUSED;
    }
    if (rc == PSC_OK && psc_call_is_message(h))
        psc_key_round_sent(c, t.tensor);
    return rc == PSC_OK && psc_refresh(c) ? PSC_DRAINED : rc;
}

bool psc_call_is_led(const struct psc *c)
{
    return c->begun && c->group.size > 1 && !c->rule->collective;
}

int psc_call_now(struct psc *c, const struct psc_call *h)
{
    if (c->local && h->sums)
        return psc_local_pushpull(c, h);
    return psc_work_end(c, psc_call_is_led(c) ? psc_group_call(c, h) : psc_call_alone(c, h));
}

static bool is_told_at_once(int rc)
{
    return rc == PSC_EINVAL || rc == PSC_ENOMEM || rc == PSC_ESYSTEM || rc == PSC_EUNSUPPORTED;
}

/* Members make their collectives in one order, so that in a clique the call is made at once. */
static int start_ended(struct psc *c, const struct psc_call *h, uint64_t *ticket)
{
    struct psc_outcome out = {.rc = psc_call_now(c, h)};
    if (is_told_at_once(out.rc) || (out.rc < 0 && !c->begun))
        return out.rc;
    struct ps_error why = c->error;
    int rc = psc_async_start(c);
    if (rc != PSC_OK)
        return rc;
    out.error = why;
    if (out.rc == PSC_DRAINED && why.text[0] == 0)
        out.rc = PSC_OK; /* it took effect: psc_wait tells of a drain */
    uint64_t given = psc_async_put_ended(c, &out);
    if (ticket != NULL)
        *ticket = given;
    return PSC_OK;
}

int psc_call_start(struct psc *c, const struct psc_call *h, uint64_t *ticket)
{
    struct psc_transfer t;
    if (psc_call_is_led(c) || (c->local && h->sums))
        return start_ended(c, h, ticket);
    struct psc_call started = *h;
    started.started = true;
    int rc = make_in_time(c, &started, &t);
    if (rc != PSC_OK || (rc = psc_async_start(c)) != PSC_OK)
        return rc;
    uint64_t given = psc_async_put(c, &t, NULL);
    if (psc_call_is_message(h))
        psc_key_round_sent(c, t.tensor);
    if (ticket != NULL)
        *ticket = given;
    return PSC_OK;
}

int psc_exchange(struct psc *c, const float *message, float *answer, size_t n_samples)
{
    return psc_call_now(
        c, &(struct psc_call){"psc_exchange", PS_FRAME_EXCHANGE, NULL, message, answer, n_samples});
}

int psc_init(struct psc *c, const char *tensor, const float *x)
{
    return psc_call_now(c, &(struct psc_call){"psc_init", PS_FRAME_SET, tensor, x, NULL, 0});
}

int psc_pull_alone(struct psc *c, float *x)
{
    return psc_call_alone(c, &(struct psc_call){"psc_pull", PS_FRAME_PULL, NULL, NULL, x, 0, .alone = true});
}

int psc_pull(struct psc *c, const char *tensor, float *x)
{
    struct psc_call h = {"psc_pull", PS_FRAME_PULL, tensor, NULL, x, 0};
    int rc = check(c, &h);
    if (rc != PSC_OK || tensor != NULL || c->opt.kind != PSC_WORKER)
        return rc == PSC_OK ? psc_call_now(c, &h) : rc;
    return c->group.size > 1 || c->rule->collective ? psc_work_end(c, psc_group_pull(c, x))
                                                    : psc_call_now(c, &h);
}

/* The worker's own average, of a method without a server. */
static int copy_average(struct psc *c, const struct psc_call *h)
{
    const struct ps_tensor *t;
    struct ps_range scope;
    int rc = check(c, h);
    if (rc != PSC_OK || (rc = psc_call_find_tensor(c, h, &t)) != PSC_OK)
        return rc;
    scope = psc_tensor_scope(c, t);
    c->error.text[0] = 0;
    psc_copy(&c->work, h->answer, c->worker.vectors[PSC_VECTOR_Z] + scope.begin, scope.count);
    return psc_work_end(c, PSC_OK);
}

int psc_pull_average(struct psc *c, const char *tensor, float *z)
{
    struct psc_call h = {"psc_pull_average", PS_FRAME_PULL, tensor, NULL, z, 0, .flags = PS_FLAG_AVERAGE};
    return c->local ? copy_average(c, &h) : psc_call_now(c, &h);
}

int psc_push(struct psc *c, const char *tensor, const float *message, size_t n_samples)
{
    return psc_call_now(c, &(struct psc_call){"psc_push", PS_FRAME_PUSH, tensor, message, NULL, n_samples});
}

int psc_pushpull(struct psc *c, const char *tensor, const float *message, float *answer, size_t n_samples)
{
    return psc_call_now(c, &(struct psc_call){"psc_pushpull", PS_FRAME_EXCHANGE, tensor, message, answer,
                                              n_samples, .sums = true});
}

int psc_exchange_start(struct psc *c, const float *message, float *answer, size_t n_samples, uint64_t *ticket)
{
    return psc_call_start(
        c, &(struct psc_call){"psc_exchange_start", PS_FRAME_EXCHANGE, NULL, message, answer, n_samples},
        ticket);
}

int psc_init_start(struct psc *c, const char *tensor, const float *x, uint64_t *ticket)
{
    return psc_call_start(c, &(struct psc_call){"psc_init_start", PS_FRAME_SET, tensor, x, NULL, 0}, ticket);
}

int psc_pull_start(struct psc *c, const char *tensor, float *x, uint64_t *ticket)
{
    return psc_call_start(c, &(struct psc_call){"psc_pull_start", PS_FRAME_PULL, tensor, NULL, x, 0}, ticket);
}

int psc_pull_average_start(struct psc *c, const char *tensor, float *z, uint64_t *ticket)
{
    return psc_call_start(c,
                          &(struct psc_call){"psc_pull_average_start", PS_FRAME_PULL, tensor, NULL, z, 0,
                                             .flags = PS_FLAG_AVERAGE},
                          ticket);
}

int psc_push_start(struct psc *c, const char *tensor, const float *message, size_t n_samples,
                   uint64_t *ticket)
{
    return psc_call_start(
        c, &(struct psc_call){"psc_push_start", PS_FRAME_PUSH, tensor, message, NULL, n_samples}, ticket);
}

int psc_pushpull_start(struct psc *c, const char *tensor, const float *message, float *answer,
                       size_t n_samples, uint64_t *ticket)
{
    return psc_call_start(c,
                          &(struct psc_call){"psc_pushpull_start", PS_FRAME_EXCHANGE, tensor, message, answer,
                                             n_samples, .sums = true},
                          ticket);
}
