/* googlenet.c: GoogLeNet (Szegedy et al. 2015) as in Caffe: 6,998,552 parameters, and two auxiliary heads of
 * weight 0.3. The heads come after the main loss, so that the net without them is a prefix of the same table.
 * The last pool covers the whole plane, 7 x 7 at 224. Xavier; biases 0.2, those of classifiers 0. */
#include "nets/models/rows.h"

#define BIAS .bias_fill = 0.2f

/* The four branches of a block, which read layer FROM. */
#define INCEPTION(N, FROM, O1, R3, O3, R5, O5, PP)                                                           \
    CONV_OF(N "/1x1", FROM, O1, 1, 1, BIAS), RELU(N "/relu_1x1"),                                            \
        CONV_OF(N "/3x3_reduce", FROM, R3, 1, 1, BIAS), RELU(N "/relu_3x3_reduce"),                          \
        CONV(N "/3x3", O3, 3, 1, .pad = 1, BIAS), RELU(N "/relu_3x3"),                                       \
        CONV_OF(N "/5x5_reduce", FROM, R5, 1, 1, BIAS), RELU(N "/relu_5x5_reduce"),                          \
        CONV(N "/5x5", O5, 5, 1, .pad = 2, BIAS), RELU(N "/relu_5x5"),                                       \
        POOL(N "/pool", 3, 1, .pad = 1, .inputs = {FROM}), CONV(N "/pool_proj", PP, 1, 1, BIAS),             \
        RELU(N "/relu_pool_proj"),                                                                           \
    {                                                                                                        \
        .kind = CNN_CONCAT, .name = N "/output", .inputs = {                                                 \
            N "/relu_1x1",                                                                                   \
            N "/relu_3x3",                                                                                   \
            N "/relu_5x5",                                                                                   \
            N "/relu_pool_proj"                                                                              \
        }                                                                                                    \
    }

#define HEAD(N, FROM)                                                                                        \
    {.kind = CNN_AVGPOOL, .name = N "/ave_pool", .inputs = {FROM}, .kernel = 5, .stride = 3},                \
        CONV(N "/conv", 128, 1, 1, BIAS), RELU(N "/relu_conv"), FC(N "/fc", 1024, BIAS), RELU(N "/relu_fc"), \
        DROPOUT(N "/drop_fc", 0.7f), FC(N "/classifier", CNN_CLASSES, .bias_fill = 0),                       \
    {                                                                                                        \
        .kind = CNN_SOFTMAX_LOSS, .name = N "/loss", .weight = 0.3f                                          \
    }

static const struct cnn_layer_spec layers[] = {
    CONV("conv1/7x7_s2", 64, 7, 2, .pad = 3, BIAS),
    RELU("conv1/relu_7x7"),
    POOL("pool1/3x3_s2", 3, 2),
    LRN("pool1/norm1"),
    CONV("conv2/3x3_reduce", 64, 1, 1, BIAS),
    RELU("conv2/relu_3x3_reduce"),
    CONV("conv2/3x3", 192, 3, 1, .pad = 1, BIAS),
    RELU("conv2/relu_3x3"),
    LRN("conv2/norm2"),
    POOL("pool2/3x3_s2", 3, 2),
    INCEPTION("inception_3a", "pool2/3x3_s2", 64, 96, 128, 16, 32, 32),
    INCEPTION("inception_3b", "inception_3a/output", 128, 128, 192, 32, 96, 64),
    POOL("pool3/3x3_s2", 3, 2),
    INCEPTION("inception_4a", "pool3/3x3_s2", 192, 96, 208, 16, 48, 64),
    INCEPTION("inception_4b", "inception_4a/output", 160, 112, 224, 24, 64, 64),
    INCEPTION("inception_4c", "inception_4b/output", 128, 128, 256, 24, 64, 64),
    INCEPTION("inception_4d", "inception_4c/output", 112, 144, 288, 32, 64, 64),
    INCEPTION("inception_4e", "inception_4d/output", 256, 160, 320, 32, 128, 128),
    POOL("pool4/3x3_s2", 3, 2),
    INCEPTION("inception_5a", "pool4/3x3_s2", 256, 160, 320, 32, 128, 128),
    INCEPTION("inception_5b", "inception_5a/output", 384, 192, 384, 48, 128, 128),
    GLOBAL_AVGPOOL("pool5/7x7_s1"),
    DROPOUT("pool5/drop_7x7_s1", 0.4f),
    FC("loss3/classifier", CNN_CLASSES, .bias_fill = 0),
    LOSS("loss3/loss3"),
#define HEADS_ROWS 16
    HEAD("loss1", "inception_4a/output"),
    HEAD("loss2", "inception_4d/output"),
};

const struct cnn_model cnn_model_googlenet = {
    .name = "googlenet",
    .channels = 3,
    .height = 224,
    .width = 224,
    .classes = 1000,
    .layers = layers,
    .n_layers = N_ROWS(layers),
    .source = "Szegedy et al. 2015, as Caffe's bvlc_googlenet",
};

const struct cnn_model cnn_model_googlenet_plain = {
    .name = "googlenet-plain",
    .channels = 3,
    .height = 224,
    .width = 224,
    .classes = 1000,
    .layers = layers,
    .n_layers = N_ROWS(layers) - HEADS_ROWS,
    .source = "the same without the auxiliary heads",
};
