/* describe.c: the layers of a model, with their sizes and work. */
#include <errno.h>
#include <stdlib.h>

#include "nets/layers/layer.h"

static void fill_row(const struct cnn_plan *p, size_t i, struct cnn_layer_row *row)
{
    const struct cnn_layer *l = &p->layers[i];
    double multiply_adds = l->type->multiply_adds != NULL ? l->type->multiply_adds(l) : 0;
    row->name = l->spec->name;
    row->kind = l->type->kind;
    row->n_inputs = l->n_inputs;
    for (uint32_t k = 0; k < l->n_inputs; k++) {
        size_t value = l->inputs[k].value;
        row->inputs[k] = value > 0 ? p->layers[value - 1].spec->name : "images";
    }
    row->channels = l->out.c;
    row->height = l->out.h;
    row->width = l->out.w;
    row->n_params = l->n_weights + l->n_biases;
    row->n_buffers = 2 * l->n_buffers;
    row->forward_flops = 2 * multiply_adds;
    row->backward_flops = (l->wants_din + l->trains) * row->forward_flops;
}

int cnn_model_describe(const struct cnn_model *model, struct cnn_layer_row **out, size_t *n,
                       struct ps_error *err)
{
    struct cnn_plan *p;
    int rc = cnn_plan_create(model, &p, err);
    if (rc < 0)
        return rc;
    struct cnn_layer_row *rows = calloc(p->n_layers, sizeof *rows);
    if (rows == NULL) {
        rc = ps_fail(err, -ENOMEM, "no memory for the layers of model '%s'", model->name);
        goto destroy_plan;
    }
    for (size_t i = 0; i < p->n_layers; i++)
        fill_row(p, i, &rows[i]);
    *out = rows;
    *n = p->n_layers;
    rc = 0;

destroy_plan:
    cnn_plan_destroy(p);
    return rc;
}
