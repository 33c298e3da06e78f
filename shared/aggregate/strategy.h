#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/aggregate/strategy_table.h"
#include "shared/base/result.h"

// How the accepted updates of a round become the next model. A strategy is a class in strategies/ that computes one
// block of elements at a time and knows of no file, shard or network; `Aggregator` feeds it. To add one: derive from
// Strategy, give it a row in strategy_table.cpp, make it in make_strategy(), read its settings in parse_strategy().
namespace atl::aggregate {

// An optimizer's step from the base against the pseudo-gradient d = base - mean (Reddi et al. 2021,
// https://arxiv.org/abs/2003.00295, whose letters these are), each operation rounded to fp32:
//   nesterov: SGD with Nesterov momentum as PyTorch has it (DiLoCo, https://arxiv.org/abs/2311.08105):
//             momentum' = beta1 momentum + d;  weights = base - learning_rate (d + beta1 momentum')
//   momentum: FedAvgM (Hsu et al. 2019, https://arxiv.org/abs/1909.06335):
//             momentum' = beta1 momentum + d;  weights = base - learning_rate momentum'
//   adam:     FedAdam (Reddi et al. 2021), which has no bias correction:
//             momentum' = beta1 momentum + (1 - beta1) d;  variance' = beta2 variance + (1 - beta2) d²;
//             weights = base - learning_rate momentum' / (√variance' + epsilon)
struct ServerOptimizer {
    double learning_rate = 0.7;                // "lr"
    double beta1 = *kOuterMomentum.fallback;   // "momentum"
    OuterKind kind = OuterKind::kNesterov;     // "optimizer"
    double beta2 = *kOuterBeta2.fallback;      // adam only
    double epsilon = *kOuterEpsilon.fallback;  // adam only
};

// A strategy and its settings, as jobs, events and the command line have them:
//   {"name": "fedavg", "weighting": "uniform" | "tokens", "outer": {"optimizer": "nesterov" | "momentum" | "adam",
//    "lr": 0.7, "momentum": 0.9, "beta2": 0.99, "epsilon": 0.001}, "row_weights": "mean" | "tokens",
//    "control_variate": 0.7}
//   {"name": "trimmed_mean", "trim": 0.2}
//   {"name": "median"}
//   {"name": "product", "weighting": "uniform" | "tokens"}
// All take "clip" and "drop" (numbers or null) and "absent": "left_out" | "no_change", all but trimmed_mean and median
// "max_share". Where a job says nothing of these it gets the defaults of strategy_table.h. A StrategySpec made in code
// has none of them.
struct StrategySpec {
    std::string name = "fedavg";
    bool weighs_by_tokens = true;                          // fedavg and product
    std::optional<ServerOptimizer> server_optimizer = {};  // "outer", fedavg only; none: the mean is the next model
    bool weighs_rows = false;                              // "row_weights", fedavg only
    // "control_variate", fedavg only: how much of the difference between the mean gradient of all updates and its own a
    // training adds to each gradient. Each update then brings its own, and their mean is part of the next version
    // (shared/delta/control_variate.h). None: nothing of the sort travels.
    std::optional<double> control_variate = {};
    double trim = *kTrim.fallback;  // trimmed_mean only
    // What an update's change counts for by its length: one longer than `clip` times what is usual is shortened to
    // that, one longer than `drop` times counts as no change (defence.h says what is usual). Neither: a change
    // counts whole however long it is.
    std::optional<double> clip = {};
    std::optional<double> drop = {};
    // The most of the mean that one update makes, whatever its weight; the rest is shared out by weight. At least 1/N.
    // None: min(2/N, 2/3) for N updates, of weights that can be believed.
    std::optional<double> max_share = 1.0;
    // "absent": who has no update in a round counts as one that changes nothing (RoundBase::absent), not as left out.
    bool counts_absent = false;
};

const std::vector<std::string>& strategy_names();
// The ranks of a pair of matrices in all models of a round, its base among them, sum to this at most where a strategy
// is of adapters: its work grows with the square.
inline constexpr std::int64_t kRanksMax = 1024;
// Numbers that making a pair of matrices holds, in fp32: 128 MiB a thread. Llama-3-70B's down_proj takes 30.7 million
// with eight updates of rank 64.
inline constexpr std::uint64_t kPairNumbersMax = std::uint64_t{1} << 25;
// So many they are for matrices [rank, inputs] and [outputs, rank]: those of all models, whose ranks sum to `ranks`,
// and four times the result.
constexpr std::uint64_t pair_numbers(std::uint64_t inputs, std::uint64_t outputs, std::uint64_t ranks,
                                     std::uint64_t rank) {
    return (inputs + outputs) * (ranks + 4 * rank);
}

// null: the defaults. kInvalidArgument naming the member of "strategy" that is wrong, unknown or another strategy's.
Result<StrategySpec> parse_strategy(const nlohmann::json& value);
// With every default filled in, but for a max_share that follows the number of updates; row_weights, control_variate
// and absent only where they are not the default.
nlohmann::json to_json(const StrategySpec& strategy);

// Of a block of an embedding or a head, whose rows stand for tokens, what travels beside the updates.
struct TokenRows {
    std::size_t width = 0;  // elements of a row; 0: the block is of another tensor, or the strategy asks for none
    std::size_t begin = 0;  // of its row that come before the block's first
    // One an update: for each row that the block touches, the part of all tokens of its training that were the row's.
    // Of one update they sum to one over all rows, whatever its site says.
    std::vector<std::span<const double>> frequencies = {};
};

// The same elements of one tensor in all models of a round, as fp32. All spans have `size` elements.
struct Block {
    std::size_t size = 0;
    TokenRows rows;
    std::vector<std::span<const float>> updates;  // in the updates' order
    std::span<const float> base;                  // what they were trained from; there only if needs_base()
    std::vector<std::span<float>> state;          // one a name of state(): as the round before left it, zero at first
};

struct AdapterPair;
struct Nearest;

// What an update's training was given to do by whoever opened its round: nothing that its site alone says.
struct Assignment {
    double effort = 1;       // the sum of the learning rate over its steps
    double claimed = 1;      // times this it would have been by what its site says of its data: at least 1
    double tokens = 0;       // that its steps can see; 0: not known
    double element_max = 0;  // the most that its optimizer can move an element in all that; 0: not known
    double norm_max = 0;     // and all of them together; 0: not known
    double decay = 0;        // the most of itself that an element can lose to weight decay
};

// {effort, claimed, tokens, element_max, norm_max, decay}
nlohmann::json to_json(const Assignment& assigned);
// null, or a member that is not there: as if all had been given the same. An error names the field below `path`.
Result<Assignment> parse_assignment(const nlohmann::json& value, const std::string& path);

// Weights as far as they can be believed: for each token that it was assigned an update weighs no more than the lower
// median of all does, so that who claims to have seen more than others in as many steps has the weight of one of them.
// As they are where it is not known what was assigned.
std::vector<double> believable_weights(std::vector<double> weights, std::span<const Assignment> assigned);

// What was counted of an update in a round before.
struct EarlierNorm {
    double norm = 0;
    double effort = 1;
    std::optional<std::size_t> update = {};  // of this round, of the same site; none: it has no part in it
};

// What was measured of an update's control variate.
struct ControlVariateFigures {
    double norm = 0;     // over all its tensors
    double counted = 1;  // the part of it that counts
};

// What was measured of an update.
struct UpdateFigures {
    double norm = 0;  // ‖update - base‖ over all floating tensors
    // Of its change to the mean of the others'. None: one of both is zero, or another's change does not count whole, so
    // that the mean would be much of what is left out.
    std::optional<double> cosine = {};
    double counted = 1;                                         // the part of its change that counts
    std::optional<ControlVariateFigures> control_variate = {};  // where the strategy has them
};

struct Prepared {
    std::vector<double> shares;  // of the result, one an update; they and those of RoundBase::absent sum to one
    std::vector<UpdateFigures> figures = {};  // one an update, where they were measured
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
    // Whether combine() looks at Block::rows: each update must then bring its token counts.
    virtual bool needs_token_counts() const { return false; }
    // Whether combine() gives Σ share_i x_i and nothing more: F64 tensors, which no block can hold, are then averaged
    // in fp64; other strategies refuse them.
    virtual bool is_weighted_mean() const { return false; }
    // Whether it makes the two matrices of a LoRA adapter together, by combine_pair(), and takes nothing but adapters.
    // Then a model's change is that of what the adapter adds, scale B A. Else combine() makes all floating tensors.
    virtual bool is_of_adapters() const { return false; }

    // Each update's share of the result; they sum to one. kInvalidArgument naming "weights" where these, finite, >= 0
    // and not all zero, cannot be followed.
    virtual Result<std::vector<double>> share_out(std::span<const double> weights) const = 0;
    // Makes the block of the next model, and of the state in place. Where an update holds NaN or infinity the result
    // does too: that is how it is found, before anything is stored.
    virtual void combine(Block& block, std::span<const double> shares, std::span<float> result) const = 0;
    // Makes B and A of the next adapter; may change what it gets. All numbers are finite.
    virtual Nearest combine_pair(AdapterPair& pair) const;
};

// kInvalidArgument naming "strategy.name" where there is no such strategy, else the setting that means nothing ("lr",
// "momentum", "trim", "clip", "drop", "max_share", "control_variate").
Result<std::unique_ptr<const Strategy>> make_strategy(const StrategySpec& spec);

}  // namespace atl::aggregate
