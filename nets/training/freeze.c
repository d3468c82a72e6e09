#include "nets/training/freeze.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/training/pattern.h"

static bool is_of_layer(const struct cnn_param *p, const char *layer)
{
    size_t len = strlen(layer);
    return strncmp(p->name, layer, len) == 0 && p->name[len] == '.' && strchr(p->name + len + 1, '.') == NULL;
}

/* Backends skip the gradient of frozen convolutions and fully connected layers. For other frozen layers it is
 * computed and ignored. */
static void freeze_layer(struct cnn_layer_spec *layer, const struct cnn_param *params, size_t n)
{
    size_t n_frozen = 0, n_all = 0;
    for (size_t i = 0; i < n; i++)
        if (is_of_layer(&params[i], layer->name)) {
            n_all++;
            n_frozen += params[i].role == CNN_FROZEN;
        }
    if ((layer->kind == CNN_CONV || layer->kind == CNN_FC) && n_all > 0)
        layer->is_frozen = n_frozen == n_all;
}

static int hold(struct cnn_freeze *f, const struct cnn_param *params, size_t n, const bool *meant)
{
    uint64_t n_floats = 0;
    f->held = calloc(n + 1, sizeof *f->held);
    for (size_t i = 0; f->held != NULL && i < n; i++)
        if (meant[i] && params[i].role == CNN_BUFFER) {
            f->held[f->n_held++] = (struct cnn_range){params[i].offset, cnn_param_count(&params[i])};
            n_floats += cnn_param_count(&params[i]);
        }
    f->room = malloc((n_floats + 1) * sizeof *f->room);
    return f->held != NULL && f->room != NULL ? 0 : -ENOMEM;
}

static int freeze(struct cnn_freeze *f, const bool *meant, struct cnn_model *model, struct cnn_param *params,
                  size_t n)
{
    int rc = hold(f, params, n, meant);
    f->layers = malloc(model->n_layers * sizeof *f->layers);
    if (rc < 0 || f->layers == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (meant[i]) {
            params[i].role = CNN_FROZEN;
            f->n_frozen++;
        }
    memcpy(f->layers, model->layers, model->n_layers * sizeof *f->layers);
    for (size_t i = 0; i < model->n_layers; i++)
        freeze_layer(&f->layers[i], params, n);
    model->layers = f->layers;
    return 0;
}

static bool any_is_left(const struct cnn_param *params, size_t n, const bool *meant)
{
    for (size_t i = 0; i < n; i++)
        if (params[i].role == CNN_PARAM && !meant[i])
            return true;
    return false;
}

int cnn_freeze_init(struct cnn_freeze *out, const char *patterns, struct cnn_model *model,
                    struct cnn_param *params, size_t n, struct ps_error *err)
{
    *out = (struct cnn_freeze){.layers = NULL};
    bool *meant = calloc(n + 1, sizeof *meant);
    int rc = meant != NULL ? cnn_pattern_mark(patterns, params, n, meant, err) : -ENOMEM;
    if (rc == 0 && !any_is_left(params, n, meant))
        rc = ps_fail(err, -EINVAL,
                     "\"%.100s\": nothing is left to train; a pattern such as !%.60s excludes a tensor",
                     patterns, params[n - 1].name);
    if (rc == 0)
        rc = freeze(out, meant, model, params, n);
    if (rc == -ENOMEM)
        ps_fail(err, rc, "no memory to freeze tensors");
    free(meant);
    return rc;
}

void cnn_freeze_finish(struct cnn_freeze *f)
{
    free(f->layers);
    free(f->held);
    free(f->room);
}

void cnn_freeze_update_buffers(const struct cnn_freeze *f, struct cnn_net *net, float *x)
{
    float *at = f->room;
    for (size_t i = 0; i < f->n_held; at += f->held[i].n, i++)
        memcpy(at, x + f->held[i].offset, f->held[i].n * sizeof *at);
    cnn_net_update_buffers(net, x);
    at = f->room;
    for (size_t i = 0; i < f->n_held; at += f->held[i].n, i++)
        memcpy(x + f->held[i].offset, at, f->held[i].n * sizeof *at);
}
