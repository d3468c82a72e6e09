#include "nets/worker/evaluate/evaluate_local.h"

#include <math.h>
#include <string.h>

#include "proto/log.h"

int cnn_local_evaluation_open(struct cnn_local_evaluation *e, struct cnn_job *job)
{
    *e = (struct cnn_local_evaluation){.next_t = job->args->every_s, .told = UINT64_MAX};
    e->x = cnn_job_vector(job);
    if (e->x == NULL) {
        ps_log(PS_LOG_ERROR, "net.failed", "no memory for a vector of %zu floats", job->n_floats);
        return CNN_EXIT_INTERNAL;
    }
    return cnn_scorer_open(&e->scorer, job);
}

void cnn_local_evaluation_close(struct cnn_local_evaluation *e)
{
    if (e->scorer.job != NULL)
        cnn_job_free_vector(e->scorer.job, e->x);
    cnn_scorer_close(&e->scorer);
}

static int fetch_vector(struct cnn_local_evaluation *e, double t)
{
    struct cnn_job *job = e->scorer.job;
    struct psc_info info = {.size = sizeof info};
    struct psc_metrics m = {.size = sizeof m, .loss = NAN, .accuracy = NAN, .samples_per_second = NAN};
    psc_info(job->psc, &info);
    m.center_version = info.center_version;
    bool average = strcmp(info.averaging, "none") != 0;
    int rc = average ? psc_pull_average(job->psc, NULL, e->x) : psc_point(job->psc, e->x);
    if (rc < 0)
        return cnn_job_fail(job, "cannot evaluate", rc);
    return cnn_scorer_tell(&e->scorer, average ? "average" : "x", e->x, t, &m);
}

bool cnn_local_evaluation_is_due(const struct cnn_local_evaluation *e, uint64_t steps, double t)
{
    return steps != e->told && t >= e->next_t;
}

int cnn_local_evaluation_take(struct cnn_local_evaluation *e, uint64_t steps, double t, bool last)
{
    if (steps == e->told || (!last && !cnn_local_evaluation_is_due(e, steps, t)))
        return CNN_EXIT_OK;
    e->next_t += e->scorer.job->args->every_s;
    e->next_t = e->next_t < t ? t : e->next_t;
    e->scorer.stop = last ? NULL : e->scorer.job->stop;
    int rc = fetch_vector(e, t);
    e->told = e->scorer.is_given_up ? UINT64_MAX : steps;
    return rc;
}
