#include "shared/adapter/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::adapter {
namespace {

using model_config::TensorSpec;

constexpr std::string_view kWeight = ".weight";
constexpr const char* kDefaultTargets = "q_proj,v_proj";
constexpr std::uint64_t kStepsMax = 300'000'000;  // of a file's patterns and a model's names: a second

std::vector<std::string> sorted_list(const std::string& text) {
    std::vector<std::string> parts = split_list(text);
    std::ranges::sort(parts);
    return parts;
}

// Says what the linears are called.
Status unknown_target(const std::vector<std::string>& linears, const std::string& target) {
    std::vector<std::string> names;
    std::string text;
    for (const std::string& module : linears) {
        const std::string name = module.substr(module.rfind('.') + 1);  // all of it, without a dot
        if (std::ranges::find(names, name) != names.end()) continue;
        names.push_back(name);
        text += (text.empty() ? "" : ", ") + name;
    }
    return invalid_argument("--lora-targets", "'" + target + "' is no linear of this model; those are " + text);
}

// The first value whose pattern names the module; null: none does.
const PatternValue* find_value(const std::vector<PatternValue>& values, std::string_view module) {
    const auto found =
        std::ranges::find_if(values, [&](const PatternValue& one) { return one.pattern.matches(module); });
    return found == values.end() ? nullptr : &*found;
}

bool is_digits(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Whether `before` is or ends in ".LIST", where a '.' in the list's name stands for any character, as in peft.
bool ends_in_list(std::string_view before, std::string_view list) {
    if (before.size() < list.size()) return false;
    const std::size_t begin = before.size() - list.size();
    if (begin > 0 && before[begin - 1] != '.') return false;
    return std::ranges::equal(before.substr(begin), list,
                              [](char have, char want) { return want == '.' || have == want; });
}

// Of "model.layers.12.mlp.up_proj" 12: the first number between dots that stands after such a list; -1: none does.
// Lists are tried in their order; without any, each name is one that is not the module's first.
std::int64_t layer_of(const PeftSettings& peft, std::string_view module) {
    const auto first_after = [&](auto&& is_list) -> std::int64_t {
        for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1)) {
            const std::size_t end = module.find('.', dot + 1);
            if (end == std::string_view::npos) break;
            const std::string_view number = module.substr(dot + 1, end - dot - 1);
            if (is_digits(number) && number.size() < 10 && is_list(module.substr(0, dot)))
                return std::stoll(std::string(number));
        }
        return -1;
    };
    if (peft.layer_lists.empty())
        return first_after([](std::string_view before) { return before.find('.') != std::string_view::npos; });
    for (const std::string& list : peft.layer_lists) {
        const std::int64_t layer = first_after([&](std::string_view before) { return ends_in_list(before, list); });
        if (layer >= 0) return layer;
    }
    return -1;
}

bool is_in_layers(const PeftSettings& peft, std::string_view module) {
    return std::ranges::binary_search(peft.layers, layer_of(peft, module));
}

// In a file the first pattern counts that names a linear. Which one is the first depends on who wrote the file last, so
// that two must not contradict each other.
Status check_values(const std::vector<PatternValue>& values, const char* key, const std::string& module) {
    const PatternValue* first = find_value(values, module);
    for (const PatternValue& other : values) {
        if (first == nullptr || other.value == first->value || !other.pattern.matches(module)) continue;
        return invalid_argument(key, in_quotes(first->key) + " and " + in_quotes(other.key) + " both name " + module +
                                         ", and their order, which is not kept, would decide");
    }
    return {};
}

// That matching all names with all patterns takes a second at most: the file may be a stranger's, and so may the names.
Status check_steps(const LoraOptions& options, const std::vector<std::string>& linears) {
    std::uint64_t left = kStepsMax;
    const auto count = [&](const ModulePattern& pattern, const std::string& module) {
        left -= pattern.steps(module, left);
    };
    for (const std::string& module : linears) {
        if (options.peft.target_pattern) count(*options.peft.target_pattern, module);
        for (const auto* values : {&options.peft.ranks, &options.peft.alphas})
            for (const PatternValue& one : *values) count(one.pattern, module);
        if (left == 0)
            return invalid_argument("target_modules",
                                    "and the patterns beside it take too long to be matched with the " +
                                        std::to_string(linears.size()) +
                                        " linears of this model; name the modules plainly");
    }
    return {};
}

Status check_targets_of_file(const LoraOptions& options, const std::vector<std::string>& linears) {
    ATOLL_RETURN_IF_ERROR(check_steps(options, linears));
    bool any = false;
    for (const std::string& module : linears) {
        if (!options.covers(module)) continue;
        any = true;
        ATOLL_RETURN_IF_ERROR(check_values(options.peft.ranks, "rank_pattern", module));
        ATOLL_RETURN_IF_ERROR(check_values(options.peft.alphas, "alpha_pattern", module));
    }
    if (any) return {};
    const std::string named = options.targets.empty() ? "" : " (" + join(options.targets) + ")";
    return invalid_argument("target_modules", "names no linear of this model" + named +
                                                  std::string(options.peft.layers.empty() ? "" : " in these layers"));
}

// Of a matrix that a linear multiplies with; empty: the tensor is none.
std::string_view linear_name(const TensorSpec& tensor) {
    const std::string_view name = tensor.name;
    if (tensor.shape.size() != 2 || !name.ends_with(kWeight)) return {};
    const std::string_view module = name.substr(0, name.size() - kWeight.size());
    const std::string_view last = module.substr(module.rfind('.') + 1);  // all of it, without a dot
    return last.starts_with("embed_") ? std::string_view() : module;
}

}  // namespace

bool LoraOptions::covers(std::string_view module) const {
    if (peft.target_pattern) return peft.target_pattern->matches(module);
    const auto is_target = [&](std::string_view name) { return std::ranges::binary_search(targets, name); };
    // As in peft, a target that is the whole name is one whatever the layers are.
    if (is_target(module)) return true;
    bool is_meant = is_target(kAllLinear) && module != kHead;
    for (std::size_t dot = module.find('.'); !is_meant && dot != std::string_view::npos;
         dot = module.find('.', dot + 1))
        is_meant = is_target(module.substr(dot + 1));  // what answers_to()
    return is_meant && (peft.layers.empty() || is_in_layers(peft, module));
}

std::int64_t LoraOptions::rank_of(std::string_view module) const {
    const PatternValue* own = find_value(peft.ranks, module);
    return own == nullptr ? rank : static_cast<std::int64_t>(own->value);
}

float LoraOptions::scale_of(std::string_view module) const {
    const PatternValue* own = find_value(peft.alphas, module);
    const auto divisor = static_cast<double>(rank_of(module));
    return static_cast<float>((own == nullptr ? alpha : own->value) /
                              (peft.is_rank_stabilized ? std::sqrt(divisor) : divisor));
}

bool answers_to(std::string_view module, std::string_view target) {
    if (!module.ends_with(target)) return false;
    return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

Status check_targets(const LoraOptions& options, const std::vector<std::string>& linears) {
    if (options.is_of_file) return check_targets_of_file(options, linears);
    std::set<std::string_view> ends;
    for (const std::string_view module : linears)
        for (std::size_t at = 0; at != std::string_view::npos; at = module.find('.', at)) {
            at += at > 0 ? 1 : 0;
            ends.insert(module.substr(at));
        }
    for (const std::string& target : options.targets) {
        if (target != kAllLinear && !ends.contains(target)) return unknown_target(linears, target);
    }
    return {};
}

Result<LoraOptions> options_of(const run_settings::RunConfig& config) {
    LoraOptions options;
    options.rank = config.lora_rank;
    options.alpha = config.given.contains("lora-alpha") ? config.lora_alpha : static_cast<double>(config.lora_rank);
    options.dropout = config.lora_dropout;
    options.freeze_a = config.lora_freeze_a == run_settings::OnOff::kOn;
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

Status check_flags(const run_settings::RunConfig& config, const LoraOptions& adapter) {
    const auto differs = [](const char* flag, const std::string& is) {
        return invalid_argument(flag, "the adapter to train further has " + is + "; leave the flag out");
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

Result<std::vector<TensorSpec>> tensors_on(const LoraOptions& options, std::span<const TensorSpec> model) {
    std::vector<std::string> linears;
    for (const TensorSpec& tensor : model)
        if (const auto name = linear_name(tensor); !name.empty()) linears.emplace_back(name);
    ATOLL_RETURN_IF_ERROR(check_targets(options, linears));
    std::vector<TensorSpec> tensors;
    for (const TensorSpec& tensor : model) {
        const std::string module(linear_name(tensor));
        if (module.empty() || !options.covers(module)) continue;
        const std::string prefix = std::string(kPrefix) + module;
        const std::int64_t rank = options.rank_of(module);
        tensors.push_back({prefix + std::string(kA), {rank, tensor.shape[1]}});
        tensors.push_back({prefix + std::string(kB), {tensor.shape[0], rank}});
    }
    return tensors;
}

}  // namespace atl::adapter
