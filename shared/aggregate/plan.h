#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/base/text.h"
#include "shared/delta/delta.h"

// Where the bytes of the output come from. Internal to this module.
namespace atl::aggregate {

// A tensor's elements in one model.
struct Place {
    std::size_t file = 0;
    std::uint64_t offset = 0;  // bytes, in the file
    safetensors::DType dtype = safetensors::DType::kF32;
    std::optional<delta::Format> change = {};  // they are the base's and this change, as fp32; none: they lie there
};

enum class TensorKind {
    kCombine,  // the strategy's result
    kCopy,     // integers, the same in all inputs
    kState,    // what the strategy leaves for the next round
    kFactor,   // a matrix of an adapter, which is made with the other one
    kVariate,  // the mean of the control variates
};

// The two matrices of an adapter in all models.
struct PlannedPair {
    struct Model {
        Place a, b;
        std::size_t rank = 0;
    };
    std::string a, b;           // the tensors' names
    std::size_t inputs = 0;     // columns of A
    std::size_t outputs = 0;    // rows of B
    std::vector<Model> models;  // the inputs, and behind them the base where there is one
    std::size_t layout = 0;     // of them, whose rank and scale the output has
    const Model& start() const { return models[layout]; }
};

struct Tensor {
    safetensors::TensorInfo info;  // in the output
    TensorKind kind = TensorKind::kCombine;
    std::uint64_t begin = 0;  // bytes from the start of the output file
    std::uint64_t end = 0;
    std::vector<Place> inputs;                // one an input; kVariate: in its control variate
    Place base;                               // where there is one, as it stores it
    std::vector<std::optional<Place>> state;  // one a name of the strategy's; none: zero; kVariate: the base's own
    std::size_t made = 0;                     // kState: which of them this is; kFactor: of which pair
    bool is_a = false;                        // kFactor: of both
    std::size_t widest = 1;                   // bytes of an element in the model where it has most
    std::size_t row_elements = 0;             // where the strategy weighs its rows; 0: it does not
};

struct PlannedFile {
    std::string head;             // 8 length bytes and the header
    std::vector<Tensor> tensors;  // by offset, empty ones left out
};

// Where an input's token counts are, as fp32.
struct TokenCounts {
    std::uint64_t offset = 0;  // bytes, in its file
    double total = 0;
};

struct Plan {
    std::vector<Input> inputs;
    std::vector<TokenCounts> token_counts;  // one an input, where the strategy needs them
    StrategySpec spec;
    std::unique_ptr<const Strategy> strategy;
    bool has_changes = false;  // some input is a change of the base, which is then read with it
    bool measures = false;     // the inputs are measured against the base before the first block is made
    std::vector<double> weights;
    std::vector<double> shares;         // of the mean of those that are there
    double present = 1;                 // of the mean with those that are absent, which change nothing
    std::vector<double> parts;          // of each update's change that count for its length; empty: all of it
    std::vector<double> variate_parts;  // likewise of its control variate
    double kept_variate = 0;            // what the base's own mean of them is multiplied with, for those absent
    bool has_variates = true;           // their mean is part of the output
    std::optional<RoundBase> start;     // the output has its files, or the first input's
    AggregatorOptions options;
    std::vector<Aggregator::OutputFile> files;
    std::vector<PlannedFile> planned;
    std::vector<PlannedPair> pairs;  // of a strategy of adapters
    std::size_t prepared = 0;        // how often its parts were decided

    const Input& model(std::size_t at) const { return at < inputs.size() ? inputs[at] : start->base; }
    // What the update's change is multiplied with in tensors whose rows the strategy weighs, or does not.
    double factor(std::size_t update, bool weighs_rows) const {
        return (parts.empty() ? 1 : parts[update]) * (weighs_rows ? 1 : present);
    }
};

// A safetensors file, as far as its header.
struct OpenedFile {
    std::string head;  // 8 length bytes and the header
    safetensors::Header header;
};
// Errors name the input and the file.
Result<OpenedFile> read_header(const Input& input, const InputFile& file);

// Whether it is a change of the base and not a model.
bool is_change(const Input& input);

// Reads only headers; errors as Aggregator::plan().
Result<Plan> make_plan(const StrategySpec& strategy, std::vector<Input> inputs, const std::vector<double>& weights,
                       const AggregatorOptions& options, std::optional<RoundBase> start);

void report_fault(const AggregatorOptions& options, std::size_t input);

bool is_floating(safetensors::DType dtype);

}  // namespace atl::aggregate
