#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

// How the accepted updates of a round become the next model. A strategy is a class in strategies/ that computes one
// block of elements at a time and knows of no file, shard or network; `Aggregator` feeds it. To add one: derive from
// Strategy, name it in strategy_names() and make_strategy(), read its settings in parse_strategy().
namespace atl::aggregate {

// An optimizer's step from the base against the pseudo-gradient base - mean (Reddi et al. 2021,
// https://arxiv.org/abs/2003.00295, whose letters these are). It is SGD with Nesterov momentum as PyTorch has it
// (DiLoCo, https://arxiv.org/abs/2311.08105), each operation rounded to fp32:
//   d = base - mean;  momentum' = beta1 momentum + d;  weights = base - learning_rate (d + beta1 momentum')
struct ServerOptimizer {
    double learning_rate = 0.7;  // "lr"
    double beta1 = 0.9;          // "momentum"
};

// A strategy and its settings, as jobs, events and the command line have them:
//   {"name": "fedavg", "weighting": "uniform" | "tokens", "outer": {"optimizer": "nesterov", "lr": 0.7,
//    "momentum": 0.9}}
//   {"name": "trimmed_mean", "trim": 0.2}
struct StrategySpec {
    std::string name = "fedavg";
    bool weighs_by_tokens = true;                          // fedavg only
    std::optional<ServerOptimizer> server_optimizer = {};  // "outer", fedavg only; none: the mean is the next model
    double trim = 0.2;                                     // trimmed_mean only
};

const std::vector<std::string>& strategy_names();
// null: the defaults. kInvalidArgument naming the member of "strategy" that is wrong, unknown or another strategy's.
Result<StrategySpec> parse_strategy(const nlohmann::json& value);
nlohmann::json to_json(const StrategySpec& strategy);  // with every default filled in

// The same elements of one tensor in all models of a round, as fp32. All spans have `size` elements.
struct Block {
    std::size_t size = 0;
    std::vector<std::span<const float>> updates;  // in the updates' order
    std::span<const float> base;                  // what they were trained from; empty unless needs_base()
    std::vector<std::span<float>> state;          // one a name of state(): as the round before left it, zero at first
};

// Immutable, so that any number of threads may use one. Elements do not see one another: the result depends on the
// models, the shares and the state alone, and not on how a tensor was cut into blocks.
class Strategy {
  public:
    virtual ~Strategy() = default;

    // What it keeps from round to round: each name stands for an fp32 copy of every floating tensor.
    virtual std::span<const std::string_view> state() const { return {}; }
    // Whether combine() looks at the base.
    virtual bool needs_base() const { return false; }
    // Whether combine() gives Σ share_i x_i and nothing more: F64 tensors, which no block can hold, are then averaged
    // in fp64; other strategies refuse them.
    virtual bool is_weighted_mean() const { return false; }

    // Each update's share of the result, from one weight an update (finite, >= 0, not all zero). kInvalidArgument
    // naming "weights" where they cannot be followed.
    virtual Result<std::vector<double>> prepare(std::span<const double> weights) const = 0;
    // Makes the block of the next model, and of the state in place. Where an update holds NaN or infinity the result
    // does too: that is how it is found, before anything is stored.
    virtual void combine(Block& block, std::span<const double> shares, std::span<float> result) const = 0;
};

// kInvalidArgument naming "strategy.name" where there is no such strategy, else the setting that means nothing ("lr",
// "momentum", "trim").
Result<std::unique_ptr<const Strategy>> make_strategy(const StrategySpec& spec);

}  // namespace atl::aggregate
