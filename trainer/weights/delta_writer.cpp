#include "trainer/weights/delta_writer.h"

#include <algorithm>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/model_files.h"

namespace atl::weights {
namespace {

using safetensors::TensorInfo;

// Values that are rounded at a time: whole blocks.
constexpr std::size_t kRoundedElements = 1U << 16;
static_assert(kRoundedElements % delta::kBlockElements == 0);

std::uint64_t element_count(const TensorSpec& tensor) {
    std::uint64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::uint64_t>(extent);
    return count;
}

std::vector<TensorInfo> packed_tensors(const std::vector<TensorSpec>& tensors, delta::Format format) {
    std::vector<TensorInfo> infos;
    for (const TensorSpec& spec : tensors) {
        const std::uint64_t bytes = element_count(spec) * static_cast<std::uint64_t>(size_bytes(spec.dtype));
        infos.push_back(delta::packed_tensor(format, {spec.name, spec.dtype, spec.shape, 0, bytes}));
    }
    return infos;
}

}  // namespace

struct DeltaWriter::Impl {
    // Tensors without elements pass.
    void advance() {
        while (tensor < tensors.size() && written == element_count(tensors[tensor])) {
            ++tensor;
            written = 0;
        }
    }

    // Only now, as the directory is there only now.
    Status open_error() {
        if (error_writer) return {};
        ATOLL_TRY(auto opened, RoundingErrorWriter::create(options.error_out, tensors, options.error_name));
        error_writer.emplace(std::move(opened));
        return {};
    }

    // Rounds and writes the values that wait.
    Status write_waiting() {
        const TensorSpec& spec = tensors[tensor];
        other.resize(waiting.size());
        ATOLL_RETURN_IF_ERROR(base.read(spec.name, static_cast<std::int64_t>(written),
                                        static_cast<std::int64_t>(written + waiting.size()), other));
        for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i] -= other[i];
        if (options.error) {
            ATOLL_RETURN_IF_ERROR(options.error->read(spec.name, written, other));
            for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i] += other[i];
        }
        const std::size_t block_bytes = delta::block_bytes(options.format);
        blocks.resize(static_cast<std::size_t>(delta::block_count(waiting.size())) * block_bytes);
        for (std::size_t at = 0, block = 0; at < waiting.size(); at += delta::kBlockElements, block += block_bytes) {
            const auto values = std::span(waiting).subspan(at, std::min(delta::kBlockElements, waiting.size() - at));
            if (!delta::encode_block(options.format, values, std::span(blocks).subspan(block, block_bytes)))
                return invalid_argument(spec.name, "the change of tensor " + in_quotes(spec.name) +
                                                       " holds a value that is not finite; it is not saved");
        }
        ATOLL_RETURN_IF_ERROR(writer.append(blocks));
        ATOLL_RETURN_IF_ERROR(open_error());
        ATOLL_RETURN_IF_ERROR(error_writer->append(waiting));
        written += waiting.size();
        waiting.clear();
        advance();
        return {};
    }

    StagedDirectory staged;
    std::string gate;
    WeightReader base;
    std::vector<TensorSpec> tensors;
    DeltaOptions options;
    safetensors::Writer writer;
    std::optional<RoundingErrorWriter> error_writer = {};
    std::size_t tensor = 0;     // that takes the next value
    std::uint64_t written = 0;  // elements of it, without those that wait
    std::vector<float> waiting = {};
    std::vector<float> other = {};
    std::vector<std::byte> blocks = {};
};

DeltaWriter::DeltaWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeltaWriter::~DeltaWriter() = default;
DeltaWriter::DeltaWriter(DeltaWriter&&) noexcept = default;
DeltaWriter& DeltaWriter::operator=(DeltaWriter&&) noexcept = default;

Result<DeltaWriter> DeltaWriter::create(StagedDirectory staged, std::string gate, WeightReader base,
                                        std::vector<TensorSpec> tensors, DeltaOptions options) {
    std::map<std::string, std::string> metadata = options.metadata;
    metadata[delta::kFormatKey] = to_string(options.format);
    metadata[delta::kBaseKey] = options.base_name;
    ATOLL_TRY(auto writer, safetensors::Writer::create(staged.path() / delta::kFile,
                                                       packed_tensors(tensors, options.format), metadata));
    auto impl = std::make_unique<Impl>(Impl{std::move(staged), std::move(gate), std::move(base), std::move(tensors),
                                            std::move(options), std::move(writer)});
    impl->advance();
    return DeltaWriter(std::move(impl));
}

Status DeltaWriter::append(std::span<const float> values) {
    while (!values.empty()) {
        check(impl_->tensor < impl_->tensors.size(), "more values than the model's tensors have");
        const std::uint64_t left =
            element_count(impl_->tensors[impl_->tensor]) - impl_->written - impl_->waiting.size();
        const auto count = static_cast<std::size_t>(
            std::min<std::uint64_t>({left, values.size(), kRoundedElements - impl_->waiting.size()}));
        impl_->waiting.insert(impl_->waiting.end(), values.begin(),
                              values.begin() + static_cast<std::ptrdiff_t>(count));
        values = values.subspan(count);
        if (count == left || impl_->waiting.size() == kRoundedElements) ATOLL_RETURN_IF_ERROR(impl_->write_waiting());
    }
    return {};
}

Status DeltaWriter::add_file(const std::string& name, std::string_view bytes) {
    return write_file_atomic(impl_->staged.path() / name, bytes);
}

const std::filesystem::path& DeltaWriter::staged() const {
    return impl_->staged.path();
}

Status DeltaWriter::finish() {
    if (impl_->tensor != impl_->tensors.size())
        return internal_error("the change is incomplete: values of \"" + impl_->tensors[impl_->tensor].name +
                              "\" are missing");
    ATOLL_RETURN_IF_ERROR(impl_->open_error());
    ATOLL_RETURN_IF_ERROR(impl_->error_writer->finish());
    ATOLL_RETURN_IF_ERROR(impl_->writer.finish());
    const bool is_adapter = impl_->gate == kAdapterConfig;
    return impl_->staged.commit(
        impl_->gate, [&](const std::string& name) { return is_adapter ? is_adapter_file(name) : is_model_file(name); });
}

std::uint64_t DeltaWriter::bytes() const {
    std::uint64_t bytes = 0;
    for (const TensorSpec& tensor : impl_->tensors)
        bytes += element_count(tensor) * sizeof(float) +
                 delta::block_count(element_count(tensor)) * delta::block_bytes(impl_->options.format);
    return bytes;
}

}  // namespace atl::weights
