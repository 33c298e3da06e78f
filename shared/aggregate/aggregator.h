#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/aggregate/exact_sum.h"
#include "shared/aggregate/strategy.h"
#include "shared/base/result.h"
#include "shared/safetensors/safetensors.h"

// The next model of a round from its updates by any strategy, made piece by piece: memory is O(block), whatever the
// size of the models, and a byte of the output depends on nothing but the inputs and the weights (not on blocks,
// threads or CPU).
namespace atl::aggregate {

// The bytes of one file, wherever they are. Thread-safe.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    virtual std::uint64_t size() const = 0;
    // Fills `into` from `offset`. kInternal or kUnavailable if the bytes cannot be had.
    virtual Status read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

struct InputFile {
    std::string path;  // within the model, "model-00001-of-00002.safetensors"
    std::shared_ptr<const ByteSource> bytes;
};

// What a LoRA adapter's B A is multiplied with before it is added to the model's matrix.
struct LoraScale {
    double alpha = 1;
    bool is_rank_stabilized = false;  // divided by the rank's root instead of the rank (use_rslora of peft)

    double of_rank(std::size_t rank) const;
};

// One model: its safetensors files, or a delta.safetensors (shared/delta), with which it is base + change, as fp32.
// Tensors are matched by name, so that inputs may be sharded differently.
struct Input {
    std::string name;  // for messages: a directory or a version's digest
    std::vector<InputFile> files;
    LoraScale lora = {};  // of an adapter; only a strategy of adapters looks at it
    // Of its token_counts.safetensors (model_config/token_counts.h); null: it has none. Only a strategy that
    // needs_token_counts() looks at it.
    std::shared_ptr<const ByteSource> token_counts = {};
    // Of its control_variate.safetensors (shared/delta/control_variate.h); null: it has none. Only a strategy with
    // control variates looks at it.
    std::shared_ptr<const ByteSource> control_variate = {};
};

// What the inputs were trained from, whose layout the output has. The inputs must have just its tensors, by name and
// shape, however they spread them over files; F16, BF16 and F32 may stand for one another.
struct RoundBase {
    Input base;
    // What the strategy left in the round before, by the names of Strategy::state(); without a name it begins with
    // zero.
    std::map<std::string, Input, std::less<>> state = {};
    // Weights of updates that are not there and count as if they were and changed nothing: all changes are as much
    // shorter as the mean would be with them. The rows that a strategy weighs by themselves are not: there each row is
    // that of who has seen its token.
    std::vector<double> absent = {};
    // The mean of the control variates that made the base, its files below control_variate/; none: it has none, or
    // others made it than those who go on from it.
    std::optional<Input> control_variate = {};
    // What an input that is a change of the base (shared/delta), or a control variate, must call it; empty: anything.
    std::string digest = {};
    // Whether an earlier round of the same job made the base. Of one that somebody has brought nobody knows whether
    // what it says of its training is so.
    bool is_jobs = true;
};

struct AggregatorOptions {
    // Read from an input at a time, less where there are very many; local files do well with what fits the cache,
    // remote ones with a chunk.
    std::size_t block_bytes = 128U << 10;
    // Told which input, by its index, is at fault, just before plan() or read() fails because of one: its bytes cannot
    // be had, its tensors differ from the base's (else the first input's), its token counts or control variate are
    // wanted and are missing or not what they should be, it holds NaN, or by far the largest numbers where the result
    // overflows. Not told when no single input is.
    std::function<void(std::size_t input)> on_fault = {};
    // F32, F16 or BF16, of all tensors of the output that are one of these; absent: each as in the base, or without one
    // the first input.
    std::optional<safetensors::DType> dtype = {};
};

// What is lost where what several adapters add is brought back to the rank of one: sums of squares.
struct Truncation {
    ExactSum left_out;
    ExactSum whole;

    double relative_error() const;  // √(left out / whole)
};

struct Plan;
struct Scratch;

// The output has the base's files, or without one the first input's: the same names, headers, dtypes, order and sizes,
// but for AggregatorOptions::dtype.
// Nothing else that an input says about itself gets into it. Thread-safe once made, but for prepare().
//
// The strategy computes in fp32 (plain means of F64 tensors in fp64: each share as a double), and its result is rounded
// to nearest even into the tensor's own dtype. Tensors of integers and booleans must be the same in all inputs and are
// copied. What the strategy keeps for the next round follows the model's files, always F32: under its name and the
// model's path, "momentum/model.safetensors". Behind it comes the mean of the control variates where the strategy has
// them, always BF16: "control_variate/model.safetensors".
//
//   // Fails if the models do not match.
//   ATOLL_TRY(const auto aggregator, aggregate::Aggregator::plan(strategy, updates, weights));
//   aggregate::Aggregator::Workspace workspace(aggregator);  // one a thread
//   std::vector<std::byte> part(8 << 20);
//   for (std::size_t file = 0; file < aggregator.files().size(); ++file)
//       for (std::uint64_t at = 0; at < aggregator.files()[file].size; at += part.size())  // the last part is shorter
//           ATOLL_RETURN_IF_ERROR(aggregator.read(file, at, part, workspace));
class Aggregator {
  public:
    // Reads only headers, and token counts where the strategy needs them. kInvalidArgument, naming tensor and input,
    // when names, shapes or dtypes differ or a dtype cannot be averaged; naming "weights" when they are not one finite
    // number >= 0 an input with a positive sum, "absent" when one of those is negative or not finite; naming
    // delta.safetensors, or a key of its metadata, where an input is a change of another model than the base or there
    // is none; naming "strategy" when it needs a base and there is none; naming token_counts.safetensors where an
    // input's are missing, of another length, negative or not finite; naming control_variate.safetensors, or its
    // tensor, where an input's is missing, of another base or not of the base's tensors; what make_strategy() says. A
    // strategy of adapters takes no tensor that is not one of a pair lora_A and lora_B. The strategy's weighting is the
    // caller's part: `weights` follow it.
    static Result<Aggregator> plan(const StrategySpec& strategy, std::vector<Input> inputs,
                                   const std::vector<double>& weights, const AggregatorOptions& options = {},
                                   std::optional<RoundBase> start = {});
    Aggregator(Aggregator&&) noexcept;
    Aggregator& operator=(Aggregator&&) noexcept;
    ~Aggregator();

    struct OutputFile {
        std::string path;
        std::uint64_t size;  // bytes
    };
    const std::vector<OutputFile>& files() const;
    // Whether that file is none of the output after all, as decided by prepare(): one of the mean of the control
    // variates, where fewer than two updates' count.
    bool leaves_out(std::size_t file) const;

    // Whether read() has a Truncation to tell of.
    bool truncates() const;

    // Scratch memory for read(): one a thread.
    class Workspace {
      public:
        explicit Workspace(const Aggregator& aggregator);
        Workspace(Workspace&&) noexcept;
        ~Workspace();

        // What the adapters lost whose A began in what was read with this since the last call.
        Truncation take_truncation();

      private:
        friend class Aggregator;
        std::unique_ptr<Scratch> scratch_;
    };

    // Numbers that measure() sums up, for prepare(); 0: nothing is measured before the first read(), as there is no
    // base.
    std::size_t statistics_count() const;
    // Adds those of the tiles that begin in the output file's bytes [offset, offset + size). The sums over all files
    // depend on the inputs alone, not on parts, blocks or threads. Errors as read().
    Status measure(std::size_t file, std::uint64_t offset, std::uint64_t size, std::span<ExactSum> statistics,
                   Workspace& workspace) const;
    // Decides how much each input counts from now on, from the sums over all files. Before it, and where nothing is
    // measured, the shares are what the weights give and every change counts whole. `assigned`: one an input, or none.
    // Not while another thread reads.
    Result<Prepared> prepare(std::span<const double> statistics, std::span<const Assignment> assigned = {},
                             std::span<const EarlierNorm> earlier = {});

    // The output file's bytes [offset, offset + into.size()). kInvalidArgument, naming tensor and input, for NaN or
    // infinity in a model, a result that overflows its dtype, or integer tensors that differ.
    Status read(std::size_t file, std::uint64_t offset, std::span<std::byte> into, Workspace& workspace) const;

  private:
    explicit Aggregator(std::unique_ptr<Plan> plan);
    std::unique_ptr<Plan> plan_;
};

}  // namespace atl::aggregate
