#include "trainer/weights/control_variate.h"

#include <algorithm>
#include <utility>

#include "shared/base/text.h"
#include "shared/delta/base_digest.h"
#include "shared/delta/delta.h"
#include "shared/digest/digest.h"
#include "trainer/weights/kept_file.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

using safetensors::TensorInfo;

constexpr const char* kNameKey = "atoll.control_variate";  // of the metadata
constexpr auto kFormat = delta::Format::kInt8;

std::vector<TensorInfo> packed_tensors_of(const std::vector<TensorSpec>& tensors) {
    std::vector<TensorInfo> infos;
    for (const TensorSpec& spec : tensors)
        infos.push_back(delta::packed_tensor(kFormat, {spec.name, spec.dtype, spec.shape, 0, 0}));
    return infos;
}

}  // namespace

KeptControlVariate::KeptControlVariate(safetensors::File file) : file_(std::move(file)) {}

Result<KeptControlVariate> KeptControlVariate::open(const std::filesystem::path& path,
                                                    const std::vector<TensorSpec>& tensors, const std::string& name) {
    ATOLL_TRY(safetensors::File file, open_kept_file(path, packed_tensors_of(tensors), kNameKey, name));
    return KeptControlVariate(std::move(file));
}

Status KeptControlVariate::subtract(const std::string& tensor, std::uint64_t begin, std::span<float> from) const {
    const TensorInfo* info = file_.header().find(tensor);
    check(info != nullptr, "KeptControlVariate::subtract of a tensor that was checked");
    const std::uint64_t first = begin / delta::kBlockElements;
    const std::uint64_t last = delta::block_count(begin + from.size());
    std::vector<std::byte> blocks(static_cast<std::size_t>(last - first) * delta::block_bytes(kFormat));
    ATOLL_RETURN_IF_ERROR(file_.read(*info, first * delta::block_bytes(kFormat), blocks));
    std::vector<float> own(from.size());
    delta::add_changes(kFormat, blocks, begin, own);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] -= own[i];
    return {};
}

Result<std::string> KeptControlVariate::sha256() const {
    return kept_sha256(file_);
}

std::optional<CommonControlVariate::Place> CommonControlVariate::find(const std::string& tensor) const {
    for (const safetensors::File& file : files_)
        if (const TensorInfo* found = file.header().find(tensor)) return Place{&file, found};
    return std::nullopt;
}

Result<std::optional<CommonControlVariate>> CommonControlVariate::open(const std::filesystem::path& model,
                                                                       const std::vector<TensorSpec>& tensors) {
    const std::filesystem::path directory = model / delta::kControlVariateFolder;
    std::error_code error;
    if (!std::filesystem::exists(directory, error) && !error) return std::optional<CommonControlVariate>();
    ATOLL_TRY(const auto base, safetensors::Model::open(model));
    std::vector<safetensors::File> files;
    for (const safetensors::File& of_model : base.files()) {
        ATOLL_TRY(auto file, safetensors::File::open(directory / of_model.path().filename()));
        files.push_back(std::move(file));
    }
    CommonControlVariate common(std::move(files));
    for (const TensorSpec& spec : tensors) {
        const auto place = common.find(spec.name);
        const auto refuse = [&](const std::string& file, const std::string& what) {
            return invalid_argument(file, file + ": tensor " + in_quotes(spec.name) + " " + what);
        };
        if (!place) return refuse(directory.string(), "of the model is in none of its files");
        const std::string file = place->file->path().string();
        if (place->tensor->shape != spec.shape) return refuse(file, "has another shape than the model's");
        if (place->tensor->dtype != DType::kF32 && place->tensor->dtype != DType::kBF16)
            return refuse(
                file, std::string("is ") + safetensors::to_string(place->tensor->dtype) + ", but must be F32 or BF16");
    }
    return std::optional(std::move(common));
}

Status CommonControlVariate::read(const std::string& tensor, std::uint64_t begin, std::span<float> into) const {
    const auto place = find(tensor);
    check(place.has_value(), "CommonControlVariate::read of a tensor that was checked");
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(place->tensor->dtype));
    std::vector<std::byte> bytes(into.size() * width);
    ATOLL_RETURN_IF_ERROR(place->file->read(*place->tensor, begin * width, bytes));
    if (widen(place->tensor->dtype, bytes, into)) return {};
    const std::string file = place->file->path().string();
    return invalid_argument(file, file + ": tensor " + in_quotes(tensor) + " holds a value that is not finite");
}

Result<std::string> CommonControlVariate::sha256() const {
    digest::Sha256 sha256;
    for (const safetensors::File& file : files_) {
        for (const TensorInfo& tensor : file.header().tensors) {
            ATOLL_TRY(const std::string digest, delta::tensor_sha256(file, tensor));
            sha256.update(tensor.name);
            sha256.update(digest);
        }
    }
    return sha256.finish();
}

struct ControlVariateWriter::Impl {
    safetensors::Writer writer;
    KeptFileWriter kept;
    std::vector<std::byte> blocks = {};
};

ControlVariateWriter::ControlVariateWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlVariateWriter::ControlVariateWriter(ControlVariateWriter&&) noexcept = default;
ControlVariateWriter::~ControlVariateWriter() = default;

Result<ControlVariateWriter> ControlVariateWriter::create(const Options& options,
                                                          const std::vector<TensorSpec>& tensors) {
    ATOLL_TRY(auto writer, safetensors::Writer::create(
                               options.file, packed_tensors_of(tensors),
                               {{delta::kFormatKey, delta::to_string(kFormat)}, {delta::kBaseKey, options.base_name}}));
    ATOLL_TRY(auto kept, KeptFileWriter::create(options.kept, packed_tensors_of(tensors), kNameKey, options.name));
    return ControlVariateWriter(std::make_unique<Impl>(Impl{std::move(writer), std::move(kept)}));
}

Status ControlVariateWriter::append(const std::string& tensor, std::span<float> values) {
    const std::size_t block_bytes = delta::block_bytes(kFormat);
    impl_->blocks.resize(static_cast<std::size_t>(delta::block_count(values.size())) * block_bytes);
    for (std::size_t at = 0, block = 0; at < values.size(); at += delta::kBlockElements, block += block_bytes) {
        const auto of_block = values.subspan(at, std::min(delta::kBlockElements, values.size() - at));
        if (!delta::encode_block(kFormat, of_block, std::span(impl_->blocks).subspan(block, block_bytes)))
            return invalid_argument(tensor, "the mean gradient of tensor " + in_quotes(tensor) +
                                                " holds a value that is not finite; it is not saved");
    }
    ATOLL_RETURN_IF_ERROR(impl_->writer.append(impl_->blocks));
    return impl_->kept.append(impl_->blocks);
}

// The kept one first: where there is a result, so is that.
Status ControlVariateWriter::finish() {
    ATOLL_RETURN_IF_ERROR(impl_->kept.finish());
    return impl_->writer.finish();
}

std::uint64_t ControlVariateWriter::bytes(const std::vector<TensorSpec>& tensors) {
    std::uint64_t bytes = 0;
    for (const TensorInfo& tensor : packed_tensors_of(tensors))
        bytes += 2 * static_cast<std::uint64_t>(tensor.element_count());
    return bytes;
}

}  // namespace atl::weights
