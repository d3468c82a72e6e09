#include "nets/training/gradient.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Uses four sums, so that additions do not wait for each other. The square of a float is exact as a double,
 * except for subnormals. */
static double squares(const float *g, uint64_t n)
{
    double sum[4] = {0};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)g[i + (uint64_t)k] * (double)g[i + (uint64_t)k];
    for (; i < n; i++)
        sum[0] += (double)g[i] * (double)g[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

double cnn_gradient_norm(const struct cnn_param *params, size_t n, const float *g)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (params[i].role == CNN_PARAM)
            sum += squares(g + params[i].offset, cnn_param_count(&params[i]));
    return sqrt(sum);
}

double cnn_gradient_clip(const struct cnn_param *params, size_t n, float *g, double most)
{
    double norm = cnn_gradient_norm(params, n, g);
    if (!isfinite(norm) || norm <= most)
        return norm;
    for (size_t i = 0; i < n; i++) {
        float *at = g + params[i].offset;
        uint64_t count = params[i].role == CNN_PARAM ? cnn_param_count(&params[i]) : 0;
        for (uint64_t k = 0; k < count; k++)
            at[k] = (float)((double)at[k] * (most / norm));
    }
    return norm;
}

int cnn_accumulator_init(struct cnn_accumulator *a, size_t n_floats, uint32_t wanted)
{
    *a = (struct cnn_accumulator){.n_floats = n_floats, .wanted = wanted};
    if (wanted > 1)
        a->sum = calloc(n_floats, sizeof *a->sum);
    return wanted > 1 && a->sum == NULL ? -ENOMEM : 0;
}

void cnn_accumulator_finish(struct cnn_accumulator *a)
{
    free(a->sum);
}

bool cnn_accumulator_add(struct cnn_accumulator *a, float *g)
{
    float *sum = a->sum;
    if (sum == NULL)
        return true;
    if (a->n++ == 0)
        memcpy(sum, g, a->n_floats * sizeof *sum);
    else
        for (size_t i = 0; i < a->n_floats; i++)
            sum[i] += g[i];
    if (a->n < a->wanted)
        return false;
    for (size_t i = 0; i < a->n_floats; i++)
        g[i] = sum[i] / (float)a->wanted;
    a->n = 0;
    return true;
}

void cnn_accumulator_clear(struct cnn_accumulator *a)
{
    a->n = 0;
}
