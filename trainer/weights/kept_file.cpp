#include "trainer/weights/kept_file.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::weights {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;

constexpr const char* kDigest = "sha256";
constexpr std::int64_t kDigestBytes = 64;
constexpr std::uint64_t kReadBytes = 1U << 20;

Error damaged(const std::filesystem::path& file, const std::string& what) {
    return invalid_argument(file.string(), file.string() + ": " + what + ": the file is damaged");
}

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status check_tensors(const safetensors::File& file, const std::vector<TensorInfo>& tensors) {
    const auto& found = file.header().tensors;
    if (found.empty() || found.back().name != kDigest || found.back().end - found.back().begin != kDigestBytes)
        return damaged(file.path(), "its digest is not there");
    const bool same = std::ranges::equal(
        tensors, std::span(found).first(found.size() - 1), [](const TensorInfo& wanted, const TensorInfo& info) {
            return wanted.name == info.name && wanted.shape == info.shape && wanted.dtype == info.dtype;
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
    ATOLL_TRY(const std::string told, kept_sha256(file));
    return told == sha256.finish() ? Status() : damaged(file.path(), "its values are not what was saved");
}

}  // namespace

Result<safetensors::File> open_kept_file(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                                         const char* name_key, const std::string& name) {
    ATOLL_TRY(safetensors::File file, safetensors::File::open(path));
    const auto& metadata = file.header().metadata;
    const auto found = metadata.find(name_key);
    if (found == metadata.end()) return damaged(path, "it does not say whose it is");
    if (!name.empty() && found->second != name)
        return conflict(path.string() + " is that of '" + found->second + "', not of '" + name + "'", path.string());
    ATOLL_RETURN_IF_ERROR(check_tensors(file, tensors));
    ATOLL_RETURN_IF_ERROR(check_digest(file));
    return file;
}

Result<std::string> kept_sha256(const safetensors::File& file) {
    std::string told(kDigestBytes, ' ');
    ATOLL_RETURN_IF_ERROR(file.read(file.header().tensors.back(), 0, std::as_writable_bytes(std::span(told))));
    return told;
}

struct KeptFileWriter::Impl {
    safetensors::Writer writer;
    digest::Sha256 sha256 = {};
};

KeptFileWriter::KeptFileWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KeptFileWriter::KeptFileWriter(KeptFileWriter&&) noexcept = default;
KeptFileWriter::~KeptFileWriter() = default;

Result<KeptFileWriter> KeptFileWriter::create(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                              const char* name_key, const std::string& name) {
    tensors.push_back({kDigest, DType::kU8, {kDigestBytes}, 0, 0});
    ATOLL_TRY(auto writer, safetensors::Writer::create(path, std::move(tensors), {{name_key, name}}));
    return KeptFileWriter(std::make_unique<Impl>(Impl{std::move(writer)}));
}

Status KeptFileWriter::append(std::span<const std::byte> bytes) {
    impl_->sha256.update(as_text(bytes));
    return impl_->writer.append(bytes);
}

Status KeptFileWriter::finish() {
    const std::string digest = impl_->sha256.finish();
    ATOLL_RETURN_IF_ERROR(impl_->writer.append(std::as_bytes(std::span(digest))));
    return impl_->writer.finish();
}

}  // namespace atl::weights
