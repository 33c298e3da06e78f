#include "shared/delta/delta.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "shared/base/text.h"
#include "shared/model_config/tensors.h"

namespace atl::delta {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;

static_assert(std::endian::native == std::endian::little, "scales are stored as they lie in memory");

constexpr std::size_t kScaleBytes = sizeof(float);

using Integers = std::array<std::int8_t, kBlockElements>;

// The largest magnitude of an integer.
float largest(Format format) {
    return format == Format::kInt8 ? 127.0F : 7.0F;
}

// To nearest, ties to even, of numbers below 2^22.
float round_to_integer(float value) {
    constexpr float kShift = 0x1.8p23F;
    return value + kShift - kShift;
}

void pack(Format format, const Integers& integers, std::span<std::byte> bytes) {
    if (format == Format::kInt8) {
        std::memcpy(bytes.data(), integers.data(), integers.size());
        return;
    }
    constexpr unsigned kLow = 0xF;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>((static_cast<unsigned>(integers[2 * i]) & kLow) |
                                          (static_cast<unsigned>(integers[2 * i + 1]) & kLow) << 4);
}

void unpack(Format format, std::span<const std::byte> bytes, Integers& integers) {
    if (format == Format::kInt8) {
        std::memcpy(integers.data(), bytes.data(), integers.size());
        return;
    }
    const auto of_nibble = [](unsigned nibble) { return static_cast<std::int8_t>(static_cast<int>(nibble ^ 8U) - 8); };
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto both = static_cast<unsigned>(bytes[i]);
        integers[2 * i] = of_nibble(both & 0xFU);
        integers[2 * i + 1] = of_nibble(both >> 4);
    }
}

bool is_changeable(DType dtype) {
    return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
}

std::string describe_tensor(const TensorInfo& tensor) {
    return safetensors::to_string(tensor.dtype) + model_config::shape_text(tensor.shape);
}

}  // namespace

const char* to_string(Format format) {
    return format == Format::kInt8 ? "int8" : "int4";
}

std::size_t block_bytes(Format format) {
    return kScaleBytes + (format == Format::kInt8 ? kBlockElements : kBlockElements / 2);
}

std::uint64_t block_count(std::uint64_t elements) {
    return elements / kBlockElements + (elements % kBlockElements == 0 ? 0 : 1);
}

Result<Description> describe(const safetensors::Header& header) {
    const auto format = header.metadata.find(kFormatKey);
    const auto base = header.metadata.find(kBaseKey);
    if (format == header.metadata.end() || (format->second != "int8" && format->second != "int4"))
        return invalid_argument(kFormatKey, std::string("the metadata must say ") + kFormatKey + ": int8 or int4");
    if (base == header.metadata.end() || base->second.empty())
        return invalid_argument(
            kBaseKey, std::string("the metadata must say by ") + kBaseKey + " of which model this is a change");
    return Description{format->second == "int8" ? Format::kInt8 : Format::kInt4, base->second};
}

TensorInfo packed_tensor(Format format, const TensorInfo& of_base) {
    const std::uint64_t blocks = block_count(static_cast<std::uint64_t>(of_base.element_count()));
    return {of_base.name,
            DType::kU8,
            {static_cast<std::int64_t>(blocks), static_cast<std::int64_t>(block_bytes(format))},
            0,
            0};
}

Status check_tensor(Format format, const TensorInfo& of_base, const TensorInfo& packed) {
    if (!is_changeable(of_base.dtype))
        return invalid_argument(of_base.name, "tensor " + in_quotes(of_base.name) + " of the base is " +
                                                  safetensors::to_string(of_base.dtype) +
                                                  ", which a delta cannot change");
    const TensorInfo expected = packed_tensor(format, of_base);
    if (packed.dtype == expected.dtype && packed.shape == expected.shape) return {};
    return invalid_argument(of_base.name, "the " + std::string(to_string(format)) + " change of tensor " +
                                              in_quotes(of_base.name) + " must be " + describe_tensor(expected) +
                                              ", as the base's is " + describe_tensor(of_base) + ", but it is " +
                                              describe_tensor(packed));
}

bool encode_block(Format format, std::span<float> values, std::span<std::byte> block) {
    check(values.size() <= kBlockElements && block.size() == block_bytes(format), "delta::encode_block of a block");
    float most = 0;
    bool finite = true;
    for (const float value : values) {
        finite = finite && std::isfinite(value);
        most = std::max(most, std::abs(value));
    }
    if (!finite) return false;
    const float bound = largest(format);
    const float scale = most / bound;
    Integers integers{};
    for (std::size_t i = 0; scale > 0 && i < values.size(); ++i) {
        // The scale may be subnormal, and so much less than most / bound.
        const float integer = round_to_integer(std::clamp(values[i] / scale, -bound, bound));
        integers[i] = static_cast<std::int8_t>(integer);
        values[i] -= scale * integer;
    }
    std::memcpy(block.data(), &scale, sizeof scale);
    pack(format, integers, block.subspan(kScaleBytes));
    return true;
}

void add_changes(Format format, std::span<const std::byte> blocks, std::uint64_t first, std::span<float> values) {
    std::size_t skipped = first % kBlockElements;
    Integers integers;
    while (!values.empty()) {
        check(blocks.size() >= block_bytes(format), "delta::add_changes without the block of an element");
        float scale;
        std::memcpy(&scale, blocks.data(), sizeof scale);
        unpack(format, blocks.subspan(kScaleBytes, block_bytes(format) - kScaleBytes), integers);
        const std::size_t count = std::min(values.size(), kBlockElements - skipped);
        for (std::size_t i = 0; i < count; ++i) values[i] += scale * static_cast<float>(integers[skipped + i]);
        values = values.subspan(count);
        blocks = blocks.subspan(block_bytes(format));
        skipped = 0;
    }
}

}  // namespace atl::delta
