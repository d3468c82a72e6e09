/* cifar7.c: the 7-layer net of Zhang, Choromanska, LeCun 2015, section 5, on 28 x 28 crops: (3,28) C(64,24)
 * P(64,12) C(128,8) P(128,4) C(64,2) D(256,1) S(10,1). ReLU after every C and after D, dropout 0.5 at D. */
#include "nets/models/models.h"

static const struct cnn_layer_spec layers[] = {
    {.kind = CNN_CONV, .name = "conv1", .n_out = 64, .kernel = 5, .stride = 1, .filler = CNN_FILL_MSRA},
    {.kind = CNN_RELU, .name = "relu1"},
    {.kind = CNN_MAXPOOL, .name = "pool1", .kernel = 2, .stride = 2},
    {.kind = CNN_CONV, .name = "conv2", .n_out = 128, .kernel = 5, .stride = 1, .filler = CNN_FILL_MSRA},
    {.kind = CNN_RELU, .name = "relu2"},
    {.kind = CNN_MAXPOOL, .name = "pool2", .kernel = 2, .stride = 2},
    {.kind = CNN_CONV, .name = "conv3", .n_out = 64, .kernel = 3, .stride = 1, .filler = CNN_FILL_MSRA},
    {.kind = CNN_RELU, .name = "relu3"},
    {.kind = CNN_FC, .name = "fc1", .n_out = 256, .filler = CNN_FILL_MSRA},
    {.kind = CNN_RELU, .name = "relu4"},
    {.kind = CNN_DROPOUT, .name = "drop1", .rate = 0.5f},
    {.kind = CNN_FC, .name = "fc2", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};

const struct cnn_model cnn_model_cifar7 = {
    .name = "cifar7",
    .channels = 3,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layers = layers,
    .n_layers = sizeof layers / sizeof layers[0],
    .source = "Zhang, Choromanska, LeCun 2015, section 5",
};
