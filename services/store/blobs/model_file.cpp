#include "services/store/blobs/model_file.h"

#include "shared/json/json.h"

namespace atl::store {

using store_client::ManifestFile;

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
    ATOLL_TRY(const std::string head, read_front(file, 8 + length, blobs));
    auto header = safetensors::parse_header(std::string_view(head).substr(8), file.size);
    if (!header.ok()) return wrong_file(file, header.error().message);
    return header;
}

Result<std::map<std::string, std::string>> read_index(const ManifestFile& index, const store_client::Manifest& manifest,
                                                      std::uint64_t bytes_max, const BlobStore& blobs) {
    if (index.size > bytes_max) return wrong_file(index, "has more than " + std::to_string(bytes_max) + " bytes");
    ATOLL_TRY(const std::string text, read_front(index, index.size, blobs));
    const auto parsed = json::parse(text);
    if (!parsed.ok()) return wrong_file(index, parsed.error().message);
    if (!parsed->is_object() || !parsed->contains("weight_map") || !parsed->at("weight_map").is_object())
        return wrong_file(index, "has no object weight_map");
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : parsed->at("weight_map").items()) {
        if (!file.is_string() || manifest.find(file.get<std::string>()) == nullptr)
            return wrong_file(index,
                              "weight_map." + tensor + " names " + file.dump() + ", which is not in the manifest");
        files[tensor] = file.get<std::string>();
    }
    return files;
}

}  // namespace atl::store
