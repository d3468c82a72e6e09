/* The conditions of `stop`. Checked on each tick and at each evaluation; the first one that is met drains the
 * job, as SIGTERM would. */
#include "server/job/job.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/log.h"

static void met(struct psd_job *job, const char *condition, const char *reason)
{
    job->stop_met = condition;
    ps_log(PS_LOG_INFO, "job.done", "%s", reason);
    psd_job_drain(job, reason);
}

void psd_stop_check(struct psd_job *job)
{
    const struct psd_evaluation *e = &job->evaluation;
    const uint64_t version = psd_stats_version(job), trained_ms = psd_loop_now_ms(job->loop) - job->ready_ms;
    char reason[200];

    if (job->state != PSD_STATE_READY)
        return;
    /* A NaN of the condition or of the evaluation compares false. */
    if (e->accuracy >= job->cfg->stop.accuracy && psd_evaluation_counts(job, e)) {
        snprintf(reason, sizeof reason,
                 "stop.accuracy: test accuracy %.6g at version %" PRIu64 " reached %.6g", e->accuracy,
                 e->version, job->cfg->stop.accuracy);
        met(job, "accuracy", reason);
    } else if (job->cfg->stop.updates > 0 && version >= job->cfg->stop.updates) {
        snprintf(reason, sizeof reason, "stop.updates: version %" PRIu64 " reached %" PRIu64, version,
                 job->cfg->stop.updates);
        met(job, "updates", reason);
    } else if (job->cfg->stop.seconds > 0 && trained_ms >= job->cfg->stop.seconds * 1000) {
        snprintf(reason, sizeof reason,
                 "stop.seconds: the center was ready %.1f s ago; the limit is %" PRIu64,
                 (double)trained_ms / 1e3, job->cfg->stop.seconds);
        met(job, "seconds", reason);
    } else if (job->cfg->stop.nonfinite && job->nonfinite.seen) {
        snprintf(reason, sizeof reason,
                 "stop.nonfinite: rank %u (%s) had a value that is not finite at its t = %" PRIu64,
                 job->nonfinite.rank, job->nonfinite.name, job->nonfinite.clock);
        met(job, "nonfinite", reason);
    }
}
