/* precision.c: the names of precisions, and which of them is faster. */
#include "nets/net.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/clock.h"

/* Of each precision. The fastest gradient counts: others on the machine only make one slower. */
enum { WARM_GRADIENTS = 2, LEAST_GRADIENTS = 3 };
#define MEASURE_S 0.3

static const char *const names[CNN_N_PRECISIONS] = {"float32", "tf32", "bf16"};

const char *cnn_precision_name(enum cnn_precision precision)
{
    return names[precision];
}

/* Seconds of the fastest gradient. */
static int time_gradients(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                          float *g, double *out)
{
    struct cnn_score score;
    double fastest = INFINITY, end = INFINITY;

    for (int i = 0; i < WARM_GRADIENTS + LEAST_GRADIENTS || ps_now_s() < end; i++) {
        double begin = ps_now_s();
        int rc = cnn_net_gradient(net, x, images, labels, g, &score);
        if (rc < 0)
            return rc;
        if (i == WARM_GRADIENTS)
            end = begin + MEASURE_S;
        if (i >= WARM_GRADIENTS)
            fastest = fmin(fastest, ps_now_s() - begin);
    }
    *out = fastest;
    return 0;
}

static int measure(const struct cnn_net_options *opt, double *out, struct ps_error *err)
{
    const struct cnn_model *m = opt->model;
    size_t n_floats = cnn_model_n_floats(m);
    size_t n_pixels = (size_t)m->channels * m->height * m->width * opt->batch;
    struct cnn_net *net;
    int rc = cnn_net_create(opt, &net, err);

    if (rc < 0)
        return rc;
    float *x = malloc(n_floats * sizeof *x), *g = malloc(n_floats * sizeof *g);
    float *images = malloc(n_pixels * sizeof *images);
    uint16_t *labels = calloc(opt->batch, sizeof *labels);
    if (x == NULL || g == NULL || images == NULL || labels == NULL) {
        rc = ps_fail(err, -ENOMEM, "no memory to measure model '%s'", m->name);
    } else {
        for (size_t i = 0; i < n_pixels; i++)
            images[i] = (float)(i * 2654435761u % 1000) * 0.002f - 1.0f;
        cnn_model_fill(m, 1, x);
        rc = time_gradients(net, x, images, labels, g, out);
        if (rc < 0)
            ps_fail(err, rc, "%s", cnn_net_error(net));
    }
    free(labels);
    free(images);
    free(g);
    free(x);
    cnn_net_destroy(net);
    return rc;
}

/* A gradient of a net that does not fit into memory takes forever; `why` says what it takes. */
static int measure_what_fits(struct cnn_net_options opt, enum cnn_precision precision, double *out,
                             struct ps_error *why)
{
    opt.precision = precision;
    int rc = measure(&opt, out, why);
    if (rc != -ENOMEM)
        return rc;
    *out = INFINITY;
    return 0;
}

int cnn_precision_choose(const struct cnn_net_options *opt, struct cnn_precision_choice *out,
                         struct ps_error *err)
{
    struct cnn_net_options half = *opt;
    struct cnn_net_memory memory;
    struct ps_error why, why_full;
    double half_s, full_s;

    half.precision = CNN_BF16;
    int rc = cnn_net_plan_memory(&half, &memory, &why);
    if (rc == -ENOTSUP) {
        out->precision = CNN_FLOAT32;
        snprintf(out->why, sizeof out->why, "float32: %.200s", why.text);
        return 0;
    }
    if ((rc = measure_what_fits(*opt, CNN_BF16, &half_s, &why)) < 0)
        return ps_fail(err, rc, "%s", why.text);
    if ((rc = measure_what_fits(*opt, CNN_FLOAT32, &full_s, &why_full)) < 0)
        return ps_fail(err, rc, "%s", why_full.text);
    if (isinf(half_s) && isinf(full_s))
        return ps_fail(err, -ENOMEM, "neither bf16 nor float32 fits: %.400s in bf16", why.text);
    out->precision = half_s < full_s ? CNN_BF16 : CNN_FLOAT32;
    if (isinf(half_s) || isinf(full_s))
        snprintf(out->why, sizeof out->why, "%s: %s does not fit: %.200s", names[out->precision],
                 names[isinf(half_s) ? CNN_BF16 : CNN_FLOAT32], isinf(half_s) ? why.text : why_full.text);
    else
        snprintf(out->why, sizeof out->why, "%s: a gradient takes %.3g ms in bf16 and %.3g ms in float32",
                 names[out->precision], half_s * 1e3, full_s * 1e3);
    return 0;
}
