#include "nets/worker/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/machine.h"
#include "nets/training/rates.h"
#include "nets/worker/job/events.h"
#include "nets/worker/job/no_server.h"
#include "nets/worker/job/output.h"
#include "proto/log.h"

static void log_sentence(void *arg, const char *sentence)
{
    (void)arg;
    ps_log(PS_LOG_INFO, "client.note", "%s", sentence);
}

int cnn_job_fail(struct cnn_job *job, const char *what, int rc)
{
    const char *sentence = job->psc != NULL ? psc_error(job->psc) : "no memory";
    ps_log(PS_LOG_ERROR, "session.failed", "%s: %s (%s)", what, sentence, psc_result_name(rc));
    switch (rc) {
    case PSC_EGONE:
    case PSC_EEVICTED:
    case PSC_EREFUSED:
    case PSC_EUNSUPPORTED:
        return CNN_EXIT_SERVER;
    case PSC_EINVAL: /* such as an invalid server address */
    case PSC_EMANIFEST:
    case PSC_ERANK:
        return CNN_EXIT_USAGE;
    case PSC_EVALUE:
        return CNN_EXIT_DIVERGED;
    case PSC_ECLIQUE:
        return CNN_EXIT_CLIQUE;
    case PSC_EAUTH:
        return CNN_EXIT_AUTH;
    default:
        return CNN_EXIT_INTERNAL;
    }
}

/* The data that all partitions have in common; NULL: each has its own. */
static struct cnn_data *common_data(const struct cnn_job *job)
{
    return job->partition != NULL ? job->partition->all->data : NULL;
}

static bool no_stop_asked(void *job)
{
    return !cnn_stop_asked(((struct cnn_job *)job)->stop);
}

/* A process that has not joined is stopped by a signal: it exits with success. */
static void note_stop(struct cnn_job *job)
{
    job->stopped = true;
    ps_log(PS_LOG_INFO, "join.stopped", "a signal asked to stop: this process had not joined yet");
}

int cnn_job_open_data(struct cnn_job *job)
{
    struct ps_error err;
    const struct cnn_model *m = &job->model;
    struct cnn_data_options opt = {.view = job->args->view,
                                   .max_damaged = (uint32_t)job->args->max_damaged,
                                   .cache = job->args->cache,
                                   .height = m->height,
                                   .width = m->width,
                                   .threads = (uint32_t)job->args->data_threads,
                                   .go_on = no_stop_asked,
                                   .go_on_arg = job};
    int rc = 0;
    job->data = common_data(job);
    if (job->data == NULL)
        rc = cnn_data_open_with(job->args->data, &opt, &job->data, &err);
    if (rc == -EINTR) {
        note_stop(job);
        return CNN_EXIT_OK;
    }
    if (rc == 0)
        rc = cnn_data_fits(job->data, m, &err);
    if (rc != 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "--data: %s", err.text);
        return rc == -EINVAL ? CNN_EXIT_USAGE : rc == -ENOMEM ? CNN_EXIT_INTERNAL : CNN_EXIT_DATA;
    }
    cnn_data_get_info(job->data, &job->info);
    job->n_pixels = (size_t)m->channels * m->height * m->width;
    return CNN_EXIT_OK;
}

/* Plans the model's tensors and freezes some of them, before a net is created from it. */
static int plan_model(const char *patterns, struct cnn_model *model, struct cnn_freeze *freeze,
                      struct cnn_param **params, size_t *n)
{
    struct ps_error err;
    int rc = cnn_model_params(model, params, n, &err);
    if (rc != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "--net %s: %s", model->name, err.text);
        return CNN_EXIT_INTERNAL;
    }
    if (patterns == NULL || (rc = cnn_freeze_init(freeze, patterns, model, *params, *n, &err)) == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "freeze.failed", "--freeze: %s", err.text);
    return rc == -EINVAL ? CNN_EXIT_USAGE : CNN_EXIT_INTERNAL;
}

int cnn_job_read_model(const struct cnn_worker_args *args, const char *name, struct cnn_model *out,
                       struct cnn_freeze *freeze)
{
    struct ps_error err;
    struct cnn_param *params = NULL;
    size_t n;
    *freeze = (struct cnn_freeze){.layers = NULL};
    if (cnn_model_read(name, out, &err) != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "%s", err.text);
        return CNN_EXIT_USAGE;
    }
    int rc = plan_model(args->freeze, out, freeze, &params, &n);
    free(params);
    return rc;
}

static int open_model(struct cnn_job *job)
{
    const char *freeze = job->args->freeze;
    int rc = plan_model(freeze, &job->model, &job->freeze, &job->params, &job->n_params);
    if (rc != CNN_EXIT_OK)
        return rc;
    job->n_floats = cnn_model_n_floats(&job->model);
    if (freeze != NULL)
        ps_log(PS_LOG_INFO, "freeze.done", "--freeze %s: %zu of %zu tensors are frozen", freeze,
               job->freeze.n_frozen, job->n_params);
    return CNN_EXIT_OK;
}

/* Called after open_model: rates apply to trained tensors only. */
static int open_rates(struct cnn_job *job)
{
    struct ps_error err;
    const char *text = job->args->rates;
    job->rates = calloc(job->n_params + 1, sizeof *job->rates);
    if (job->rates == NULL) {
        ps_log(PS_LOG_ERROR, "net.failed", "no memory for the rates of %zu tensors", job->n_params);
        return CNN_EXIT_INTERNAL;
    }
    if (text == NULL || cnn_rates_read(text, job->params, job->n_params, job->rates, &err) == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "rates.failed", "--rates: %s", err.text);
    return CNN_EXIT_USAGE;
}

/* Partitions have been placed on the cores. */
static void check_threads(const struct cnn_job *job)
{
    uint32_t cores = cnn_machine_cores();
    if (job->partition == NULL && job->args->threads > cores)
        ps_log(PS_LOG_WARN, "net.threads",
               "--threads %" PRIu64 ": this process may use %u cores, and threads beyond them make the net "
               "slower; 0 is one for each core",
               job->args->threads, cores);
}

static int open_net(struct cnn_job *job)
{
    struct ps_error err;
    struct cnn_net_options opt = {.model = &job->model,
                                  .backend = job->args->backend,
                                  .batch = (uint32_t)job->args->batch,
                                  .threads = (uint32_t)job->args->threads,
                                  .precision = job->args->net_precision,
                                  .any_order = job->args->any_order,
                                  .label_smoothing = job->args->label_smoothing};
    if (job->partition != NULL)
        opt.first_image = job->partition->index * opt.batch;
    check_threads(job);
    int rc = cnn_net_create(&opt, &job->net, &err);
    if (rc != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "--net %s: %s", job->model.name, err.text);
        return rc == -EINVAL ? CNN_EXIT_USAGE : CNN_EXIT_INTERNAL;
    }
    return CNN_EXIT_OK;
}

/* Allocates x in memory that a server on the same machine can read, and fills it with the initial point. */
static int make_x(struct cnn_job *job)
{
    int rc = psc_alloc(job->psc, job->n_floats, &job->x);
    return rc == PSC_OK ? cnn_first_point_fill(job) : rc;
}

/* psc_begin with the model's parameters as the manifest. */
static int begin(struct cnn_job *job)
{
    const struct cnn_param *params = job->params;
    size_t n = job->n_params;
    struct psc_tensor *tensors = calloc(n, sizeof *tensors);
    int rc = PSC_ENOMEM;
    if (tensors != NULL) {
        for (size_t i = 0; i < n; i++) {
            tensors[i] = (struct psc_tensor){.name = params[i].name,
                                             .offset = params[i].offset,
                                             .n_dims = params[i].n_dims,
                                             .role = (uint32_t)params[i].role,
                                             .decay = (uint32_t)params[i].decay,
                                             .rate = params[i].role == CNN_PARAM ? job->rates[i] : 0};
            for (uint32_t d = 0; d < params[i].n_dims; d++)
                tensors[i].shape[d] = params[i].shape[d];
        }
        rc = psc_begin(job->psc, tensors, n, job->x);
    }
    free(tensors);
    if (rc >= 0)
        cnn_first_point_begun(job);
    return rc;
}

/* A stop lets the round in progress end if it does so within this time. */
#define LAST_ROUND_S 10

/* The library calls it while it waits. A signal ends the wait of a process that has not joined: it has
 * nothing to finish. Later it ends a wait for other workers, who may never come. */
static int may_wait(void *arg)
{
    struct cnn_job *job = arg;
    if (!job->joined)
        return !cnn_stop_asked(job->stop);
    return cnn_stop_asked_before(job->stop, LAST_ROUND_S) ? PSC_GO_ON_UNLESS_HELD : 1;
}

/* Whether a signal ended the wait to join, or arrived while the clique did not form. */
static bool was_stopped(struct cnn_job *job, int rc)
{
    if (rc == PSC_EINTERRUPTED || (rc == PSC_ECLIQUE && cnn_stop_asked(job->stop)))
        note_stop(job);
    return job->stopped;
}

static int fail_to_join(struct cnn_job *job, const char *what, int rc)
{
    return was_stopped(job, rc) ? CNN_EXIT_OK : cnn_job_fail(job, what, rc);
}

static int open_session(struct cnn_job *job, bool *drained)
{
    struct psc_options opt;
    struct psc_local local;
    struct ps_error err;
    psc_options_init(&opt, sizeof opt);
    if (job->args->method != NULL) {
        if (cnn_local_options(job->args, &local, &err) != 0) {
            ps_log(PS_LOG_ERROR, "start.failed", "%s", err.text);
            return CNN_EXIT_USAGE;
        }
        opt.local = &local;
    }
    opt.server = job->args->server;
    opt.kind = job->args->evaluate || job->args->predict ? PSC_OBSERVER : PSC_WORKER;
    opt.rank = (int32_t)job->args->rank;
    opt.name = job->args->name;
    opt.log = log_sentence;
    opt.clique = job->clique.q;
    opt.key_file = job->args->key;
    opt.server_key = job->args->server_key;
    opt.transport = job->args->transport;
    opt.memory = job->on_device ? "cuda" : NULL;
    /* In the net's stream a step need not be waited for. But a clique that sums parts of a gradient while the
     * rest is computed would wait for all of it. */
    opt.stream = job->on_device && job->clique.q == NULL ? cnn_net_stream(job->net) : NULL;
    opt.go_on = may_wait;
    opt.go_on_arg = job;
    opt.net = job->args->net;
    opt.data = job->args->data;
    opt.steps = job->args->steps;
    opt.samples_per_epoch = job->info.n_train;
    opt.threads = job->args->threads > 0 ? (uint32_t)job->args->threads : cnn_machine_cores();
    int rc = psc_open(&opt, &job->psc);
    if (rc < 0)
        return fail_to_join(job, "cannot join", rc);
    if ((rc = rc == PSC_OK ? make_x(job) : rc) < 0)
        return cnn_job_fail(job, "cannot join", rc);
    if (rc == PSC_OK) {
        rc = begin(job);
        if (rc < 0) {
            char what[200];
            snprintf(what, sizeof what, "cannot begin with --net %.100s", job->args->net);
            return fail_to_join(job, what, rc);
        }
    }
    job->joined = true;
    *drained = rc == PSC_DRAINED;
    return CNN_EXIT_OK;
}

int cnn_job_open_clique(struct cnn_job *job)
{
    struct ps_error err;
    int rc = cnn_clique_open(job->args, &job->clique, &err);
    if (rc == PSC_OK || was_stopped(job, rc))
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "clique.failed", "%s (%s)", err.text, psc_result_name(rc));
    return rc == PSC_ECLIQUE                            ? CNN_EXIT_CLIQUE
           : rc == PSC_EAUTH                            ? CNN_EXIT_AUTH
           : rc == PSC_EINVAL || rc == PSC_EUNSUPPORTED ? CNN_EXIT_USAGE
                                                        : CNN_EXIT_INTERNAL;
}

bool cnn_job_is_shared(const struct cnn_job *job)
{
    return job->clique.q != NULL && psc_clique_size(job->clique.q) > 1;
}

uint32_t cnn_job_rank(const struct cnn_job *job)
{
    int rank = psc_rank(job->psc), members = 1, member = 0;
    int parts = job->partition != NULL ? (int)job->partition->all->placement.n : 1;
    if (cnn_job_is_shared(job)) {
        members = psc_clique_size(job->clique.q) / parts;
        member = psc_clique_rank(job->clique.q) / parts;
    }
    return rank >= 0 ? (uint32_t)(rank * members + member) : 0;
}

bool cnn_job_tells(const struct cnn_job *job)
{
    return job->partition == NULL || job->partition->index == 0;
}

/* False only for predictions with the tensors of --init. */
static bool needs_session(const struct cnn_worker_args *args)
{
    return !args->predict || args->server != NULL;
}

int cnn_job_open(struct cnn_job *job, const struct cnn_worker_args *args,
                 const struct cnn_partition *partition, struct cnn_stop *stop, bool *drained)
{
    struct ps_error err;
    *job = (struct cnn_job){.args = args, .partition = partition, .stop = stop};
    if (partition != NULL)
        job->clique.q = partition->q;
    if (cnn_model_read(args->net, &job->model, &err) != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "--net: %s", err.text);
        return CNN_EXIT_USAGE;
    }
    int rc = cnn_output_check("state", "state.failed", args->state);
    if (rc == CNN_EXIT_OK)
        rc = cnn_output_check("confusion", "confusion.failed", args->confusion);
    if (rc == CNN_EXIT_OK)
        rc = cnn_job_open_data(job);
    if (job->stopped)
        return rc;
    if (rc == CNN_EXIT_OK)
        rc = open_model(job);
    if (rc == CNN_EXIT_OK)
        rc = open_rates(job);
    if (rc == CNN_EXIT_OK)
        rc = open_net(job);
    if (rc == CNN_EXIT_OK)
        rc = cnn_first_point_load(job);
    if (rc == CNN_EXIT_OK && (partition == NULL || args->has_gpus))
        rc = cnn_job_open_clique(job);
    if (rc == CNN_EXIT_OK)
        rc = cnn_job_choose_memory(job);
    if (rc != CNN_EXIT_OK || job->stopped)
        return rc;
    if (needs_session(args)) {
        rc = open_session(job, drained);
        return rc == CNN_EXIT_OK && job->joined ? cnn_events_open(job) : rc;
    }
    job->x = job->first;
    return CNN_EXIT_OK;
}

void cnn_job_close(struct cnn_job *job)
{
    cnn_events_close(job);
    psc_close(job->psc);
    cnn_clique_close(&job->clique);
    cnn_net_destroy(job->net);
    free(job->first);
    free(job->params);
    free(job->rates);
    cnn_freeze_finish(&job->freeze);
    if (common_data(job) == NULL)
        cnn_data_close(job->data);
}
