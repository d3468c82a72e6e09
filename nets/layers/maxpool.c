/* maxpool.c: the largest value of each window; global pooling is a window that covers the channel. */
#include "nets/layers/layer.h"

#include <errno.h>

/* The position of the maximum within its window is stored in 16 bits. */
#define MAX_SIDE 256

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    if (l->spec->dilation > 1)
        return ps_fail(err, -EINVAL, "layer '%s': a pool with dilation; convolutions have it", l->spec->name);
    l->out.c = l->in.c;
    return cnn_window_plan(l, MAX_SIDE, l->spec->rounding, err);
}

static int plan_global(struct cnn_layer *l, struct ps_error *err)
{
    if (l->in.h > MAX_SIDE || l->in.w > MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': input of %u x %u; allowed are %d x %d", l->spec->name,
                       l->in.h, l->in.w, MAX_SIDE, MAX_SIDE);
    cnn_window_plan_global(l);
    return 0;
}

const struct cnn_layer_type cnn_layer_maxpool = {"maxpool", 1, plan, NULL};
const struct cnn_layer_type cnn_layer_global_maxpool = {"global-maxpool", 1, plan_global, NULL};
