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

DType file_dtype(tensor::DType storage) {
    switch (storage) {
        case tensor::DType::kF32:
            return DType::kF32;
        case tensor::DType::kF16:
            return DType::kF16;
        case tensor::DType::kBF16:
            return DType::kBF16;
        case tensor::DType::kI32:
        case tensor::DType::kU8:
        case tensor::DType::kInt8:
        case tensor::DType::kNf4:
            break;
    }
    check(false, "weights are not kept in this format");
    return DType::kF32;
}

quant::Format quant_format(tensor::DType storage) {
    check(tensor::is_quantized(storage), "not a quantised format");
    return storage == tensor::DType::kNf4 ? quant::Format::kNf4 : quant::Format::kInt8;
}

Result<DType> parse_file_dtype(std::string_view name) {
    if (name == "fp32" || name == "float32") return DType::kF32;
    if (name == "fp16" || name == "float16") return DType::kF16;
    if (name == "bf16" || name == "bfloat16") return DType::kBF16;
    return invalid_argument("dtype", "\"" + std::string(name) + "\" is none of fp32, fp16 and bf16");
}

bool store_values(std::span<const float> values, const tensor::Tensor& to, kernels::Backend& backend) {
    if (to.dtype() == tensor::DType::kF32) {
        backend.copy_from_host(values.data(), to);
        return true;
    }
    std::vector<std::byte> narrowed(static_cast<std::size_t>(to.byte_count()));
    const bool finite = narrow(file_dtype(to.dtype()), values, narrowed);
    backend.copy_from_host(narrowed.data(), to);
    return finite;
}

}  // namespace atl::weights
