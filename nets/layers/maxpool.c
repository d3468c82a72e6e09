/* maxpool.c: the largest value of each square window. */
#include "nets/layers/layer.h"

/* The place of the maximum within its window is kept in a byte. */
#define MAX_KERNEL 16

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    return cnn_window_plan(l, MAX_KERNEL, err);
}

const struct cnn_layer_type cnn_layer_maxpool = {"maxpool", 1, plan, NULL};
