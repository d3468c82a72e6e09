#include "nets/layers/layer.h"

static const struct cnn_layer_type *const types[] = {
    [CNN_CONV] = &cnn_layer_conv, [CNN_MAXPOOL] = &cnn_layer_maxpool,           [CNN_RELU] = &cnn_layer_relu,
    [CNN_FC] = &cnn_layer_fc,     [CNN_SOFTMAX_LOSS] = &cnn_layer_softmax_loss,
};

const struct cnn_layer_type *cnn_layer_type_of(enum cnn_layer_kind kind)
{
    return (size_t)kind < sizeof types / sizeof types[0] ? types[kind] : NULL;
}
