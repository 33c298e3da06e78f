#include "shared/adapter/initial_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shared/adapter/adapter.h"
#include "shared/base/check.h"
#include "shared/numeric/float16.h"

namespace atl::adapter {
namespace {

using safetensors::DType;

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators. OOPSLA 2014) of one counter.
std::uint64_t mix(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15ULL;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

std::uint64_t stream_of(std::string_view name, std::uint64_t seed) {
    std::uint64_t hash = mix(seed);
    for (const char byte : name) hash = mix(hash ^ static_cast<unsigned char>(byte));
    return hash;
}

void store(DType dtype, float value, std::byte* out) {
    if (dtype == DType::kF32) {
        std::memcpy(out, &value, sizeof value);
        return;
    }
    const std::uint16_t half = dtype == DType::kF16 ? numeric::narrow_f16(value) : numeric::narrow_bf16(value);
    std::memcpy(out, &half, sizeof half);
}

}  // namespace

InitialAdapter::InitialAdapter(const std::vector<model_config::TensorSpec>& tensors, DType dtype, std::uint64_t seed,
                               const std::string& quantization)
    : dtype_(dtype), seed_(seed) {
    for (const auto& tensor : tensors) tensors_.push_back({tensor.name, dtype, tensor.shape, 0, 0});
    head_ = safetensors::make_header(tensors_, {{"format", "pt"}, {kQuantizationKey, quantization}});
    size_ = head_.size() + (tensors_.empty() ? 0 : tensors_.back().end);
}

void InitialAdapter::fill(const safetensors::TensorInfo& tensor, std::uint64_t first, std::uint64_t count,
                          std::byte* out) const {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype_));
    if (!tensor.name.ends_with(kA)) {
        std::memset(out, 0, count * width);
        return;
    }
    const std::uint64_t stream = stream_of(tensor.name, seed_);
    const double bound = 1.0 / std::sqrt(static_cast<double>(tensor.shape[1]));
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto word = static_cast<double>(mix(stream + first + i) >> 11);  // 53 bits
        store(dtype_, static_cast<float>(((word + 0.5) * 0x1p-52 - 1.0) * bound), out + i * width);
    }
}

void InitialAdapter::read(std::uint64_t offset, std::span<std::byte> into) const {
    check(offset + into.size() <= size_, "InitialAdapter::read beyond its end");
    const auto width = static_cast<std::uint64_t>(safetensors::size_bytes(dtype_));
    if (offset < head_.size()) {
        const std::size_t count = std::min<std::size_t>(into.size(), head_.size() - offset);
        std::memcpy(into.data(), head_.data() + offset, count);
        offset += count;
        into = into.subspan(count);
    }
    const std::uint64_t begin = offset - head_.size(), end = begin + into.size();
    for (const auto& tensor : tensors_) {
        const std::uint64_t from = std::max(begin, tensor.begin), to = std::min(end, tensor.end);
        if (from >= to) continue;
        fill(tensor, (from - tensor.begin) / width, (to - from) / width, into.data() + (from - begin));
    }
}

}  // namespace atl::adapter
