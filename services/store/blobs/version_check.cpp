#include "services/store/blobs/version_check.h"

#include <algorithm>
#include <map>

#include "services/store/blobs/model_file.h"
#include "shared/json/json.h"

namespace atl::store {
namespace {

using store_client::Manifest;
using store_client::ManifestFile;

constexpr std::uint64_t kIndexBytesMax = 16U << 20;

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Result<Shapes> read_shapes(const Manifest& manifest, const BlobStore& blobs) {
    Shapes shapes;
    for (const ManifestFile& file : manifest.files) {
        if (!is_safetensors(file)) continue;
        ATOLL_TRY(const safetensors::Header header, read_header(file, blobs));
        for (const auto& tensor : header.tensors) shapes[tensor.name] = tensor.shape;
    }
    return shapes;
}

Error wrong_tensor(const std::string& name, const std::string& why) {
    return invalid_argument(name, "tensor \"" + name + "\" " + why);
}

}  // namespace

Status check_blobs(const Manifest& manifest, const BlobStore& blobs) {
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
        const ManifestFile& file = manifest.files[i];
        for (std::size_t j = 0; j < file.chunks.size(); ++j) {
            const auto& chunk = file.chunks[j];
            const auto field = [&](const char* member) {
                return "manifest.files[" + std::to_string(i) + "].chunks[" + std::to_string(j) + "]." + member;
            };
            const auto size = blobs.blob_size(chunk.sha256);
            if (!size.ok() && size.error().code == ErrorCode::kNotFound)
                return invalid_argument(field("sha256"),
                                        "blob " + chunk.sha256 + " of " + file.path + " has not been uploaded");
            if (!size.ok()) return size.error();
            if (blobs.is_damaged(chunk.sha256))
                return invalid_argument(field("sha256"),
                                        "blob " + chunk.sha256 + " of " + file.path + " is damaged: upload it again");
            if (*size != chunk.size)
                return invalid_argument(field("size"), "blob " + chunk.sha256 + " of " + file.path + " has " +
                                                           std::to_string(*size) + " bytes, not " +
                                                           std::to_string(chunk.size));
        }
    }
    return {};
}

Status check_model_files(const Manifest& manifest, const BlobStore& blobs) {
    for (const ManifestFile& file : manifest.files) {
        if (is_safetensors(file)) ATOLL_RETURN_IF_ERROR(read_header(file, blobs));
        if (file.path == kIndexPath) ATOLL_RETURN_IF_ERROR(read_index(file, manifest, kIndexBytesMax, blobs));
    }
    return {};
}

Status check_same_tensors(const Manifest& update, const Manifest& parent, const BlobStore& blobs) {
    ATOLL_TRY(const Shapes expected, read_shapes(parent, blobs));
    ATOLL_TRY(const Shapes found, read_shapes(update, blobs));
    for (const auto& [name, shape] : expected) {
        const auto at = found.find(name);
        if (at == found.end()) return wrong_tensor(name, "of the parent is missing");
        if (at->second != shape)
            return wrong_tensor(name, "has the shape " + json::Json(at->second).dump() + " but " +
                                          json::Json(shape).dump() + " in the parent");
    }
    for (const auto& [name, shape] : found)
        if (!expected.contains(name)) return wrong_tensor(name, "is not in the parent");
    return {};
}

}  // namespace atl::store
