/* rows.h: macros for the rows of a model's table. Private to nets/models. A row reads the previous one;
 * macros with _OF name the layer that they read. */
#ifndef CNN_MODELS_ROWS_H
#define CNN_MODELS_ROWS_H

#include "nets/models/models.h"

/* Further fields may follow, such as .pad = 1, .filler = CNN_FILL_MSRA. */
#define CONV(NAME, OUT, KERNEL, STRIDE, ...)                                                                 \
    {                                                                                                        \
        .kind = CNN_CONV, .name = NAME, .n_out = OUT, .kernel = KERNEL, .stride = STRIDE, __VA_ARGS__        \
    }
#define CONV_OF(NAME, FROM, OUT, KERNEL, STRIDE, ...)                                                        \
    CONV(NAME, OUT, KERNEL, STRIDE, .inputs = {FROM}, __VA_ARGS__)
#define FC(NAME, OUT, ...)                                                                                   \
    {                                                                                                        \
        .kind = CNN_FC, .name = NAME, .n_out = OUT, __VA_ARGS__                                              \
    }
#define RELU(NAME)                                                                                           \
    {                                                                                                        \
        .kind = CNN_RELU, .name = NAME                                                                       \
    }
#define NORM(NAME)                                                                                           \
    {                                                                                                        \
        .kind = CNN_BATCHNORM, .name = NAME                                                                  \
    }
#define POOL(NAME, KERNEL, STRIDE, ...)                                                                      \
    {                                                                                                        \
        .kind = CNN_MAXPOOL, .name = NAME, .kernel = KERNEL, .stride = STRIDE, ##__VA_ARGS__                 \
    }
/* Caffe's parameters, and Krizhevsky's except for k. */
#define LRN(NAME)                                                                                            \
    {                                                                                                        \
        .kind = CNN_LRN, .name = NAME, .size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 1                      \
    }
#define DROPOUT(NAME, RATE)                                                                                  \
    {                                                                                                        \
        .kind = CNN_DROPOUT, .name = NAME, .rate = RATE                                                      \
    }
#define GLOBAL_AVGPOOL(NAME)                                                                                 \
    {                                                                                                        \
        .kind = CNN_GLOBAL_AVGPOOL, .name = NAME                                                             \
    }
#define LOSS(NAME)                                                                                           \
    {                                                                                                        \
        .kind = CNN_SOFTMAX_LOSS, .name = NAME                                                               \
    }

#define N_ROWS(TABLE) (sizeof(TABLE) / sizeof(TABLE)[0])

#endif
