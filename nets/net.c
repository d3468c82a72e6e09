/* net.c: the table of backends, and the checks common to them. */
#include "nets/backend.h"
#include "nets/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

#define MAX_BATCH 65536

/* Fastest first: the first row that can run is the default. ref can always run; rows after it run only when
 * requested by name. */
static const struct cnn_backend *const backends[] = {
#ifdef CNN_HAVE_ONEDNN
    &cnn_backend_onednn,
#endif
    &cnn_backend_ref,
    &cnn_backend_cuda,
};
static const size_t n_backends = sizeof backends / sizeof backends[0];

struct cnn_net {
    struct cnn_plan *plan;
    struct cnn_memory *memory;
    size_t own_bytes; /* estimated */
    const struct cnn_backend *backend;
    void *state;
    uint32_t batch;
    double label_smoothing;
    struct cnn_draw draw; /* of the next gradient */
    bool has_gradient;    /* the backend holds a batch's statistics */
    /* Gradients that are begun and not ended, the oldest at [first]; and the scores of those that a backend
     * without a second half has computed. */
    uint32_t n_begun, first;
    struct cnn_score scores[CNN_MOST_BEGUN];
    struct ps_error error; /* of the last call that failed */
};

const char *cnn_backend_name(size_t index)
{
    return index < n_backends ? backends[index]->name : NULL;
}

/* Whether the backend has the precision and can run here; adds to `why` if only the latter fails. */
static bool can_run(const struct cnn_backend *b, enum cnn_precision precision, struct ps_error *why)
{
    struct ps_error one = {""};
    size_t used = strlen(why->text);
    if ((b->precisions >> precision & 1) == 0)
        return false;
    if (b->probe == NULL || b->probe(precision, &one) == 0)
        return true;
    snprintf(why->text + used, sizeof why->text - used, "%s%.250s", used == 0 ? ": " : "; ", one.text);
    return false;
}

/* The backend of the given name, or the first that can run here. */
static int find_backend(const struct cnn_net_options *opt, const struct cnn_backend **out,
                        struct ps_error *err)
{
    char known[128] = "";
    const struct cnn_backend *b = NULL;
    struct ps_error why = {""}; /* of every row that has the precision and cannot run */

    if (opt->precision >= CNN_N_PRECISIONS)
        return ps_fail(err, -EINVAL, "precision %d; see enum cnn_precision", (int)opt->precision);
    for (size_t i = 0; i < n_backends && b == NULL; i++) {
        bool can = opt->backend != NULL ? strcmp(backends[i]->name, opt->backend) == 0
                                        : can_run(backends[i], opt->precision, &why);
        if (can)
            b = backends[i];
        ps_text_join(known, sizeof known, ", ", backends[i]->name);
    }
    if (b == NULL && opt->backend == NULL)
        return ps_fail(err, -ENOTSUP, "no backend of this build (%s) can compute in %s here%s", known,
                       cnn_precision_name(opt->precision), why.text);
    if (b == NULL)
        return ps_fail(err, -EINVAL, "backend '%.64s' is not in this build; it has: %s", opt->backend, known);
    if ((b->precisions >> opt->precision & 1) == 0)
        return ps_fail(err, -ENOTSUP, "backend '%s' does not compute in %s", b->name,
                       cnn_precision_name(opt->precision));
    *out = b;
    return b->probe != NULL ? b->probe(opt->precision, err) : 0;
}

static const struct cnn_backend *backend_named(const char *name)
{
    for (size_t i = 0; i < n_backends; i++)
        if (name != NULL && strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

int cnn_use_device(const char *backend, uint32_t device, struct ps_error *err)
{
    const struct cnn_backend *b = backend_named(backend);
    if (b == NULL || b->use_device == NULL)
        return ps_fail(err, -EINVAL, "backend '%.64s' has no devices", backend);
    int rc = b->probe != NULL ? b->probe(CNN_FLOAT32, err) : 0;
    return rc == 0 ? b->use_device(device, err) : rc;
}

int cnn_free_bytes(const char *backend, uint64_t *out, struct ps_error *err)
{
    const struct cnn_backend *b = backend_named(backend);
    if (b == NULL || b->memory_limit == NULL)
        return ps_fail(err, -ENOTSUP, "the backend has no memory of its own");
    int rc = b->probe != NULL ? b->probe(CNN_FLOAT32, err) : 0;
    return rc == 0 ? b->memory_limit(out, err) : rc;
}

static int check_options(const struct cnn_net_options *opt, const struct cnn_backend *backend,
                         const struct cnn_plan *plan, struct ps_error *err)
{
    if (opt->batch < 1 || opt->batch > MAX_BATCH)
        return ps_fail(err, -EINVAL, "batch %u; allowed are 1 to %d images", opt->batch, MAX_BATCH);
    if (opt->threads > CNN_MOST_CORES)
        return ps_fail(err, -EINVAL, "%u threads; allowed are 0 (all that the process may use) to %d",
                       opt->threads, CNN_MOST_CORES);
    if (opt->any_order && !backend->has_any_order)
        return ps_fail(err, -ENOTSUP, "backend '%s' has deterministic algorithms only", backend->name);
    if (!(opt->label_smoothing >= 0 && opt->label_smoothing < 1))
        return ps_fail(err, -EINVAL, "label smoothing %g; allowed are 0 to below 1", opt->label_smoothing);
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

static int plan_memory(const struct cnn_backend *backend, const struct cnn_setup *setup,
                       struct cnn_memory **out, size_t *own_bytes, struct ps_error *err)
{
    struct cnn_needs *needs = calloc(setup->plan->n_layers, sizeof *needs);
    if (needs == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the plan of model '%s'", setup->plan->model->name);
    int rc = backend->needs(setup, needs, own_bytes, err);
    if (rc == 0)
        rc = cnn_memory_create(setup->plan, needs, setup->batch, backend->value_bytes(setup->precision), out,
                               err);
    free(needs);
    return rc;
}

static struct cnn_net_memory sizes_of(const struct cnn_setup *setup, const struct cnn_memory *m, size_t own)
{
    return (struct cnn_net_memory){m->arena_bytes, own, 2 * setup->plan->n_floats * sizeof(float)};
}

static uint64_t total_of(const struct cnn_net_memory *m)
{
    return m->values + m->own + m->vectors;
}

/* The largest batch whose net fits into the limit; 0 if none does. */
static uint32_t batch_that_fits(const struct cnn_backend *backend, struct cnn_setup setup, uint64_t limit)
{
    uint32_t fits = 0, too_large = setup.batch;

    while (too_large - fits > 1) {
        struct cnn_memory *m;
        size_t own;
        setup.batch = fits + (too_large - fits) / 2;
        if (plan_memory(backend, &setup, &m, &own, NULL) != 0)
            return fits;
        struct cnn_net_memory sizes = sizes_of(&setup, m, own);
        if (total_of(&sizes) <= limit)
            fits = setup.batch;
        else
            too_large = setup.batch;
        cnn_memory_destroy(m);
    }
    return fits;
}

static int check_limit(const struct cnn_net *net, const struct cnn_setup *setup, uint64_t limit,
                       struct ps_error *err)
{
    struct cnn_net_memory sizes = sizes_of(setup, net->memory, net->own_bytes);
    const double mib = 1024 * 1024;
    char fits[64] = "no batch would fit";

    if (limit == 0 && net->backend->memory_limit != NULL) {
        int rc = net->backend->memory_limit(&limit, err);
        if (rc < 0)
            return rc;
    } else if (limit == 0)
        limit = cnn_machine_bytes();
    if (total_of(&sizes) <= limit)
        return 0;
    uint32_t batch = batch_that_fits(net->backend, *setup, limit);
    if (batch > 0)
        snprintf(fits, sizeof fits, "a batch of %u would fit", batch);
    return ps_fail(err, -ENOMEM, "model '%s' with batches of %u takes %.0f MiB; there are %.0f MiB: %s",
                   setup->plan->model->name, setup->batch, (double)total_of(&sizes) / mib,
                   (double)limit / mib, fits);
}

/* Plans the memory of a net, without the backend's own part. */
static int prepare(struct cnn_net *net, const struct cnn_net_options *opt, struct cnn_setup *setup,
                   struct ps_error *err)
{
    int rc = find_backend(opt, &net->backend, err);
    if (rc == 0)
        rc = cnn_plan_create(opt->model, &net->plan, err);
    if (rc == 0)
        rc = check_options(opt, net->backend, net->plan, err);
    if (rc != 0)
        return rc;
    *setup = (struct cnn_setup){net->plan, opt->batch, opt->threads > 0 ? opt->threads : cnn_machine_cores(),
                                opt->precision, opt->any_order};
    return plan_memory(net->backend, setup, &net->memory, &net->own_bytes, err);
}

int cnn_net_create(const struct cnn_net_options *opt, struct cnn_net **out, struct ps_error *err)
{
    struct cnn_net *net = calloc(1, sizeof *net);
    struct cnn_setup setup;

    if (net == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a net");
    net->batch = opt->batch;
    net->label_smoothing = opt->label_smoothing;
    net->draw.first_image = opt->first_image;
    int rc = prepare(net, opt, &setup, err);
    if (rc == 0)
        rc = check_limit(net, &setup, opt->memory_limit, err);
    if (rc == 0)
        rc = net->backend->create(&setup, net->memory, &net->state, err);
    if (rc < 0) {
        cnn_net_destroy(net);
        return rc;
    }
    *out = net;
    return 0;
}

void cnn_net_destroy(struct cnn_net *net)
{
    if (net == NULL)
        return;
    if (net->state != NULL)
        net->backend->destroy(net->state);
    cnn_memory_destroy(net->memory);
    cnn_plan_destroy(net->plan);
    free(net);
}

int cnn_net_plan_memory(const struct cnn_net_options *opt, struct cnn_net_memory *out, struct ps_error *err)
{
    struct cnn_net net = {0};
    struct cnn_setup setup;
    int rc = prepare(&net, opt, &setup, err);

    if (rc == 0)
        *out = sizes_of(&setup, net.memory, net.own_bytes);
    cnn_memory_destroy(net.memory);
    cnn_plan_destroy(net.plan);
    return rc;
}

void cnn_net_memory_used(const struct cnn_net *net, struct cnn_net_memory *out)
{
    *out = (struct cnn_net_memory){net->memory->arena_bytes, net->backend->own_bytes(net->state),
                                   2 * net->plan->n_floats * sizeof(float)};
}

static int check_labels(struct cnn_net *net, const uint16_t *labels, uint32_t n)
{
    uint32_t classes = net->plan->model->classes;

    for (uint32_t i = 0; i < n; i++)
        if (labels[i] >= classes)
            return ps_fail(&net->error, -EINVAL, "label %u of image %u; model '%s' has classes 0 to %u",
                           labels[i], i, net->plan->model->name, classes - 1);
    return 0;
}

static int check_cuts(struct cnn_net *net, const struct cnn_batch *b)
{
    if (b->cuts == NULL ||
        (b->pixels == CNN_PIXELS_BYTE && cnn_net_cuts(net, b->stored_height, b->stored_width)))
        return 0;
    return ps_fail(&net->error, -EINVAL,
                   "images of %u x %u are to be cut: backend '%s' takes none%s for a net of %u x %u",
                   b->stored_height, b->stored_width, net->backend->name,
                   net->backend->cuts == NULL     ? ""
                   : b->pixels == CNN_PIXELS_BYTE ? " so large"
                                                  : " of floats",
                   net->plan->model->height, net->plan->model->width);
}

/* The backend holds the batch's statistics when it reports the first part of g. */
struct hand_on {
    struct cnn_net *net;
    const struct cnn_ready *ready;
};

static void hand_on(void *arg, uint64_t offset, uint64_t n)
{
    const struct hand_on *h = arg;
    h->net->has_gradient = true;
    h->ready->call(h->ready->arg, offset, n);
}

static int check_gradient(struct cnn_net *net, const struct cnn_batch *batch)
{
    if (batch->n != net->batch)
        return ps_fail(&net->error, -EINVAL, "%u images for a gradient; the net's batch is %u", batch->n,
                       net->batch);
    int rc = check_labels(net, batch->labels, net->batch);
    return rc == 0 ? check_cuts(net, batch) : rc;
}

static int check_none_begun(struct cnn_net *net)
{
    return net->n_begun == 0 ? 0
                             : ps_fail(&net->error, -EINVAL,
                                       "a gradient is begun; allowed before its end is the next begin");
}

int cnn_net_gradient_begin(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                           const struct cnn_ready *ready)
{
    struct hand_on h = {net, ready};
    const struct cnn_ready inner = {hand_on, &h};
    const struct cnn_gradient_call call = {&net->draw,          x, batch, g, ready != NULL ? &inner : NULL,
                                           net->label_smoothing};
    struct cnn_score *score = &net->scores[(net->first + net->n_begun) % CNN_MOST_BEGUN];

    if (net->n_begun == CNN_MOST_BEGUN)
        return ps_fail(&net->error, -EINVAL, "%d gradients are begun; one must end before the next begins",
                       CNN_MOST_BEGUN);
    int rc = check_gradient(net, batch);
    if (rc < 0)
        return rc;
    rc = net->backend->begin != NULL ? net->backend->begin(net->state, &call, &net->error)
                                     : net->backend->gradient(net->state, &call, score, &net->error);
    if (rc < 0) {
        net->n_begun = 0;
        return rc;
    }
    net->draw.step++;
    net->has_gradient = true;
    net->n_begun++;
    return 0;
}

int cnn_net_gradient_end(struct cnn_net *net, struct cnn_score *score)
{
    if (net->n_begun == 0)
        return ps_fail(&net->error, -EINVAL, "no gradient is begun that could end");
    int rc = 0;
    if (net->backend->end != NULL)
        rc = net->backend->end(net->state, score, &net->error);
    else
        *score = net->scores[net->first];
    net->first = (net->first + 1) % CNN_MOST_BEGUN;
    net->n_begun = rc == 0 ? net->n_begun - 1 : 0;
    return rc;
}

int cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                        const struct cnn_ready *ready, struct cnn_score *score)
{
    int rc = check_none_begun(net);
    if (rc == 0)
        rc = cnn_net_gradient_begin(net, x, batch, g, ready);
    return rc == 0 ? cnn_net_gradient_end(net, score) : rc;
}

int cnn_net_gradient(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                     float *g, struct cnn_score *score)
{
    const struct cnn_batch batch = {.images = images, .labels = labels, .n = net->batch};
    return cnn_net_gradient_of(net, x, &batch, g, NULL, score);
}

bool cnn_net_cuts(const struct cnn_net *net, uint32_t stored_height, uint32_t stored_width)
{
    return net->backend->cuts != NULL && net->backend->cuts(net->state, stored_height, stored_width);
}

void *cnn_net_stream(const struct cnn_net *net)
{
    return net->backend->stream != NULL ? net->backend->stream(net->state) : NULL;
}

void *cnn_net_alloc(struct cnn_net *net, size_t bytes)
{
    enum { LINE = 64 }; /* a cache line; data sets write images that begin there around the caches */
    return net->backend->alloc != NULL ? net->backend->alloc(bytes)
                                       : aligned_alloc(LINE, (bytes / LINE + 1) * LINE);
}

void cnn_net_free(struct cnn_net *net, void *p)
{
    if (net->backend->free != NULL)
        net->backend->free(p);
    else
        free(p);
}

int cnn_net_announce(struct cnn_net *net, const struct cnn_batch *batch)
{
    if (net->backend->announce == NULL)
        return 0;
    int rc = 0;
    if (batch != NULL && batch->n != net->batch)
        rc =
            ps_fail(&net->error, -EINVAL, "%u images announced; the net's batch is %u", batch->n, net->batch);
    if (rc == 0 && batch != NULL)
        rc = check_cuts(net, batch);
    return rc == 0 ? net->backend->announce(net->state, batch, &net->error) : rc;
}

void cnn_net_update_buffers(struct cnn_net *net, float *x)
{
    if (net->has_gradient)
        net->backend->update_buffers(net->state, x);
}

void cnn_net_seed(struct cnn_net *net, uint64_t seed, uint64_t step)
{
    net->draw.seed = seed;
    net->draw.step = step;
}

int cnn_net_predict(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                    const struct cnn_predictions *out, struct cnn_score *score)
{
    if (batch->n < 1 || batch->n > net->batch)
        return ps_fail(&net->error, -EINVAL, "%u images to score; allowed are 1 to the net's batch of %u",
                       batch->n, net->batch);
    int rc = check_none_begun(net);
    if (rc == 0)
        rc = check_labels(net, batch->labels, batch->n);
    if (rc == 0)
        rc = check_cuts(net, batch);
    return rc < 0 ? rc : net->backend->score(net->state, x, batch, out, score, &net->error);
}

int cnn_net_score_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                     struct cnn_score *score)
{
    return cnn_net_predict(net, x, batch, &(struct cnn_predictions){NULL, NULL}, score);
}

int cnn_net_score(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                  uint32_t n, struct cnn_score *score)
{
    const struct cnn_batch batch = {.images = images, .labels = labels, .n = n};
    return cnn_net_score_of(net, x, &batch, score);
}

uint32_t cnn_net_each_thread(struct cnn_net *net, void (*call)(void *arg, uint32_t index), void *arg)
{
    if (net->backend->each_thread != NULL)
        return net->backend->each_thread(net->state, call, arg);
    call(arg, 0);
    return 1;
}

double cnn_net_library_s(const struct cnn_net *net)
{
    return net->backend->library_s != NULL ? net->backend->library_s(net->state) : 0;
}

const char *cnn_net_backend(const struct cnn_net *net)
{
    return net->backend->name;
}

const char *cnn_net_error(const struct cnn_net *net)
{
    return net->error.text;
}
