/* net.c: the table of backends, and the checks that stand before each of them. */
#include "nets/backend.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BATCH   65536
#define MAX_THREADS 1024

/* Fastest first: the first row is the default. */
static const struct cnn_backend *const backends[] = {
#ifdef CNN_HAVE_ONEDNN
    &cnn_backend_onednn,
#endif
    &cnn_backend_ref,
};
static const size_t n_backends = sizeof backends / sizeof backends[0];

struct cnn_net {
    struct cnn_plan *plan;
    const struct cnn_backend *backend;
    void *state;
    uint32_t batch;
    struct cnn_draw draw;  /* of the next gradient */
    bool has_gradient;     /* the backend holds a batch's statistics */
    struct ps_error error; /* of the last call that failed */
};

const char *cnn_backend_name(size_t index)
{
    return index < n_backends ? backends[index]->name : NULL;
}

static const struct cnn_backend *find_backend(const char *name, struct ps_error *err)
{
    char known[128] = "";

    if (name == NULL)
        return backends[0];
    for (size_t i = 0; i < n_backends; i++) {
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", backends[i]->name);
    }
    ps_fail(err, -EINVAL, "backend '%.64s' is not in this build; it has: %s", name, known);
    return NULL;
}

/* The cores this process may run on: what taskset, Slurm or a container left it. */
static uint32_t usable_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : (uint32_t)n;
}

static int check_options(const struct cnn_net_options *opt, const struct cnn_plan *plan, struct ps_error *err)
{
    if (opt->batch < 1 || opt->batch > MAX_BATCH)
        return ps_fail(err, -EINVAL, "batch %u; allowed are 1 to %d images", opt->batch, MAX_BATCH);
    if (opt->threads > MAX_THREADS)
        return ps_fail(err, -EINVAL, "%u threads; allowed are 0 (all that the process may use) to %d",
                       opt->threads, MAX_THREADS);
    for (size_t i = 0; i < plan->n_layers; i++)
        for (uint32_t k = 0; k < plan->layers[i].n_inputs; k++) {
            double floats = (double)cnn_shape_count(plan->layers[i].inputs[k].shape) * opt->batch;
            if (floats > INT32_MAX)
                return ps_fail(err, -EINVAL,
                               "batch %u makes %.0f floats of input to layer '%s'; allowed are %d",
                               opt->batch, floats, plan->layers[i].spec->name, INT32_MAX);
        }
    return 0;
}

int cnn_net_create(const struct cnn_net_options *opt, struct cnn_net **out, struct ps_error *err)
{
    const struct cnn_backend *backend = find_backend(opt->backend, err);
    if (backend == NULL)
        return -EINVAL;

    struct cnn_net *net = calloc(1, sizeof *net);
    if (net == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a net");
    net->batch = opt->batch;
    int rc = cnn_plan_create(opt->model, &net->plan, err);
    if (rc == 0)
        rc = check_options(opt, net->plan, err);
    if (rc == 0)
        rc = backend->create(net->plan, opt->batch, opt->threads > 0 ? opt->threads : usable_cores(),
                             &net->state, err);
    if (rc < 0) {
        cnn_net_destroy(net);
        return rc;
    }
    net->backend = backend;
    *out = net;
    return 0;
}

void cnn_net_destroy(struct cnn_net *net)
{
    if (net == NULL)
        return;
    if (net->backend != NULL)
        net->backend->destroy(net->state);
    cnn_plan_destroy(net->plan);
    free(net);
}

static int check_labels(struct cnn_net *net, const uint8_t *labels, uint32_t n)
{
    uint32_t classes = net->plan->model->classes;

    for (uint32_t i = 0; i < n; i++)
        if (labels[i] >= classes)
            return ps_fail(&net->error, -EINVAL, "label %u of image %u; model '%s' has classes 0 to %u",
                           labels[i], i, net->plan->model->name, classes - 1);
    return 0;
}

int cnn_net_gradient(struct cnn_net *net, const float *x, const float *images, const uint8_t *labels,
                     float *g, struct cnn_score *score)
{
    int rc = check_labels(net, labels, net->batch);
    if (rc == 0)
        rc = net->backend->gradient(net->state, &net->draw, x, images, labels, g, score, &net->error);
    if (rc == 0) {
        net->draw.step++;
        net->has_gradient = true;
    }
    return rc;
}

void cnn_net_update_buffers(struct cnn_net *net, float *x)
{
    if (net->has_gradient)
        net->backend->update_buffers(net->state, x);
}

void cnn_net_seed(struct cnn_net *net, uint64_t seed, uint64_t step)
{
    net->draw = (struct cnn_draw){seed, step};
}

int cnn_net_score(struct cnn_net *net, const float *x, const float *images, const uint8_t *labels, uint32_t n,
                  struct cnn_score *score)
{
    if (n < 1 || n > net->batch)
        return ps_fail(&net->error, -EINVAL, "%u images to score; allowed are 1 to the net's batch of %u", n,
                       net->batch);
    int rc = check_labels(net, labels, n);
    return rc < 0 ? rc : net->backend->score(net->state, x, images, labels, n, score, &net->error);
}

const char *cnn_net_backend(const struct cnn_net *net)
{
    return net->backend->name;
}

const char *cnn_net_error(const struct cnn_net *net)
{
    return net->error.text;
}
