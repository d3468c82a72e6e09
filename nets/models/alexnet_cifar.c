/* alexnet_cifar.c: AlexNet for 32 x 32 images: five convolutions, the second, fourth and fifth in two groups,
 * local response normalisation after the first two, overlapping pools, three fully connected layers with
 * dropout. */
#include "nets/models/models.h"

#define CONV(N, OUT, KERNEL, PAD, GROUPS)                                                                    \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .n_out = OUT, .kernel = KERNEL, .stride = 1, .pad = PAD,                \
        .groups = GROUPS, .filler = CNN_FILL_MSRA                                                            \
    }
#define RELU(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_RELU, .name = N                                                                          \
    }
#define LRN(N)                                                                                               \
    {                                                                                                        \
        .kind = CNN_LRN, .name = N, .size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 1                         \
    }
#define POOL(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_MAXPOOL, .name = N, .kernel = 3, .stride = 2                                             \
    }

static const struct cnn_layer_spec layers[] = {
    CONV("conv1", 64, 5, 2, 1),
    RELU("relu1"),
    LRN("norm1"),
    POOL("pool1"), /* 16 x 16 */
    CONV("conv2", 192, 5, 2, 2),
    RELU("relu2"),
    LRN("norm2"),
    POOL("pool2"), /* 8 x 8 */
    CONV("conv3", 384, 3, 1, 1),
    RELU("relu3"),
    CONV("conv4", 256, 3, 1, 2),
    RELU("relu4"),
    CONV("conv5", 256, 3, 1, 2),
    RELU("relu5"),
    POOL("pool5"), /* 4 x 4 */
    {.kind = CNN_FC, .name = "fc6", .n_out = 1024, .filler = CNN_FILL_MSRA},
    RELU("relu6"),
    {.kind = CNN_DROPOUT, .name = "drop6", .rate = 0.5f},
    {.kind = CNN_FC, .name = "fc7", .n_out = 1024, .filler = CNN_FILL_MSRA},
    RELU("relu7"),
    {.kind = CNN_DROPOUT, .name = "drop7", .rate = 0.5f},
    {.kind = CNN_FC, .name = "fc8", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};

const struct cnn_model cnn_model_alexnet_cifar = {
    .name = "alexnet-cifar",
    .channels = 3,
    .height = 32,
    .width = 32,
    .classes = 10,
    .layers = layers,
    .n_layers = sizeof layers / sizeof layers[0],
    .source = "after Krizhevsky, Sutskever, Hinton 2012, for CIFAR's size",
};
