#include "services/store/blobs/version_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "services/store/blobs/model_file.h"
#include "shared/delta/control_variate.h"
#include "shared/json/bounded.h"
#include "shared/json/json.h"

namespace atl::store {
namespace {

using model_config::TensorSpec;
using store_client::Manifest;
using store_client::ManifestFile;

constexpr std::uint64_t kIndexBytesMax = 16U << 20;
constexpr std::uint64_t kAdapterConfigBytesMax = 1U << 20;
constexpr std::size_t kAdapterConfigValuesMax = 50'000;

// Files with the same are read once: a few blobs can be named many times.
std::string content_of(const ManifestFile& file) {
    std::string content;
    for (const auto& chunk : file.chunks) content += chunk.sha256;
    return content;
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Result<Shapes> read_shapes(const Manifest& manifest, const BlobStore& blobs) {
    Shapes shapes;
    std::set<std::string> read;
    for (const ManifestFile& file : manifest.files) {
        if (!is_safetensors(file) || delta::is_control_variate(file.path)) continue;
        if (!read.insert(content_of(file)).second) continue;
        ATOLL_TRY(const safetensors::Header header, read_header(file, blobs));
        for (const auto& tensor : header.tensors) shapes[tensor.name] = tensor.shape;
    }
    return shapes;
}

std::vector<TensorSpec> tensor_list(const Shapes& shapes) {
    std::vector<TensorSpec> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, shape});
    return tensors;
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
    std::set<std::string> read;
    for (const ManifestFile& file : manifest.files) {
        if (is_safetensors(file) && read.insert(content_of(file)).second)
            ATOLL_RETURN_IF_ERROR(read_header(file, blobs));
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

Result<adapter::LoraOptions> read_adapter_config(const ManifestFile& file, const BlobStore& blobs) {
    if (file.size > kAdapterConfigBytesMax) return wrong_file(file, "is larger than 1 MiB");
    ATOLL_TRY(const std::string text, read_front(file, file.size, blobs));
    const auto config = json::parse_bounded(text, kAdapterConfigValuesMax);
    if (!config.ok()) return wrong_file(file, config.error().message);
    if (!config->is_object()) return wrong_file(file, "is no JSON object");
    auto options = adapter::parse_config(*config);
    if (!options.ok()) return wrong_file(file, describe(options.error()));
    return options;
}

Status check_adapter(const Manifest& handed_in, const Manifest& model, const BlobStore& blobs) {
    if (model.find(adapter::kConfigFile) != nullptr)
        return invalid_argument("parents[0]", "is an adapter itself: name the model that this one belongs to");
    const ManifestFile* config = handed_in.find(adapter::kConfigFile);
    if (config == nullptr || handed_in.find(adapter::kWeightsFile) == nullptr)
        return invalid_argument("manifest.files", std::string("an adapter has the files ") + adapter::kConfigFile +
                                                      " and " + adapter::kWeightsFile);
    for (const ManifestFile& file : handed_in.files)
        if (is_safetensors(file) && file.path != adapter::kWeightsFile)
            return wrong_file(file, std::string("holds tensors beside ") + adapter::kWeightsFile);
    ATOLL_TRY(const adapter::LoraOptions options, read_adapter_config(*config, blobs));
    ATOLL_TRY(const Shapes of_model, read_shapes(model, blobs));
    const auto expected = adapter::tensors_on(options, tensor_list(of_model));
    if (!expected.ok()) return wrong_file(*config, describe(expected.error()));
    ATOLL_TRY(Shapes found, read_shapes(handed_in, blobs));
    for (const TensorSpec& tensor : *expected) {
        const auto at = found.find(tensor.name);
        if (at == found.end()) return wrong_tensor(tensor.name, "of the adapter is missing");
        if (at->second != tensor.shape)
            return wrong_tensor(tensor.name, "has the shape " + model_config::shape_text(at->second) +
                                                 ", but on its model such an adapter has " +
                                                 model_config::shape_text(tensor.shape));
        found.erase(at);
    }
    if (found.empty()) return {};
    return wrong_tensor(found.begin()->first, "does not match any weight matrix that the adapter targets in the model");
}

}  // namespace atl::store
