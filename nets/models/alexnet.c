/* alexnet.c: AlexNet (Krizhevsky, Sutskever, Hinton 2012) as in Caffe: with two groups it has 60,965,224
 * parameters, without groups 62,378,344, the 249 MB of You, Buluc, Demmel 2017. Their CIFAR images are 32 x
 * 32: for these the first convolution has stride 1 and pad 5 and the last pool stride 1, so that every tensor
 * of the ungrouped net keeps its shape, except for the number of classes. Fillers: gaussian, biases 0 or
 * 0.1. */
#include "nets/models/rows.h"

#define GAUSS(DEVIATION, BIAS) .filler = CNN_FILL_GAUSSIAN, .fill = DEVIATION, .bias_fill = BIAS

#define ALEXNET(GROUPS, CONV1_STRIDE, CONV1_PAD, POOL5_STRIDE)                                               \
    {                                                                                                        \
        CONV("conv1", 96, 11, CONV1_STRIDE, .pad = CONV1_PAD, GAUSS(0.01f, 0)), RELU("relu1"), LRN("norm1"), \
            POOL("pool1", 3, 2), CONV("conv2", 256, 5, 1, .pad = 2, .groups = GROUPS, GAUSS(0.01f, 0.1f)),   \
            RELU("relu2"), LRN("norm2"), POOL("pool2", 3, 2),                                                \
            CONV("conv3", 384, 3, 1, .pad = 1, GAUSS(0.01f, 0)), RELU("relu3"),                              \
            CONV("conv4", 384, 3, 1, .pad = 1, .groups = GROUPS, GAUSS(0.01f, 0.1f)), RELU("relu4"),         \
            CONV("conv5", 256, 3, 1, .pad = 1, .groups = GROUPS, GAUSS(0.01f, 0.1f)), RELU("relu5"),         \
            POOL("pool5", 3, POOL5_STRIDE), FC("fc6", 4096, GAUSS(0.005f, 0.1f)), RELU("relu6"),             \
            DROPOUT("drop6", 0.5f), FC("fc7", 4096, GAUSS(0.005f, 0.1f)), RELU("relu7"),                     \
            DROPOUT("drop7", 0.5f), FC("fc8", CNN_CLASSES, GAUSS(0.01f, 0)), LOSS("loss"),                   \
    }

static const struct cnn_layer_spec grouped[] = ALEXNET(2, 4, 0, 2), ungrouped[] = ALEXNET(1, 4, 0, 2),
                                   cifar[] = ALEXNET(1, 1, 5, 1);

const struct cnn_model cnn_model_alexnet = {
    .name = "alexnet",
    .channels = 3,
    .height = 227,
    .width = 227,
    .classes = 1000,
    .layers = grouped,
    .n_layers = N_ROWS(grouped),
    .source = "Krizhevsky, Sutskever, Hinton 2012, as Caffe's bvlc_alexnet",
};

const struct cnn_model cnn_model_alexnet_ungrouped = {
    .name = "alexnet-ungrouped",
    .channels = 3,
    .height = 227,
    .width = 227,
    .classes = 1000,
    .layers = ungrouped,
    .n_layers = N_ROWS(ungrouped),
    .source = "You, Buluc, Demmel 2017: AlexNet of 249 MB",
};

const struct cnn_model cnn_model_alexnet_ungrouped_cifar = {
    .name = "alexnet-ungrouped-cifar",
    .channels = 3,
    .height = 32,
    .width = 32,
    .classes = 10,
    .layers = cifar,
    .n_layers = N_ROWS(cifar),
    .source = "You, Buluc, Demmel 2017, the same tensors on images of 32 x 32",
};
