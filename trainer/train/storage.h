#pragma once

#include "trainer/checkpoint/convert.h"
#include "trainer/tensor/tensor.h"

// The formats that weights are kept in, as the files of a model know them.
namespace atl::train {

// kF32, kF16 or kBF16.
checkpoint::DType file_dtype(tensor::DType storage);

}  // namespace atl::train
