/* When the job is done: the conditions of `stop`. Looked at on each tick and at each evaluation; the first
 * one that is met drains the job as SIGTERM would. */
#include "server/psd.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/log.h"

static void met(struct psd *d, const char *condition, const char *reason)
{
    d->stop_met = condition;
    ps_log(PS_LOG_INFO, "job.done", "%s", reason);
    psd_job_drain(d, reason);
}

void psd_stop_check(struct psd *d)
{
    const struct psd_evaluation *e = &d->evaluation;
    const uint64_t version = psd_version(d), trained_ms = psd_loop_now_ms(&d->loop) - d->ready_ms;
    char reason[200];

    if (d->state != PSD_STATE_READY)
        return;
    /* NaN, of the condition or of the evaluation, compares false. */
    if (e->accuracy >= d->cfg.stop.accuracy && psd_evaluation_counts(d, e)) {
        snprintf(reason, sizeof reason,
                 "stop.accuracy: test accuracy %.6g at version %" PRIu64 " reached %.6g", e->accuracy,
                 e->version, d->cfg.stop.accuracy);
        met(d, "accuracy", reason);
    } else if (d->cfg.stop.updates > 0 && version >= d->cfg.stop.updates) {
        snprintf(reason, sizeof reason, "stop.updates: version %" PRIu64 " reached %" PRIu64, version,
                 d->cfg.stop.updates);
        met(d, "updates", reason);
    } else if (d->cfg.stop.seconds > 0 && trained_ms >= d->cfg.stop.seconds * 1000) {
        snprintf(reason, sizeof reason,
                 "stop.seconds: the center was ready %.1f s ago, %" PRIu64 " were asked for",
                 (double)trained_ms / 1e3, d->cfg.stop.seconds);
        met(d, "seconds", reason);
    } else if (d->cfg.stop.nonfinite && d->nonfinite.seen) {
        snprintf(reason, sizeof reason,
                 "stop.nonfinite: rank %u (%s) had a value that is not finite at its t = %" PRIu64,
                 d->nonfinite.rank, d->nonfinite.name, d->nonfinite.clock);
        met(d, "nonfinite", reason);
    }
}
