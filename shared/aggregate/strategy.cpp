#include "shared/aggregate/strategy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shared/aggregate/low_rank.h"
#include "shared/aggregate/strategies/strategies.h"
#include "shared/aggregate/strategy_table.h"
#include "shared/base/text.h"
#include "shared/json/json.h"

namespace atl::aggregate {
namespace {

double read_number(json::ObjectReader& reader, const NumberSetting& setting) {
    return reader.number_or(setting.key, setting.fallback.value_or(setting.minimum), setting.minimum, setting.maximum);
}

std::vector<std::string> outer_names() {
    std::vector<std::string> names;
    for (const OuterRow& row : outer_rows()) names.emplace_back(row.name);
    return names;
}

Result<ServerOptimizer> parse_server_optimizer(const json::Json& value) {
    json::ObjectReader reader(value, "strategy.outer");
    ServerOptimizer optimizer;
    const std::string name = reader.string_or("optimizer", std::string(outer_rows().front().name));
    const auto row = std::ranges::find(outer_rows(), name, &OuterRow::name);
    if (row == outer_rows().end()) {
        reader.fail("optimizer", "unknown optimizer \"" + name + "\"; there is " + join(outer_names()));
    } else {
        optimizer.kind = row->kind;
        optimizer.learning_rate =
            reader.number_or(kOuterRate.key, row->learning_rate, kOuterRate.minimum, kOuterRate.maximum);
    }
    optimizer.beta1 = read_number(reader, kOuterMomentum);
    if (optimizer.kind == OuterKind::kAdam) {
        optimizer.beta2 = read_number(reader, kOuterBeta2);
        optimizer.epsilon = read_number(reader, kOuterEpsilon);
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return optimizer;
}

json::Json outer_to_json(const ServerOptimizer& optimizer) {
    json::Json value = {{"optimizer", outer_row(optimizer.kind).name},
                        {kOuterRate.key, optimizer.learning_rate},
                        {kOuterMomentum.key, optimizer.beta1}};
    if (optimizer.kind != OuterKind::kAdam) return value;
    value[kOuterBeta2.key] = optimizer.beta2;
    value[kOuterEpsilon.key] = optimizer.epsilon;
    return value;
}

std::string unknown_strategy(const std::string& name) {
    return "unknown strategy \"" + name + "\"; there is " + join(strategy_names());
}

// Null: any length counts whole.
std::optional<double> parse_times(json::ObjectReader& reader, const json::Json& value, const NumberSetting& setting) {
    const auto given = value.find(setting.key);
    const double times = read_number(reader, setting);
    return given != value.end() && given->is_null() ? std::nullopt : std::optional(times);
}

bool takes(const StrategyRow& row, const NumberSetting& setting) {
    return std::ranges::find(row.numbers, &setting) != row.numbers.end();
}

json::Json number_or_null(const std::optional<double>& number) {
    return number ? json::Json(*number) : json::Json();
}

}  // namespace

const std::vector<std::string>& strategy_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const StrategyRow& row : strategy_rows()) all.emplace_back(row.name);
        return all;
    }();
    return names;
}

Result<StrategySpec> parse_strategy(const json::Json& value) {
    StrategySpec strategy;
    strategy.clip = kClip.fallback;
    strategy.drop = kDrop.fallback;
    strategy.max_share.reset();
    if (value.is_null()) return strategy;
    json::ObjectReader reader(value, "strategy");
    strategy.clip = parse_times(reader, value, kClip);
    strategy.drop = parse_times(reader, value, kDrop);
    if (strategy.clip && strategy.drop && *strategy.drop < *strategy.clip) reader.fail("drop", "must be at least clip");
    strategy.name = reader.required_string("name");
    const StrategyRow* row = find_strategy_row(strategy.name);
    if (row == nullptr) reader.fail("name", unknown_strategy(strategy.name));
    if (row != nullptr && takes(*row, kTrim)) strategy.trim = read_number(reader, kTrim);
    if (row != nullptr && takes(*row, kMaxShare)) {
        const double share = read_number(reader, kMaxShare);
        if (!value.value(kMaxShare.key, json::Json()).is_null()) strategy.max_share = share;
    }
    strategy.weighs_by_tokens = row != nullptr && row->takes_weighting &&
                                reader.one_of("weighting", {"uniform", "tokens"}, "tokens") == "tokens";
    strategy.weighs_rows = row != nullptr && row->takes_row_weights &&
                           reader.one_of("row_weights", {"mean", "tokens"}, "mean") == "tokens";
    if (row != nullptr && row->takes_control_variate) {
        const double part = read_number(reader, kControlVariate);
        if (!value.value(kControlVariate.key, json::Json()).is_null()) strategy.control_variate = part;
    }
    strategy.counts_absent = reader.one_of("absent", {"left_out", "no_change"}, "left_out") == "no_change";
    const json::Json none;
    const json::Json& outer = row != nullptr && row->takes_outer ? reader.object_or_null("outer") : none;
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (outer.is_null()) return strategy;
    ATOLL_TRY(strategy.server_optimizer, parse_server_optimizer(outer));
    return strategy;
}

json::Json to_json(const StrategySpec& strategy) {
    json::Json value = {
        {"name", strategy.name}, {"clip", number_or_null(strategy.clip)}, {"drop", number_or_null(strategy.drop)}};
    const StrategyRow* row = find_strategy_row(strategy.name);
    check(row != nullptr, "a strategy that is in the table");
    if (takes(*row, kTrim)) value[kTrim.key] = strategy.trim;
    if (row->takes_weighting) value["weighting"] = strategy.weighs_by_tokens ? "tokens" : "uniform";
    if (takes(*row, kMaxShare) && strategy.max_share) value[kMaxShare.key] = *strategy.max_share;
    if (strategy.weighs_rows) value["row_weights"] = "tokens";
    if (strategy.control_variate) value[kControlVariate.key] = *strategy.control_variate;
    if (strategy.counts_absent) value["absent"] = "no_change";
    if (strategy.server_optimizer) value["outer"] = outer_to_json(*strategy.server_optimizer);
    return value;
}

json::Json to_json(const Assignment& assigned) {
    return {{"effort", assigned.effort},           {"claimed", assigned.claimed},   {"tokens", assigned.tokens},
            {"element_max", assigned.element_max}, {"norm_max", assigned.norm_max}, {"decay", assigned.decay}};
}

Result<Assignment> parse_assignment(const json::Json& value, const std::string& path) {
    Assignment assigned;
    if (value.is_null()) return assigned;
    constexpr double kMost = std::numeric_limits<double>::max();
    json::ObjectReader reader(value, path);
    assigned.effort = reader.number_or("effort", assigned.effort, 0, kMost);
    assigned.claimed = reader.number_or("claimed", assigned.claimed, 1, kMost);
    assigned.tokens = reader.number_or("tokens", assigned.tokens, 0, kMost);
    assigned.element_max = reader.number_or("element_max", assigned.element_max, 0, kMost);
    assigned.norm_max = reader.number_or("norm_max", assigned.norm_max, 0, kMost);
    assigned.decay = reader.number_or("decay", assigned.decay, 0, kMost);
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return assigned;
}

Nearest Strategy::combine_pair(AdapterPair&) const {
    check(false, "only a strategy of adapters combines pairs");
    return {};
}

Result<std::unique_ptr<const Strategy>> make_strategy(const StrategySpec& spec) {
    if (find_strategy_row(spec.name) == nullptr) return invalid_argument("strategy.name", unknown_strategy(spec.name));
    for (const auto& [key, times] : {std::pair{"clip", spec.clip}, {"drop", spec.drop}})
        if (times && !(*times >= 1 && std::isfinite(*times))) return invalid_argument(key, "must be at least 1");
    if (spec.max_share && !(*spec.max_share > 0 && *spec.max_share <= 1))
        return invalid_argument("max_share", "must be above 0 and at most 1");
    if (const auto& part = spec.control_variate; part && !(*part > 0 && *part <= kControlVariate.maximum))
        return invalid_argument(kControlVariate.key, "must be above 0 and at most 1");
    if (spec.control_variate && !find_strategy_row(spec.name)->takes_control_variate)
        return invalid_argument(kControlVariate.key, "is fedavg's alone");
    if (spec.name == "product") return make_product(spec);
    if (spec.name == "median") return make_median(spec);
    return spec.name == "trimmed_mean" ? make_trimmed_mean(spec) : make_fedavg(spec);
}

}  // namespace atl::aggregate
