/* ref.c: the backend that is meant to be read, and that the others are checked against. One thread. */
#include "nets/backend.h"
#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <errno.h>
#include <stdlib.h>

static const struct cnn_ref_layer *const layers[] = {
    [CNN_CONV] = &cnn_ref_conv,
    [CNN_MAXPOOL] = &cnn_ref_maxpool,
    [CNN_RELU] = &cnn_ref_relu,
    [CNN_FC] = &cnn_ref_fc,
};

struct ref {
    const struct cnn_plan *plan;
    uint32_t batch;
    double **act;  /* act[i]: input of layer i, [batch][C][H][W]; the last are the logits */
    double **dact; /* its gradient */
    double *g;     /* [n_floats] */
};

static void destroy(void *state)
{
    struct ref *r = state;

    for (size_t i = 0; i < r->plan->n_layers; i++) {
        free(r->act != NULL ? r->act[i] : NULL);
        free(r->dact != NULL ? r->dact[i] : NULL);
    }
    free(r->act);
    free(r->dact);
    free(r->g);
    free(r);
}

static int create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, void **state,
                  struct cnn_error *err)
{
    struct ref *r = calloc(1, sizeof *r);

    (void)threads;
    if (r == NULL)
        return cnn_fail(err, -ENOMEM, "no memory for the ref backend");
    r->plan = plan;
    r->batch = batch;
    r->act = calloc(plan->n_layers, sizeof *r->act);
    r->dact = calloc(plan->n_layers, sizeof *r->dact);
    r->g = calloc(plan->n_floats, sizeof *r->g);
    int complete = r->act != NULL && r->dact != NULL && r->g != NULL;
    for (size_t i = 0; i < plan->n_layers && complete; i++) {
        size_t n = cnn_shape_count(plan->layers[i].in) * batch;
        complete = (r->act[i] = calloc(n, sizeof(double))) != NULL &&
                   (r->dact[i] = calloc(n, sizeof(double))) != NULL;
    }
    if (!complete) {
        destroy(r);
        return cnn_fail(err, -ENOMEM, "no memory for a batch of %u in the ref backend", batch);
    }
    *state = r;
    return 0;
}

static void forward(struct ref *r, const float *x, const float *images, uint32_t n)
{
    const struct cnn_plan *p = r->plan;

    for (size_t i = 0; i < n * cnn_shape_count(p->layers[0].in); i++)
        r->act[0][i] = (double)images[i];
    for (size_t i = 0; i + 1 < p->n_layers; i++)
        layers[p->layers[i].spec->kind]->forward(&p->layers[i], n, x, r->act[i], r->act[i + 1]);
}

/* Leaves the gradient of the mean loss in the last dact. */
static void loss(struct ref *r, const uint8_t *labels, uint32_t n, struct cnn_score *out)
{
    uint32_t classes = r->plan->model->classes;
    const double *z = r->act[r->plan->n_layers - 1];
    double *dz = r->dact[r->plan->n_layers - 1], sum = 0;
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
                 struct cnn_score *out, struct cnn_error *err)
{
    struct ref *r = state;

    (void)err;
    forward(r, x, images, n);
    loss(r, labels, n, out);
    return 0;
}

static int gradient(void *state, const float *x, const float *images, const uint8_t *labels, float *g,
                    struct cnn_score *out, struct cnn_error *err)
{
    struct ref *r = state;
    const struct cnn_plan *p = r->plan;
    size_t last = p->n_layers - 1;

    (void)err;
    forward(r, x, images, r->batch);
    loss(r, labels, r->batch, out);
    for (size_t i = last; i-- > 0;) {
        const struct cnn_layer *l = &p->layers[i];
        layers[l->spec->kind]->backward(l, r->batch, x, r->act[i], r->dact[i + 1],
                                        l->wants_din ? r->dact[i] : NULL, r->g);
    }
    for (size_t i = 0; i < p->n_floats; i++)
        g[i] = (float)r->g[i];
    return 0;
}

const struct cnn_backend cnn_backend_ref = {"ref", create, destroy, score, gradient};
