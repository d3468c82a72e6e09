/* add.c: the sum of inputs of one shape, for residual connections (He et al. 2016). */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    for (uint32_t k = 1; k < l->n_inputs; k++) {
        struct cnn_shape s = l->inputs[k].shape;
        if (s.c != l->in.c || s.h != l->in.h || s.w != l->in.w)
            return ps_fail(err, -EINVAL,
                           "layer '%s': input '%s' is %u x %u x %u, the first %u x %u x %u; they must agree",
                           l->spec->name, l->spec->inputs[k], s.c, s.h, s.w, l->in.c, l->in.h, l->in.w);
    }
    l->out = l->in;
    return 0;
}

const struct cnn_layer_type cnn_layer_add = {"add", CNN_MAX_INPUTS, plan, NULL};
