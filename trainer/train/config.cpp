#include "trainer/train/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <variant>

#include "shared/base/file.h"
#include "shared/base/spelling.h"
#include "shared/json/json.h"

namespace atl::train {
namespace {

std::string listed(const std::vector<std::string_view>& texts) {
    std::string out;
    for (const std::string_view text : texts) {
        if (!out.empty()) out += ", ";
        out += text.empty() ? "(empty)" : std::string(text);
    }
    return out;
}

enum class Parsed { kWell, kNot, kBeyond };  // kBeyond: a number, but not one that the type can hold

template <class T>
Parsed parse_number(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) return Parsed::kNot;
    return error == std::errc() ? Parsed::kWell : Parsed::kBeyond;
}

// "must be from 0 to 65536"
std::string range_text(const Option& option) {
    return "must be from " + number_text(option.min) + " to " + number_text(option.max);
}

// read_value() reads an option's text; it returns what is wrong with the text, nothing when it is right.
std::string read_value(const Option& option, std::string_view text, std::int64_t& value) {
    const Parsed parsed = parse_number(text, value);
    if (parsed == Parsed::kNot) return "is not a whole number";
    if (parsed == Parsed::kBeyond) return "is too large";
    const auto number = static_cast<double>(value);
    return number >= option.min && number <= option.max ? "" : "is out of range: " + range_text(option);
}

std::string read_value(const Option& option, std::string_view text, double& value) {
    const Parsed parsed = parse_number(text, value);
    if (parsed == Parsed::kNot || !std::isfinite(value)) return "is not a number";
    const bool in_range = parsed == Parsed::kWell && value >= option.min && value <= option.max;
    return in_range ? "" : "is out of range: " + range_text(option);
}

std::string read_value(const Option&, std::string_view text, bool& value) {
    value = text == "true";
    return value || text == "false" ? "" : "is neither true nor false";
}

std::string read_value(const Option& option, std::string_view text, std::string& value) {
    value = text;
    if (option.choices.empty() || std::ranges::find(option.choices, text) != option.choices.end()) return "";
    return "is none of " + listed(option.built.empty() ? option.choices : option.built);
}

template <class T>
bool is_built(const Option& option, const T& value) {
    return option.built.empty() || std::ranges::any_of(option.built, [&](std::string_view text) {
               T built{};
               return read_value(option, text, built).empty() && built == value;
           });
}

// `name` is the flag or the key, for messages.
Status assign_named(RunConfig& config, const Option& option, std::string_view text, const std::string& name) {
    const auto assign_member = [&](auto member) -> std::string {
        auto value = config.*member;
        if (std::string fault = read_value(option, text, value); !fault.empty()) return fault;
        if (!is_built(option, value)) return "is not built yet; this build has: " + listed(option.built);
        config.*member = std::move(value);
        return "";
    };
    const std::string fault = std::visit(assign_member, option.member);
    if (!fault.empty()) return invalid_argument(name, "'" + std::string(text) + "' " + fault);
    config.given.emplace(option.name);
    return {};
}

bool right_type(const Member& member, const json::Json& value) {
    if (std::holds_alternative<std::int64_t RunConfig::*>(member)) return value.is_number_integer();
    if (std::holds_alternative<double RunConfig::*>(member)) return value.is_number();
    if (std::holds_alternative<bool RunConfig::*>(member)) return value.is_boolean();
    return value.is_string();
}

const char* type_name(const Member& member) {
    if (std::holds_alternative<std::int64_t RunConfig::*>(member)) return "a whole number";
    if (std::holds_alternative<double RunConfig::*>(member)) return "a number";
    return std::holds_alternative<bool RunConfig::*>(member) ? "true or false" : "a string";
}

const Option* find_key(const std::string& key, Commands command) {
    for (const Option& option : options()) {
        if (option.key() == key && (option.commands & command) != 0) return &option;
    }
    return nullptr;
}

std::string near_key(const std::string& key, Commands command) {
    std::vector<std::string> keys;
    for (const Option& option : options())
        if ((option.commands & command) != 0) keys.push_back(option.key());
    return did_you_mean(key, keys);
}

Status assign_json(RunConfig& config, const json::Json& object, const std::string& file, Commands command) {
    if (!object.is_object()) return invalid_argument("--config (" + file + ")", "a run configuration is a JSON object");
    for (const auto& [key, value] : object.items()) {
        const std::string name = key + " (" + file + ")";
        const Option* option = find_key(key, command);
        if (option == nullptr) return invalid_argument(name, "there is no such key" + near_key(key, command));
        if (!right_type(option->member, value)) {
            return invalid_argument(name, std::string("must be ") + type_name(option->member));
        }
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        ATOLL_RETURN_IF_ERROR(assign_named(config, *option, text, name));
    }
    return {};
}

// A text option's value; one of another kind counts as not given.
std::string_view text_of(const RunConfig& config, std::string_view name) {
    const auto found = std::ranges::find(options(), name, &Option::name);
    const auto* text = std::get_if<std::string RunConfig::*>(&found->member);
    return text == nullptr ? std::string_view() : std::string_view(config.*(*text));
}

std::string count_text(std::int64_t count) {
    return std::to_string(count);
}

Result<BatchPlan> divide_rows(const RunConfig& config, int ranks) {
    BatchPlan plan{config.global_batch_size, config.batch_size, config.grad_accum};
    const std::string on_ranks = " over " + count_text(ranks) + (ranks == 1 ? " rank" : " ranks");
    if (plan.global == 0) {
        plan.micro = plan.micro == 0 ? 1 : plan.micro;
        plan.accumulation = plan.accumulation == 0 ? 1 : plan.accumulation;
        const std::int64_t rank_rows = plan.micro * plan.accumulation;
        if (rank_rows > static_cast<std::int64_t>(kGlobalRowsMax) / ranks) {
            return invalid_argument("--grad-accum", "--batch-size × --grad-accum" + on_ranks + " are more than " +
                                                        count_text(static_cast<std::int64_t>(kGlobalRowsMax)) +
                                                        " rows a step");
        }
        plan.global = rank_rows * ranks;
        return plan;
    }
    if (plan.global % ranks != 0) {
        return invalid_argument("--global-batch-size", count_text(plan.global) + " rows" + on_ranks + " do not divide");
    }
    const std::int64_t rank_rows = plan.global / ranks;
    if (plan.micro == 0) {
        plan.accumulation = plan.accumulation == 0 ? 1 : plan.accumulation;
        plan.micro = rank_rows / plan.accumulation;
    } else if (plan.accumulation == 0) {
        plan.accumulation = rank_rows / plan.micro;
    }
    if (plan.micro * plan.accumulation != rank_rows || rank_rows == 0) {
        return invalid_argument(
            "--global-batch-size",
            count_text(plan.global) + " rows" + on_ranks + " are " + count_text(rank_rows) +
                " a rank, which is not --batch-size × --grad-accum" +
                (config.batch_size == 0 ? "" : " (batch size " + count_text(config.batch_size) + ")") +
                (config.grad_accum == 0 ? "" : " (grad accum " + count_text(config.grad_accum) + ")"));
    }
    return plan;
}

}  // namespace

Status assign(RunConfig& config, const Option& option, std::string_view text) {
    return assign_named(config, option, text, "--" + std::string(option.name));
}

Status assign_file(RunConfig& config, const std::filesystem::path& file, Commands command) {
    const auto text = read_file(file);
    if (!text.ok()) return invalid_argument("--config", text.error().message);
    auto parsed = json::parse(*text);
    if (!parsed.ok()) return invalid_argument("--config (" + file.string() + ")", parsed.error().message);
    return assign_json(config, *parsed, file.string(), command);
}

Status check_needs(const RunConfig& config, Commands command) {
    for (const Need& need : needs()) {
        if (!config.given.contains(need.option) || find_option(need.needed, command) == nullptr) continue;
        const std::string_view value = text_of(config, need.needed);
        if (need.value.empty() ? !value.empty() : value == need.value) continue;
        return invalid_argument("--" + std::string(need.option), "means nothing without --" + std::string(need.needed) +
                                                                     (need.value.empty() ? "" : " ") +
                                                                     std::string(need.value));
    }
    return {};
}

Result<BatchPlan> plan_batch(const RunConfig& config, int ranks) {
    ATOLL_TRY(BatchPlan plan, divide_rows(config, ranks));
    if (config.deterministic) plan = {plan.global, 1, plan.global / ranks};
    if (plan.micro > static_cast<std::int64_t>(kMicroRowsMax)) {
        return invalid_argument("--global-batch-size", "makes micro-steps of " + count_text(plan.micro) +
                                                           " rows; give --batch-size, at most " +
                                                           count_text(static_cast<std::int64_t>(kMicroRowsMax)));
    }
    return plan;
}

Status check_micro_step(std::int64_t rows, std::int64_t seq_len) {
    constexpr std::int64_t kTokensMax = std::int64_t{1} << 31;
    if (rows <= kTokensMax / seq_len) return {};
    return invalid_argument("--batch-size", count_text(rows) + " rows of " + count_text(seq_len) +
                                                " tokens are more than the " + count_text(kTokensMax) +
                                                " that a micro-step takes");
}

Result<int> plan_shard_group(const RunConfig& config, int ranks, int ranks_on_node) {
    if (!config.sharding.starts_with("hybrid_")) {
        if (config.shard_group == 0) return 0;
        return invalid_argument("--shard-group", "belongs to --sharding hybrid_shard and hybrid_shard_zero2");
    }
    const std::int64_t group = config.shard_group > 0 ? config.shard_group : ranks_on_node;
    if (group <= ranks && ranks % group == 0) return static_cast<int>(group);
    return invalid_argument("--shard-group", count_text(ranks) + (ranks == 1 ? " rank does" : " ranks do") +
                                                 " not divide into groups of " + count_text(group) +
                                                 (config.shard_group > 0 ? "" : ", the ranks of one machine"));
}

Status settle_offload_dir(RunConfig& config) {
    if (config.offload_optimizer != "nvme") {
        if (config.offload_dir.empty()) return {};
        return invalid_argument("--offload-dir", "belongs to --offload-optimizer nvme");
    }
    const char* const scratch = std::getenv("TMPDIR");
    if (config.offload_dir.empty() && scratch != nullptr) config.offload_dir = scratch;
    if (!config.offload_dir.empty()) return {};
    return invalid_argument("--offload-dir", "is required: name a directory on a local disk, or set TMPDIR");
}

Result<std::int64_t> plan_steps(const RunConfig& config, std::int64_t rows, std::int64_t global_batch) {
    if (config.steps > 0 && config.epochs > 0) {
        return invalid_argument("--epochs",
                                "give --steps or --epochs, not both (--epochs 0 takes back what --config says)");
    }
    std::int64_t steps = config.steps;
    if (!config.given.contains("steps")) {
        if (config.epochs == 0) return invalid_argument("--steps", "say how long to train: --steps N or --epochs N");
        steps = (config.epochs * rows + global_batch - 1) / global_batch;
    }
    const bool is_said = config.given.contains("steps") || config.given.contains("epochs");
    if (is_said && steps > 0 && config.warmup_steps > steps) {
        return invalid_argument("--warmup-steps", count_text(config.warmup_steps) + " are more than the run's " +
                                                      count_text(steps) + (steps == 1 ? " step" : " steps"));
    }
    return steps;
}

}  // namespace atl::train
