#include "trainer/weights/save.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/delta/delta.h"
#include "shared/model_config/tensors.h"
#include "shared/safetensors/file.h"
#include "trainer/weights/model_files.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

using safetensors::TensorInfo;

// Values converted at a time.
constexpr std::size_t kConvertedElements = 1U << 18;

std::uint64_t size_bytes(const TensorSpec& tensor) {
    std::uint64_t size = static_cast<std::uint64_t>(safetensors::size_bytes(tensor.dtype));
    for (const std::int64_t extent : tensor.shape) size *= static_cast<std::uint64_t>(extent);
    return size;
}

Status check_room_of(const std::vector<TensorSpec>& tensors, const std::filesystem::path& out) {
    double parameters = 0, bytes = 0;
    for (const TensorSpec& tensor : tensors) {
        bytes += static_cast<double>(size_bytes(tensor));
        parameters +=
            static_cast<double>(size_bytes(tensor)) / static_cast<double>(safetensors::size_bytes(tensor.dtype));
    }
    return check_room(out, bytes, "the model's " + number_text(parameters) + " parameters need");
}

// Tensors [begin, end) of one file.
struct Shard {
    std::size_t begin = 0;
    std::size_t end = 0;
};

// As transformers cuts: a new shard when the next tensor would pass the limit; a larger tensor has its own.
std::vector<Shard> cut(const std::vector<TensorSpec>& tensors, std::uint64_t shard_bytes_max) {
    std::vector<Shard> shards(1);
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (size != 0 && size + size_bytes(tensors[i]) > shard_bytes_max) {
            shards.push_back({i, i});
            size = 0;
        }
        size += size_bytes(tensors[i]);
        shards.back().end = i + 1;
    }
    return shards;
}

std::string shard_name(const std::string& stem, std::size_t index, std::size_t count) {
    if (count == 1) return stem + kWeightSuffix;
    char number[64];
    std::snprintf(number, sizeof number, "-%05zu-of-%05zu", index + 1, count);
    return stem + number + kWeightSuffix;
}

std::string make_index(const std::string& stem, const std::vector<TensorSpec>& tensors,
                       const std::vector<Shard>& shards) {
    std::uint64_t total = 0;
    nlohmann::json weight_map = nlohmann::json::object();
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
        for (std::size_t i = shards[shard].begin; i < shards[shard].end; ++i) {
            weight_map[tensors[i].name] = shard_name(stem, shard, shards.size());
            total += size_bytes(tensors[i]);
        }
    }
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    return index.dump(2) + "\n";
}

}  // namespace

struct WeightWriter::Impl {
    Impl(StagedDirectory directory, std::vector<TensorSpec> specs, WeightFiles names)
        : staged(std::move(directory)),
          tensors(std::move(specs)),
          files(std::move(names)),
          shards(cut(tensors, files.shard_bytes_max)) {}

    // Closes files that are complete and opens the one that takes the next value. Tensors without elements pass.
    Status advance() {
        while (tensor < tensors.size() && written == element_count(tensor)) {
            ++tensor;
            written = 0;
        }
        while (writer && tensor >= shards[shard].end) {
            ATOLL_RETURN_IF_ERROR(writer->finish());
            writer.reset();
            if (++shard < shards.size()) ATOLL_RETURN_IF_ERROR(open_shard());
        }
        return {};
    }

    Status open_shard() {
        std::vector<TensorInfo> infos;
        for (std::size_t i = shards[shard].begin; i < shards[shard].end; ++i)
            infos.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape, 0, 0});
        ATOLL_TRY(auto opened, safetensors::Writer::create(staged.path() / shard_name(files.stem, shard, shards.size()),
                                                           std::move(infos), files.metadata));
        writer = std::make_unique<safetensors::Writer>(std::move(opened));
        return {};
    }

    std::uint64_t element_count(std::size_t index) const {
        return size_bytes(tensors[index]) / static_cast<std::uint64_t>(safetensors::size_bytes(tensors[index].dtype));
    }

    // Values of the tensor that is being written, at most a piece of it.
    Status append_piece(std::span<const float> values) {
        const TensorSpec& spec = tensors[tensor];
        buffer.resize(values.size() * static_cast<std::size_t>(safetensors::size_bytes(spec.dtype)));
        if (!narrow(spec.dtype, values, buffer))
            return invalid_argument(spec.name, "tensor \"" + spec.name + "\" holds a value that is not finite as " +
                                                   to_string(spec.dtype) + "; it is not saved");
        return writer->append(buffer);
    }

    StagedDirectory staged;
    std::vector<TensorSpec> tensors;
    WeightFiles files;
    std::vector<Shard> shards;
    std::size_t shard = 0;                        // being written
    std::size_t tensor = 0;                       // that takes the next value
    std::uint64_t written = 0;                    // elements of it
    std::unique_ptr<safetensors::Writer> writer;  // of a file in `staged`
    std::vector<std::byte> buffer;
};

WeightWriter::WeightWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightWriter::~WeightWriter() = default;
WeightWriter::WeightWriter(WeightWriter&&) noexcept = default;
WeightWriter& WeightWriter::operator=(WeightWriter&&) noexcept = default;

Result<WeightWriter> WeightWriter::create(const std::filesystem::path& out, std::vector<TensorSpec> tensors,
                                          const SaveOptions& options) {
    if (options.dtype) {
        for (TensorSpec& tensor : tensors) tensor.dtype = *options.dtype;
    }
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(out));
    if (options.is_whole_command) ATOLL_RETURN_IF_ERROR(check_room_of(tensors, out));
    ATOLL_RETURN_IF_ERROR(
        copy_model_files(options.base, options.config, options.config_text, common_dtype(tensors), staged.path()));
    // transformers refuses files without this entry.
    return create(std::move(staged), std::move(tensors),
                  {"model", "config.json", {{"format", "pt"}}, options.shard_bytes_max});
}

Result<WeightWriter> WeightWriter::create(StagedDirectory staged, std::vector<TensorSpec> tensors, WeightFiles files) {
    check(!tensors.empty() && files.shard_bytes_max > 0, "a model without tensors, or shards without room");
    for (const TensorSpec& tensor : tensors)
        check(model_config::is_weight_dtype(tensor.dtype), "weights are saved as F32, F16 or BF16");
    auto impl = std::make_unique<Impl>(std::move(staged), std::move(tensors), std::move(files));
    ATOLL_RETURN_IF_ERROR(impl->open_shard());
    ATOLL_RETURN_IF_ERROR(impl->advance());
    return WeightWriter(std::move(impl));
}

Result<WeightWriter> WeightWriter::create_like(const WeightWriter& other, const std::filesystem::path& out) {
    const Impl& from = *other.impl_;
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(out));
    std::error_code error;
    for (std::filesystem::directory_iterator file(from.staged.path(), error), end; !error && file != end;
         file.increment(error)) {
        const std::filesystem::path name = file->path().filename();
        if (is_weight_file(from.files.stem, name.string())) continue;
        std::filesystem::copy_file(file->path(), staged.path() / name, error);
        if (error) break;
    }
    if (error) return internal_error("cannot copy " + from.staged.path().string() + ": " + error.message());
    return create(std::move(staged), from.tensors, from.files);
}

Status stage_model_files(const StagedDirectory& staged, const std::filesystem::path& base) {
    return copy_model_files(base, {}, {}, std::nullopt, staged.path());
}

Status WeightWriter::append(std::span<const float> values) {
    while (!values.empty()) {
        check(impl_->tensor < impl_->tensors.size(), "more values than the model's tensors have");
        const std::uint64_t room = impl_->element_count(impl_->tensor) - impl_->written;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>({room, values.size(), kConvertedElements}));
        ATOLL_RETURN_IF_ERROR(impl_->append_piece(values.first(count)));
        impl_->written += count;
        values = values.subspan(count);
        ATOLL_RETURN_IF_ERROR(impl_->advance());
    }
    return {};
}

Status WeightWriter::add_file(const std::string& name, std::string_view bytes) {
    return write_file_atomic(impl_->staged.path() / name, bytes);
}

const std::filesystem::path& WeightWriter::staged() const {
    return impl_->staged.path();
}

Status WeightWriter::finish() {
    if (impl_->tensor != impl_->tensors.size())
        return internal_error("the model is incomplete: values of \"" + impl_->tensors[impl_->tensor].name +
                              "\" are missing");
    if (impl_->shards.size() > 1)
        ATOLL_RETURN_IF_ERROR(write_file_atomic(impl_->staged.path() / (impl_->files.stem + kIndexSuffix),
                                                make_index(impl_->files.stem, impl_->tensors, impl_->shards)));
    return impl_->staged.commit(impl_->files.config, [&](const std::string& name) {
        // Of another model, its tokenizer too.
        return is_weight_file(impl_->files.stem, name) || name == delta::kFile ||
               (impl_->files.stem == "model" && is_model_file(name));
    });
}

ModelSize WeightWriter::size() const {
    ModelSize size;
    for (std::size_t i = 0; i < impl_->tensors.size(); ++i) {
        size.parameters += impl_->element_count(i);
        size.bytes += size_bytes(impl_->tensors[i]);
    }
    return size;
}

std::string to_json_line(const ModelSize& size) {
    return nlohmann::ordered_json{{"parameters", size.parameters}, {"bytes", size.bytes}}.dump();
}

Status check_not_the_model(const std::filesystem::path& out, const std::filesystem::path& model) {
    std::error_code missing;
    if (!std::filesystem::equivalent(out, model, missing)) return {};
    return invalid_argument("--out", "'" + out.string() + "' is the model itself; name another directory");
}

Status check_room(const std::filesystem::path& out, double bytes, const std::string& needed) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(out, error);
    const bool is_told = !error && space.capacity > 0;
    if (!is_told || bytes <= static_cast<double>(space.available)) return {};
    return Error{ErrorCode::kInsufficientStorage,
                 "the disk of " + out.string() + " has " + human_bytes(space.available) + " free, " + needed + " " +
                     human_bytes(static_cast<std::uint64_t>(std::min(bytes, 9e18))),
                 "--out"};
}

}  // namespace atl::weights
