#include "trainer/weights/storage.h"

#include <vector>

#include "shared/base/check.h"

namespace atl::weights {

tensor::DType storage_dtype(run_settings::Precision precision) {
    switch (precision) {
        case run_settings::Precision::kBf16:
            return tensor::DType::kBF16;
        case run_settings::Precision::kFp16:
            return tensor::DType::kF16;
        case run_settings::Precision::kFp32:
            break;
    }
    return tensor::DType::kF32;
}

std::optional<tensor::DType> storage_dtype(run_settings::Quantization quantization) {
    if (quantization == run_settings::Quantization::kNone) return std::nullopt;
    return quantization == run_settings::Quantization::kInt8 ? tensor::DType::kInt8 : tensor::DType::kNf4;
}

weights::DType file_dtype(tensor::DType storage) {
    switch (storage) {
        case tensor::DType::kF32:
            return weights::DType::kF32;
        case tensor::DType::kF16:
            return weights::DType::kF16;
        case tensor::DType::kBF16:
            return weights::DType::kBF16;
        case tensor::DType::kI32:
        case tensor::DType::kU8:
        case tensor::DType::kInt8:
        case tensor::DType::kNf4:
            break;
    }
    check(false, "weights are not kept in this format");
    return weights::DType::kF32;
}

bool store_values(std::span<const float> values, const tensor::Tensor& to, kernels::Backend& backend) {
    if (to.dtype() == tensor::DType::kF32) {
        backend.copy_from_host(values.data(), to);
        return true;
    }
    std::vector<std::byte> narrowed(static_cast<std::size_t>(to.byte_count()));
    const bool finite = weights::narrow(file_dtype(to.dtype()), values, narrowed);
    backend.copy_from_host(narrowed.data(), to);
    return finite;
}

}  // namespace atl::weights
