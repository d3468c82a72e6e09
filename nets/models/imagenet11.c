/* imagenet11.c: the 11-layer net of Zhang, Choromanska, LeCun 2015, section 5, on 221 x 221 crops: (3,221)
 * C(96,108) P(96,36) C(256,32) P(256,16) C(384,14) C(384,13) C(256,12) P(256,6) D(4096,1) D(4096,1)
 * S(1000,1). ReLU after every C and D, dropout 0.5 at each D. The paper does not give the filler; ours is
 * MSRA. */
#include "nets/models/rows.h"

#define MSRA .filler = CNN_FILL_MSRA

static const struct cnn_layer_spec layers[] = {
    CONV("conv1", 96, 7, 2, MSRA),
    RELU("relu1"),
    POOL("pool1", 3, 3),
    CONV("conv2", 256, 5, 1, MSRA),
    RELU("relu2"),
    POOL("pool2", 2, 2),
    CONV("conv3", 384, 3, 1, MSRA),
    RELU("relu3"),
    CONV("conv4", 384, 2, 1, MSRA),
    RELU("relu4"),
    CONV("conv5", 256, 2, 1, MSRA),
    RELU("relu5"),
    POOL("pool5", 2, 2),
    FC("fc6", 4096, MSRA),
    RELU("relu6"),
    DROPOUT("drop6", 0.5f),
    FC("fc7", 4096, MSRA),
    RELU("relu7"),
    DROPOUT("drop7", 0.5f),
    FC("fc8", CNN_CLASSES, .filler = CNN_FILL_XAVIER),
    LOSS("loss"),
};

const struct cnn_model cnn_model_imagenet11 = {
    .name = "imagenet11",
    .channels = 3,
    .height = 221,
    .width = 221,
    .classes = 1000,
    .layers = layers,
    .n_layers = N_ROWS(layers),
    .source = "Zhang, Choromanska, LeCun 2015, section 5",
};
