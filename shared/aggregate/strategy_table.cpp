#include "shared/aggregate/strategy_table.h"

#include <algorithm>
#include <array>
#include <string>

#include "shared/json/json.h"

namespace atl::aggregate {
namespace {

using json::Json;

constexpr std::array kOfMeans = {&kClip, &kDrop, &kMaxShare};
constexpr std::array kOfTrimmedMean = {&kTrim, &kClip, &kDrop};
constexpr std::array kOfMedian = {&kClip, &kDrop};

constexpr StrategyRow kRows[] = {
    {"fedavg",
     "The weighted mean of the updates; with outer, an optimizer step from the round's base towards that mean",
     "https://arxiv.org/abs/1602.05629", false, true, true, true, true, kOfMeans},
    {"trimmed_mean",
     "For each element, the mean of the updates' values without the most extreme ones; all updates count equally",
     "https://arxiv.org/abs/1803.01498", false, false, false, false, false, kOfTrimmedMean},
    {"median",
     "For each element, the median of the updates' values (of an even number, the mean of the two in the middle); all "
     "updates count equally",
     "https://arxiv.org/abs/1803.01498", false, false, false, false, false, kOfMedian},
    {"product",
     "The adapter of the base's rank that is nearest to the mean of what the updates' adapters add to the model",
     "https://doi.org/10.1007/BF02288367", true, true, false, false, false, kOfMeans},
};

constexpr std::string_view kStates[] = {"momentum", "variance"};

// In the order of OuterKind.
constexpr OuterRow kOuterRows[] = {
    {OuterKind::kNesterov, "nesterov", "https://arxiv.org/abs/2311.08105", 0.7, {kStates, 1}},
    {OuterKind::kMomentum, "momentum", "https://arxiv.org/abs/1909.06335", 1, {kStates, 1}},
    {OuterKind::kAdam, "adam", "https://arxiv.org/abs/2003.00295", 0.01, {kStates, 2}},
};

Json schema(const NumberSetting& setting) {
    Json shown = {{"type", {"number", "null"}},
                  {"minimum", setting.minimum},
                  {"maximum", setting.maximum},
                  {"description", std::string(setting.help) + "."}};
    if (setting.fallback) shown["default"] = *setting.fallback;
    return shown;
}

Json settings_of(const StrategyRow& row) {
    Json settings = Json::object();
    if (row.takes_weighting)
        settings["weighting"] = {{"enum", {"uniform", "tokens", nullptr}},
                                 {"default", "tokens"},
                                 {"description", "How much an update weighs."}};
    if (row.takes_row_weights)
        settings["row_weights"] = {
            {"enum", {"mean", "tokens", nullptr}},
            {"description",
             "How the rows of embedding and head are combined. tokens: each update's change weighs by its share times "
             "the square root of how often its training saw the row's token, the squares of a row's weights summing to "
             "one; each update then says how often it saw each token, and is believed to have seen one at most four "
             "times as often as the second most. mean, or absent: as everything else."}};
    settings["absent"] = {{"enum", {"left_out", "no_change", nullptr}},

                          {"description",
                           "How a participant counts whose update is missing in a round, for two rounds in a row at "
                           "most. no_change: as one "
                           "that changed nothing, with the weight of its last update, so that the others' changes do "
                           "not take its part; rows "
                           "that row_weights weighs are not held back."}};
    for (const NumberSetting* number : row.numbers) settings[number->key] = schema(*number);
    if (row.takes_control_variate) settings[kControlVariate.key] = schema(kControlVariate);
    if (!row.takes_outer) return settings;
    Json names = Json::array();
    std::string sources;
    for (const OuterRow& outer : kOuterRows) {
        names.push_back(outer.name);
        sources += (sources.empty() ? "" : ", ") + std::string(outer.name) + ": " + std::string(outer.source);
    }
    Json optimizer = {{"default", names[0]}, {"description", "Which one (" + sources + ")."}};
    names.push_back(nullptr);
    optimizer["enum"] = std::move(names);
    Json properties = {{"optimizer", std::move(optimizer)}};
    for (const NumberSetting* number : {&kOuterRate, &kOuterMomentum, &kOuterBeta2, &kOuterEpsilon})
        properties[number->key] = schema(*number);
    settings["outer"] = {{"type", {"object", "null"}},
                         {"description", "An optimizer step towards the mean; without it, the mean is the next model."},
                         {"properties", std::move(properties)}};
    return settings;
}

}  // namespace

std::span<const StrategyRow> strategy_rows() {
    return kRows;
}

std::span<const OuterRow> outer_rows() {
    return kOuterRows;
}

const OuterRow& outer_row(OuterKind kind) {
    return kOuterRows[static_cast<std::size_t>(kind)];
}

const StrategyRow* find_strategy_row(std::string_view name) {
    const auto found = std::ranges::find(kRows, name, &StrategyRow::name);
    return found == std::end(kRows) ? nullptr : found;
}

Json describe_strategies() {
    Json items = Json::array();
    for (const StrategyRow& row : kRows)
        items.push_back(
            {{"name", row.name},
             {"summary", std::string(row.summary) + "."},
             {"source", row.source},
             {"is_default", &row == std::begin(kRows)},
             {"takes", row.is_of_adapters ? Json{"adapters"} : Json{"models", "adapters"}},
             {"models_up", 1},
             {"models_down", 1},
             {"keeps", row.takes_outer ? "With outer, its momentum: four bytes a parameter; with adam eight." : ""},
             {"settings", settings_of(row)}});
    return {{"items", std::move(items)}};
}

}  // namespace atl::aggregate
