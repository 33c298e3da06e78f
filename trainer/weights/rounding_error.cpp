#include "trainer/weights/rounding_error.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::weights {
namespace {

using safetensors::TensorInfo;

constexpr const char* kNameKey = "atoll.rounding_error";  // of the metadata
constexpr const char* kDigest = "sha256";                 // the last tensor: of the bytes of all before it
constexpr std::int64_t kDigestBytes = 64;
constexpr std::uint64_t kReadBytes = 1U << 20;

Error damaged(const std::filesystem::path& file, const std::string& what) {
    return invalid_argument(file.string(), file.string() + ": " + what + ": the file is damaged");
}

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status check_tensors(const safetensors::File& file, const std::vector<TensorSpec>& tensors) {
    const auto& found = file.header().tensors;
    if (found.empty() || found.back().name != kDigest || found.back().end - found.back().begin != kDigestBytes)
        return damaged(file.path(), "its digest is not there");
    const bool same = std::ranges::equal(
        tensors, std::span(found).first(found.size() - 1), [](const TensorSpec& spec, const TensorInfo& info) {
            return spec.name == info.name && spec.shape == info.shape && info.dtype == DType::kF32;
        });
    if (same) return {};
    return invalid_argument(file.path().string(), file.path().string() + " is of another model");
}

Status check_digest(const safetensors::File& file) {
    digest::Sha256 sha256;
    std::vector<std::byte> buffer;
    for (const TensorInfo& tensor : file.header().tensors) {
        if (tensor.name == kDigest) break;
        for (std::uint64_t at = 0; at < tensor.end - tensor.begin; at += buffer.size()) {
            buffer.resize(static_cast<std::size_t>(std::min(kReadBytes, tensor.end - tensor.begin - at)));
            ATOLL_RETURN_IF_ERROR(file.read(tensor, at, buffer));
            sha256.update(as_text(buffer));
        }
    }
    std::vector<std::byte> told(kDigestBytes);
    ATOLL_RETURN_IF_ERROR(file.read(file.header().tensors.back(), 0, told));
    return as_text(told) == sha256.finish() ? Status() : damaged(file.path(), "its values are not what was saved");
}

}  // namespace

RoundingError::RoundingError(safetensors::File file) : file_(std::move(file)) {}

Result<RoundingError> RoundingError::open(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                                          const std::string& name) {
    ATOLL_TRY(safetensors::File file, safetensors::File::open(path));
    const auto& metadata = file.header().metadata;
    const auto found = metadata.find(kNameKey);
    if (found == metadata.end()) return damaged(path, "it does not say whose it is");
    if (!name.empty() && found->second != name)
        return conflict(path.string() + " is that of '" + found->second + "', not of '" + name + "'", path.string());
    ATOLL_RETURN_IF_ERROR(check_tensors(file, tensors));
    ATOLL_RETURN_IF_ERROR(check_digest(file));
    return RoundingError(std::move(file));
}

Status RoundingError::read(const std::string& tensor, std::uint64_t begin, std::span<float> into) const {
    const TensorInfo* info = file_.header().find(tensor);
    check(info != nullptr, "RoundingError::read of a tensor that was checked");
    return file_.read(*info, begin * sizeof(float), std::as_writable_bytes(into));
}

struct RoundingErrorWriter::Impl {
    safetensors::Writer writer;
    digest::Sha256 sha256 = {};
};

RoundingErrorWriter::RoundingErrorWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RoundingErrorWriter::RoundingErrorWriter(RoundingErrorWriter&&) noexcept = default;
RoundingErrorWriter::~RoundingErrorWriter() = default;

Result<RoundingErrorWriter> RoundingErrorWriter::create(const std::filesystem::path& file,
                                                        const std::vector<TensorSpec>& tensors,
                                                        const std::string& name) {
    std::vector<TensorInfo> infos;
    for (const TensorSpec& spec : tensors) infos.push_back({spec.name, DType::kF32, spec.shape, 0, 0});
    infos.push_back({kDigest, DType::kU8, {kDigestBytes}, 0, 0});
    ATOLL_TRY(auto writer, safetensors::Writer::create(file, std::move(infos), {{kNameKey, name}}));
    return RoundingErrorWriter(std::make_unique<Impl>(Impl{std::move(writer)}));
}

Status RoundingErrorWriter::append(std::span<const float> values) {
    impl_->sha256.update(as_text(std::as_bytes(values)));
    return impl_->writer.append(std::as_bytes(values));
}

Status RoundingErrorWriter::finish() {
    const std::string digest = impl_->sha256.finish();
    ATOLL_RETURN_IF_ERROR(impl_->writer.append(std::as_bytes(std::span(digest))));
    return impl_->writer.finish();
}

}  // namespace atl::weights
