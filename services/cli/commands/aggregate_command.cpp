#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/transfer.h"
#include "shared/aggregate/files.h"
#include "shared/aggregate/strategy.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

constexpr const char* kHelp =
    R"(Averages model directories on this machine, with no service running. Tensors are matched by name and keep their
type; sums are in fp32, integers must be equal; all other files are the first directory's. trimmed_mean leaves out the
smallest and largest values of each element, a fraction --trim of the models on each side. With --base files, types and
all other files are those of the model that the others were trained from, and --norm-bound refuses what went farther from it
than so many times the median of them. Example:
  atoll aggregate --strategy fedavg --weights 3,1 --out mean leonardo/out karolina/out)";

struct AggregateOptions {
    std::string strategy;
    std::optional<double> trim;
    std::vector<double> weights;
    std::optional<std::filesystem::path> base;
    std::optional<double> norm_bound;
    std::filesystem::path out;
    std::vector<std::filesystem::path> directories;
    int threads = 0;
};

// None of the models goes farther from the base than the strategy lets it.
Status check_norms(aggregate::Aggregator& aggregator, const AggregateOptions& given,
                   const aggregate::WriteOptions& options) {
    if (aggregator.statistics_count() == 0) return {};
    ATOLL_TRY(const aggregate::Prepared prepared, aggregate::measure_inputs(aggregator, options));
    if (prepared.refused.empty()) return {};
    const std::size_t first = prepared.refused.front();
    const std::string directory = given.directories[first].string();
    return invalid_argument(directory, directory + " has the norm " + nlohmann::json(prepared.norms[first]).dump() +
                                           ", above the bound " + nlohmann::json(prepared.bound).dump());
}

Status run_aggregate(const Context& context, const AggregateOptions& given) {
    const auto begin = std::chrono::steady_clock::now();
    if (!given.weights.empty() && given.weights.size() != given.directories.size())
        return invalid_argument("--weights", std::to_string(given.weights.size()) + " given for " +
                                                 std::to_string(given.directories.size()) + " directories");
    nlohmann::json settings = {{"name", given.strategy}};
    if (given.trim) settings["trim"] = *given.trim;
    ATOLL_TRY(auto strategy, aggregate::parse_strategy(settings));
    strategy.max_share = 1;  // --weights come from whoever runs this, not from the models
    strategy.norm_bound = given.norm_bound;
    if (given.norm_bound && !given.base) return invalid_argument("--norm-bound", "--norm-bound needs --base");
    std::optional<aggregate::RoundBase> start;
    if (given.base) {
        ATOLL_TRY(aggregate::Input base, aggregate::open_directory(*given.base));
        start = aggregate::RoundBase{std::move(base)};
    }
    std::vector<aggregate::Input> inputs;
    for (const auto& directory : given.directories) {
        ATOLL_TRY(aggregate::Input input, aggregate::open_directory(directory));
        inputs.push_back(std::move(input));
    }
    const std::vector<double> weights =
        given.weights.empty() ? std::vector<double>(given.directories.size(), 1.0) : given.weights;
    ATOLL_TRY(auto aggregator, aggregate::Aggregator::plan(strategy, std::move(inputs), weights, {}, std::move(start)));
    aggregate::WriteOptions options;
    options.threads = given.threads;
    ATOLL_RETURN_IF_ERROR(check_norms(aggregator, given, options));
    if (const auto show = show_progress("averaging"))
        options.progress = [show](std::uint64_t done, std::uint64_t total) { show({done, total}); };
    ATOLL_RETURN_IF_ERROR(
        aggregate::write_aggregate(aggregator, given.base.value_or(given.directories.front()), given.out, options));
    std::uint64_t bytes = 0;
    for (const auto& file : aggregator.files()) bytes += file.size;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (context.json)
        std::cout << nlohmann::json{{"out", given.out.string()},
                                    {"inputs", given.directories.size()},
                                    {"bytes", bytes},
                                    {"wall_s", seconds}}
                  << "\n";
    else
        std::cout << given.out.string() << ": the " << (given.strategy == "fedavg" ? "mean" : given.strategy) << " of "
                  << given.directories.size() << " models, " << human_bytes(bytes) << " in " << human_seconds(seconds)
                  << "\n";
    return {};
}

}  // namespace

void add_aggregate_command(CLI::App& program, Context& context) {
    auto* command = program.add_subcommand("aggregate", "average model directories on this machine")->footer(kHelp);
    const auto given = std::make_shared<AggregateOptions>();
    command
        ->add_option("--strategy", given->strategy,
                     "how the updates become one model: " + join(aggregate::strategy_names()))
        ->default_val("fedavg");
    command->add_option("--trim", given->trim, "of trimmed_mean: the fraction cut on each side, default 0.2");
    command->add_option("--weights", given->weights, "one a directory, relative; default: all equal")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("--base", given->base, "the model that the others were trained from: its layout wins")
        ->check(CLI::ExistingDirectory);
    command
        ->add_option("--norm-bound", given->norm_bound,
                     "refuse a model this many times as far from --base as the median")
        ->check(CLI::Range(1.0, 1e9));
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
