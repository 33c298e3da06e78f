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
// NormBounded (strategies/norm_bound.h), name it in strategy_names() and make_strategy(), read its settings in
// parse_strategy().
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
// Both take "norm_bound" (a number or null), fedavg "max_share". Where a job says nothing of these it gets the defaults
// of parse_strategy(): 10, and min(2/N, 2/3). A StrategySpec made in code has neither.
struct StrategySpec {
    std::string name = "fedavg";
    bool weighs_by_tokens = true;                          // fedavg only
    std::optional<ServerOptimizer> server_optimizer = {};  // "outer", fedavg only; none: the mean is the next model
    double trim = 0.2;                                     // trimmed_mean only
    // Refuses an update whose distance from the base is more than this times the median of the updates' distances; it
    // costs a look at all of them before the first block is made. None: one pass, and any distance goes.
    std::optional<double> norm_bound = {};
    // The most of the mean that one update makes, whatever its weight; the rest is shared out by weight. At least 1/N.
    // None: min(2/N, 2/3) for N updates.
    std::optional<double> max_share = 1.0;
};

const std::vector<std::string>& strategy_names();
// null: the defaults. kInvalidArgument naming the member of "strategy" that is wrong, unknown or another strategy's.
Result<StrategySpec> parse_strategy(const nlohmann::json& value);
// With every default filled in, but for a max_share that follows the number of updates.
nlohmann::json to_json(const StrategySpec& strategy);

// The same elements of one tensor in all models of a round, as fp32. All spans have `size` elements.
struct Block {
    std::size_t size = 0;
    std::vector<std::span<const float>> updates;  // in the updates' order
    std::span<const float> base;                  // what they were trained from; there to be measured, or needs_base()
    std::vector<std::span<float>> state;          // one a name of state(): as the round before left it, zero at first
};

// What is known of all updates before the first block is made.
struct Measured {
    std::span<const double> weights;             // one an update: finite, >= 0, not all zero
    std::span<const double> statistics = {};     // by measure(), over the whole model; empty: nothing was measured
    std::span<const double> earlier_norms = {};  // of updates of earlier rounds
    double bound = 0;                            // of the norms, where some have been refused for it; 0: to be found
};

struct Prepared {
    std::vector<double> shares;             // of the result, one an update; they sum to one
    std::vector<double> norms = {};         // one an update, where they were measured
    double bound = 0;                       // what they may be at most; 0: anything
    std::vector<std::size_t> refused = {};  // the updates beyond it, in order: to be made without them
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

    // Figures about each update, summed over the elements of all floating tensors, that prepare() asks for; 0: none,
    // and the updates are read once.
    virtual std::size_t statistics_per_update() const = 0;
    // Adds a block's to them, those of one update beside one another. Finite where the block is; the sums depend on the
    // blocks that they are made of in their last bits.
    virtual void measure(const Block& block, std::span<double> statistics) const = 0;
    // Says how much each update counts, and which are refused. kInvalidArgument naming "weights" where those given
    // cannot be followed.
    virtual Result<Prepared> prepare(const Measured& measured) const = 0;
    // Makes the block of the next model, and of the state in place. Where an update holds NaN or infinity the result
    // does too: that is how it is found, before anything is stored.
    virtual void combine(Block& block, std::span<const double> shares, std::span<float> result) const = 0;
};

// kInvalidArgument naming "strategy.name" where there is no such strategy, else the setting that means nothing ("lr",
// "momentum", "trim", "norm_bound", "max_share").
Result<std::unique_ptr<const Strategy>> make_strategy(const StrategySpec& spec);

}  // namespace atl::aggregate
