#include "shared/safetensors/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "shared/base/text.h"
#include "shared/safetensors/header_parser.h"

namespace atl::safetensors {
namespace {

struct DTypeRow {
    DType dtype;
    const char* name;
    int size_bytes;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1},          {DType::kI8, "I8", 1},          {DType::kU16, "U16", 2},
    {DType::kI16, "I16", 2},   {DType::kU32, "U32", 4},        {DType::kI32, "I32", 4},        {DType::kU64, "U64", 8},
    {DType::kI64, "I64", 8},   {DType::kF16, "F16", 2},        {DType::kBF16, "BF16", 2},      {DType::kF32, "F32", 4},
    {DType::kF64, "F64", 8},   {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E5M2, "F8_E5M2", 1},
};

const DTypeRow& find_row(DType dtype) {
    const auto* row =
        std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& r) { return r.dtype == dtype; });
    check(row != std::end(kDTypes), "a safetensors dtype that is not in the table");
    return *row;
}

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;

// The tensors, in order of their offsets, must tile the data section.
Status check_tiling(const std::vector<TensorInfo>& tensors, std::uint64_t data_size) {
    std::uint64_t position = 0;
    for (const TensorInfo& tensor : tensors) {
        const std::string name = in_quotes(tensor.name);
        if (tensor.begin > position) return invalid_argument(tensor.name, "a gap in the data before tensor " + name);
        if (tensor.begin < position)
            return invalid_argument(tensor.name, "tensor " + name + " overlaps the one before it");
        if (tensor.end > data_size)
            return invalid_argument(tensor.name, "tensor " + name + " ends beyond the end of the file");
        position = tensor.end;
    }
    if (position != data_size)
        return invalid_argument(
            "header", "the file has " + std::to_string(data_size - position) + " bytes after the last tensor's data");
    return {};
}

}  // namespace

int size_bytes(DType dtype) {
    return find_row(dtype).size_bytes;
}

const char* to_string(DType dtype) {
    return find_row(dtype).name;
}

Result<DType> parse_dtype(std::string_view name) {
    for (const DTypeRow& row : kDTypes)
        if (row.name == name) return row.dtype;
    return invalid_argument("dtype", "unknown dtype " + in_quotes(name));
}

std::int64_t TensorInfo::element_count() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;  // the parser has checked that it doesn't wrap
    return count;
}

const TensorInfo* Header::find(std::string_view name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

Result<std::uint64_t> header_length(std::string_view first_8_bytes, std::uint64_t file_size) {
    if (file_size < kLengthBytes || first_8_bytes.size() < kLengthBytes)
        return invalid_argument("header", "the file is too short for a safetensors header");
    std::uint64_t length = 0;  // little endian
    for (std::size_t i = kLengthBytes; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(first_8_bytes[i]);
    if (length > kHeaderBytesMax)
        return invalid_argument("header", "the header claims " + std::to_string(length) + " bytes, more than " +
                                              std::to_string(kHeaderBytesMax));
    if (length > file_size - kLengthBytes)
        return invalid_argument("header", "the header claims " + std::to_string(length) + " bytes, but the file has " +
                                              std::to_string(file_size));
    return length;
}

Result<Header> parse_header(std::string_view header, std::uint64_t file_size) {
    if (header.size() > kHeaderBytesMax || file_size < kLengthBytes || header.size() > file_size - kLengthBytes)
        return invalid_argument("header", "the header is longer than the file or than the format allows");
    if (header.empty() || header.front() != '{')
        return invalid_argument("header", "the header does not begin with an opening brace");
    const std::size_t last = header.find_last_not_of(' ');  // padding; only spaces are allowed
    if (header[last] != '}') return invalid_argument("header", "the header does not end with a closing brace");
    ATOLL_TRY(Header result, parse_header_json(header.substr(0, last + 1)));
    result.data_begin = kLengthBytes + header.size();
    result.data_size = file_size - result.data_begin;
    // Empty tensors share their offset with the tensor that follows: begin, then end, puts them first.
    std::sort(result.tensors.begin(), result.tensors.end(), [](const auto& a, const auto& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    ATOLL_RETURN_IF_ERROR(check_tiling(result.tensors, result.data_size));
    return result;
}

std::string make_header(std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata,
                        std::size_t size_min) {
    // As text: an ordered object would look for each name among all before it.
    std::string text = "{";
    const auto add = [&text](const std::string& name, const nlohmann::ordered_json& value) {
        if (text.size() > 1) text += ',';
        text += nlohmann::json(name).dump() + ":" + value.dump();
    };
    if (!metadata.empty()) add("__metadata__", metadata);
    std::uint64_t position = 0;
    for (TensorInfo& tensor : tensors) {
        tensor.begin = position;
        position +=
            static_cast<std::uint64_t>(tensor.element_count()) * static_cast<std::uint64_t>(size_bytes(tensor.dtype));
        tensor.end = position;
        add(tensor.name, {{"dtype", to_string(tensor.dtype)},
                          {"shape", tensor.shape},
                          {"data_offsets", {tensor.begin, tensor.end}}});
    }
    text += '}';
    text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
    if (text.size() + kLengthBytes < size_min) text.resize(size_min - kLengthBytes, ' ');
    std::string bytes;
    for (std::size_t i = 0; i < kLengthBytes; ++i) bytes.push_back(static_cast<char>(text.size() >> (8 * i)));
    return bytes + text;
}

}  // namespace atl::safetensors
