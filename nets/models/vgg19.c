/* vgg19.c: VGG-19, configuration E of Simonyan & Zisserman 2015: 143,667,240 parameters. The authors
 * initialise deep nets from shallow ones, and note that Glorot & Bengio's filler makes this unnecessary.
 * Xavier is used here. */
#include "nets/models/rows.h"

#define C(N, OUT) CONV("conv" N, OUT, 3, 1, .pad = 1), RELU("relu" N)

static const struct cnn_layer_spec layers[] = {
    C("1_1", 64),        C("1_2", 64),        POOL("pool1", 2, 2),    C("2_1", 128),
    C("2_2", 128),       POOL("pool2", 2, 2), C("3_1", 256),          C("3_2", 256),
    C("3_3", 256),       C("3_4", 256),       POOL("pool3", 2, 2),    C("4_1", 512),
    C("4_2", 512),       C("4_3", 512),       C("4_4", 512),          POOL("pool4", 2, 2),
    C("5_1", 512),       C("5_2", 512),       C("5_3", 512),          C("5_4", 512),
    POOL("pool5", 2, 2), FC("fc6", 4096),     RELU("relu6"),          DROPOUT("drop6", 0.5f),
    FC("fc7", 4096),     RELU("relu7"),       DROPOUT("drop7", 0.5f), FC("fc8", CNN_CLASSES),
    LOSS("loss"),
};

const struct cnn_model cnn_model_vgg19 = {
    .name = "vgg19",
    .channels = 3,
    .height = 224,
    .width = 224,
    .classes = 1000,
    .layers = layers,
    .n_layers = N_ROWS(layers),
    .source = "Simonyan, Zisserman 2015, configuration E",
};
