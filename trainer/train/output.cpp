#include "trainer/train/output.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/out_directory.h"
#include "shared/delta/delta.h"
#include "shared/log/warn.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/tokenize/partial_run.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/tokenizer_train.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/save.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOut = "--out";

// What each kind is called, what tells it, and the files that it may have.
struct OutputPattern {
    const char* name;
    std::vector<std::string> signs;  // any of them
    const char* gate;                // without it nothing of that kind can be read: StagedDirectory
    bool (*has)(std::string_view file);
};

// In this order: a model may have a tokenizer, and a change of either is in a file of one name.
constexpr std::array kOutputKinds = {OutputKind::kAdapter, OutputKind::kModel, OutputKind::kData,
                                     OutputKind::kCheckpoint, OutputKind::kTokenizer};

const OutputPattern& output_pattern(OutputKind kind) {
    static const std::array<OutputPattern, kOutputKinds.size()> patterns = {
        {{"a model",
          {"model.safetensors", "model.safetensors.index.json", delta::kFile},
          "config.json",
          weights::is_model_file},
         {"an adapter", {"adapter_config.json"}, "adapter_config.json", weights::is_adapter_file},
         {"tokenized data", {"data.json"}, "data.json", tokenize::is_data_file},
         {"the state of a training",
          {"state.safetensors", "finished.json"},
          "state.safetensors",
          checkpoint::is_checkpoint_file},
         {"a tokenizer",
          {"tokenizer.model", "tokenizer.json", "vocab.json"},
          "tokenizer.model",
          tokenizer::is_trained_tokenizer_file}}};
    return patterns[static_cast<std::size_t>(kind)];
}

bool is_there(const fs::path& path) {
    std::error_code error;
    return fs::exists(path, error);
}

std::optional<std::string> sign_in(const OutputPattern& look, const fs::path& out) {
    for (const std::string& sign : look.signs)
        if (is_there(out / sign)) return sign;
    return std::nullopt;
}

Status named(Status status) {
    if (status.ok()) return status;
    Error error = status.error();
    error.field = kOut;
    return error;
}

Status refuse(const std::string& message) {
    return conflict(message, kOut);
}

Status check_place(OutputKind kind, const fs::path& out, std::span<const fs::path> reads) {
    const OutputPattern& look = output_pattern(kind);
    std::vector<fs::path> given;
    for (const fs::path& read : reads)
        if (!read.empty()) given.push_back(read);
    ATOLL_RETURN_IF_ERROR(named(check_reads_stay(out, given)));
    if (const auto there = recognize_output(out); there && *there != kind)
        return refuse(out.string() + " holds " + to_string(*there) + ", this command writes " + to_string(kind) +
                      ": name another directory");
    return named(check_replaceable(out, sign_in(look, out).value_or(look.signs.front()), look.has));
}

OutputKind output_kind(const RunConfig& config) {
    return config.lora_rank > 0 || !config.adapter.empty() ? OutputKind::kAdapter : OutputKind::kModel;
}

}  // namespace

const char* to_string(OutputKind kind) {
    return output_pattern(kind).name;
}

std::optional<OutputKind> recognize_output(const fs::path& directory) {
    const auto found = std::ranges::find_if(
        kOutputKinds, [&](OutputKind kind) { return sign_in(output_pattern(kind), directory).has_value(); });
    return found == kOutputKinds.end() ? std::nullopt : std::optional(*found);
}

bool holds_output(OutputKind kind, const fs::path& out) {
    const OutputPattern& look = output_pattern(kind);
    return sign_in(look, out) && is_there(out / look.gate);
}

Status check_output(OutputKind kind, const fs::path& out, std::span<const fs::path> reads, bool overwrite) {
    ATOLL_RETURN_IF_ERROR(check_place(kind, out, reads));
    if (overwrite || !holds_output(kind, out)) return {};
    return refuse(out.string() + " holds " + to_string(kind) + " already; --overwrite replaces it");
}

bool holds_result(const RunConfig& config) {
    return holds_output(output_kind(config), config.out);
}

fs::path best_directory(const fs::path& out) {
    return checkpoint::checkpoint_file(out).parent_path().replace_extension(".best");
}

bool holds_best(const RunConfig& config) {
    return holds_output(output_kind(config), best_directory(config.out));
}

void warn_of_missing_tokenizer(const fs::path& model) {
    const auto tokenizer = tokenizer::Tokenizer::open(model);
    if (tokenizer.ok() || tokenizer.error().code != ErrorCode::kNotFound) return;
    log::warn(model.string() + " has no tokenizer, which tokenize and generate need; --tokenizer copies one");
}

Result<TrainOutput> check_train_output(const RunConfig& config) {
    const fs::path out = config.out;
    const std::array<fs::path, 4> reads = {config.model, config.data, config.val_data, config.adapter};
    if (config.resume && config.overwrite)
        return invalid_argument("--overwrite", "gives up what --resume would go on with: leave one of them out");
    const OutputKind kind = output_kind(config);
    const fs::path state = checkpoint::checkpoint_file(out);
    const fs::path kept = checkpoint::optimizer_file(config.optimizer_from);
    if (!config.optimizer_from.empty() && config.optimizer_if_named.empty() && !is_there(kept))
        return not_found("there is no " + kept.string() + ": name the --out of a run that ended with --keep-optimizer",
                         "--optimizer-from");
    const auto is_out = [&](const std::string& other) {
        std::error_code error;
        return fs::equivalent(checkpoint::checkpoint_file(other).parent_path(), state.parent_path(), error);
    };
    if (is_out(config.optimizer_from))
        return invalid_argument("--optimizer-from",
                                "is the same as --out, and the new run would remove its moments: choose another --out");
    for (const auto& [option, other] : {std::pair{"--rounding-error-from", &config.rounding_error_from},
                                        {"--control-variate-from", &config.control_variate_from}})
        if (is_out(*other))
            return invalid_argument(
                option, "is the same as --out, and the new run would remove what it kept: choose another --out");
    if (config.save_best) {
        Status best = check_output(kind, best_directory(out), reads, config.resume || config.overwrite);
        if (!best.ok()) return Error{best.error().code, best.error().message, "--save-best"};
    }
    if (!config.resume) {
        if (is_there(state) && !config.overwrite)
            return refuse(state.parent_path().string() +
                          " holds the state of a run that stopped: --resume goes on "
                          "with it, --overwrite gives it up")
                .error();
        ATOLL_RETURN_IF_ERROR(check_output(kind, out, reads, config.overwrite));
        return TrainOutput::kFree;
    }
    ATOLL_RETURN_IF_ERROR(check_place(kind, out, reads));
    if (is_there(state)) return TrainOutput::kCheckpoint;
    if (!holds_result(config)) return TrainOutput::kNoCheckpoint;
    ATOLL_TRY(const auto finished, checkpoint::read_finished(out));
    if (finished) return TrainOutput::kFinished;
    return refuse(out.string() + " holds " + to_string(kind) +
                  ", but neither a state to go on from nor the record of a run that made it; --overwrite replaces it")
        .error();
}

}  // namespace atl::train
