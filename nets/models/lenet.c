/* lenet.c: Caffe's LeNet for 28 x 28 digits, 431,080 parameters. No ReLU follows its convolutions. */
#include "nets/models/models.h"

static const struct cnn_layer_spec layers[] = {
    {.kind = CNN_CONV, .name = "conv1", .n_out = 20, .kernel = 5, .stride = 1},
    {.kind = CNN_MAXPOOL, .name = "pool1", .kernel = 2, .stride = 2},
    {.kind = CNN_CONV, .name = "conv2", .n_out = 50, .kernel = 5, .stride = 1},
    {.kind = CNN_MAXPOOL, .name = "pool2", .kernel = 2, .stride = 2},
    {.kind = CNN_FC, .name = "fc1", .n_out = 500},
    {.kind = CNN_RELU, .name = "relu1"},
    {.kind = CNN_FC, .name = "fc2", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};

const struct cnn_model cnn_model_lenet = {
    .name = "lenet",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layers = layers,
    .n_layers = sizeof layers / sizeof layers[0],
    .source = "Caffe examples/mnist/lenet_train_test.prototxt, after LeCun et al. 1998",
};
