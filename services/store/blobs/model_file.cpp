#include "services/store/blobs/model_file.h"

#include <algorithm>

#include "shared/base/text.h"
#include "shared/json/bounded.h"
#include "shared/safetensors/weight_index.h"

namespace atl::store {

using store_client::ManifestFile;

namespace {

constexpr std::uint64_t kHeaderAllowanceBytes = 8U << 20;
constexpr std::uint64_t kTensorHeaderBytesMax = 200;
constexpr std::uint64_t kHeaderBytesMax = 32U << 20;
constexpr std::uint64_t kMetadataBytesMax = 64U << 10;
constexpr std::uint64_t kPieceBytes = 1U << 20;
constexpr std::size_t kIndexValuesMax = 500'000;

std::uint64_t count_of(std::string_view text, std::string_view word) {
    std::uint64_t count = 0;
    for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++count;
    return count;
}

// How many tensors the first `length` bytes of a file can describe: each has a "dtype". Read a piece at a time.
Result<std::uint64_t> count_tensors(const ManifestFile& file, std::uint64_t length, const BlobStore& blobs) {
    static constexpr std::string_view kWord = "\"dtype\"";
    std::uint64_t count = 0, seen = 0;
    std::string piece;
    for (const auto& chunk : file.chunks)
        for (std::uint64_t at = 0; at < chunk.size && seen < length; at += kPieceBytes) {
            // The end of the piece before: a word may lie across the two.
            piece.erase(0, piece.size() - std::min<std::size_t>(piece.size(), kWord.size() - 1));
            ATOLL_TRY(const std::string next, blobs.read(chunk.sha256, at, std::min(kPieceBytes, length - seen)));
            piece += next;
            seen += next.size();
            count += count_of(piece, kWord);
        }
    return count;
}

Status check_header_length(const ManifestFile& file, std::uint64_t length, const BlobStore& blobs) {
    if (length <= kHeaderAllowanceBytes) return {};
    const std::uint64_t read = length > kHeaderBytesMax ? 0 : length;
    ATOLL_TRY(const std::uint64_t tensors, count_tensors(file, 8 + read, blobs));
    const std::uint64_t bytes_max = std::min(kHeaderAllowanceBytes + kTensorHeaderBytesMax * tensors, kHeaderBytesMax);
    if (length <= bytes_max) return {};
    return wrong_file(file, "has a header of " + std::to_string(length) +
                                " bytes; it may have 8 MiB and 200 bytes a tensor, and 32 MiB at most");
}

}  // namespace

bool is_safetensors(const ManifestFile& file) {
    return file.path.ends_with(".safetensors");
}

Error wrong_file(const ManifestFile& file, const std::string& why) {
    return invalid_argument(file.path, file.path + ": " + why);
}

Result<std::string> read_front(const ManifestFile& file, std::uint64_t count, const BlobStore& blobs) {
    std::string bytes;
    for (const auto& chunk : file.chunks) {
        if (bytes.size() >= count) break;
        ATOLL_TRY(const std::string piece, blobs.read(chunk.sha256, 0, count - bytes.size()));
        bytes += piece;
    }
    return bytes;
}

Result<std::uint64_t> read_header_length(const ManifestFile& file, const BlobStore& blobs) {
    ATOLL_TRY(const std::string prefix, read_front(file, 8, blobs));
    if (prefix.size() < 8) return wrong_file(file, "too short for a safetensors file");
    const auto length = safetensors::header_length(prefix, file.size);
    if (!length.ok()) return wrong_file(file, length.error().message);
    return length;
}

Result<safetensors::Header> read_header(const ManifestFile& file, const BlobStore& blobs) {
    ATOLL_TRY(const std::uint64_t length, read_header_length(file, blobs));
    ATOLL_RETURN_IF_ERROR(check_header_length(file, length, blobs));
    ATOLL_TRY(const std::string head, read_front(file, 8 + length, blobs));
    auto header = safetensors::parse_header(std::string_view(head).substr(8), file.size);
    if (!header.ok()) return wrong_file(file, header.error().message);
    std::uint64_t metadata_bytes = 0;
    for (const auto& [key, value] : header->metadata) metadata_bytes += key.size() + value.size();
    if (metadata_bytes > kMetadataBytesMax) return wrong_file(file, "has more than 64 KiB of __metadata__");
    return header;
}

Result<std::uint64_t> head_bytes(const store_client::Manifest& manifest, const BlobStore& blobs) {
    std::uint64_t bytes = 0;
    for (const ManifestFile& file : manifest.files) {
        if (file.path == kIndexPath) bytes += file.size;
        if (!is_safetensors(file)) continue;
        const auto length = read_header_length(file, blobs);
        if (!length.ok() && length.error().code != ErrorCode::kInvalidArgument) return length.error();
        if (length.ok()) bytes += *length;
    }
    return bytes;
}

Result<safetensors::WeightMap> read_index(const ManifestFile& index, const store_client::Manifest& manifest,
                                          std::uint64_t bytes_max, const BlobStore& blobs) {
    if (index.size > bytes_max) return wrong_file(index, "has more than " + std::to_string(bytes_max) + " bytes");
    ATOLL_TRY(const std::string text, read_front(index, index.size, blobs));
    if (const auto bounded = json::parse_bounded(text, kIndexValuesMax); !bounded.ok())
        return wrong_file(index, bounded.error().message);
    auto files = safetensors::parse_weight_index(text);
    if (!files.ok()) return wrong_file(index, files.error().message);
    for (const auto& [tensor, file] : *files)
        if (manifest.find(file) == nullptr)
            return wrong_file(index,
                              "weight_map." + tensor + " names " + in_quotes(file) + ", which is not in the manifest");
    return files;
}

}  // namespace atl::store
