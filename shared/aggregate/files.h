#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/base/result.h"

// Averaging directories of this machine.
namespace atl::aggregate {

// A local file, read with pread (a file that shrinks under us is an error, not a SIGBUS).
Result<std::shared_ptr<const ByteSource>> open_file(const std::filesystem::path& path);

// A Hugging Face model directory's *.safetensors, and its token counts and control variate if it has some. With
// model.safetensors.index.json they must be just the files that it names. kInvalidArgument names the files of PyTorch
// where there are no others, and the command that converts them.
Result<Input> open_directory(const std::filesystem::path& directory);

// Of a directory without *.safetensors the file of PyTorch that it has instead; empty: none.
std::string find_torch_file(const std::filesystem::path& directory);
// kInvalidArgument where it has one: with the command that makes safetensors of it.
Status explain_torch_files(const std::filesystem::path& directory);

// That as an update of the strategy, or as the base of one: with what scales an adapter where it is of adapters.
Result<Input> open_update(const StrategySpec& strategy, const std::filesystem::path& directory);
// What a round began with: the model in `directory`, with the mean of the control variates in its control_variate/
// where the strategy has them, and what it left in the folders of `state`, of which any may be missing.
Result<RoundBase> open_base(const StrategySpec& strategy, const std::filesystem::path& directory,
                            const std::filesystem::path& state);

// Every floating number of the models is finite, and of changes (shared/delta) and control variates every scale.
// kInvalidArgument, naming tensor and model, for one that is not.
Status check_finite(std::vector<Input> inputs);

struct WriteOptions {
    int threads = 0;                                                        // 0: one a core
    std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes of the output, from one thread
    // That of the aggregator's options: then config.json and the index say so, too.
    std::optional<safetensors::DType> dtype = {};
};

// Measures the inputs of an aggregator that has to (statistics_count()) and prepares it with what that gives.
// `assigned`, `earlier`: as Aggregator::prepare() takes them.
Result<Prepared> measure_inputs(Aggregator& aggregator, const std::vector<Assignment>& assigned = {},
                                const WriteOptions& options = {}, const std::vector<EarlierNorm>& earlier = {});

// Makes the directory `out` with the averaged files and copies of `first`'s other files but what is of its own
// training. It appears whole or not at all, also after a power cut: kConflict if it exists (an empty directory is
// replaced). What an aggregator that truncates() lost.
Result<Truncation> write_aggregate(const Aggregator& aggregator, const std::filesystem::path& first,
                                   const std::filesystem::path& out, const WriteOptions& options = {});

}  // namespace atl::aggregate
