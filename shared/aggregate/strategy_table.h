#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

// The strategies that there are, as people choose among them, and the range and default of each of their settings:
// parse_strategy() reads these rows, and what people are shown is made of them.
namespace atl::aggregate {

// A number in a job's "strategy", or in its "outer".
struct NumberSetting {
    const char* key;
    double minimum;
    double maximum;
    double fallback;  // where the job says nothing; unused where `help` says what holds then
    bool has_fallback;
    std::string_view help;  // a sentence without its full stop
};

inline constexpr NumberSetting kClip{
    "clip", 1, 1e9, 1.4, true, "A change longer than this times what is usual is shortened to that; null: none is"};
inline constexpr NumberSetting kDrop{
    "drop", 1,    1e9,
    3,      true, "A change longer than this times what is usual counts as none; at least clip; null: all count"};
inline constexpr NumberSetting kMaxShare{
    "max_share",
    1e-6,
    1,
    1,
    false,
    "The most of the mean that one update makes, whatever its weight; without it min(2/N, 2/3) of N updates"};
inline constexpr NumberSetting kTrim{
    "trim", 0, 0.499, 0.2, true, "The fraction of the updates' values that is left out on each side of an element"};
inline constexpr NumberSetting kOuterRate{"lr", 1e-6, 100, 0.7, true, "The step's rate"};
inline constexpr NumberSetting kOuterMomentum{"momentum", 0, 0.9999, 0.9, true, "Its Nesterov momentum"};

struct StrategyRow {
    std::string_view name;
    std::string_view summary;  // as NumberSetting::help
    std::string_view source;
    bool is_of_adapters;   // takes adapters alone; else models and adapters
    bool takes_weighting;  // "weighting": "uniform" | "tokens"
    bool takes_outer;      // "outer", whose momentum it keeps
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
