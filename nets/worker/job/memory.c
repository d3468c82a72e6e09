/* memory.c: where x, g and batches lie. With --backend cuda x and g lie on the GPU, unless an option needs
 * them on the host, and batches in memory from which the GPU reads them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/worker/job/job.h"
#include "proto/log.h"

static bool uses_cuda(const struct cnn_job *job)
{
    return job->args->backend != NULL && strcmp(job->args->backend, "cuda") == 0;
}

/* What needs x or g on the host; NULL: nothing. */
static const char *host_is_needed_for(const struct cnn_job *job)
{
    const struct cnn_worker_args *a = job->args;
    const struct {
        bool is_given;
        const char *what;
    } needs[] = {
        {!uses_cuda(job), "a backend other than cuda"},
        {a->evaluate, "--evaluate"},
        {a->predict, "--predict"},
        {cnn_job_is_shared(job), "--clique"},
        {a->method != NULL && (strcmp(a->method, "d-sync") == 0 || strcmp(a->method, "pipe-sgd") == 0),
         "--method d-sync and pipe-sgd"},
        {a->accumulate > 1, "--accumulate"},
        {!isnan(a->clip_norm), "--clip-norm"},
        {job->freeze.n_held > 0, "--freeze of a batch norm's statistics"}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (needs[i].is_given)
            return needs[i].what;
    return NULL;
}

int cnn_job_choose_memory(struct cnn_job *job)
{
    const char *wanted = job->args->memory != NULL ? job->args->memory : "auto",
               *why = host_is_needed_for(job);
    if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "host") != 0 && strcmp(wanted, "cuda") != 0) {
        ps_log(PS_LOG_ERROR, "start.failed", "--memory: found '%.40s'; allowed: auto, host, cuda", wanted);
        return CNN_EXIT_USAGE;
    }
    if (strcmp(wanted, "cuda") == 0 && why != NULL) {
        ps_log(PS_LOG_ERROR, "start.failed",
               "--memory cuda: %s needs x and g on the host; allowed: host, auto", why);
        return CNN_EXIT_USAGE;
    }
    job->on_device = why == NULL && strcmp(wanted, "host") != 0;
    if (uses_cuda(job))
        ps_log(PS_LOG_INFO, "memory.chosen", "x and g lie in the memory of %s%s%s",
               job->on_device ? "the GPU" : "the host", why != NULL ? ": needed for " : "",
               why != NULL ? why : "");
    return CNN_EXIT_OK;
}

float *cnn_job_vector(struct cnn_job *job)
{
    float *x = NULL;
    if (!job->on_device)
        return calloc(job->n_floats, sizeof *x);
    return psc_alloc(job->psc, job->n_floats, &x) == PSC_OK ? x : NULL;
}

void cnn_job_free_vector(const struct cnn_job *job, float *x)
{
    if (!job->on_device)
        free(x);
}

int cnn_job_write(const struct cnn_job *job, float *x, const float *host)
{
    return psc_write(job->psc, x, host, job->n_floats);
}

int cnn_job_read(const struct cnn_job *job, float *host, const float *x)
{
    return psc_read(job->psc, host, x, job->n_floats);
}

static void *alloc_batch(void *net, size_t bytes)
{
    return cnn_net_alloc(net, bytes);
}

static void free_batch(void *net, void *p)
{
    cnn_net_free(net, p);
}

void cnn_job_place_batches(const struct cnn_job *job, struct cnn_stream_options *out)
{
    out->memory = (struct cnn_batch_memory){alloc_batch, free_batch, job->net};
    out->leaves_cuts = cnn_net_cuts(job->net, job->info.height, job->info.width);
}
