#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

// The safetensors format (https://huggingface.co/docs/safetensors), read more strictly than the reference: also a
// leading space, a repeated key, names with NUL, "/" or ".." parts, and sizes that wrap around are refused.
namespace atl::safetensors {

enum class DType {
    kBool,
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kU64,
    kI64,
    kF16,
    kBF16,
    kF32,
    kF64,
    kF8E4M3,
    kF8E5M2,
};
int size_bytes(DType dtype);
const char* to_string(DType dtype);  // "F32", "BF16", …
Result<DType> parse_dtype(std::string_view name);

struct TensorInfo {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // bytes from the start of the data section
    std::uint64_t end = 0;
    std::int64_t element_count() const;
};

// A parsed header. Tensors are in order of their offsets and fill the data section without gaps or overlaps.
struct Header {
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
    std::uint64_t data_begin = 0;  // bytes from the start of the file: 8 + header length
    std::uint64_t data_size = 0;
    const TensorInfo* find(std::string_view name) const;
};

inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

// The header's length from the first 8 bytes of a file.
Result<std::uint64_t> header_length(std::string_view first_8_bytes, std::uint64_t file_size);
// `header` is the JSON text, without the 8 length bytes.
Result<Header> parse_header(std::string_view header, std::uint64_t file_size);
// The first 8 + N bytes of a file that holds these tensors one after another in this order (offsets are assigned here).
// Padded with spaces so that the data begins at a multiple of 8, and to at least `size_min` bytes (a multiple of 8),
// for writers that reserve the header's place before they know the shapes.
std::string make_header(std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata = {},
                        std::size_t size_min = 0);

}  // namespace atl::safetensors
