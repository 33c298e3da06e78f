#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>

// The strategies a job can use, with the range and default of each setting: parse_strategy() reads these rows, and what
// people are shown is made from them.
namespace atl::aggregate {

// A number in a job's "strategy", or in its "outer".
struct NumberSetting {
    const char* key;
    double minimum;
    double maximum;
    std::optional<double> fallback;  // where the job says nothing; none: `help` says what applies then
    std::string_view help;           // a sentence without its full stop
};

inline constexpr NumberSetting kClip{
    "clip", 1, 1e9, 1.4, "A change longer than this many times the usual length is shortened to it; null: never"};
inline constexpr NumberSetting kDrop{
    "drop", 1, 1e9, 3, "A change longer than this many times the usual length is ignored; at least clip; null: never"};
inline constexpr NumberSetting kMaxShare{
    "max_share", 1e-6, 1, std::nullopt,
    "The largest share of the mean one update can have, whatever its weight; default for N updates: min(2/N, 2/3)"};
inline constexpr NumberSetting kTrim{"trim", 0, 0.499, 0.2,
                                     "For each element, the fraction of the updates' values left out at each end"};
inline constexpr NumberSetting kControlVariate{
    "control_variate", 1e-6, 1, std::nullopt,
    "How much of the difference between the mean gradient of all updates and its own a training adds to each gradient, "
    "so that it steps towards what all learn (SCAFFOLD, https://arxiv.org/abs/1910.06378); 0.7 does well; null or "
    "absent: nothing. Each update then brings the mean gradient of its steps as int8, 8.25 bits a weight, and a new "
    "model their mean as BF16, 16 bits a weight; clip and drop bound its length too. Not for adapters, nor where "
    "sites evaluate all models"};
inline constexpr NumberSetting kOuterRate{
    "lr", 1e-6, 100, std::nullopt,
    "Learning rate of the step; default 0.7 for nesterov, 1 for momentum, 0.01 for adam"};
inline constexpr NumberSetting kOuterMomentum{"momentum", 0, 0.9999, 0.9, "Momentum of the step; beta1 of adam"};
inline constexpr NumberSetting kOuterBeta2{"beta2", 0, 0.9999, 0.99, "adam only: decay of the second moment"};
inline constexpr NumberSetting kOuterEpsilon{"epsilon", 1e-12, 1, 1e-3, "adam only: added to the second moment's root"};

// The server optimizers of "outer"; the first is the default.
enum class OuterKind { kNesterov, kMomentum, kAdam };

struct OuterRow {
    OuterKind kind;
    std::string_view name;
    std::string_view source;
    double learning_rate;                     // where the job says none
    std::span<const std::string_view> state;  // Strategy::state()
};

std::span<const OuterRow> outer_rows();
const OuterRow& outer_row(OuterKind kind);

struct StrategyRow {
    std::string_view name;
    std::string_view summary;  // as NumberSetting::help
    std::string_view source;
    bool is_of_adapters;     // takes adapters alone; else models and adapters
    bool takes_weighting;    // "weighting": "uniform" | "tokens"
    bool takes_outer;        // "outer", whose momentum it keeps
    bool takes_row_weights;  // "row_weights": "tokens"
    bool takes_control_variate;
    std::span<const NumberSetting* const> numbers;
};

// The first is the default.
std::span<const StrategyRow> strategy_rows();
// Null: there is none of that name.
const StrategyRow* find_strategy_row(std::string_view name);

// {"items": [{"name", "summary", "source", "is_default", "takes": ["models", "adapters"], "models_up": 1,
// "models_down": 1, "keeps": what the coordinator keeps from round to round, "settings": {key: JSON schema}}]}
nlohmann::json describe_strategies();

}  // namespace atl::aggregate
