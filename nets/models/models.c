#include "nets/models/models.h"

#include <string.h>

static const struct cnn_model end = {0};

const struct cnn_model *const cnn_models[] = {
    &cnn_model_lenet,
    &cnn_model_linear,
    &cnn_model_mlp,
    &cnn_model_cifar7,
    &cnn_model_alexnet_cifar,
    &cnn_model_resnet8,
    &cnn_model_cifar100_cnn,
    &cnn_model_cifar100_convex,
    &cnn_model_alexnet,
    &cnn_model_alexnet_ungrouped,
    &cnn_model_alexnet_ungrouped_cifar,
    &cnn_model_googlenet,
    &cnn_model_googlenet_plain,
    &cnn_model_vgg19,
    &cnn_model_resnet18,
    &cnn_model_resnet50,
    &cnn_model_imagenet11,
    &end,
};

const struct cnn_model *cnn_model_find(const char *name)
{
    for (const struct cnn_model *const *m = cnn_models; (*m)->name != NULL; m++)
        if (strcmp((*m)->name, name) == 0)
            return *m;
    return NULL;
}
