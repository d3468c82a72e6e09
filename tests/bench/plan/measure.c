/* measure.c: measures the time per float of each codec, and of a training step, on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nets/net.h"
#include "proto/clock.h"
#include "proto/codecs/codec.h"
#include "tests/bench/net/net.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/samples.h"

/* Larger than a core's cache, like a gradient; a multiple of every codec's block. */
enum { FLOATS = 1 << 20, MAX_TURNS = 1000, LEAST_TURNS = 5 };

struct passes {
    const struct ps_codec *codec;
    float *x, *y;
    void *payload;
};

static void encode(const struct passes *p)
{
    p->codec->encode(p->codec, p->payload, p->x, FLOATS);
}

static void decode(const struct passes *p)
{
    p->codec->decode(p->codec, p->y, p->payload, FLOATS);
}

static void add(const struct passes *p)
{
    if (p->codec->add != NULL)
        p->codec->add(p->codec, p->y, p->payload, FLOATS);
}

/* Median of each pass in seconds per float. The passes alternate, so that other load affects all of them. */
static void time_passes(const struct passes *p, double seconds, double *medians)
{
    static void (*const run[])(const struct passes *p) = {encode, decode, add};
    static double times[3][MAX_TURNS];
    double end = ps_now_s() + seconds;
    size_t n = 0;

    for (; n < MAX_TURNS && (n < LEAST_TURNS || ps_now_s() < end); n++)
        for (size_t k = 0; k < 3; k++) {
            double begin = ps_now_s();
            run[k](p);
            times[k][n] = (ps_now_s() - begin) / FLOATS;
        }
    for (size_t k = 0; k < 3; k++)
        medians[k] = bench_median(times[k], n);
}

int plan_measure_codec(const struct plan_options *o, const struct ps_codec *codec, struct plan_codec *out)
{
    struct passes p = {codec, calloc(FLOATS, sizeof(float)), calloc(FLOATS, sizeof(float)),
                       calloc(1, codec->payload_bytes(codec, FLOATS))};
    double medians[3];
    int rc = -1;

    if (p.x != NULL && p.y != NULL && p.payload != NULL) {
        for (size_t i = 0; i < FLOATS; i++)
            p.x[i] = 1e-3f * (float)(i % 1021) - 0.5f;
        time_passes(&p, o->seconds / 4, medians);
        *out = (struct plan_codec){.name = codec->name,
                                   .bytes_per_float = (double)codec->payload_bytes(codec, FLOATS) / FLOATS,
                                   .encode_s = codec->in_place ? 0 : medians[0],
                                   .decode_s = codec->in_place ? 0 : medians[1],
                                   .add_s = medians[2]};
        rc = 0;
    } else {
        fprintf(stderr, "psbench plan: no memory to time codec %s\n", codec->name);
    }
    free(p.x);
    free(p.y);
    free(p.payload);
    return rc;
}

double plan_n_floats(const struct plan_options *o)
{
    struct cnn_model model;

    if (o->net == NULL || cnn_model_read(o->net, &model, NULL) != 0)
        return o->floats;
    return (double)cnn_model_n_floats(&model);
}

/* psbench step sleeps by the same shares. */
static size_t fill_profile(const struct cnn_layer_row *rows, size_t n, uint64_t end,
                           struct ps_ready_point *points)
{
    double total = 0, at = 0;
    size_t n_points = 0;
    for (size_t i = 0; i < n; i++) {
        total += rows[i].forward_flops + rows[i].backward_flops;
        at += rows[i].forward_flops;
    }
    for (size_t i = n; i-- > 0;) {
        uint64_t count = rows[i].n_params + rows[i].n_buffers;
        at += rows[i].backward_flops;
        if (count > 0)
            points[n_points++] = (struct ps_ready_point){end -= count, at / total};
    }
    return n_points;
}

bool plan_read_profile(const struct plan_options *o, struct ps_ready_point *points, struct ps_profile *out)
{
    struct cnn_model model;
    struct cnn_layer_row *rows;
    size_t n;
    if (o->net == NULL || cnn_model_read(o->net, &model, NULL) != 0 ||
        cnn_model_describe(&model, &rows, &n, NULL) != 0)
        return false;
    bool fits = n <= PLAN_MAX_LAYERS;
    uint64_t n_floats = cnn_model_n_floats(&model);
    if (fits)
        *out = (struct ps_profile){points, fill_profile(rows, n, n_floats, points), n_floats};
    free(rows);
    return fits;
}

int plan_measure_compute(const struct plan_options *o, double *compute_s, double *update_s)
{
    struct bench_net_times times = {0};

    *compute_s = o->compute_s;
    *update_s = isnan(o->update_s) ? 0 : o->update_s;
    if (!isnan(o->compute_s) || o->net == NULL)
        return 0;
    if (bench_net_measure(o->net, o->backend, o->batch, o->threads, o->seconds, &times) != 0)
        return -1;
    *compute_s = times.forward_s + times.backward_s;
    if (isnan(o->update_s))
        *update_s = times.update_s;
    return 0;
}
