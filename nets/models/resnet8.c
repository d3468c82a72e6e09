/* resnet8.c: the smallest of the CIFAR residual nets of He et al. 2016, section 4.2 (n = 1: 6 n + 2 layers),
 * with 1 x 1 convolutions as shortcuts of blocks that change the size. */
#include "nets/models/models.h"

#define CONV(N, FROM, OUT, KERNEL, STRIDE, PAD)                                                              \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .inputs = {FROM}, .n_out = OUT, .kernel = KERNEL, .stride = STRIDE,     \
        .pad = PAD, .filler = CNN_FILL_MSRA                                                                  \
    }
#define NORM(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_BATCHNORM, .name = N                                                                     \
    }
#define RELU(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_RELU, .name = N                                                                          \
    }
#define ADD(N, A, B)                                                                                         \
    {                                                                                                        \
        .kind = CNN_ADD, .name = N, .inputs = { A, B }                                                       \
    }

static const struct cnn_layer_spec layers[] = {
    CONV("conv1", "images", 16, 3, 1, 1),
    NORM("norm1"),
    RELU("relu1"),

    CONV("conv2a", "relu1", 16, 3, 1, 1),
    NORM("norm2a"),
    RELU("relu2a"),
    CONV("conv2b", "relu2a", 16, 3, 1, 1),
    NORM("norm2b"),
    ADD("add2", "norm2b", "relu1"),
    RELU("relu2"),

    CONV("short3", "relu2", 32, 1, 2, 0),
    NORM("norm3"),
    CONV("conv3a", "relu2", 32, 3, 2, 1),
    NORM("norm3a"),
    RELU("relu3a"),
    CONV("conv3b", "relu3a", 32, 3, 1, 1),
    NORM("norm3b"),
    ADD("add3", "norm3b", "norm3"),
    RELU("relu3"),

    CONV("short4", "relu3", 64, 1, 2, 0),
    NORM("norm4"),
    CONV("conv4a", "relu3", 64, 3, 2, 1),
    NORM("norm4a"),
    RELU("relu4a"),
    CONV("conv4b", "relu4a", 64, 3, 1, 1),
    NORM("norm4b"),
    ADD("add4", "norm4b", "norm4"),
    RELU("relu4"),

    {.kind = CNN_GLOBAL_AVGPOOL, .name = "pool"},
    {.kind = CNN_FC, .name = "fc", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};

const struct cnn_model cnn_model_resnet8 = {
    .name = "resnet8",
    .channels = 3,
    .height = 32,
    .width = 32,
    .classes = 10,
    .layers = layers,
    .n_layers = sizeof layers / sizeof layers[0],
    .source = "He, Zhang, Ren, Sun 2016, section 4.2, n = 1",
};
