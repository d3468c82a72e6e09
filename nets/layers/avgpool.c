/* avgpool.c: the mean of each square window, and that of a whole channel, which is a window that covers it.
 */
#include "nets/layers/layer.h"

#define MAX_KERNEL 4096

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    return cnn_window_plan(l, MAX_KERNEL, err);
}

/* Windows are clipped to the input, so one as wide as the longer side takes in all of it. */
static int plan_global(struct cnn_layer *l, struct ps_error *err)
{
    (void)err;
    l->window = (struct cnn_window){l->in.h > l->in.w ? l->in.h : l->in.w, 1, 0};
    l->out = (struct cnn_shape){l->in.c, 1, 1};
    return 0;
}

const struct cnn_layer_type cnn_layer_avgpool = {"avgpool", 1, plan, NULL};
const struct cnn_layer_type cnn_layer_global_avgpool = {"global-avgpool", 1, plan_global, NULL};
