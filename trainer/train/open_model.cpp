#include <algorithm>
#include <utility>

#include "shared/adapter/adapter.h"
#include "shared/log/warn.h"
#include "trainer/train/input_paths.h"
#include "trainer/train/prepare.h"
#include "trainer/weights/storage.h"

namespace atl::train {
namespace {

// What --adapter and the --lora flags ask for, absent when nothing.
Result<std::optional<model_io::AdapterSource>> choose_adapters(const RunConfig& config) {
    model_io::AdapterSource source;
    source.seed = static_cast<std::uint64_t>(config.seed);
    if (!config.adapter.empty()) {
        ATOLL_TRY(source.options, weights::load_adapter_config(config.adapter));
        ATOLL_RETURN_IF_ERROR(adapter::check_flags(config, source.options));
        if (config.given.contains("lora-dropout")) source.options.dropout = config.lora_dropout;
        source.options.freeze_a = config.lora_freeze_a == run_settings::OnOff::kOn;
        ATOLL_TRY(source.weights, weights::WeightReader::open_adapter(config.adapter));
        ATOLL_TRY(source.trained_on, weights::load_adapter_base(config.adapter));
        return std::optional(std::move(source));
    }
    if (config.lora_rank > 0) {
        ATOLL_TRY(source.options, adapter::options_of(config));
        return std::optional(std::move(source));
    }
    for (const char* flag : {"lora-alpha", "lora-dropout", "lora-targets", "lora-freeze-a"}) {
        if (config.given.contains(flag)) {
            return invalid_argument("--" + std::string(flag), "means nothing without --lora-rank");
        }
    }
    return std::optional<model_io::AdapterSource>();
}

Result<model_io::ModelDirectory> open_with_adapters(const RunConfig& config, model_io::Weights wanted) {
    ATOLL_TRY(model_io::ModelDirectory directory,
              model_io::open_model_directory(std::filesystem::path(config.model), wanted));
    ATOLL_TRY(auto adapters, choose_adapters(config));
    if (adapters) ATOLL_RETURN_IF_ERROR(model_io::add_adapters(directory, std::move(*adapters)));
    if (const auto format = weights::storage_dtype(config.quantize)) model::quantize_layers(directory.model, *format);
    return directory;
}

std::string base_text(const std::string& quantize) {
    return quantize == weights::kNotQuantized ? "the model's own weights" : "the model in " + quantize;
}

// Its product has no higher rank than the matrix that it is added to.
void warn_of_rank(const model::Model& model, std::int64_t rank) {
    std::int64_t least = rank;  // rows or columns
    for (const model::FsdpUnit& unit : model.units) {
        if (!unit.is_adapter) continue;
        for (const model::Parameter& parameter : unit.parameters)  // [rank, columns] or [rows, rank]
            least = std::min({least, parameter.shape[0], parameter.shape[1]});
    }
    if (least < rank)
        log::warn("--lora-rank " + std::to_string(rank) + " is more than a matrix of " + std::to_string(least) +
                  " rows or columns can have: --lora-rank " + std::to_string(least) + " says as much in less");
}

}  // namespace

Result<model_io::ModelDirectory> open_model(const RunConfig& config, comm::Comm& comm, model_io::Weights wanted) {
    ATOLL_RETURN_IF_ERROR(comm.agree(check_model_path(config.model, "--model")));
    if (!config.adapter.empty()) ATOLL_RETURN_IF_ERROR(comm.agree(check_adapter_path(config.adapter, "--adapter")));
    ATOLL_TRY(model_io::ModelDirectory directory, comm::agreed(comm, open_with_adapters(config, wanted)));
    ATOLL_RETURN_IF_ERROR(model_io::check_tied_head(directory, comm, config.broadcast_from_rank0));
    return directory;
}

Result<model_io::ModelDirectory> open_model_to_read(const RunConfig& config, comm::Comm& comm) {
    ATOLL_TRY(model_io::ModelDirectory directory, open_model(config, comm));
    warn_of_adapters(directory, config, comm);
    directory.model.use_formats(formats_of(config));
    return directory;
}

Status compare_with_adapters(const model_io::ModelDirectory& directory, const RunConfig& config, comm::Comm& comm) {
    if (!directory.adapters) return {};
    return model_io::warn_of_other_weights(directory, directory.adapters->trained_on, comm,
                                           config.broadcast_from_rank0);
}

kernels::Formats formats_of(const RunConfig& config) {
    using weights::storage_dtype;
    return {
        .weights = storage_dtype(config.precision),
        .activations = storage_dtype(config.computes_in()),
        .residual = storage_dtype(config.residual_in()),
        .reduced =
            config.reduce_dtype == run_settings::ReducePrecision::kBf16 ? tensor::DType::kBF16 : tensor::DType::kF32,
        .masters = config.masters == run_settings::Masters::kFp32 ? std::optional(tensor::DType::kF32) : std::nullopt,
        .moments =
            config.moments_dtype == run_settings::MomentsPrecision::kBf16 ? tensor::DType::kBF16 : tensor::DType::kF32};
}

void warn_of_adapters(const model_io::ModelDirectory& directory, const RunConfig& config, const comm::Comm& comm) {
    if (!directory.adapters || comm.rank() != 0) return;
    const std::string quantize(to_string(config.quantize));
    const std::string format = weights::other_format(directory.adapters->trained_on, quantize);
    if (!format.empty())
        log::warn("the adapter was trained on " + base_text(format) + "; this is " + base_text(quantize) +
                  (quantize == weights::kNotQuantized ? ", which differ" : ", whose weights differ") +
                  " a little: --quantize " + format + " takes those");
    if (!directory.adapters->weights) warn_of_rank(directory.model, config.lora_rank);
}

}  // namespace atl::train
