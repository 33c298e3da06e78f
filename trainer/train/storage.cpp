#include "trainer/train/storage.h"

#include "shared/base/check.h"

namespace atl::train {

checkpoint::DType file_dtype(tensor::DType storage) {
    switch (storage) {
        case tensor::DType::kF32:
            return checkpoint::DType::kF32;
        case tensor::DType::kF16:
            return checkpoint::DType::kF16;
        case tensor::DType::kBF16:
            return checkpoint::DType::kBF16;
        case tensor::DType::kI32:
            break;
    }
    check(false, "weights are not kept in this format");
    return checkpoint::DType::kF32;
}

}  // namespace atl::train
