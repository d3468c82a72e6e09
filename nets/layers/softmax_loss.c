/* softmax_loss.c: softmax and the cross-entropy of the label, averaged over the images. */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct cnn_error *err)
{
    if (l->in.h != 1 || l->in.w != 1 || l->in.c < 2 || l->in.c > CNN_MAX_CLASSES)
        return cnn_fail(err, -EINVAL,
                        "layer '%s': input of %u x %u x %u; allowed are 2 to %d values in one place",
                        l->spec->name, l->in.c, l->in.h, l->in.w, CNN_MAX_CLASSES);
    l->out = l->in;
    return 0;
}

const struct cnn_layer_type cnn_layer_softmax_loss = {"softmax-loss", plan, NULL};
