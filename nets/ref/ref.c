/* ref.c: the backend that is meant to be read, and that the others are checked against. One thread. */
#include "nets/backend.h"
#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct cnn_ref_layer *const layers[] = {
    [CNN_CONV] = &cnn_ref_conv,
    [CNN_MAXPOOL] = &cnn_ref_maxpool,
    [CNN_RELU] = &cnn_ref_relu,
    [CNN_FC] = &cnn_ref_fc,
    [CNN_AVGPOOL] = &cnn_ref_avgpool,
    [CNN_GLOBAL_AVGPOOL] = &cnn_ref_avgpool,
    [CNN_DROPOUT] = &cnn_ref_dropout,
    [CNN_LRN] = &cnn_ref_lrn,
    [CNN_BATCHNORM] = &cnn_ref_batchnorm,
    [CNN_CONCAT] = &cnn_ref_concat,
    [CNN_ADD] = &cnn_ref_add,
};

struct ref {
    const struct cnn_plan *plan;
    uint32_t batch;
    double **act;  /* act[v]: value v, [batch][C][H][W]; as many values as layers, the loss having none */
    double **dact; /* its gradient; NULL: not wanted */
    double *part;  /* one reader's share of the gradient of a value that has several */
    double **stats, *g; /* g [n_floats] */
    uint8_t **keep;
};

static void destroy(void *state)
{
    struct ref *r = state;

    for (size_t i = 0; i < r->plan->n_layers; i++) {
        free(r->act != NULL ? r->act[i] : NULL);
        free(r->dact != NULL ? r->dact[i] : NULL);
        free(r->stats != NULL ? r->stats[i] : NULL);
        free(r->keep != NULL ? r->keep[i] : NULL);
    }
    free(r->act);
    free(r->dact);
    free(r->stats);
    free(r->keep);
    free(r->part);
    free(r->g);
    free(r);
}

static size_t value_floats(const struct ref *r, size_t v)
{
    const struct cnn_layer *all = r->plan->layers;
    return cnn_shape_count(v > 0 ? all[v - 1].out : all[0].in) * r->batch;
}

static bool create_buffers(struct ref *r)
{
    const struct cnn_plan *p = r->plan;
    size_t largest = 0, n = p->n_layers;

    r->act = calloc(n, sizeof *r->act);
    r->dact = calloc(n, sizeof *r->dact);
    r->stats = calloc(n, sizeof *r->stats);
    r->keep = calloc(n, sizeof *r->keep);
    r->g = calloc(p->n_floats, sizeof *r->g);
    if (r->act == NULL || r->dact == NULL || r->stats == NULL || r->keep == NULL || r->g == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct cnn_layer *l = &p->layers[i];
        size_t floats = value_floats(r, i);
        largest = floats > largest ? floats : largest;
        r->act[i] = calloc(floats, sizeof(double));
        r->dact[i] = calloc(floats, sizeof(double));
        r->stats[i] = calloc(2 * l->n_buffers + 1, sizeof(double));
        r->keep[i] = calloc(l->spec->kind == CNN_DROPOUT ? cnn_shape_count(l->in) * r->batch : 1, 1);
        if (r->act[i] == NULL || r->dact[i] == NULL || r->stats[i] == NULL || r->keep[i] == NULL)
            return false;
    }
    r->part = calloc(largest, sizeof *r->part);
    return r->part != NULL;
}

static int create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, void **state,
                  struct ps_error *err)
{
    struct ref *r = calloc(1, sizeof *r);

    (void)threads;
    if (r == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the ref backend");
    r->plan = plan;
    r->batch = batch;
    if (!create_buffers(r)) {
        destroy(r);
        return ps_fail(err, -ENOMEM, "no memory for a batch of %u in the ref backend", batch);
    }
    *state = r;
    return 0;
}

static struct cnn_ref_pass pass_of(struct ref *r, size_t i, uint32_t n, const struct cnn_draw *draw,
                                   const float *x)
{
    const struct cnn_layer *l = &r->plan->layers[i];
    struct cnn_ref_pass p = {.plan = l,
                             .n = n,
                             .is_training = draw != NULL,
                             .draw = draw,
                             .x = x,
                             .out = r->act[i + 1],
                             .stats = r->stats[i],
                             .keep = r->keep[i]};

    for (uint32_t k = 0; k < l->n_inputs; k++)
        p.in[k] = r->act[l->inputs[k].value];
    return p;
}

/* draw NULL: as when scoring. */
static void forward(struct ref *r, const struct cnn_draw *draw, const float *x, const float *images,
                    uint32_t n)
{
    const struct cnn_plan *p = r->plan;

    for (size_t i = 0; i < n * cnn_shape_count(p->layers[0].in); i++)
        r->act[0][i] = (double)images[i];
    for (size_t i = 0; i + 1 < p->n_layers; i++) {
        struct cnn_ref_pass pass = pass_of(r, i, n, draw, x);
        layers[p->layers[i].spec->kind]->forward(&pass);
    }
}

/* Leaves the gradient of the mean loss in that of the logits. */
static void loss(struct ref *r, const uint8_t *labels, uint32_t n, struct cnn_score *out)
{
    const struct cnn_plan *p = r->plan;
    uint32_t classes = p->model->classes;
    size_t logits = p->layers[p->n_layers - 1].inputs[0].value;
    const double *z = r->act[logits];
    double *dz = r->dact[logits], sum = 0;
    uint32_t n_correct = 0;
    bool is_correct;

    for (uint32_t i = 0; i < n; i++, z += classes, dz += classes) {
        sum += cnn_softmax_loss_row(classes, z, labels[i], dz, &is_correct);
        n_correct += is_correct;
        for (uint32_t k = 0; k < classes; k++)
            dz[k] /= n;
    }
    *out = (struct cnn_score){.loss = sum / n, .n_correct = n_correct};
}

static int score(void *state, const float *x, const float *images, const uint8_t *labels, uint32_t n,
                 struct cnn_score *out, struct ps_error *err)
{
    struct ref *r = state;

    (void)err;
    forward(r, NULL, x, images, n);
    loss(r, labels, n, out);
    return 0;
}

/* The gradient of a value is the sum of what its readers make of theirs, each added when its layer has gone
 * backward. */
static void backward_layer(struct ref *r, size_t i, const struct cnn_draw *draw, const float *x)
{
    const struct cnn_layer *l = &r->plan->layers[i];
    struct cnn_ref_pass pass = pass_of(r, i, r->batch, draw, x);
    const struct cnn_ref_layer *kind = layers[l->spec->kind];

    /* One input at a time where there are several: they may be the same value. */
    for (uint32_t k = 0; k < l->n_inputs; k++) {
        double *din[CNN_MAX_INPUTS] = {NULL};
        size_t v = l->inputs[k].value, n = value_floats(r, v);
        din[k] = l->inputs[k].wants_grad ? r->part : NULL;
        if (din[k] != NULL || k == 0)
            kind->backward(&pass, r->dact[i + 1], din, r->g);
        for (size_t at = 0; din[k] != NULL && at < n; at++)
            r->dact[v][at] += din[k][at];
    }
}

static int gradient(void *state, const struct cnn_draw *draw, const float *x, const float *images,
                    const uint8_t *labels, float *g, struct cnn_score *out, struct ps_error *err)
{
    struct ref *r = state;
    const struct cnn_plan *p = r->plan;

    (void)err;
    forward(r, draw, x, images, r->batch);
    for (size_t v = 0; v < p->n_layers; v++)
        memset(r->dact[v], 0, value_floats(r, v) * sizeof(double));
    loss(r, labels, r->batch, out);
    for (size_t i = p->n_layers - 1; i-- > 0;)
        backward_layer(r, i, draw, x);
    for (size_t i = 0; i < p->n_floats; i++)
        g[i] = (float)r->g[i];
    return 0;
}

static void update_buffers(void *state, float *x)
{
    const struct ref *r = state;

    for (size_t i = 0; i < r->plan->n_layers; i++) {
        const struct cnn_layer *l = &r->plan->layers[i];
        for (uint32_t c = 0; c < l->n_buffers; c++)
            cnn_batchnorm_move(l, c, r->stats[i][c], r->stats[i][l->in.c + c],
                               (size_t)r->batch * l->in.h * l->in.w, x);
    }
}

const struct cnn_backend cnn_backend_ref = {"ref", create, destroy, score, gradient, update_buffers};
