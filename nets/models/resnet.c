/* resnet.c: ResNet-18 and ResNet-50 for ImageNet (He, Zhang, Ren, Sun 2016): 11,689,512 and 25,557,032
 * parameters. A bottleneck that halves its size has its stride in the 3 x 3 convolution, as in
 * fb.resnet.torch and torchvision; in the paper it is in the first 1 x 1. MSRA; the classifier is gaussian
 * 0.01. */
#include "nets/models/rows.h"

#define C(N, FROM, OUT, KERNEL, STRIDE, PAD)                                                                 \
    CONV_OF(N, FROM, OUT, KERNEL, STRIDE, .pad = PAD, .has_no_bias = true, .filler = CNN_FILL_MSRA)

#define END_OF_BLOCK(N, LAST, SHORTCUT)                                                                      \
    {.kind = CNN_ADD, .name = N ".add", .inputs = {LAST, SHORTCUT}}, RELU(N ".relu")

#define DOWNSAMPLE(N, FROM, OUT, STRIDE)                                                                     \
    C(N ".downsample.0", FROM, OUT, 1, STRIDE, 0), NORM(N ".downsample.1")

#define BASIC_PATH(N, FROM, OUT, STRIDE)                                                                     \
    C(N ".conv1", FROM, OUT, 3, STRIDE, 1), NORM(N ".bn1"), RELU(N ".relu1"),                                \
        C(N ".conv2", N ".relu1", OUT, 3, 1, 1), NORM(N ".bn2")
#define BASIC(N, FROM, OUT) BASIC_PATH(N, FROM, OUT, 1), END_OF_BLOCK(N, N ".bn2", FROM)
#define BASIC_DOWN(N, FROM, OUT, STRIDE)                                                                     \
    DOWNSAMPLE(N, FROM, OUT, STRIDE), BASIC_PATH(N, FROM, OUT, STRIDE),                                      \
        END_OF_BLOCK(N, N ".bn2", N ".downsample.1")

#define BOTTLENECK_PATH(N, FROM, MID, STRIDE)                                                                \
    C(N ".conv1", FROM, MID, 1, 1, 0), NORM(N ".bn1"), RELU(N ".relu1"),                                     \
        C(N ".conv2", N ".relu1", MID, 3, STRIDE, 1), NORM(N ".bn2"), RELU(N ".relu2"),                      \
        C(N ".conv3", N ".relu2", 4 * MID, 1, 1, 0), NORM(N ".bn3")
#define BOTTLENECK(N, FROM, MID) BOTTLENECK_PATH(N, FROM, MID, 1), END_OF_BLOCK(N, N ".bn3", FROM)
#define BOTTLENECK_DOWN(N, FROM, MID, STRIDE)                                                                \
    DOWNSAMPLE(N, FROM, 4 * MID, STRIDE), BOTTLENECK_PATH(N, FROM, MID, STRIDE),                             \
        END_OF_BLOCK(N, N ".bn3", N ".downsample.1")

#define STEM                                                                                                 \
    C("conv1", "images", 64, 7, 2, 3), NORM("bn1"), RELU("relu"),                                            \
        POOL("maxpool", 3, 2, .pad = 1, .rounding = CNN_FLOOR)
#define TAIL                                                                                                 \
    GLOBAL_AVGPOOL("avgpool"), FC("fc", CNN_CLASSES, .filler = CNN_FILL_GAUSSIAN, .fill = 0.01f), LOSS("loss")

static const struct cnn_layer_spec layers18[] = {
    STEM,
    BASIC("layer1.0", "maxpool", 64),
    BASIC("layer1.1", "layer1.0.relu", 64),
    BASIC_DOWN("layer2.0", "layer1.1.relu", 128, 2),
    BASIC("layer2.1", "layer2.0.relu", 128),
    BASIC_DOWN("layer3.0", "layer2.1.relu", 256, 2),
    BASIC("layer3.1", "layer3.0.relu", 256),
    BASIC_DOWN("layer4.0", "layer3.1.relu", 512, 2),
    BASIC("layer4.1", "layer4.0.relu", 512),
    TAIL,
};

static const struct cnn_layer_spec layers50[] = {
    STEM,
    BOTTLENECK_DOWN("layer1.0", "maxpool", 64, 1),
    BOTTLENECK("layer1.1", "layer1.0.relu", 64),
    BOTTLENECK("layer1.2", "layer1.1.relu", 64),
    BOTTLENECK_DOWN("layer2.0", "layer1.2.relu", 128, 2),
    BOTTLENECK("layer2.1", "layer2.0.relu", 128),
    BOTTLENECK("layer2.2", "layer2.1.relu", 128),
    BOTTLENECK("layer2.3", "layer2.2.relu", 128),
    BOTTLENECK_DOWN("layer3.0", "layer2.3.relu", 256, 2),
    BOTTLENECK("layer3.1", "layer3.0.relu", 256),
    BOTTLENECK("layer3.2", "layer3.1.relu", 256),
    BOTTLENECK("layer3.3", "layer3.2.relu", 256),
    BOTTLENECK("layer3.4", "layer3.3.relu", 256),
    BOTTLENECK("layer3.5", "layer3.4.relu", 256),
    BOTTLENECK_DOWN("layer4.0", "layer3.5.relu", 512, 2),
    BOTTLENECK("layer4.1", "layer4.0.relu", 512),
    BOTTLENECK("layer4.2", "layer4.1.relu", 512),
    TAIL,
};

const struct cnn_model cnn_model_resnet18 = {
    .name = "resnet18",
    .channels = 3,
    .height = 224,
    .width = 224,
    .classes = 1000,
    .layers = layers18,
    .n_layers = N_ROWS(layers18),
    .source = "He, Zhang, Ren, Sun 2016, table 1",
};

const struct cnn_model cnn_model_resnet50 = {
    .name = "resnet50",
    .channels = 3,
    .height = 224,
    .width = 224,
    .classes = 1000,
    .layers = layers50,
    .n_layers = N_ROWS(layers50),
    .source = "He, Zhang, Ren, Sun 2016, table 1; strides in the 3 x 3 convolutions",
};
