/* models.h: the rows of the table of models. Private to nets/. */
#ifndef CNN_MODELS_H
#define CNN_MODELS_H

#include "nets/net.h"

extern const struct cnn_model cnn_model_lenet, cnn_model_linear;

#endif
