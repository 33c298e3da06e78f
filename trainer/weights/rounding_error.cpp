#include "trainer/weights/rounding_error.h"

#include <utility>

#include "trainer/weights/kept_file.h"

namespace atl::weights {
namespace {

constexpr const char* kNameKey = "atoll.rounding_error";  // of the metadata

std::vector<safetensors::TensorInfo> error_tensors(const std::vector<TensorSpec>& tensors) {
    std::vector<safetensors::TensorInfo> infos;
    for (const TensorSpec& spec : tensors) infos.push_back({spec.name, DType::kF32, spec.shape, 0, 0});
    return infos;
}

}  // namespace

RoundingError::RoundingError(safetensors::File file) : file_(std::move(file)) {}

Result<RoundingError> RoundingError::open(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                                          const std::string& name) {
    ATOLL_TRY(safetensors::File file, open_kept_file(path, error_tensors(tensors), kNameKey, name));
    return RoundingError(std::move(file));
}

Status RoundingError::read(const std::string& tensor, std::uint64_t begin, std::span<float> into) const {
    const safetensors::TensorInfo* info = file_.header().find(tensor);
    check(info != nullptr, "RoundingError::read of a tensor that was checked");
    return file_.read(*info, begin * sizeof(float), std::as_writable_bytes(into));
}

struct RoundingErrorWriter::Impl {
    KeptFileWriter writer;
};

RoundingErrorWriter::RoundingErrorWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RoundingErrorWriter::RoundingErrorWriter(RoundingErrorWriter&&) noexcept = default;
RoundingErrorWriter::~RoundingErrorWriter() = default;

Result<RoundingErrorWriter> RoundingErrorWriter::create(const std::filesystem::path& file,
                                                        const std::vector<TensorSpec>& tensors,
                                                        const std::string& name) {
    ATOLL_TRY(auto writer, KeptFileWriter::create(file, error_tensors(tensors), kNameKey, name));
    return RoundingErrorWriter(std::make_unique<Impl>(Impl{std::move(writer)}));
}

Status RoundingErrorWriter::append(std::span<const float> values) {
    return impl_->writer.append(std::as_bytes(values));
}

Status RoundingErrorWriter::finish() {
    return impl_->writer.finish();
}

}  // namespace atl::weights
