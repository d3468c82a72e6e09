/* linear.c: multinomial logistic regression on 28 x 28 digits, a baseline for nets. */
#include "nets/models/models.h"

static const struct cnn_layer_spec layers[] = {
    {.kind = CNN_FC, .name = "fc1", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};

const struct cnn_model cnn_model_linear = {
    .name = "linear",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layers = layers,
    .n_layers = sizeof layers / sizeof layers[0],
    .source = "multinomial logistic regression",
};
