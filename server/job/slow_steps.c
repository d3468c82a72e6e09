/* Members that others wait for (limits.step_s). A worker that sends heartbeats may still have stopped: its
 * training thread hangs, and under rounds and ssp no other member can continue without its message.
 *
 * A member is awaited while other members' chunks wait in a lane where none of its own does; chunks of a
 * message that is still computed do not count, neither way. It takes a step
 * when its clock advances, as reported by heartbeats between two exchanges, or when data of it arrives. The
 * limit applies to the time for which it was awaited without a step, so a worker may compute, evaluate or
 * save for any time while no other waits. Runs on the loop. */
#include "server/job/job.h"

#include <stdio.h>

#include "proto/log.h"

static bool waits_in(const struct psd_lane *lane, uint32_t client)
{
    const struct psd_lane_client *c = &lane->clients[client];
    return atomic_load_explicit(&c->waiting_chunks, memory_order_relaxed) > 0 &&
           !atomic_load_explicit(&c->computes, memory_order_relaxed);
}

static bool takes_part(const struct psd_session *s)
{
    return s->state == PSD_SESSION_ACTIVE && !s->observer;
}

/* lanes[i]: chunks of a member wait there for others'. Returns whether there is such a lane. */
static bool find_waiting(const struct psd_job *job, bool *lanes)
{
    bool any = false;
    for (uint32_t i = 0; i < job->lanes->n; i++) {
        lanes[i] = false;
        for (uint32_t k = 0; k < job->sessions->n_workers_max && !lanes[i]; k++)
            lanes[i] = takes_part(&job->sessions->slots[k]) && waits_in(job->lanes->list[i], k);
        any = any || lanes[i];
    }
    return any;
}

static bool is_awaited(const struct psd_job *job, const struct psd_session *s, const bool *lanes)
{
    for (uint32_t i = 0; i < job->lanes->n; i++)
        if (lanes[i] && !waits_in(job->lanes->list[i], s->client))
            return true;
    return false;
}

/* A number that changes with each step. */
static uint64_t steps_of(const struct psd_job *job, const struct psd_session *s)
{
    uint64_t sum = s->clock;
    for (uint32_t i = 0; i < job->lanes->n; i++)
        sum += atomic_load_explicit(&job->lanes->list[i]->clients[s->client].bytes_in, memory_order_relaxed);
    return sum;
}

static void check_member(struct psd_job *job, struct psd_session *s, bool awaited, uint64_t now)
{
    uint64_t steps = steps_of(job, s), limit_ms = (uint64_t)job->cfg->limits.step_s * 1000;
    char why[sizeof s->end];
    if (!awaited || !s->step.awaited || steps != s->step.seen)
        s->step = (struct psd_session_step){awaited, steps, now};
    if (limit_ms == 0 || now <= s->step.since_ms + limit_ms)
        return;
    snprintf(why, sizeof why, "no step for %.1f s while others waited for it (limits.step_s: %u)",
             (double)(now - s->step.since_ms) / 1e3, job->cfg->limits.step_s);
    psd_send_error(job->sender, s, PS__CODE__EVICTED, true, why);
    psd_job_end(job, s, PS__CODE__EVICTED, why);
}

void psd_steps_check(struct psd_job *job)
{
    bool lanes[PSD_MAX_LANES];
    uint64_t now = psd_loop_now_ms(job->loop);
    bool any = job->center != NULL && job->center->admission->members && find_waiting(job, lanes);
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (takes_part(s))
            check_member(job, s, any && is_awaited(job, s, lanes), now);
    }
}

uint64_t psd_steps_awaited_ms(const struct psd_job *job, const struct psd_session *s)
{
    uint64_t now = psd_loop_now_ms(job->loop);
    return takes_part(s) && s->step.awaited && now > s->step.since_ms ? now - s->step.since_ms : 0;
}
