/* mlp.c: a multilayer perceptron with two hidden layers for 28 x 28 digits, 648,010 parameters. */
#include "nets/models/models.h"

static const struct cnn_layer_spec layers[] = {
    {.kind = CNN_FC, .name = "fc1", .n_out = 500, .filler = CNN_FILL_MSRA},
    {.kind = CNN_RELU, .name = "relu1"},
    {.kind = CNN_FC, .name = "fc2", .n_out = 500, .filler = CNN_FILL_MSRA},
    {.kind = CNN_RELU, .name = "relu2"},
    {.kind = CNN_FC, .name = "fc3", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};

const struct cnn_model cnn_model_mlp = {
    .name = "mlp",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layers = layers,
    .n_layers = sizeof layers / sizeof layers[0],
    .source = "784-500-500-10 with ReLU",
};
