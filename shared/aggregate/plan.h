#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/base/text.h"

// Where the bytes of the output come from. Internal to this module.
namespace atl::aggregate {

// A tensor's elements in one model.
struct Place {
    std::size_t file = 0;
    std::uint64_t offset = 0;  // bytes, in the file
    safetensors::DType dtype = safetensors::DType::kF32;
};

enum class TensorKind {
    kCombine,  // the strategy's result
    kCopy,     // integers, the same in all inputs
    kState,    // what the strategy leaves for the next round
};

struct Tensor {
    safetensors::TensorInfo info;  // in the output
    TensorKind kind = TensorKind::kCombine;
    std::uint64_t begin = 0;  // bytes from the start of the output file
    std::uint64_t end = 0;
    std::vector<Place> inputs;                // one an input
    Place base;                               // where there is one, as it stores it
    std::vector<std::optional<Place>> state;  // one a name of the strategy's; none: zero
    std::size_t made = 0;                     // kState: which of them this is
    std::size_t widest = 1;                   // bytes of an element in the model where it has most
};

struct PlannedFile {
    std::string head;             // 8 length bytes and the header
    std::vector<Tensor> tensors;  // by offset, empty ones left out
};

struct Plan {
    std::vector<Input> inputs;
    StrategySpec spec;
    std::unique_ptr<const Strategy> strategy;
    bool measures = false;  // the inputs are measured against the base before the first block is made
    std::vector<double> weights;
    std::vector<double> shares;
    std::vector<double> parts;       // of each update's change that count; empty: all of it
    std::optional<RoundBase> start;  // the output has its files, or the first input's
    AggregatorOptions options;
    std::vector<Aggregator::OutputFile> files;
    std::vector<PlannedFile> planned;
};

// Reads only headers; errors as Aggregator::plan().
Result<Plan> make_plan(const StrategySpec& strategy, std::vector<Input> inputs, const std::vector<double>& weights,
                       const AggregatorOptions& options, std::optional<RoundBase> start);

void report_fault(const AggregatorOptions& options, std::size_t input);

bool is_floating(safetensors::DType dtype);

}  // namespace atl::aggregate
