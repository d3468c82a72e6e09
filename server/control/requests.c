/* Requests of workers: to wait for the others, and to change the method. A request is repeated until it is
 * answered, so that whatever it waits for is looked at again with each message. */
#include "server/control/control.h"

#include <errno.h>
#include <stdio.h>

/* Whether the request is new. One that was answered is answered again; an older one is ignored. */
static bool is_new(struct psd_control *control, struct psd_session *s, uint64_t number)
{
    bool same_session = s->request.incarnation == s->incarnation;
    if (same_session && number <= s->request.number) {
        if (number == s->request.number && s->request.done)
            psd_send_done(control->sender, s, s->request.refused);
        return false;
    }
    s->request.incarnation = s->incarnation;
    s->request.number = number;
    s->request.waits = s->request.sets = s->request.done = false;
    s->request.refused[0] = 0;
    return true;
}

static bool is_worker_of_job(const struct psd_session *s)
{
    return !s->observer && s->state >= PSD_SESSION_PARKED;
}

static bool waits(const struct psd_session *s)
{
    return s->request.incarnation == s->incarnation && s->request.waits;
}

/* Whether the job has all the workers that its first round waits for. */
static bool has_started(const struct psd_job *job)
{
    return job->center != NULL && (!job->center->admission->members || job->membership.started);
}

/* Whether the job's last barrier is one that the worker waited at. */
static bool is_behind(const struct psd_sessions *all, const struct psd_session *s)
{
    return s->barrier == PSD_NO_BARRIER ? all->barrier >> 32 >= s->incarnation
                                        : s->barrier != 0 && s->barrier < all->barrier;
}

/* Before a restart psd may have answered some workers of a barrier and not others. Those that were not
 * answered ask again, and the others have told that the barrier is behind them. */
static void answer_those_behind(struct psd_control *control)
{
    struct psd_sessions *all = control->sessions;
    for (uint32_t i = 0; i < all->n_workers_max; i++) {
        struct psd_session *s = &all->slots[i];
        if (!is_worker_of_job(s) || !waits(s) || !s->revived || !is_behind(all, s))
            continue;
        s->barrier = all->barrier;
        psd_send_done(control->sender, s, "");
    }
}

/* Above all numbers of this run, and of those before it. */
static uint64_t next_barrier(const struct psd_sessions *all)
{
    uint64_t first = (uint64_t)all->incarnation << 32;
    return all->barrier < first ? first : all->barrier + 1;
}

/* Whether every worker waits, and none is missing that may still come back after a restart. */
static bool all_wait(const struct psd_control *control)
{
    const struct psd_sessions *all = control->sessions;
    for (uint32_t i = 0; i < all->n_workers_max; i++)
        if (is_worker_of_job(&all->slots[i]) && !waits(&all->slots[i]))
            return false;
    return !psd_sessions_await_worker(all, psd_loop_now_ms(control->loop));
}

void psd_take_barrier(struct psd_control *control, struct psd_session *s, const Ps__Barrier *m)
{
    struct psd_sessions *all = control->sessions;
    if (is_new(control, s, m->number))
        s->request.waits = true;
    answer_those_behind(control);
    if (!waits(s) || !has_started(control->job) || !all_wait(control))
        return;
    all->barrier = next_barrier(all);
    for (uint32_t i = 0; i < all->n_workers_max; i++) {
        all->slots[i].barrier = all->barrier;
        if (is_worker_of_job(&all->slots[i]))
            psd_send_done(control->sender, &all->slots[i], "");
    }
}

/* Applies the settings. A change in progress is waited for: the worker asks again. */
static void apply(struct psd_control *control, struct psd_session *s, const char *lines)
{
    struct ps_error err = {""};
    int rc = psd_settings_check_method(lines, &err);
    s->request.sets = true;
    if (rc == 0)
        rc = psd_set(control->job, lines, &err);
    if (rc == -EBUSY)
        s->request.number--; /* as if it had not been sent */
    else if (rc < 0 && !s->request.done)
        psd_send_done(control->sender, s, err.text);
}

void psd_take_set_method(struct psd_control *control, struct psd_session *s, const Ps__SetMethod *m)
{
    char why[160];
    bool is_first = is_new(control, s, m->number);
    if (is_first && !psd_rank_may_send(PSD_MESSAGE_SET_METHOD, s->client)) {
        snprintf(why, sizeof why, "rank %u may not change the method; allowed is rank 0", s->client);
        psd_send_done(control->sender, s, why);
        return;
    }
    if (is_first)
        apply(control, s, m->lines);
    if (m->number == s->request.number && !s->request.done &&
        control->job->method_change.phase == PSD_METHOD_CHANGE_NONE)
        psd_send_done(control->sender, s, ""); /* psd drains, as it says */
}
