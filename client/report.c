/* psc_report: a client's own metrics, or an observer's evaluation of the center. An evaluation may offer the
 * vector that was scored. The server, which no longer has that vector, answers whether it is the best so far,
 * and receives it then. */
#include <math.h>

#include "client/internal.h"
#include "proto/clock.h"

enum { SAY_AGAIN_S = 1 };

static bool is_evaluation(const struct psc *c, const struct psc_metrics *m)
{
    return c->opt.kind == PSC_OBSERVER && c->begun && isfinite(m->test_loss) && isfinite(m->test_accuracy);
}

/* Passes the report to the service thread. Returns the number of the offer; 0: no vector is offered. */
static uint64_t say(struct psc *c, const struct psc_metrics *m)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    s->report = *m;
    s->report.samples_per_second *= c->group.size; /* members make steps together */
    s->has_report = true;
    s->report_offer = m->vector != NULL && s->keeps_best && is_evaluation(c, m) ? ++s->n_offers : 0;
    uint64_t offer = s->report_offer;
    pthread_mutex_unlock(&s->lock);
    psc_session_poke(&c->session);
    return offer;
}

/* Waits until the server has answered the offer, the session has ended, or timeout_ms has passed, and repeats
 * reports that were lost. *wanted: the server wants the vector. PSC_EINTERRUPTED. */
static int ask(struct psc *c, uint64_t offer, bool *wanted)
{
    struct psc_shared *s = &c->session.shared;
    double end_s = ps_now_s() + c->opt.timeout_ms / 1e3, again_s = ps_now_s() + SAY_AGAIN_S;
    pthread_mutex_lock(&s->lock);
    while (s->answered_offer != offer && s->state != PSC_STATE_ENDED && ps_now_s() < end_s &&
           !c->session.interrupted) {
        ps_cond_wait_until(&s->changed, &s->lock, ps_ns_after(psc_ask_again_s(&c->session)));
        if (s->answered_offer != offer && ps_now_s() >= again_s) {
            again_s = ps_now_s() + SAY_AGAIN_S;
            s->has_report = true;
            psc_session_poke(&c->session);
        }
        pthread_mutex_unlock(&s->lock);
        psc_ask_to_go_on(&c->session);
        pthread_mutex_lock(&s->lock);
    }
    *wanted = s->answered_offer == offer && s->offer_wanted;
    pthread_mutex_unlock(&s->lock);
    return c->session.interrupted ? ps_fail(&c->error, PSC_EINTERRUPTED,
                                            "psc_report: the wait for the server's answer was interrupted")
                                  : PSC_OK;
}

static int give(struct psc *c, const float *vector)
{
    struct psc_transfer t = {
        .kind = PS_FRAME_KEEP, .send = vector, .name = "the vector", .clock = c->worker.clock};
    int rc = psc_move(c, &t);
    return rc == PSC_METHOD_CHANGED ? PSC_OK : rc; /* the method has changed: the vector is not stored */
}

/* The server accepts evaluations only from observers that have begun. A worker that fills the struct by name
 * leaves zeros: they become NaN. */
static int check_evaluation(struct psc *c, struct psc_metrics *m)
{
    bool says = !isnan(m->test_loss) || !isnan(m->test_accuracy);
    if (c->opt.kind == PSC_OBSERVER)
        return !says || c->begun ? PSC_OK
                                 : ps_fail(&c->error, PSC_EINVAL,
                                           "psc_report: test_loss and test_accuracy are allowed after "
                                           "psc_begin; before it, they must be NaN");
    if (says && (m->test_loss != 0 || m->test_accuracy != 0))
        return ps_fail(
            &c->error, PSC_EINVAL,
            "psc_report: only observers, which evaluate the center, report test_loss and test_accuracy; "
            "a worker's must be NaN");
    m->test_loss = m->test_accuracy = NAN;
    return PSC_OK;
}

int psc_report(struct psc *c, const struct psc_metrics *m)
{
    struct psc_metrics metrics = {.size = sizeof metrics,
                                  .loss = NAN,
                                  .accuracy = NAN,
                                  .samples_per_second = NAN,
                                  .test_loss = NAN,
                                  .test_accuracy = NAN};
    int rc = psc_check_use(&c->session, "psc_report", &c->error);
    if (rc != PSC_OK)
        return rc;
    if (!psc_is_open(c) || m == NULL || m->size < sizeof m->size || m->size > 4096)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_report: needs an open handle and metrics whose size is set");
    if ((rc = psc_take_struct(&metrics, sizeof metrics, m, m->size, "psc_report", &c->error)) != PSC_OK ||
        (rc = check_evaluation(c, &metrics)) != PSC_OK || !c->session.runs)
        return rc;
    uint64_t offer = say(c, &metrics);
    bool wanted = false;
    rc = offer != 0 ? ask(c, offer, &wanted) : PSC_OK;
    return rc == PSC_OK && wanted ? give(c, metrics.vector) : rc;
}
