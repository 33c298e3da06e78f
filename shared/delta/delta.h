#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/safetensors/safetensors.h"

// The change that a training made to a model, as int8 or int4 in blocks of 128 elements with a scale each: README.md
// has the format. Pure functions; the trainer writes such files, the store checks them and the aggregation decodes
// them.
namespace atl::delta {

inline constexpr char kFile[] = "delta.safetensors";
inline constexpr char kFormatKey[] = "atoll.delta";     // of the metadata: "int8" or "int4"
inline constexpr char kBaseKey[] = "atoll.delta_base";  // of the metadata: which model it is a change of
inline constexpr std::size_t kBlockElements = 128;

enum class Format : std::uint8_t { kInt8, kInt4 };
const char* to_string(Format format);

// Of a block: its scale and its integers.
std::size_t block_bytes(Format format);
// Of a tensor with so many elements.
std::uint64_t block_count(std::uint64_t elements);

// What the metadata say.
struct Description {
    Format format = Format::kInt8;
    std::string base;  // as whoever wrote it calls the model; never empty
};
// kInvalidArgument naming the key of the metadata.
Result<Description> describe(const safetensors::Header& header);

// The tensor that holds the change of one of the base's, which is of F16, BF16 or F32. Its place is not set.
safetensors::TensorInfo packed_tensor(Format format, const safetensors::TensorInfo& of_base);
// kInvalidArgument naming the tensor: the base's cannot be changed by a delta, or the packed one is not what
// packed_tensor() says.
Status check_tensor(Format format, const safetensors::TensorInfo& of_base, const safetensors::TensorInfo& packed);

// Writes the block of at most 128 values; the values become what rounding has lost of them. False, and nothing is
// written, if one is NaN or infinite.
bool encode_block(Format format, std::span<float> values, std::span<std::byte> block);
// Adds the changes of a tensor's elements [first, first + values.size()): value + scale * integer, each operation
// rounded to fp32. `blocks`: whole ones, from that of element `first` on. A scale that is not finite gives values that
// are not.
void add_changes(Format format, std::span<const std::byte> blocks, std::uint64_t first, std::span<float> values);

}  // namespace atl::delta
