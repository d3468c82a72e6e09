/* concat.c: concatenates the channels of the inputs. */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    uint64_t channels = 0;

    for (uint32_t k = 0; k < l->n_inputs; k++) {
        struct cnn_shape s = l->inputs[k].shape;
        if (s.h != l->in.h || s.w != l->in.w)
            return ps_fail(err, -EINVAL,
                           "layer '%s': input '%s' is %u x %u, the first %u x %u; they must agree",
                           l->spec->name, l->spec->inputs[k], s.h, s.w, l->in.h, l->in.w);
        channels += s.c;
    }
    if (channels > CNN_MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': %llu channels in all; allowed are %d", l->spec->name,
                       (unsigned long long)channels, CNN_MAX_SIDE);
    l->out = (struct cnn_shape){(uint32_t)channels, l->in.h, l->in.w};
    return 0;
}

const struct cnn_layer_type cnn_layer_concat = {"concat", CNN_MAX_INPUTS, plan, NULL};
