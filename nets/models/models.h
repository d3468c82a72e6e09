/* models.h: the rows of the table of models. Private to nets/. */
#ifndef CNN_MODELS_H
#define CNN_MODELS_H

#include "nets/model.h"

extern const struct cnn_model cnn_model_lenet, cnn_model_linear, cnn_model_mlp, cnn_model_cifar7,
    cnn_model_alexnet_cifar, cnn_model_resnet8, cnn_model_alexnet, cnn_model_alexnet_ungrouped,
    cnn_model_alexnet_ungrouped_cifar, cnn_model_googlenet, cnn_model_googlenet_plain, cnn_model_vgg19,
    cnn_model_resnet18, cnn_model_resnet50, cnn_model_imagenet11, cnn_model_cifar100_cnn,
    cnn_model_cifar100_convex;

#endif
