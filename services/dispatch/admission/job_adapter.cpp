#include "services/dispatch/admission/job_adapter.h"

#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "services/dispatch/domain/training_settings.h"
#include "shared/adapter/adapter.h"
#include "shared/aggregate/strategy.h"
#include "shared/base/text.h"
#include "shared/model_config/model_config.h"
#include "shared/model_config/tensors.h"

namespace atl::dispatch {
namespace {

using json::Json;
using run_settings::RunConfig;

// A submission waits until it is made and sent: seconds.
constexpr std::uint64_t kStartBytesMax = std::uint64_t{1} << 30;

// The error names the setting of the job: "training.lora_rank".
Error of_training(Error error) {
    error = run_settings::with_keys(std::move(error));
    error.field = "training." + error.field;
    return error;
}

safetensors::DType dtype_of(const RunConfig& config) {
    switch (config.save_dtype.value_or(run_settings::Precision::kFp32)) {
        case run_settings::Precision::kBf16:
            return safetensors::DType::kBF16;
        case run_settings::Precision::kFp16:
            return safetensors::DType::kF16;
        case run_settings::Precision::kFp32:
            break;
    }
    return safetensors::DType::kF32;
}

// The options of the adapter that the job goes on from, which its settings must be.
Result<adapter::LoraOptions> read_given_adapter(const Catalog& catalog, const Json& version, const RunConfig& config) {
    ATOLL_TRY(const Json object, catalog.read_object(version, adapter::kConfigFile));
    const auto options = adapter::parse_config(object.is_object() ? object : Json::object());
    if (!options.ok()) return invalid_argument("model.version", describe(options.error()));
    if (config.lora_rank == 0)
        return invalid_argument("model.version", "is an adapter: set training.lora_rank to its rank, " +
                                                     std::to_string(options->rank) +
                                                     ", to train it further, or name a model");
    const Status same = adapter::check_flags(config, *options);
    if (!same.ok()) return of_training(same.error());
    return options;
}

// The adapter that a job with these settings begins with on a model.
struct NewAdapter {
    adapter::LoraOptions options;
    adapter::InitialAdapter weights;
};
Result<NewAdapter> new_adapter(const model_config::ModelConfig& model, const RunConfig& config) {
    const auto options = adapter::options_of(config);
    if (!options.ok()) return of_training(options.error());
    const auto tensors = adapter::tensors_on(*options, model_config::tensors_of(model));
    if (!tensors.ok()) return of_training(tensors.error());
    adapter::InitialAdapter weights(*tensors, dtype_of(config), static_cast<std::uint64_t>(config.seed),
                                    std::string(to_string(config.quantize)));
    if (weights.size() > kStartBytesMax)
        return invalid_argument("training.lora_rank", "makes adapters of " + human_bytes(weights.size()) + ", of " +
                                                          human_bytes(kStartBytesMax) +
                                                          " at most: lower it, name fewer lora_targets, or give "
                                                          "save_dtype bf16");
    return NewAdapter{*options, std::move(weights)};
}

// The model that a given adapter belongs to.
Result<BaseModel> model_of_adapter(const Catalog& catalog, const std::string& digest) {
    const auto version = catalog.version(digest);
    if (!version.ok() && version.error().code == ErrorCode::kNotFound)
        return invalid_argument("model.version", "the model that this adapter belongs to, " + digest + ", was removed");
    ATOLL_RETURN_IF_ERROR(version);
    return catalog.base_model(*version);
}

}  // namespace

Status check_product_size(const JobSpec& spec, std::span<const model_config::TensorSpec> adapter) {
    std::map<std::string_view, const model_config::TensorSpec*> tensors;  // thousands of layers have tens of thousands
    for (const model_config::TensorSpec& tensor : adapter) tensors.emplace(tensor.name, &tensor);
    for (const model_config::TensorSpec& a : adapter) {
        if (!a.name.ends_with(adapter::kA)) continue;
        const std::string module = a.name.substr(0, a.name.size() - std::string_view(adapter::kA).size());
        const auto b = tensors.find(module + std::string(adapter::kB));
        if (b == tensors.end()) continue;
        const auto rank = static_cast<std::uint64_t>(a.shape[0]);
        const std::uint64_t numbers = aggregate::pair_numbers(static_cast<std::uint64_t>(a.shape[1]),
                                                              static_cast<std::uint64_t>(b->second->shape[0]),
                                                              rank * (spec.participants.size() + 1), rank);
        if (numbers <= aggregate::kPairNumbersMax) continue;
        return invalid_argument(
            "strategy.name", "product would hold " + std::to_string(numbers) + " numbers to make the adapter of " +
                                 module + " from " + std::to_string(spec.participants.size()) + " updates, and holds " +
                                 std::to_string(aggregate::kPairNumbersMax) +
                                 " at most: lower training.lora_rank, leave it out of lora_targets, or choose "
                                 "fedavg");
    }
    return {};
}

Status take_adapter(const JobSpec& spec, const adapter::LoraOptions& options, BaseModel& model) {
    const auto tensors = adapter::tensors_on(options, model_config::tensors_of(*model.config));
    if (!tensors.ok()) return of_training(tensors.error());
    for (const model_config::TensorSpec& tensor : *tensors)
        model.adapter_parameters +=
            std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::uint64_t{1}, std::multiplies<>());
    return spec.strategy.name == "product" ? check_product_size(spec, *tensors) : Status();
}

Result<BaseModel> find_base_model(const Catalog& catalog, JobView& job) {
    ATOLL_TRY(const RunConfig config, parse_training_settings(job.spec.training, "training"));
    ATOLL_TRY(const Json version, catalog.model_version(job.spec.model, job.base));
    ATOLL_TRY(BaseModel named, catalog.base_model(version));
    if (named.is_change)
        return invalid_argument("model.version",
                                "is an update that holds only the change of a model, and no job can start from that: "
                                "name a round's model instead");
    if (!named.adapter_of.empty()) {
        ATOLL_TRY(const adapter::LoraOptions options, read_given_adapter(catalog, version, config));
        job.spec.adapter_of = named.adapter_of;
        ATOLL_TRY(BaseModel model, model_of_adapter(catalog, named.adapter_of));
        model.adapter_bytes = named.weight_bytes;
        if (model.config.ok()) ATOLL_RETURN_IF_ERROR(take_adapter(job.spec, options, model));
        return model;
    }
    if (!named.config.ok()) return named;  // the examination says what is wrong with it
    if (config.lora_rank == 0) {           // updates of weights have what the base has
        ATOLL_TRY(named.ignored_tensor, catalog.find_ignored_tensor(version, *named.config));
        return named;
    }
    ATOLL_TRY(const NewAdapter start, new_adapter(*named.config, config));
    ATOLL_RETURN_IF_ERROR(take_adapter(job.spec, start.options, named));
    named.adapter_bytes = start.weights.size();
    job.spec.adapter_of = job.base;
    return named;
}

Status make_start_adapter(const Catalog& catalog, JobView& job) {
    if (job.spec.adapter_of.empty() || job.base != job.spec.adapter_of) return {};
    ATOLL_TRY(const RunConfig config, parse_training_settings(job.spec.training, "training"));
    ATOLL_TRY(const Json version, catalog.model_version(job.spec.model, job.base));
    ATOLL_TRY(const BaseModel model, catalog.base_model(version));
    ATOLL_RETURN_IF_ERROR(model.config);
    ATOLL_TRY(const NewAdapter start, new_adapter(*model.config, config));
    ATOLL_TRY(job.base, catalog.make_adapter(job.spec.output_model, job.spec.adapter_of,
                                             adapter::config_text(start.options, job.spec.model), start.weights));
    return {};
}

}  // namespace atl::dispatch
