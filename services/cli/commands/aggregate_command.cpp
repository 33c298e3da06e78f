#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/trainer_program.h"
#include "services/cli/output.h"
#include "services/cli/transfer.h"
#include "shared/adapter/adapter.h"
#include "shared/aggregate/files.h"
#include "shared/aggregate/settings.h"
#include "shared/aggregate/strategy.h"
#include "shared/aggregate/tokenizers.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/delta/base_digest.h"
#include "shared/delta/control_variate.h"
#include "shared/delta/delta.h"
#include "shared/json/json.h"
#include "shared/log/warn.h"

namespace atl::cli {
namespace {

constexpr const char* kHelp =
    R"(Averages model directories on this machine, with no service running. Tensors are matched by name and keep their type
unless --dtype says another; sums are in fp32, integers must be equal; all other files are the first directory's. Models that compute
otherwise, or whose tokenizers give ids otherwise, are refused. trimmed_mean leaves out the
smallest and largest values of each element, a fraction --trim of the models on each side; median, all but the middle.
product takes LoRA adapters of any ranks and alphas and makes the adapter, of the first one's or the base's rank, that
is nearest to the mean of what they add to their model; it says how much of that is lost. --strategy also takes the
"strategy" object of a job; its outer optimizer goes on from what it left beside --base, as in a job's next round.
--row-weights tokens weighs the rows of embedding and head of each model's change from --base by how often its
training saw their tokens. With --base files, types and all other files are those of the model that the others were
trained from; there --clip shortens a change longer than so many times the median of them to that length, and --drop
counts one longer than so many times as no change; of trainings of unequal length --steps says how long they were.
With control_variate in --strategy each directory also has the control_variate.safetensors of its training, and --out
gets their mean in control_variate/ for the next round. PyTorch's pytorch_model.bin and adapter_model.bin are read, too.
--absent says what models weigh that are missing and count as --base. A directory with a delta.safetensors
(atoll-trainer train --update-format) stands for --base with that change; it must be a change of that base.
Examples:
  atoll aggregate --strategy fedavg --weights 3,1 --out mean leonardo/out karolina/out
  atoll aggregate --strategy '{"name":"fedavg","outer":{"lr":0.7,"momentum":0.9}}' --base round1 --out round2 \
    leonardo/out karolina/out)";

struct AggregateOptions {
    std::string strategy;
    std::optional<double> trim;
    std::string row_weights;
    std::vector<double> weights;
    std::vector<double> steps;
    std::vector<double> absent;
    std::optional<std::filesystem::path> base;
    std::optional<double> clip;
    std::optional<double> drop;
    std::filesystem::path out;
    std::vector<std::filesystem::path> directories;
    std::string dtype;
    int threads = 0;
};

constexpr std::array<std::pair<const char*, safetensors::DType>, 3> kDtypes = {
    {{"fp32", safetensors::DType::kF32}, {"fp16", safetensors::DType::kF16}, {"bf16", safetensors::DType::kBF16}}};

std::optional<safetensors::DType> dtype_of(const AggregateOptions& given) {
    const auto found = std::ranges::find(kDtypes, given.dtype, [](const auto& one) { return std::string(one.first); });
    return found == kDtypes.end() ? std::nullopt : std::optional(found->second);
}

// Changes are compared by what was asked of each training: its steps, at one learning rate.
std::vector<aggregate::Assignment> assignments(const AggregateOptions& given) {
    std::vector<aggregate::Assignment> assigned;
    for (const double steps : given.steps) assigned.push_back({.effort = steps});
    return assigned;
}

// What was measured of each model, for --json.
nlohmann::json figures_of(const AggregateOptions& given, const aggregate::Prepared& prepared) {
    nlohmann::json figures = nlohmann::json::array();
    for (std::size_t i = 0; i < prepared.figures.size(); ++i) {
        const auto& [norm, cosine, counted, variate] = prepared.figures[i];
        figures.push_back({{"directory", given.directories[i].string()},
                           {"norm", norm},
                           {"cosine", cosine ? nlohmann::json(*cosine) : nlohmann::json()},
                           {"counted", counted}});
        if (variate) figures.back()["control_variate"] = {{"norm", variate->norm}, {"counted", variate->counted}};
    }
    return figures;
}

// Says which of the models do not count whole.
void tell_shortened(const AggregateOptions& given, const aggregate::Prepared& prepared) {
    for (std::size_t i = 0; i < prepared.figures.size(); ++i) {
        const aggregate::UpdateFigures& one = prepared.figures[i];
        if (one.counted < 1)
            std::cout << given.directories[i].string() << ": its change has the norm "
                      << nlohmann::json(one.norm).dump() << "; " << std::lround(100 * one.counted)
                      << " % of it counts\n";
    }
}

// A strategy as a job names it, which other flags would contradict.
Result<aggregate::StrategySpec> strategy_of_job(const AggregateOptions& given) {
    if (given.trim || !given.row_weights.empty() || given.clip || given.drop)
        return invalid_argument("--strategy",
                                "--strategy as an object takes trim, row_weights, clip and drop in it, not as flags");
    const auto value = json::parse(given.strategy);
    if (!value.ok()) return invalid_argument("--strategy", "is no JSON: " + value.error().message);
    const auto says = [&](const char* key, const char* word) { return value->value(key, nlohmann::json()) == word; };
    if (says("weighting", "tokens"))
        return invalid_argument("--strategy", "what each model weighs is given with --weights, not by its tokens");
    if (says("absent", "no_change"))
        return invalid_argument("--strategy",
                                "what missing models weigh is given with --absent, not by an earlier round");
    ATOLL_TRY(aggregate::StrategySpec strategy, aggregate::parse_strategy(*value));
    if (!strategy.max_share) strategy.max_share = 1;  // --weights come from whoever runs this, not from the models
    if (given.base) return strategy;
    for (const char* key : {"clip", "drop"})
        if (!value->value(key, nlohmann::json()).is_null())
            return invalid_argument("--base", std::string(key) + " needs --base");
    strategy.clip = strategy.drop = std::nullopt;
    ATOLL_TRY(const auto made, aggregate::make_strategy(strategy));
    if (made->needs_base() || strategy.control_variate) return invalid_argument("--base", "this strategy needs --base");
    return strategy;
}

// Its errors name the flags.
Result<aggregate::StrategySpec> strategy_of(const AggregateOptions& given) {
    const std::size_t first = given.strategy.find_first_not_of(" \t\n");
    if (first != std::string::npos && given.strategy[first] == '{') return strategy_of_job(given);
    if (given.trim && given.strategy != "trimmed_mean")
        return invalid_argument("--trim", "only applies to --strategy trimmed_mean");
    nlohmann::json settings = {{"name", given.strategy}};
    if (given.trim) settings["trim"] = *given.trim;
    if (!given.row_weights.empty() && given.strategy != "fedavg")
        return invalid_argument("--row-weights", "only applies to --strategy fedavg");
    if (!given.row_weights.empty() && !given.base) return invalid_argument("--row-weights", "needs --base");
    if (!given.row_weights.empty()) settings["row_weights"] = given.row_weights;
    auto strategy = aggregate::parse_strategy(settings);
    if (strategy.ok()) {
        strategy->max_share = 1;
        strategy->clip = given.clip;
        strategy->drop = given.drop;
        return strategy;
    }
    Error error = strategy.error();
    error.field = error.field.ends_with("trim") ? "--trim" : "--strategy";
    return error;
}

// What a change of the base calls it; empty: there is no change.
Result<std::string> base_digest(const AggregateOptions& given, const aggregate::StrategySpec& strategy) {
    const bool any =
        strategy.control_variate || std::ranges::any_of(given.directories, [](const std::filesystem::path& directory) {
            return std::filesystem::exists(directory / delta::kFile);
        });
    if (!any) return std::string();
    const std::filesystem::path adapter = *given.base / adapter::kWeightsFile;
    ATOLL_TRY(const auto model, std::filesystem::exists(adapter) ? safetensors::Model::open_file(adapter)
                                                                 : safetensors::Model::open(*given.base));
    return delta::model_sha256(model);
}

// A directory that can be read: the trainer makes safetensors of PyTorch's files, which stay in `made` as long as it is
// there.
Result<std::filesystem::path> convert(const std::filesystem::path& directory, std::optional<TemporaryDirectory>& made) {
    const std::string file = aggregate::find_torch_file(directory);
    if (file.empty()) return directory;
    if (!made) made.emplace("atoll-aggregate");
    const auto count = std::distance(std::filesystem::directory_iterator(made->path()), {});
    const std::filesystem::path out = made->path() / std::to_string(count);
    std::cerr << directory.string() << ": making safetensors of " << file << "\n";
    ATOLL_RETURN_IF_ERROR(run_trainer({"import", "--from", directory.string(), "--out", out.string()}, file));
    return out;
}

Result<AggregateOptions> make_readable(AggregateOptions given, std::optional<TemporaryDirectory>& made) {
    for (std::filesystem::path& directory : given.directories) {
        ATOLL_TRY(directory, convert(directory, made));
    }
    if (given.base) {
        ATOLL_TRY(given.base, convert(*given.base, made));
    }
    return given;
}

// `readable`: the same with directories that can be read; messages have those that were given.
Result<std::vector<aggregate::Input>> open_inputs(const aggregate::StrategySpec& strategy,
                                                  const AggregateOptions& given, const AggregateOptions& readable) {
    std::vector<aggregate::Input> inputs;
    for (std::size_t i = 0; i < given.directories.size(); ++i) {
        ATOLL_TRY(aggregate::Input input, aggregate::open_update(strategy, readable.directories[i]));
        input.name = given.directories[i].string();
        inputs.push_back(std::move(input));
    }
    return inputs;
}

// A middle has to be left of what is cut on both sides.
void tell_uncut(const AggregateOptions& given, const aggregate::StrategySpec& strategy) {
    const bool cuts = strategy.name == "median" || (strategy.name == "trimmed_mean" && strategy.trim > 0);
    if (cuts && given.absent.empty() && given.directories.size() == 2)
        log::warn("the " + strategy.name + " of two models is their mean: nothing is cut of fewer than three");
}

Status run_aggregate(const Context& context, const AggregateOptions& given) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string directories =
        std::to_string(given.directories.size()) + (given.directories.size() == 1 ? " directory" : " directories");
    if (!given.weights.empty() && given.weights.size() != given.directories.size())
        return invalid_argument("--weights", std::to_string(given.weights.size()) + " given for " + directories);
    if (!given.steps.empty() && given.steps.size() != given.directories.size())
        return invalid_argument("--steps", std::to_string(given.steps.size()) + " given for " + directories);
    if (!given.absent.empty() && !given.base) return invalid_argument("--absent", "--absent needs --base");
    ATOLL_TRY(auto strategy, strategy_of(given));
    for (const auto& [flag, times] : {std::pair{"--clip", given.clip}, {"--drop", given.drop}})
        if (times && !given.base) return invalid_argument(flag, std::string(flag) + " needs --base");
    tell_uncut(given, strategy);
    std::optional<TemporaryDirectory> converted;
    ATOLL_TRY(const AggregateOptions readable, make_readable(given, converted));
    std::vector<std::filesystem::path> compared = readable.directories;
    if (readable.base) compared.insert(compared.begin(), *readable.base);
    const bool is_product = strategy.name == "product";
    ATOLL_RETURN_IF_ERROR(aggregate::check_settings(
        compared, is_product ? aggregate::LoraScales::kMayDiffer : aggregate::LoraScales::kMustAgree));
    ATOLL_TRY(const auto notes, aggregate::compare_tokenizers(compared));
    for (const std::string& note : notes) log::warn(note);
    std::optional<aggregate::RoundBase> start;
    if (given.base) {
        ATOLL_TRY(start, aggregate::open_base(strategy, *readable.base, *readable.base));
        start->absent = given.absent;
        ATOLL_TRY(start->digest, base_digest(readable, strategy));
    }
    ATOLL_TRY(std::vector<aggregate::Input> inputs, open_inputs(strategy, given, readable));
    const std::vector<double> weights =
        given.weights.empty() ? std::vector<double>(given.directories.size(), 1.0) : given.weights;
    ATOLL_TRY(auto aggregator, aggregate::Aggregator::plan(strategy, std::move(inputs), weights,
                                                           {.dtype = dtype_of(given)}, std::move(start)));
    aggregate::WriteOptions options;
    options.threads = given.threads;
    options.dtype = dtype_of(given);
    ATOLL_TRY(const aggregate::Prepared prepared, aggregate::measure_inputs(aggregator, assignments(given), options));
    if (const auto show = show_progress("averaging"))
        options.progress = [show](std::uint64_t done, std::uint64_t total) { show({done, total}); };
    ATOLL_TRY(const aggregate::Truncation lost,
              aggregate::write_aggregate(aggregator, readable.base.value_or(readable.directories.front()), given.out,
                                         options));
    std::uint64_t bytes = 0;
    for (const auto& file : aggregator.files()) bytes += file.size;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (context.json) {
        nlohmann::json made = {{"out", given.out.string()},
                               {"inputs", given.directories.size()},
                               {"bytes", bytes},
                               {"wall_s", seconds},
                               {"changes", figures_of(given, prepared)}};
        if (is_product) made["relative_error"] = lost.relative_error();
        std::cout << made << "\n";
    } else {
        tell_shortened(given, prepared);
        std::cout << given.out.string() << ": the " << (strategy.name == "fedavg" ? "mean" : strategy.name) << " of "
                  << given.directories.size() << (given.directories.size() == 1 ? " model, " : " models, ")
                  << human_bytes(bytes) << " in " << human_seconds(seconds) << "\n";
        if (is_product)
            std::cout << "relative error from reducing the product to this rank: "
                      << human_number(lost.relative_error()) << "\n";
    }
    return {};
}

}  // namespace

void add_aggregate_command(CLI::App& program, Context& context) {
    auto* command = program.add_subcommand("aggregate", "average model directories on this machine")->footer(kHelp);
    const auto given = std::make_shared<AggregateOptions>();
    command
        ->add_option("--strategy", given->strategy,
                     "how the updates become one model: " + join(aggregate::strategy_names()) +
                         ", or the strategy of a job as JSON")
        ->default_val("fedavg");
    command->add_option("--trim", given->trim, "of trimmed_mean: the fraction cut on each side, default 0.2");
    command
        ->add_option("--row-weights", given->row_weights,
                     "of fedavg: tokens weighs the rows of embedding and head by each model's token_counts.safetensors")
        ->check(CLI::IsMember({"tokens"}));
    command
        ->add_option("--weights", given->weights, "one a directory, separated by commas, relative; default: all equal")
        ->delimiter(',')
        ->allow_extra_args(false);
    command
        ->add_option(
            "--steps", given->steps,
            "the steps of each model's training, separated by commas, for --clip and --drop; default: all equal")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::PositiveNumber);
    command
        ->add_option("--absent", given->absent,
                     "weights of models that are missing and count as the base, beside --weights")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::NonNegativeNumber);
    command->add_option("--base", given->base, "the model that the others were trained from: its layout wins")
        ->check(CLI::ExistingDirectory);
    command
        ->add_option("--clip", given->clip,
                     "shorten a change to this many times the median length of the changes from --base")
        ->check(CLI::Range(1.0, 1e9));
    command->add_option("--drop", given->drop, "count a change longer than this many times the median as none")
        ->check(CLI::Range(1.0, 1e9));
    command
        ->add_option("--dtype", given->dtype,
                     "fp32, fp16 or bf16: dtype of the result's floating tensors; default: as in the base or the first "
                     "model")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
        ->transform(CLI::Transformer(
            std::map<std::string, std::string>{{"float32", "fp32"}, {"float16", "fp16"}, {"bfloat16", "bf16"}}));
    command->add_option("--out", given->out, "the directory to make")->required()->check(CLI::NonexistentPath);
    command->add_option("--threads", given->threads, "default: one a core")->check(CLI::Range(1, 1024));
    command
        ->add_option("directories", given->directories,
                     "the models to aggregate; without --base the first one's layout wins")
        ->required()
        ->check(CLI::ExistingDirectory);
    on_run(*command, context, [&context, given] { return run_aggregate(context, *given); });
}

}  // namespace atl::cli
