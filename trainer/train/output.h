#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "shared/base/result.h"
#include "shared/run_settings/run_settings.h"

// What a directory is, and what may stand at --out. One rule for all commands: nothing, or an empty directory; with
// --overwrite also a directory of the kind that the command makes, with nothing else in it. Never anything that the
// command reads.
namespace atl::train {

using run_settings::RunConfig;

// What a command makes. A state is what a training has beside its --out.
enum class OutputKind { kModel, kAdapter, kData, kCheckpoint, kTokenizer };

// "a model"
const char* to_string(OutputKind kind);

// What a directory is by the file that tells it, which may lack others; absent: none of them. A model may have a
// tokenizer.
std::optional<OutputKind> recognize_output(const std::filesystem::path& directory);

// Whether `out` holds one of them that can be read.
bool holds_output(OutputKind kind, const std::filesystem::path& out);

// Refuses --out by that rule; `reads` are the files and directories that the command reads, empty paths among them mean
// nothing. kInvalidArgument or kConflict, naming --out and the way on.
Status check_output(OutputKind kind, const std::filesystem::path& out, std::span<const std::filesystem::path> reads,
                    bool overwrite);

// Whether --out holds a training's result that can be read: a model, or with adapters an adapter.
bool holds_result(const RunConfig& config);

// "OUT.best", where --save-best keeps a model or an adapter, and whether there is one that can be read.
std::filesystem::path best_directory(const std::filesystem::path& out);
bool holds_best(const RunConfig& config);

// A warning when a model that was made has no tokenizer: later commands need one.
void warn_of_missing_tokenizer(const std::filesystem::path& model);

// What a training finds at its --out.
enum class TrainOutput {
    kFree,          // begins there, in the place of what --overwrite gives up
    kCheckpoint,    // --resume: goes on
    kNoCheckpoint,  // --resume, but there is nothing to go on from: begins anew
    kFinished,      // --resume, but the result is there, and the record of the run that made it
};

// By that rule, and: a state that is there is neither gone over without --resume nor given up without --overwrite; and
// --resume does not take a result that no run left there for its own.
Result<TrainOutput> check_train_output(const RunConfig& config);

}  // namespace atl::train
