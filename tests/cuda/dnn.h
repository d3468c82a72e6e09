// dnn.h: what the classic calls of cuDNN and its graphs share in the stand-in.
#pragma once
#include <cudnn.h>

#include "tests/cuda/products.h"

struct cudnnContext {
    cudaStream_t stream;
};

namespace standin
{

// Whether the stand-in has the type.
bool read_dnn_type(cudnnDataType_t type, Type &out);
// numbers_at for an operand of cuDNN.
void *dnn_numbers(const void *p, const char *who, size_t bytes);

} // namespace standin
