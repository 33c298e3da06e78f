#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/aggregate/strategy.h"
#include "shared/base/result.h"
#include "shared/safetensors/safetensors.h"

// The weighted mean of models, made piece by piece: memory is O(block), whatever the number and the size of the
// inputs, and a byte of the output depends on nothing but the inputs and the weights (not on blocks, threads or CPU).
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

// One model: its safetensors files. Tensors are matched by name, so that inputs may be sharded differently.
struct Input {
    std::string name;  // for messages: a directory or a version's digest
    std::vector<InputFile> files;
};

// What the inputs were trained from, whose layout the output has. The inputs must have just its tensors, by name and
// shape, however they spread them over files; F16, BF16 and F32 may stand for one another.
struct RoundBase {
    Input base;
    std::optional<Input> momentum = {};  // what the server optimizer's step before left; none: zero
};

// The momentum that a server optimizer leaves is among the output's files, as this and the weights' path; always F32.
inline constexpr char kMomentumPrefix[] = "momentum/";

struct AggregatorOptions {
    // Read from an input at a time; local files do well with what fits the cache, remote ones with a chunk.
    std::size_t block_bytes = 128U << 10;
    // Told which input, by its index, is at fault, just before plan() or read() fails because of one: its bytes cannot
    // be had, its tensors differ from the base's (else the first input's), it holds NaN. Not told when no single input
    // is.
    std::function<void(std::size_t input)> on_fault = {};
};

struct Plan;
struct Scratch;

// The output has the base's files, or without one the first input's: the same names, headers, dtypes, order and sizes.
// Nothing else that an input says about itself gets into it. Thread-safe once made.
//
// Elements: mean = Σ w_i x_i, i in the inputs' order, each w_i = weight_i / Σ weight as double, then rounded to fp32;
// sums in fp32 (fp64 for F64 tensors), rounded to nearest even into the tensor's own dtype. Tensors of integers and
// booleans must be the same in all inputs and are copied.
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
    // Reads only headers. kInvalidArgument, naming tensor and input, when names, shapes or dtypes differ or a dtype
    // cannot be averaged; naming "weights" when they are not one finite number >= 0 an input with a positive sum;
    // naming "strategy.name" when there is no such strategy; naming "lr" or "momentum" when a server optimizer's rate
    // is not > 0 or its beta1 not in [0, 1), "strategy.outer" when there is no base that it could step from. The
    // strategy's weighting is the caller's part: `weights` follow it.
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

    // Scratch memory for read(): one a thread.
    class Workspace {
      public:
        explicit Workspace(const Aggregator& aggregator);
        Workspace(Workspace&&) noexcept;
        ~Workspace();

      private:
        friend class Aggregator;
        std::unique_ptr<Scratch> scratch_;
    };

    // The output file's bytes [offset, offset + into.size()). kInvalidArgument, naming tensor and input, for NaN or
    // infinity in a model, a mean or a step that overflows, or integer tensors that differ.
    Status read(std::size_t file, std::uint64_t offset, std::span<std::byte> into, Workspace& workspace) const;

  private:
    explicit Aggregator(std::unique_ptr<const Plan> plan);
    std::unique_ptr<const Plan> plan_;
};

}  // namespace atl::aggregate
