/* cifar100.c: the two CIFAR-100 nets of Li et al. 2018 (Pipe-SGD): CIFAR100-CNN has 3 convolutions and 2
 * fully connected layers in AlexNet's style, CIFAR100-Convex is the same net with only its last layer
 * trained. The paper does not give the sizes. Ours: C(64) of 5 x 5, C(128) of 5 x 5, C(256) of 3 x 3, each
 * with ReLU and an overlapping pool, the first two with LRN before the pool; D(512) with dropout 0.5; S(100).
 * MSRA. */
#include "nets/models/rows.h"

#define CNN_OR_CONVEX(FROZEN)                                                                                \
    {                                                                                                        \
        CONV("conv1", 64, 5, 1, .pad = 2, .filler = CNN_FILL_MSRA, .is_frozen = FROZEN), RELU("relu1"),      \
            LRN("norm1"), POOL("pool1", 3, 2),                                                               \
            CONV("conv2", 128, 5, 1, .pad = 2, .filler = CNN_FILL_MSRA, .is_frozen = FROZEN), RELU("relu2"), \
            LRN("norm2"), POOL("pool2", 3, 2),                                                               \
            CONV("conv3", 256, 3, 1, .pad = 1, .filler = CNN_FILL_MSRA, .is_frozen = FROZEN), RELU("relu3"), \
            POOL("pool3", 3, 2), FC("fc4", 512, .filler = CNN_FILL_MSRA, .is_frozen = FROZEN),               \
            RELU("relu4"), DROPOUT("drop4", 0.5f), FC("fc5", CNN_CLASSES, .filler = CNN_FILL_XAVIER),        \
            LOSS("loss"),                                                                                    \
    }

static const struct cnn_layer_spec cnn[] = CNN_OR_CONVEX(false), convex[] = CNN_OR_CONVEX(true);

const struct cnn_model cnn_model_cifar100_cnn = {
    .name = "cifar100-cnn",
    .channels = 3,
    .height = 32,
    .width = 32,
    .classes = 100,
    .layers = cnn,
    .n_layers = N_ROWS(cnn),
    .source = "Li et al. 2018; sizes of its layers are ours",
};

const struct cnn_model cnn_model_cifar100_convex = {
    .name = "cifar100-convex",
    .channels = 3,
    .height = 32,
    .width = 32,
    .classes = 100,
    .layers = convex,
    .n_layers = N_ROWS(convex),
    .source = "Li et al. 2018: cifar100-cnn with its last layer alone trained",
};
