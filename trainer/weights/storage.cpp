#include "trainer/weights/storage.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shared/base/check.h"
#include "shared/model_config/tensors.h"
#include "shared/numeric/conversions.h"
#include "shared/numeric/finite.h"

namespace atl::weights {
namespace {

// Elements converted between two looks at the exponents: they stay in the first-level cache.
constexpr std::size_t kBlock = 2048;

bool widen_block(DType dtype, const std::byte* bytes, float* out, std::size_t count) {
    const auto& convert = numeric::conversions();
    if (dtype == DType::kF32) std::memcpy(out, bytes, count * sizeof(float));
    if (dtype == DType::kF16) convert.widen_f16(out, bytes, count);
    if (dtype == DType::kBF16) convert.widen_bf16(out, bytes, count);
    return convert.all_finite(out, count);
}

bool narrow_block(DType dtype, const float* values, std::byte* out, std::size_t count) {
    const auto& convert = numeric::conversions();
    if (dtype == DType::kF32) {
        std::memcpy(out, values, count * sizeof(float));
        return convert.all_finite(values, count);
    }
    (dtype == DType::kF16 ? convert.narrow_f16 : convert.narrow_bf16)(out, values, count);
    const std::span<const std::byte> narrowed(out, count * sizeof(std::uint16_t));
    return dtype == DType::kF16 ? numeric::all_finite_f16(narrowed) : numeric::all_finite_bf16(narrowed);
}

}  // namespace

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
        case tensor::DType::kF64:
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

bool all_finite(std::span<const float> values) {
    return numeric::conversions().all_finite(values.data(), values.size());
}

bool widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    check(model_config::is_weight_dtype(dtype) && bytes.size() == out.size() * width,
          "widen: sizes or dtype don't match");
    bool finite = true;
    for (std::size_t i = 0; i < out.size(); i += kBlock)
        finite &= widen_block(dtype, bytes.data() + i * width, out.data() + i, std::min(kBlock, out.size() - i));
    return finite;
}

bool narrow(DType dtype, std::span<const float> values, std::span<std::byte> out) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    check(model_config::is_weight_dtype(dtype) && out.size() == values.size() * width,
          "narrow: sizes or dtype don't match");
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); i += kBlock)
        finite &= narrow_block(dtype, values.data() + i, out.data() + i * width, std::min(kBlock, values.size() - i));
    return finite;
}

}  // namespace atl::weights
