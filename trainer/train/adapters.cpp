#include "trainer/train/adapters.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::train {
namespace {

constexpr const char* kDefaultTargets = "q_proj,v_proj";

std::vector<std::string> sorted_list(const std::string& text) {
    std::vector<std::string> parts = split_list(text);
    std::ranges::sort(parts);
    return parts;
}

Result<model::LoraOptions> from_flags(const RunConfig& config) {
    model::LoraOptions options;
    options.rank = config.lora_rank;
    options.alpha = config.given.contains("lora-alpha") ? config.lora_alpha : static_cast<double>(config.lora_rank);
    options.dropout = config.lora_dropout;
    options.targets = sorted_list(config.lora_targets.empty() ? kDefaultTargets : config.lora_targets);
    if (options.targets.empty()) return invalid_argument("--lora-targets", "names no linear");
    if (const auto twice = std::ranges::adjacent_find(options.targets); twice != options.targets.end())
        return invalid_argument("--lora-targets", "names '" + *twice + "' twice");
    const bool all = std::ranges::find(options.targets, "all-linear") != options.targets.end();
    if (all && options.targets.size() > 1) {
        return invalid_argument("--lora-targets", "'all-linear' stands alone (for lm_head too, name all the linears)");
    }
    return options;
}

// A flag may say again what the adapter is; dropout is the run's own.
Status check_flags(const RunConfig& config, const model::LoraOptions& adapter) {
    const auto differs = [](const char* flag, const std::string& is) {
        return invalid_argument(flag, "the adapter that --adapter names has " + is + "; leave the flag out");
    };
    if (config.lora_rank > 0 && config.lora_rank != adapter.rank) {
        return differs("--lora-rank", std::to_string(adapter.rank));
    }
    if (config.given.contains("lora-alpha") && config.lora_alpha != adapter.alpha) {
        return differs("--lora-alpha", number_text(adapter.alpha));
    }
    if (!config.lora_targets.empty() && sorted_list(config.lora_targets) != adapter.targets) {
        return differs("--lora-targets", "others");
    }
    return {};
}

std::string base_text(const std::string& quantize) {
    return quantize == weights::kNotQuantized ? "the model's own weights" : "the model in " + quantize;
}

}  // namespace

Result<std::optional<model_io::AdapterSource>> choose_adapters(const RunConfig& config) {
    model_io::AdapterSource source;
    source.seed = static_cast<std::uint64_t>(config.seed);
    if (!config.adapter.empty()) {
        ATOLL_TRY(source.options, weights::load_adapter_config(config.adapter));
        ATOLL_RETURN_IF_ERROR(check_flags(config, source.options));
        if (config.given.contains("lora-dropout")) source.options.dropout = config.lora_dropout;
        ATOLL_TRY(source.weights, weights::WeightReader::open_adapter(config.adapter));
        ATOLL_TRY(source.trained_on, weights::load_adapter_base(config.adapter));
        return std::optional(std::move(source));
    }
    if (config.lora_rank > 0) {
        ATOLL_TRY(source.options, from_flags(config));
        return std::optional(std::move(source));
    }
    for (const char* flag : {"lora-alpha", "lora-dropout", "lora-targets"}) {
        if (config.given.contains(flag)) {
            return invalid_argument("--" + std::string(flag), "means nothing without --lora-rank");
        }
    }
    return std::optional<model_io::AdapterSource>();
}

std::string other_format_warning(const weights::AdapterBase& trained_on, const std::string& quantize) {
    const std::string format = weights::other_format(trained_on, quantize);
    if (format.empty()) return {};
    const bool own = quantize == weights::kNotQuantized;
    return "the adapter was trained on " + base_text(format) + "; this is " + base_text(quantize) +
           (own ? ", which differ" : ", whose weights differ") + " a little: --quantize " + format + " takes those";
}

}  // namespace atl::train
