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
};

/* Layers before the loss. */
static size_t n_computed(const struct cnn_dnnl *d)
{
    return d->plan->n_layers - 1;
}

/* Zeroed, on a cache line, with one vector more for kernels that read past the end; NULL without memory. */
static void *buffer(size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, rounded);
    return p != NULL ? memset(p, 0, rounded) : NULL;
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
    for (size_t i = 0; d->act != NULL && i < n_computed(d); i++)
        if (d->plan->layers[i].spec->kind != CNN_RELU)
            free(d->act[i]);
    dnnl_primitive_attr_destroy(d->attr);
    dnnl_stream_destroy(d->stream);
    dnnl_engine_destroy(d->engine);
    free(d->primitives);
    free(d->descs);
    free(d->memories);
    free(d->scratch_memories);
    free(d->layers);
    free(d->act);
    free(d->dact[0]);
    free(d->dact[1]);
    free(d->input);
    free(d->scratch);
    free(d);
}

/* Whether what reads the activations from layer i on, ReLUs aside, wants them as [C*H*W]. */
static bool wants_flat(const struct cnn_plan *p, size_t i)
{
    while (p->layers[i].spec->kind == CNN_RELU)
        i++;
    return p->layers[i].spec->kind == CNN_FC || p->layers[i].spec->kind == CNN_SOFTMAX_LOSS;
}

static bool is_same_either_way(struct cnn_shape s)
{
    return s.c == 1 || (s.h == 1 && s.w == 1);
}

/* A convolution writes [H][W][C]; a max-pool, our own code, writes what its reader wants. */
static void lay_out(struct cnn_dnnl *d)
{
    const struct cnn_plan *p = d->plan;
    bool flat = is_same_either_way(p->layers[0].in) || wants_flat(p, 0);

    for (size_t i = 0; i < n_computed(d); i++) {
        enum cnn_layer_kind kind = p->layers[i].spec->kind;
        d->layers[i].in_is_flat = flat;
        flat = is_same_either_way(p->layers[i].out) || kind == CNN_FC || (kind == CNN_RELU && flat) ||
               (kind == CNN_MAXPOOL && wants_flat(p, i + 1));
        d->layers[i].out_is_flat = flat;
    }
}

static void pair_with_pools(struct cnn_dnnl *d)
{
    for (size_t i = 0; i + 1 < n_computed(d); i++)
        if (cnn_dnnl_can_pool(d, &d->plan->layers[i], &d->plan->layers[i + 1])) {
            d->layers[i].pool = &d->layers[i + 1];
            d->layers[i + 1].is_pooled = true;
        }
}

static int create_activations(struct cnn_dnnl *d)
{
    size_t largest = 0;

    for (size_t i = 0; i < n_computed(d); i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        size_t bytes = cnn_shape_count(l->out) * d->batch * sizeof(float);
        bool in_place = l->spec->kind == CNN_RELU;
        largest = bytes > largest ? bytes : largest;
        d->layers[i].in = i > 0 ? d->act[i - 1] : d->input;
        d->act[i] = !in_place ? buffer(bytes) : i > 0 ? d->act[i - 1] : d->input;
        d->layers[i].out = d->act[i];
        if (d->act[i] == NULL)
            return -ENOMEM;
    }
    d->dact[0] = buffer(largest);
    d->dact[1] = buffer(largest);
    return d->dact[0] != NULL && d->dact[1] != NULL ? 0 : -ENOMEM;
}

/* Backward, each layer reads one of the two gradient buffers and writes the other; ReLU works in place, and a
 * pooled max-pool leaves what it gets to its convolution. */
static void assign_gradients(struct cnn_dnnl *d)
{
    float *from = d->dact[0], *to = d->dact[1];

    for (size_t i = n_computed(d); i-- > 0;) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        bool in_place = l->plan->spec->kind == CNN_RELU || l->is_pooled;
        l->dout = from;
        l->din = !l->plan->wants_din ? NULL : in_place ? from : to;
        if (!in_place) {
            float *next = to;
            to = from;
            from = next;
        }
    }
}

static int create_library_parts(struct cnn_dnnl *d, struct cnn_error *err)
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

static int create_layers(struct cnn_dnnl *d, struct cnn_error *err)
{
    for (size_t i = 0; i < n_computed(d); i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (l->kind->state_bytes > 0 && (l->state = calloc(1, l->kind->state_bytes)) == NULL)
            return cnn_fail(err, -ENOMEM, "no memory for layer '%s'", l->plan->spec->name);
        int rc = l->kind->create != NULL ? l->kind->create(d, l, err) : 0;
        if (rc < 0)
            return rc;
    }
    if (d->scratch_bytes > 0 && (d->scratch = buffer(d->scratch_bytes)) == NULL)
        return cnn_fail(err, -ENOMEM, "no memory for %zu bytes of oneDNN scratch", d->scratch_bytes);
    for (size_t i = 0; i < d->n_scratch_memories; i++)
        cnn_dnnl_bind(d->scratch_memories[i], d->scratch);
    return 0;
}

static int create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, void **state,
                  struct cnn_error *err)
{
    struct cnn_dnnl *d = calloc(1, sizeof *d);
    int team = omp_get_max_threads(), rc;

    if (d == NULL)
        return cnn_fail(err, -ENOMEM, "no memory for the onednn backend");
    d->plan = plan;
    d->kernels = cnn_kernels_pick();
    d->batch = batch;
    d->threads = threads;
    d->act = calloc(n_computed(d), sizeof *d->act);
    d->input = buffer(cnn_shape_count(plan->layers[0].in) * batch * sizeof(float));
    d->layers = calloc(n_computed(d), sizeof *d->layers);
    omp_set_num_threads((int)threads); /* a primitive keeps the count it is created under */
    if (d->layers == NULL || d->act == NULL || d->input == NULL) {
        rc = cnn_fail(err, -ENOMEM, "no memory for a batch of %u", batch);
        goto failed;
    }
    for (size_t i = 0; i < n_computed(d); i++) {
        d->layers[i].plan = &plan->layers[i];
        d->layers[i].kind = kinds[plan->layers[i].spec->kind];
    }
    lay_out(d);
    pair_with_pools(d);
    if (create_activations(d) < 0) {
        rc = cnn_fail(err, -ENOMEM, "no memory for the activations of a batch of %u", batch);
        goto failed;
    }
    assign_gradients(d);
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

/* The caller's images where they are, if the first layer can read them there: it does not write them, nor
 * read past their end. */
static const float *place_input(struct cnn_dnnl *d, const float *images, uint32_t n)
{
    struct cnn_shape s = d->plan->layers[0].in;
    size_t n_in = cnn_shape_count(s), places = (size_t)s.h * s.w;

    if (!d->layers[0].in_is_flat)
        for (uint32_t i = 0; i < n; i++)
            d->kernels->transpose(images + i * n_in, d->input + i * n_in, s.c, places);
    else if (n < d->batch || d->layers[0].pool != NULL || d->plan->layers[0].spec->kind == CNN_RELU)
        memcpy(d->input, images, n * n_in * sizeof *images);
    else
        return images;
    return d->input;
}

static int forward(struct cnn_dnnl *d, const float *x, const float *images, uint32_t n, struct cnn_error *err)
{
    d->layers[0].in = place_input(d, images, n);
    for (size_t i = 0; i < n_computed(d); i++)
        if (d->layers[i].kind->forward(d, &d->layers[i], x) < 0)
            return cnn_fail(err, -EIO, "layer '%s': oneDNN failed forward", d->plan->layers[i].spec->name);
    return 0;
}

static int backward(struct cnn_dnnl *d, const float *x, float *g, struct cnn_error *err)
{
    for (size_t i = n_computed(d); i-- > 0;) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (l->din == NULL && l->plan->weight_dims == 0)
            continue;
        if (l->kind->backward(d, l, x, g) < 0)
            return cnn_fail(err, -EIO, "layer '%s': oneDNN failed backward", l->plan->spec->name);
    }
    return 0;
}

/* Leaves the gradient of the mean loss in the first gradient buffer. */
static void loss(struct cnn_dnnl *d, const uint8_t *labels, uint32_t n, struct cnn_score *score)
{
    uint32_t classes = d->plan->model->classes, n_correct = 0;
    const float *logits = d->act[n_computed(d) - 1];
    double z[CNN_MAX_CLASSES], dz[CNN_MAX_CLASSES], sum = 0;
    float *dlogits = d->dact[0];
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
                 struct cnn_score *out, struct cnn_error *err)
{
    struct cnn_dnnl *d = state;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)d->threads);
    int rc = forward(d, x, images, n, err);
    if (rc == 0)
        loss(d, labels, n, out);
    omp_set_num_threads(team);
    return rc;
}

static int gradient(void *state, const float *x, const float *images, const uint8_t *labels, float *g,
                    struct cnn_score *out, struct cnn_error *err)
{
    struct cnn_dnnl *d = state;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)d->threads);
    int rc = forward(d, x, images, d->batch, err);
    if (rc == 0) {
        loss(d, labels, d->batch, out);
        rc = backward(d, x, g, err);
    }
    omp_set_num_threads(team);
    return rc;
}

const struct cnn_backend cnn_backend_onednn = {"onednn", create, destroy, score, gradient};
