#include "trainer/weights/storage.h"

#include <string>
#include <vector>

#include "shared/base/check.h"

namespace atl::weights {

Result<tensor::DType> parse_storage(std::string_view flag, std::string_view name) {
    if (name == "fp32") return tensor::DType::kF32;
    if (name == "bf16") return tensor::DType::kBF16;
    if (name == "fp16") return tensor::DType::kF16;
    return invalid_argument(std::string(flag), "'" + std::string(name) + "' is not built yet");
}

std::optional<tensor::DType> parse_quantize(std::string_view name) {
    if (name == "int8") return tensor::DType::kInt8;
    if (name == "nf4") return tensor::DType::kNf4;
    return std::nullopt;
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
