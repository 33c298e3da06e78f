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
// `assigned`: as Aggregator::prepare() takes it.
Result<Prepared> measure_inputs(Aggregator& aggregator, const std::vector<Assignment>& assigned = {},
                                const WriteOptions& options = {});

// Makes the directory `out` with the averaged files and copies of `first`'s other files but what is of its own
// training. It appears whole or not at all, also after a power cut: kConflict if it exists (an empty directory is
// replaced). What an aggregator that truncates() lost.
Result<Truncation> write_aggregate(const Aggregator& aggregator, const std::filesystem::path& first,
                                   const std::filesystem::path& out, const WriteOptions& options = {});

}  // namespace atl::aggregate
