/* The evaluator: periodically pulls the center, or its average, and evaluates it on the whole test set. */
#include "nets/worker/evaluate/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/worker/evaluate/test_set.h"
#include "proto/clock.h"
#include "proto/log.h"

#define LEAVE_S 5.0 /* how long to wait for the workers of a draining job */
#define LOOK_S  0.2

struct evaluation {
    struct cnn_job *job;
    struct cnn_scorer scorer;
    double started;
    const char *vector; /* the evaluated vector: "center" or "average" */
    float *known;       /* [n_floats]: the vector of the last result */
    bool has_result;
};

static bool keeps_average(const struct cnn_job *job)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(job->psc, &info);
    return strcmp(info.averaging, "none") != 0;
}

/* Pulls the average, which is the job's result, if there is one. A change of the method may drop it
 * meanwhile. */
static int pull(struct evaluation *e)
{
    struct cnn_job *job = e->job;
    if (!job->args->center && keeps_average(job)) {
        e->vector = "average";
        int rc = psc_pull_average(job->psc, NULL, job->x);
        if (rc >= 0 || keeps_average(job))
            return rc;
    }
    e->vector = "center";
    return psc_pull(job->psc, NULL, job->x);
}

/* Evaluates job->x, which pull has filled. */
static int evaluate_center(struct evaluation *e)
{
    struct psc_info info = {.size = sizeof info};
    struct psc_metrics m = {.size = sizeof m, .loss = NAN, .accuracy = NAN, .samples_per_second = NAN};
    double t = ps_now_s() - e->started;
    psc_info(e->job->psc, &info);
    m.center_version = info.center_version;
    int rc = cnn_scorer_tell(&e->scorer, e->vector, e->job->x, t, &m);
    if (rc != CNN_EXIT_OK || e->scorer.is_given_up)
        return rc;
    memcpy(e->known, e->job->x, e->job->n_floats * sizeof *e->known);
    e->has_result = true;
    m.vector = e->job->x;
    psc_report(e->job->psc, &m); /* errors are ignored: the next pull reports a lost server */
    return CNN_EXIT_OK;
}

/* The center is final when the last worker has left. */
static void wait_for_workers(struct cnn_job *job)
{
    double end = ps_now_s() + LEAVE_S;
    while (psc_size(job->psc) > 0 && ps_now_s() < end && !cnn_stop_wait(job->stop, LOOK_S))
        continue;
}

/* Whether job->x, which pull has filled, was evaluated before. The version does not tell: it may be of a
 * later answer than x. */
static bool is_known(const struct evaluation *e)
{
    return e->has_result && memcmp(e->known, e->job->x, e->job->n_floats * sizeof *e->known) == 0;
}

/* After a drain or a signal the center is evaluated once more, so that the history ends with the final
 * result, unless that was evaluated before or the server is already gone. A signal ends any other evaluation,
 * also that of --once. */
static int loop(struct evaluation *e)
{
    struct cnn_job *job = e->job;
    double next = ps_now_s();
    bool last = job->args->once;
    for (;;) {
        int rc = pull(e);
        if (rc < 0)
            return cnn_job_fail(job, "evaluating ended", rc);
        if (rc == PSC_DRAINED && *psc_error(job->psc) != '\0') { /* x does not hold the center */
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
        if (last && is_known(e)) {
            ps_log(PS_LOG_INFO, "evaluate.unchanged", "the last %s was evaluated before", e->vector);
            return CNN_EXIT_OK;
        }
        e->scorer.stop = last && !job->args->once ? NULL : job->stop;
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
    if (drained) { /* the server accepts no more clients */
        ps_log(PS_LOG_INFO, "evaluate.drained", "nothing was evaluated: %s", psc_error(job->psc));
        return CNN_EXIT_OK;
    }
    struct evaluation e = {.job = job, .started = ps_now_s()};
    int rc = cnn_scorer_open(&e.scorer, job);
    if (rc == CNN_EXIT_OK && (e.known = malloc(job->n_floats * sizeof *e.known)) == NULL) {
        ps_log(PS_LOG_ERROR, "net.failed", "no memory for a vector of %zu floats", job->n_floats);
        rc = CNN_EXIT_INTERNAL;
    }
    if (rc == CNN_EXIT_OK)
        rc = cnn_scorer_end(&e.scorer, loop(&e));
    free(e.known);
    cnn_scorer_close(&e.scorer);
    return rc;
}
