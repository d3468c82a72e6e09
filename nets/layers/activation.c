/* activation.c: elementwise functions: ReLU max(0, x), its gradient 0 at 0; leaky ReLU; ReLU6; the logistic
 * sigmoid; tanh. Each derivative is a function of the output. */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    (void)err;
    l->out = l->in;
    return 0;
}

static int plan_leaky(struct cnn_layer *l, struct ps_error *err)
{
    float slope = l->spec->slope;

    if (!(slope > 0 && slope <= 1)) /* keeps the sign of the input */
        return ps_fail(err, -EINVAL, "layer '%s': slope %g; allowed are above 0 to 1", l->spec->name,
                       (double)slope);
    return plan(l, err);
}

const struct cnn_layer_type cnn_layer_relu = {"relu", 1, plan, NULL};
const struct cnn_layer_type cnn_layer_leaky_relu = {"leaky-relu", 1, plan_leaky, NULL};
const struct cnn_layer_type cnn_layer_relu6 = {"relu6", 1, plan, NULL};
const struct cnn_layer_type cnn_layer_sigmoid = {"sigmoid", 1, plan, NULL};
const struct cnn_layer_type cnn_layer_tanh = {"tanh", 1, plan, NULL};
