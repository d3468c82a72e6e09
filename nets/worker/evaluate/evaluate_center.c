/* The evaluator: takes the center, or the average that follows it, again and again and runs the whole test
 * set. */
#include "nets/worker/evaluate/evaluate.h"

#include <math.h>
#include <string.h>

#include "nets/worker/evaluate/test_set.h"
#include "proto/clock.h"
#include "proto/log.h"

#define LEAVE_S 5.0 /* workers of a draining job leave within a step */
#define LOOK_S  0.2

struct evaluation {
    struct cnn_job *job;
    struct cnn_scorer scorer;
    double started;
    const char *vector; /* what is evaluated: "center" or "average" */
};

/* The average where the job has one: it is what averaging is for. */
static int pull(struct evaluation *e)
{
    struct cnn_job *job = e->job;
    struct psc_info info = {.size = sizeof info};
    psc_info(job->psc, &info);
    bool average = !job->args->center && strcmp(info.averaging, "none") != 0;
    e->vector = average ? "average" : "center";
    return average ? psc_pull_average(job->psc, NULL, job->x) : psc_pull(job->psc, NULL, job->x);
}

/* Scores job->x, which pull has just filled. */
static int evaluate_center(struct evaluation *e)
{
    struct psc_info info = {.size = sizeof info};
    struct psc_metrics m = {.size = sizeof m, .loss = NAN, .accuracy = NAN, .samples_per_second = NAN};
    double t = ps_now_s() - e->started;
    psc_info(e->job->psc, &info);
    m.center_version = info.center_version;
    int rc = cnn_scorer_tell(&e->scorer, e->vector, e->job->x, t, &m);
    if (rc != CNN_EXIT_OK)
        return rc;
    m.vector = e->job->x;
    psc_report(e->job->psc,
               &m); /* a lost report is no reason to stop; the next pull learns of a lost server */
    return CNN_EXIT_OK;
}

/* The last center is the one that the last worker has left. */
static void wait_for_workers(struct cnn_job *job)
{
    double end = ps_now_s() + LEAVE_S;
    while (psc_size(job->psc) > 0 && ps_now_s() < end && !cnn_stop_wait(job->stop, LOOK_S))
        continue;
}

/* On a drain or a signal the center is looked at a last time, so that the history ends with the result;
 * unless the server was gone sooner. */
static int loop(struct evaluation *e)
{
    struct cnn_job *job = e->job;
    double next = ps_now_s();
    bool last = job->args->once;
    for (;;) {
        int rc = pull(e);
        if (rc < 0)
            return cnn_job_fail(job, "evaluating ended", rc);
        if (rc == PSC_DRAINED && *psc_error(job->psc) != '\0') { /* x is not the center */
            ps_log(PS_LOG_INFO, "evaluate.drained", "the server has drained and is gone: %s",
                   psc_error(job->psc));
            return CNN_EXIT_OK;
        }
        if (rc == PSC_DRAINED && !last) {
            ps_log(PS_LOG_INFO, "evaluate.drained", "the server is draining: this is the last evaluation");
            wait_for_workers(job);
            last = true;
            continue;
        }
        rc = evaluate_center(e);
        if (rc != CNN_EXIT_OK || last)
            return rc;
        next += job->args->every_s;
        double now = ps_now_s();
        next = next < now ? now : next;
        last = cnn_stop_wait(job->stop, next - now);
    }
}

int cnn_evaluate(struct cnn_job *job, bool drained)
{
    if (drained) { /* it takes nobody any more */
        ps_log(PS_LOG_INFO, "evaluate.drained", "nothing was evaluated: %s", psc_error(job->psc));
        return CNN_EXIT_OK;
    }
    struct evaluation e = {.job = job, .started = ps_now_s()};
    int rc = cnn_scorer_open(&e.scorer, job);
    if (rc == CNN_EXIT_OK)
        rc = cnn_scorer_end(&e.scorer, loop(&e));
    cnn_scorer_close(&e.scorer);
    return rc;
}
