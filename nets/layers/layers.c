#include "nets/layers/layer.h"

static const struct cnn_layer_type *const types[] = {
    [CNN_CONV] = &cnn_layer_conv,
    [CNN_MAXPOOL] = &cnn_layer_maxpool,
    [CNN_RELU] = &cnn_layer_relu,
    [CNN_FC] = &cnn_layer_fc,
    [CNN_SOFTMAX_LOSS] = &cnn_layer_softmax_loss,
    [CNN_AVGPOOL] = &cnn_layer_avgpool,
    [CNN_GLOBAL_AVGPOOL] = &cnn_layer_global_avgpool,
    [CNN_DROPOUT] = &cnn_layer_dropout,
    [CNN_LRN] = &cnn_layer_lrn,
    [CNN_BATCHNORM] = &cnn_layer_batchnorm,
    [CNN_CONCAT] = &cnn_layer_concat,
    [CNN_ADD] = &cnn_layer_add,
    [CNN_GLOBAL_MAXPOOL] = &cnn_layer_global_maxpool,
    [CNN_LEAKY_RELU] = &cnn_layer_leaky_relu,
    [CNN_RELU6] = &cnn_layer_relu6,
    [CNN_SIGMOID] = &cnn_layer_sigmoid,
    [CNN_TANH] = &cnn_layer_tanh,
};

const struct cnn_layer_type *cnn_layer_type_of(enum cnn_layer_kind kind)
{
    return (size_t)kind < sizeof types / sizeof types[0] ? types[kind] : NULL;
}
