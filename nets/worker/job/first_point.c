/* The initial point: the model's own, or the tensors of --init's file. The file is read before the worker
 * joins, so that a bad file does not delay the other workers. */
#include "nets/worker/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/training/init.h"
#include "proto/log.h"

static int exit_of(int rc)
{
    return rc == -ENOMEM                    ? CNN_EXIT_INTERNAL
           : rc == -EINVAL || rc == -EISDIR ? CNN_EXIT_USAGE
                                            : CNN_EXIT_DATA;
}

static void say(const char *path, const struct cnn_init_report *r)
{
    ps_log(PS_LOG_INFO, "init.loaded", "--init %s: %zu tensors loaded; initialised instead: %s", path,
           r->n_taken, r->n_fresh > 0 ? r->fresh : "none");
    if (r->n_unused > 0)
        ps_log(PS_LOG_INFO, "init.unused", "--init %s: %zu tensors are not in the net: %s", path, r->n_unused,
               r->unused);
}

int cnn_first_point_load(struct cnn_job *job)
{
    const struct cnn_worker_args *a = job->args;
    struct cnn_init_report report;
    struct ps_error err;
    if (a->init == NULL)
        return CNN_EXIT_OK;
    job->first = malloc(job->n_floats * sizeof *job->first);
    int rc = job->first != NULL ? cnn_model_fill(&job->model, a->seed, job->first) : -ENOMEM;
    if (rc != 0)
        ps_fail(&err, rc, "no memory for a first point of %zu floats", job->n_floats);
    else if ((rc = cnn_init_load(a->init, a->init_skip, job->params, job->n_params, job->first, &report,
                                 &err)) == 0) {
        say(a->init, &report);
        if (!a->predict || report.n_fresh == 0)
            return CNN_EXIT_OK;
        rc = ps_fail(&err, -EINVAL, "%s lacks %zu of the net's tensors: %s; allowed for --predict: none",
                     a->init, report.n_fresh, report.fresh);
    }
    ps_log(PS_LOG_ERROR, "init.failed", "--init: %s", err.text);
    return exit_of(rc);
}

int cnn_first_point_fill(struct cnn_job *job)
{
    if (job->first != NULL)
        return cnn_job_write(job, job->x, job->first);
    float *host = malloc(job->n_floats * sizeof *host);
    int rc = host == NULL || cnn_model_fill(&job->model, job->args->seed, host) != 0 ? PSC_ENOMEM : PSC_OK;
    if (rc == PSC_OK)
        rc = cnn_job_write(job, job->x, host);
    free(host);
    return rc;
}

/* Whether training starts from it. */
static bool is_used(const struct cnn_job *job)
{
    float *host = malloc(job->n_floats * sizeof *host);
    bool same = host == NULL || cnn_job_read(job, host, job->x) != PSC_OK ||
                memcmp(host, job->first, job->n_floats * sizeof *host) == 0;
    free(host);
    return same;
}

void cnn_first_point_begun(struct cnn_job *job)
{
    if (job->first != NULL && !is_used(job))
        ps_log(PS_LOG_INFO, "init.not_used",
               "--init %s: not used: the job already has a center, and training starts from it",
               job->args->init);
    free(job->first);
    job->first = NULL;
}
