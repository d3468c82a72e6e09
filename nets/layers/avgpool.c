/* avgpool.c: the mean of each window; global pooling is a window that covers the channel. */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    if (l->spec->dilation > 1)
        return ps_fail(err, -EINVAL, "layer '%s': a pool with dilation; convolutions have it", l->spec->name);
    l->out.c = l->in.c;
    return cnn_window_plan(l, CNN_MAX_KERNEL, l->spec->rounding, err);
}

static int plan_global(struct cnn_layer *l, struct ps_error *err)
{
    (void)err;
    cnn_window_plan_global(l);
    return 0;
}

const struct cnn_layer_type cnn_layer_avgpool = {"avgpool", 1, plan, NULL};
const struct cnn_layer_type cnn_layer_global_avgpool = {"global-avgpool", 1, plan_global, NULL};
