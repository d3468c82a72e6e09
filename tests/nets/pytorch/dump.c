/* dump.c: what a net computes, for compare.py to hold against PyTorch.
 *
 *     net-dump NET BACKEND BATCH PREFIX
 *
 * writes PREFIX.json, the layers as they are planned, and PREFIX.safetensors: parameters, images, labels, the
 * masks of dropout, and what came out of one gradient (loss, g) and of scoring (log-probabilities of every
 * class, by the running statistics). A BACKEND of "none" writes the first file alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/layers/layer.h"
#include "nets/net.h"

enum { MAX_TENSORS = 4096, SEED = 9, STEP_NUMBER = 5 };

struct tensor {
    char name[160];
    size_t shape[4], n_dims;
    const float *data;
};

struct dump {
    struct cnn_model model;
    struct cnn_plan *plan;
    struct cnn_net *net;
    uint32_t batch;
    size_t n_floats, n_pixels;
    float *x, *g, *images, *labels, *outputs, loss;
    uint16_t *label_ids;
    struct tensor tensors[MAX_TENSORS];
    size_t n_tensors;
};

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p == NULL)
        exit(1);
    return p;
}

static struct tensor *add(struct dump *d, const char *prefix, const char *name, const float *data,
                          size_t n_dims)
{
    if (d->n_tensors == MAX_TENSORS)
        exit(1);
    struct tensor *t = &d->tensors[d->n_tensors++];
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
    t->data = data;
    t->n_dims = n_dims;
    return t;
}

static size_t count(const struct tensor *t)
{
    size_t n = 1;
    for (size_t d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

static bool write_tensors(const struct dump *d, const char *path)
{
    FILE *f = fopen(path, "wb");
    char *header = NULL;
    size_t length = 0, at = 0;
    FILE *text = open_memstream(&header, &length);

    if (f == NULL || text == NULL)
        return false;
    for (size_t i = 0; i < d->n_tensors; i++) {
        const struct tensor *t = &d->tensors[i];
        fprintf(text, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i > 0 ? "," : "{", t->name);
        for (size_t k = 0; k < t->n_dims; k++)
            fprintf(text, "%s%zu", k > 0 ? "," : "", t->shape[k]);
        fprintf(text, "],\"data_offsets\":[%zu,%zu]}", at, at + 4 * count(t));
        at += 4 * count(t);
    }
    fputc('}', text);
    fclose(text);
    const unsigned long long n = length;
    fwrite(&n, sizeof n, 1, f);
    fwrite(header, 1, length, f);
    for (size_t i = 0; i < d->n_tensors; i++)
        fwrite(d->tensors[i].data, sizeof(float), count(&d->tensors[i]), f);
    free(header);
    return fclose(f) == 0;
}

static void write_layer(FILE *f, const struct cnn_plan *p, size_t i)
{
    const struct cnn_layer *l = &p->layers[i];
    const struct cnn_layer_spec *s = l->spec;
    const struct cnn_window *w = &l->window;

    fprintf(f, "%s\n{\"name\":\"%s\",\"kind\":\"%s\",\"inputs\":[", i > 0 ? "," : "", s->name, l->type->kind);
    for (uint32_t k = 0; k < l->n_inputs; k++)
        fprintf(f, "%s\"%s\"", k > 0 ? "," : "",
                l->inputs[k].value > 0 ? p->layers[l->inputs[k].value - 1].spec->name : "images");
    fprintf(
        f,
        "],\"out\":[%u,%u,%u],\"in\":[%u,%u,%u],\"kernel\":[%u,%u],\"stride\":[%u,%u],\"dilation\":[%u,%u],"
        "\"pads\":[%u,%u,%u,%u],\"groups\":%u,\"bias\":%s,\"frozen\":%s,\"skips_padding\":%s,",
        l->out.c, l->out.h, l->out.w, l->in.c, l->in.h, l->in.w, w->kernel[0], w->kernel[1], w->stride[0],
        w->stride[1], w->dilation[0], w->dilation[1], w->pad[0], w->pad[1], w->pad_end[0], w->pad_end[1],
        l->groups, l->n_biases > 0 ? "true" : "false", s->is_frozen ? "true" : "false",
        s->skips_padding ? "true" : "false");
    fprintf(f, "\"slope\":%.9g,\"rate\":%.9g,\"size\":%u,\"alpha\":%.9g,\"beta\":%.9g,\"k\":%.9g,",
            (double)s->slope, (double)s->rate, s->size, (double)s->alpha, (double)s->beta, (double)s->k);
    fprintf(f, "\"epsilon\":%.9g,\"momentum\":%.9g,\"weight\":%.9g,\"main\":%s}",
            l->n_buffers > 0 ? (double)cnn_batchnorm_epsilon(l) : 0, (double)s->momentum,
            cnn_is_loss(l) ? cnn_loss_weight(l) : 0, i == p->main_loss ? "true" : "false");
}

static bool write_layers(const struct dump *d, const char *path)
{
    FILE *f = fopen(path, "w");

    if (f == NULL)
        return false;
    fprintf(f, "{\"name\":\"%s\",\"images\":[%u,%u,%u],\"classes\":%u,\"layers\":[", d->model.name,
            d->model.channels, d->model.height, d->model.width, d->model.classes);
    for (size_t i = 0; i < d->plan->n_layers; i++)
        write_layer(f, d->plan, i);
    fprintf(f, "\n]}\n");
    return fclose(f) == 0;
}

static void add_params(struct dump *d, const char *prefix, const float *data)
{
    struct cnn_param *rows;
    size_t n;

    if (cnn_model_params(&d->model, &rows, &n, NULL) < 0)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        struct tensor *t = add(d, prefix, rows[i].name, data + rows[i].offset, rows[i].n_dims);
        for (uint32_t k = 0; k < rows[i].n_dims; k++)
            t->shape[k] = rows[i].shape[k];
    }
    free(rows);
}

static void add_masks(struct dump *d)
{
    const struct cnn_draw draw = {SEED, STEP_NUMBER};

    for (size_t i = 0; i < d->plan->n_layers; i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        size_t n = cnn_shape_count(l->in) * d->batch;
        if (l->spec->kind != CNN_DROPOUT)
            continue;
        uint8_t *keep = zeroed(n, 1);
        float *mask = zeroed(n, sizeof *mask);
        cnn_dropout_mask(l, &draw, 0, n, keep);
        for (size_t k = 0; k < n; k++)
            mask[k] = keep[k];
        free(keep);
        struct tensor *t = add(d, "mask.", l->spec->name, mask, 4);
        t->shape[0] = d->batch, t->shape[1] = l->in.c, t->shape[2] = l->in.h, t->shape[3] = l->in.w;
    }
}

/* What is 0 or 1 at the start would hide an error in its use. */
static void fill(struct dump *d)
{
    struct cnn_param *rows;
    size_t n;
    uint32_t state = 1;

    cnn_model_fill(&d->model, 7, d->x);
    if (cnn_model_params(&d->model, &rows, &n, NULL) < 0)
        exit(1);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; rows[i].n_dims == 1 && k < rows[i].shape[0]; k++)
            d->x[rows[i].offset + k] +=
                0.1f * (float)((state = state * 1664525 + 1013904223) >> 16) * 0x1p-16f;
    free(rows);
    for (size_t i = 0; i < d->batch * d->n_pixels; i++)
        d->images[i] = (float)((state = state * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1.0f;
    for (uint32_t i = 0; i < d->batch; i++) {
        d->label_ids[i] = (uint16_t)((i * 7 + 3) % d->model.classes);
        d->labels[i] = d->label_ids[i];
    }
}

/* Log-probabilities: the loss of each image for each label it might have. */
static int score(struct dump *d)
{
    for (uint32_t i = 0; i < d->batch; i++)
        for (uint32_t k = 0; k < d->model.classes; k++) {
            const uint16_t label = (uint16_t)k;
            struct cnn_score s;
            int rc = cnn_net_score(d->net, d->x, d->images + i * d->n_pixels, &label, 1, &s);
            if (rc < 0)
                return rc;
            d->outputs[i * d->model.classes + k] = (float)-s.loss;
        }
    return 0;
}

static int compute(struct dump *d)
{
    struct cnn_score s;
    int rc;

    cnn_net_seed(d->net, SEED, STEP_NUMBER);
    if ((rc = cnn_net_gradient(d->net, d->x, d->images, d->label_ids, d->g, &s)) < 0)
        return rc;
    d->loss = (float)s.loss;
    return score(d);
}

static void add_all(struct dump *d)
{
    struct tensor *t = add(d, "", "images", d->images, 4);

    t->shape[0] = d->batch, t->shape[1] = d->model.channels;
    t->shape[2] = d->model.height, t->shape[3] = d->model.width;
    add(d, "", "labels", d->labels, 1)->shape[0] = d->batch;
    add(d, "", "loss", &d->loss, 1)->shape[0] = 1;
    t = add(d, "", "outputs", d->outputs, 2);
    t->shape[0] = d->batch, t->shape[1] = d->model.classes;
    add_params(d, "x.", d->x);
    add_params(d, "g.", d->g);
    add_masks(d);
}

int main(int argc, char **argv)
{
    static struct dump d;
    struct ps_error err = {""};
    char path[4096];

    if (argc != 5 || (d.batch = (uint32_t)atoi(argv[3])) < 1) {
        fprintf(stderr, "usage: net-dump NET BACKEND BATCH PREFIX\n");
        return 2;
    }
    if (cnn_model_read(argv[1], &d.model, &err) < 0 || cnn_plan_create(&d.model, &d.plan, &err) < 0) {
        fprintf(stderr, "net-dump: %s\n", err.text);
        return 2;
    }
    snprintf(path, sizeof path, "%s.json", argv[4]);
    if (!write_layers(&d, path))
        return 1;
    if (strcmp(argv[2], "none") == 0)
        return 0;
    struct cnn_net_options opt = {.model = &d.model, .backend = argv[2], .batch = d.batch, .threads = 2};
    if (cnn_net_create(&opt, &d.net, &err) < 0) {
        fprintf(stderr, "net-dump: %s\n", err.text);
        return 1;
    }
    d.n_floats = cnn_model_n_floats(&d.model);
    d.n_pixels = (size_t)d.model.channels * d.model.height * d.model.width;
    d.x = zeroed(d.n_floats, sizeof *d.x);
    d.g = zeroed(d.n_floats, sizeof *d.g);
    d.images = zeroed(d.batch * d.n_pixels, sizeof *d.images);
    d.labels = zeroed(d.batch, sizeof *d.labels);
    d.label_ids = zeroed(d.batch, sizeof *d.label_ids);
    d.outputs = zeroed((size_t)d.batch * d.model.classes, sizeof *d.outputs);
    fill(&d);
    if (compute(&d) < 0) {
        fprintf(stderr, "net-dump: %s\n", cnn_net_error(d.net));
        return 1;
    }
    add_all(&d);
    snprintf(path, sizeof path, "%s.safetensors", argv[4]);
    return write_tensors(&d, path) ? 0 : 1;
}
