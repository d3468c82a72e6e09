/* onednn.c: the backend for CPUs. create lays out all buffers and makes all primitives; a step only runs
 * them.
 *
 * Threads: an OpenMP team per net, of the size it was created with. OpenMP keeps the size per calling thread,
 * so it is set on entry and put back on leaving; nobody is bound to a core, since several processes of one
 * thread may share the machine. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "nets/backend.h"
#include "nets/layers/layer.h"

/* What one layer makes at most: a convolution has 6 primitives with a scratchpad each and 11 tensors. */
#define MAX_PRIMITIVES 8
#define MAX_MEMORIES   24

static const struct cnn_dnnl_kind *const kinds[] = {
    [CNN_CONV] = &cnn_dnnl_conv,
    [CNN_MAXPOOL] = &cnn_dnnl_maxpool,
    [CNN_RELU] = &cnn_dnnl_relu,
    [CNN_FC] = &cnn_dnnl_fc,
    [CNN_AVGPOOL] = &cnn_dnnl_avgpool,
    [CNN_GLOBAL_AVGPOOL] = &cnn_dnnl_avgpool,
    [CNN_DROPOUT] = &cnn_dnnl_dropout,
    [CNN_LRN] = &cnn_dnnl_lrn,
    [CNN_BATCHNORM] = &cnn_dnnl_batchnorm,
    [CNN_CONCAT] = &cnn_dnnl_concat,
    [CNN_ADD] = &cnn_dnnl_add,
};

/* Layers before the loss. */
static size_t n_computed(const struct cnn_dnnl *d)
{
    return d->plan->n_layers - 1;
}

static void destroy(void *state)
{
    struct cnn_dnnl *d = state;

    for (size_t i = 0; i < d->n_primitives; i++)
        dnnl_primitive_destroy(d->primitives[i]);
    for (size_t i = 0; i < d->n_descs; i++)
        dnnl_primitive_desc_destroy(d->descs[i]);
    for (size_t i = 0; i < d->n_memories; i++)
        dnnl_memory_destroy(d->memories[i]);
    for (size_t i = 0; d->layers != NULL && i < n_computed(d); i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (l->state != NULL && l->kind->destroy != NULL)
            l->kind->destroy(l);
        free(l->state);
    }
    cnn_dnnl_destroy_buffers(d);
    dnnl_primitive_attr_destroy(d->attr);
    dnnl_stream_destroy(d->stream);
    dnnl_engine_destroy(d->engine);
    free(d->primitives);
    free(d->descs);
    free(d->memories);
    free(d->scratch_memories);
    free(d->layers);
    free(d->scratch);
    free(d);
}

static int create_library_parts(struct cnn_dnnl *d, struct ps_error *err)
{
    size_t n = n_computed(d);
    dnnl_status_t st = dnnl_engine_create(&d->engine, dnnl_cpu, 0);

    if (st == dnnl_success)
        st = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_create(&d->attr);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(d->attr, dnnl_scratchpad_mode_user);
    d->primitives = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_primitive_t));
    d->descs = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_primitive_desc_t));
    d->memories = calloc(n * MAX_MEMORIES, sizeof(dnnl_memory_t));
    d->scratch_memories = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_memory_t));
    if (d->primitives == NULL || d->descs == NULL || d->memories == NULL || d->scratch_memories == NULL)
        st = dnnl_out_of_memory;
    return cnn_dnnl_check(st, "start", NULL, err);
}

static int create_layers(struct cnn_dnnl *d, struct ps_error *err)
{
    for (size_t i = 0; i < n_computed(d); i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (l->kind->state_bytes > 0 && (l->state = calloc(1, l->kind->state_bytes)) == NULL)
            return ps_fail(err, -ENOMEM, "no memory for layer '%s'", l->plan->spec->name);
        int rc = l->kind->create != NULL ? l->kind->create(d, l, err) : 0;
        if (rc < 0)
            return rc;
    }
    if (d->scratch_bytes > 0 && (d->scratch = cnn_dnnl_buffer(d->scratch_bytes)) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu bytes of oneDNN scratch", d->scratch_bytes);
    for (size_t i = 0; i < d->n_scratch_memories; i++)
        cnn_dnnl_bind(d->scratch_memories[i], d->scratch);
    return 0;
}

static int create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, void **state,
                  struct ps_error *err)
{
    struct cnn_dnnl *d = calloc(1, sizeof *d);
    int team = omp_get_max_threads(), rc;

    if (d == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the onednn backend");
    d->plan = plan;
    d->kernels = cnn_kernels_pick();
    d->batch = batch;
    d->threads = threads;
    d->layers = calloc(n_computed(d), sizeof *d->layers);
    omp_set_num_threads((int)threads); /* a primitive keeps the count it is created under */
    for (size_t i = 0; d->layers != NULL && i < n_computed(d); i++) {
        d->layers[i].plan = &plan->layers[i];
        d->layers[i].kind = kinds[plan->layers[i].spec->kind];
    }
    if (d->layers == NULL || !cnn_dnnl_create_buffers(d)) {
        rc = ps_fail(err, -ENOMEM, "no memory for the activations of a batch of %u", batch);
        goto failed;
    }
    if ((rc = create_library_parts(d, err)) < 0 || (rc = create_layers(d, err)) < 0)
        goto failed;
    omp_set_num_threads(team);
    *state = d;
    return 0;

failed:
    omp_set_num_threads(team);
    destroy(d);
    return rc;
}

/* draw NULL: as when scoring. */
static int forward(struct cnn_dnnl *d, const struct cnn_draw *draw, const float *x, const float *images,
                   uint32_t n, struct ps_error *err)
{
    d->is_training = draw != NULL;
    d->draw = draw;
    cnn_dnnl_place_images(d, images, n);
    for (size_t i = 0; i < n_computed(d); i++)
        if (d->layers[i].kind->forward(d, &d->layers[i], x) < 0)
            return ps_fail(err, -EIO, "layer '%s': oneDNN failed forward", d->plan->layers[i].spec->name);
    return 0;
}

static void add_parts(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    for (uint32_t k = 0; k < l->plan->n_inputs; k++) {
        size_t n = cnn_shape_count(l->plan->inputs[k].shape);
        if (l->sum[k] == NULL)
            continue;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
        for (uint32_t i = 0; i < d->batch; i++)
            d->kernels->add_scaled(l->sum[k] + i * n, l->din[k] + i * n, 1, n);
    }
}

static int backward(struct cnn_dnnl *d, const float *x, float *g, struct ps_error *err)
{
    for (size_t i = n_computed(d); i-- > 0;) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (!l->plan->wants_din && l->plan->weight_dims == 0)
            continue;
        if (l->kind->backward(d, l, x, g) < 0)
            return ps_fail(err, -EIO, "layer '%s': oneDNN failed backward", l->plan->spec->name);
        add_parts(d, l);
    }
    return 0;
}

/* Leaves the gradient of the mean loss in d->dlogits. */
static void loss(struct cnn_dnnl *d, const uint8_t *labels, uint32_t n, struct cnn_score *score)
{
    uint32_t classes = d->plan->model->classes, n_correct = 0;
    const float *logits = d->act[d->plan->layers[n_computed(d)].inputs[0].value];
    double z[CNN_MAX_CLASSES], dz[CNN_MAX_CLASSES], sum = 0;
    float *dlogits = d->dlogits;
    bool is_correct;

    for (uint32_t i = 0; i < n; i++, logits += classes, dlogits += classes) {
        for (uint32_t k = 0; k < classes; k++)
            z[k] = (double)logits[k];
        sum += cnn_softmax_loss_row(classes, z, labels[i], dz, &is_correct);
        n_correct += is_correct;
        for (uint32_t k = 0; k < classes; k++)
            dlogits[k] = (float)(dz[k] / n);
    }
    *score = (struct cnn_score){.loss = sum / n, .n_correct = n_correct};
}

static int score(void *state, const float *x, const float *images, const uint8_t *labels, uint32_t n,
                 struct cnn_score *out, struct ps_error *err)
{
    struct cnn_dnnl *d = state;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)d->threads);
    int rc = forward(d, NULL, x, images, n, err);
    if (rc == 0)
        loss(d, labels, n, out);
    omp_set_num_threads(team);
    return rc;
}

static int gradient(void *state, const struct cnn_draw *draw, const float *x, const float *images,
                    const uint8_t *labels, float *g, struct cnn_score *out, struct ps_error *err)
{
    struct cnn_dnnl *d = state;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)d->threads);
    int rc = forward(d, draw, x, images, d->batch, err);
    if (rc == 0) {
        loss(d, labels, d->batch, out);
        rc = backward(d, x, g, err);
    }
    omp_set_num_threads(team);
    return rc;
}

static void update_buffers(void *state, float *x)
{
    const struct cnn_dnnl *d = state;

    for (size_t i = 0; i < n_computed(d); i++)
        if (d->layers[i].kind->update_buffers != NULL)
            d->layers[i].kind->update_buffers(d, &d->layers[i], x);
}

const struct cnn_backend cnn_backend_onednn = {"onednn", create, destroy, score, gradient, update_buffers};
