#include "shared/delta/base_digest.h"

#include <algorithm>
#include <span>
#include <vector>

#include "shared/digest/digest.h"
#include "shared/model_config/tensors.h"

namespace atl::delta {
namespace {

constexpr std::uint64_t kHashedBytes = 1U << 18;  // read at a time

}  // namespace

Result<std::string> tensor_sha256(const safetensors::File& file, const safetensors::TensorInfo& tensor,
                                  const std::function<void(std::int64_t bytes)>& on_read) {
    const std::uint64_t size = tensor.end - tensor.begin;
    std::vector<std::byte> buffer(std::min(size, kHashedBytes));
    digest::Sha256 sha256;
    sha256.update(std::string(to_string(tensor.dtype)) + model_config::shape_text(tensor.shape));
    for (std::uint64_t at = 0; at < size; at += kHashedBytes) {
        const auto piece = std::span(buffer).first(std::min(kHashedBytes, size - at));
        ATOLL_RETURN_IF_ERROR(file.read(tensor, at, piece));
        sha256.update({reinterpret_cast<const char*>(piece.data()), piece.size()});
        if (on_read) on_read(std::ssize(piece));
    }
    return sha256.finish();
}

Result<std::string> model_sha256(const safetensors::Model& model) {
    std::vector<safetensors::Model::Entry> entries = model.entries();
    std::ranges::sort(entries, {}, [](const auto& entry) { return entry.tensor->name; });
    digest::Sha256 sha256;
    for (const auto& [file, tensor] : entries) {
        ATOLL_TRY(const std::string digest, tensor_sha256(*file, *tensor));
        sha256.update(tensor->name);
        sha256.update(digest);
    }
    return sha256.finish();
}

}  // namespace atl::delta
