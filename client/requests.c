/* Requests to the server's loop: psc_workers_barrier and psc_set_method. The service thread sends them, again
 * and again until they are answered. */
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/clock.h"
#include "proto/thread.h"

#define ASK_AGAIN_S 0.1

/* What no server accepts, and no message carries. */
enum { MOST_LINES = 2047 };

/* Waits for the answer. The server's silence ends the session. */
static int ask(struct psc *c, const char *call, const char *lines)
{
    struct psc_shared *s = &c->session.shared;
    int rc = PSC_OK;
    pthread_mutex_lock(&s->lock);
    uint64_t number = ++s->request.number;
    s->request.is_barrier = lines == NULL;
    s->request.lines = lines;
    while (rc == PSC_OK && s->request.answered != number) {
        s->request.send = true;
        psc_session_poke(&c->session);
        ps_cond_wait_until(&s->changed, &s->lock, ps_ns_after(ASK_AGAIN_S));
        if (s->request.answered != number && s->state == PSC_STATE_ENDED)
            rc = ps_fail(&c->error, s->result, "%s", s->why.text);
        else if (s->request.answered != number && s->give_up != PSC_OK)
            rc = ps_fail(&c->error, s->give_up, "%s: the caller's wait was interrupted", call);
        pthread_mutex_unlock(&s->lock);
        psc_ask_to_go_on(&c->session);
        pthread_mutex_lock(&s->lock);
    }
    s->request.send = false;
    s->request.lines = NULL;
    if (rc == PSC_OK && s->request.refused[0] != 0)
        rc = ps_fail(&c->error, PSC_EREFUSED, "%s: %s", call, s->request.refused);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Everything that was started takes effect before, and the method in force is used after. */
static int ask_and_follow(struct psc *c, const char *call, const char *lines)
{
    if (c->async.runs)
        psc_async_await(c, c->async.issued);
    int rc = ask(c, call, lines);
    if (rc == PSC_OK && psc_method_has_changed(c))
        rc = psc_change_method(c, c->worker.caller_x);
    return psc_work_end(c, rc == PSC_OK && psc_refresh(c) ? PSC_DRAINED : rc);
}

/* In a clique the leader asks for all members. */
static int ask_for_all(struct psc *c, const char *call, const char *lines)
{
    float *x = c->worker.caller_x;
    uint32_t generation = c->generation;
    if (!psc_call_is_led(c))
        return ask_and_follow(c, call, lines);
    if (c->group.follows)
        return psc_group_take_result(c, x);
    psc_group_busy(c);
    int rc = ask_and_follow(c, call, lines);
    psc_group_idle(c);
    return psc_group_give_result(c, rc, generation, x);
}

/* A started message that fails leaves its round open: who would go on then waits for others that wait for it.
 */
static bool is_in_round(struct psc *c, const char *call)
{
    if (c->admission == NULL || !c->admission->members)
        return false;
    if (c->async.runs)
        psc_async_await(c, c->async.issued);
    return psc_key_round_check(c, call, NULL, false) != PSC_OK;
}

static int check_worker(struct psc *c, const char *call)
{
    int rc = psc_check_worker(c, call, c, c);
    if (rc == PSC_OK && is_in_round(c, call))
        rc = ps_fail(&c->error, PSC_EINVAL, "%s: in the middle of a round of keys", call);
    if (rc == PSC_OK)
        c->error.text[0] = 0;
    return rc;
}

/* What this member alone is refused for: the others make a step meanwhile, and do not agree on its call. */
static int check_alone(struct psc *c, const char *call)
{
    int rc = psc_check_use(&c->session, call, &c->error);
    return rc == PSC_OK ? psc_check_no_open_step(c, call) : rc;
}

int psc_workers_barrier(struct psc *c)
{
    int rc = check_alone(c, "psc_workers_barrier");
    if (rc != PSC_OK)
        return rc;
    rc = check_worker(c, "psc_workers_barrier");
    if (rc != PSC_OK && !c->begun)
        return rc;
    if (c->group.size > 1)
        rc = psc_group_agree_on_call(c, "psc_workers_barrier", rc, NULL);
    if (rc != PSC_OK || c->local || c->rule->collective)
        return rc; /* all workers are members, and have agreed */
    return ask_for_all(c, "psc_workers_barrier", NULL);
}

static int check_lines(struct psc *c, const char *lines)
{
    int rc = check_worker(c, "psc_set_method");
    if (rc != PSC_OK)
        return rc;
    if (c->local)
        return ps_fail(&c->error, PSC_EUNSUPPORTED, "psc_set_method: method '%s' has no server",
                       c->method_name);
    if (c->rule->collective && c->group.size > 1)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "psc_set_method: under method '%s' the workers are one clique; allowed is psctl set",
                       c->method_name);
    if (lines == NULL || lines[0] == 0 || strlen(lines) > MOST_LINES)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_set_method: %zu bytes; allowed are 1 to %d, lines of KEY=VALUE",
                       lines != NULL ? strlen(lines) : 0, MOST_LINES);
    return PSC_OK;
}

int psc_set_method(struct psc *c, const char *lines)
{
    char what[200];
    int rc = check_alone(c, "psc_set_method");
    if (rc != PSC_OK)
        return rc;
    rc = check_lines(c, lines);
    if (!c->begun || c->local)
        return rc;
    snprintf(what, sizeof what, "psc_set_method of %.160s", lines != NULL ? lines : "");
    if (c->group.size > 1)
        rc = psc_group_agree_on_call(c, what, rc, NULL);
    return rc == PSC_OK ? ask_for_all(c, "psc_set_method", lines) : rc;
}
