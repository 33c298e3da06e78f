#include "services/cli/commands/round_verify.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/transfer.h"
#include "shared/aggregate/files.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"
#include "shared/round/closed_round.h"
#include "shared/store_client/transfer.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using round::ClosedRound;
using round::Part;
using store_client::Manifest;

constexpr std::size_t kDigitsShown = 16;  // of a digest

// What was fetched of a round, and what is to come of it.
struct FetchedRound {
    ClosedRound round;
    Manifest base;
    Manifest model;                     // that the round has
    std::optional<Manifest> optimizer;  // what its strategy left, where it leaves something
    fs::path directory;

    fs::path base_directory() const { return directory / "base"; }
    fs::path state_directory() const { return directory / "state"; }
    fs::path update_directory(const round::Update& update) const { return directory / "updates" / update.task; }
};

Status fetch_files(const FetchedRound& fetched, const Context& context) {
    const auto fetch = [&](const std::string& digest, const fs::path& to, const std::string& what) -> Status {
        ATOLL_TRY(const auto options, transfer_options(context, "fetching " + what));
        const bool was_there = fs::exists(to);
        const Status status = store_client::download_version(digest, to, options);
        if (status.ok() && was_there) {  // of an earlier call, since when anything may have happened to it
            http::Client store(options.store);
            ATOLL_TRY(const Manifest manifest, store_client::fetch_manifest(store, digest));
            return store_client::verify_directory(to, manifest, 2);
        }
        if (status.ok() || status.error().code != ErrorCode::kNotFound) return status;
        return not_found(what + " (" + digest.substr(0, kDigitsShown) + ") is no longer in the store", "round");
    };
    std::error_code error;
    fs::create_directories(fetched.directory / "updates", error);
    if (error) return invalid_argument("--dir", "cannot make " + fetched.directory.string() + ": " + error.message());
    ATOLL_RETURN_IF_ERROR(fetch(fetched.round.base, fetched.base_directory(), "the base"));
    if (!fetched.round.optimizer_state.empty())
        ATOLL_RETURN_IF_ERROR(fetch(fetched.round.optimizer_state, fetched.state_directory(), "the optimizer's state"));
    for (const round::Update& update : fetched.round.updates)
        ATOLL_RETURN_IF_ERROR(
            fetch(update.version, fetched.update_directory(update), "the update of " + update.facility));
    return {};
}

Result<aggregate::Aggregator> open_aggregator(const FetchedRound& fetched) {
    const ClosedRound& round = fetched.round;
    ATOLL_TRY(aggregate::RoundBase start,
              aggregate::open_base(round.strategy, fetched.base_directory(), fetched.state_directory()));
    if (!round.base_is_jobs) start.control_variate.reset();  // as the aggregation takes it
    start.digest = round.base;
    start.is_jobs = round.base_is_jobs;
    std::vector<aggregate::Input> inputs;
    for (const round::Update& update : round.updates) {
        ATOLL_TRY(aggregate::Input input, aggregate::open_update(round.strategy, fetched.update_directory(update)));
        input.name = describe(update);
        inputs.push_back(std::move(input));
    }
    round::Weights weights = averaging_weights(round);
    start.absent = std::move(weights.absent);
    return aggregate::Aggregator::plan(round.strategy, std::move(inputs), weights.updates, {}, std::move(start));
}

Result<aggregate::Prepared> measure(aggregate::Aggregator& aggregator, const ClosedRound& round) {
    std::vector<aggregate::Assignment> assigned;
    for (const round::Update& update : round.updates) assigned.push_back(update.assigned);
    return aggregate::measure_inputs(aggregator, assigned, {}, round.earlier);
}

// The chunks that the round's version has of an output file, or what it would be cut into.
std::vector<Part> parts_of(const aggregate::Aggregator::OutputFile& file, const FetchedRound& fetched) {
    const auto* known = fetched.model.find(file.path);
    if (known == nullptr && fetched.optimizer) known = fetched.optimizer->find(file.path);
    if (known == nullptr || known->size != file.size) return round::cut_into_parts({file}, store_client::kChunkBytes);
    std::vector<Part> parts;
    std::uint64_t begin = 0;
    for (const store_client::Chunk& chunk : known->chunks) {
        parts.push_back({file.path, begin, chunk.size, {}});
        begin += chunk.size;
    }
    return parts;
}

Result<std::vector<Part>> make_parts(const aggregate::Aggregator& aggregator, const FetchedRound& fetched) {
    const auto show = show_progress("making the model again");
    std::uint64_t total = 0;
    for (const auto& file : aggregator.files()) total += file.size;
    store_client::Progress progress{0, total};
    aggregate::Aggregator::Workspace workspace(aggregator);
    std::string bytes;
    std::vector<Part> made;
    for (std::size_t file = 0; file < aggregator.files().size(); ++file) {
        if (aggregator.leaves_out(file)) continue;
        for (Part& part : parts_of(aggregator.files()[file], fetched)) {
            bytes.resize(part.size);
            ATOLL_RETURN_IF_ERROR(
                aggregator.read(file, part.begin, std::as_writable_bytes(std::span(bytes)), workspace));
            part.sha256 = digest::sha256(bytes);
            made.push_back(std::move(part));
            progress.bytes_done += bytes.size();
            if (show) show(progress);
        }
    }
    return made;
}

void print_shares(const json& contributions) {
    Table table({"update of", "share", "norm", droppable("cosine to the others"), "counted"});
    for (const json& one : contributions) {
        table.add({text(one, "facility"), figure_text(one, "weight", 100, " %"), figure_text(one, "norm", 1, ""),
                   figure_text(one, "cosine", 1, ""), figure_text(one, "counted", 100, " %")});
    }
    print(table);
}

Result<FetchedRound> find_round(const Context& context, const std::string& job, std::int64_t number,
                                const RoundVerification& given) {
    ATOLL_TRY(http::Client aggregation, context.client("aggregation"));
    ATOLL_TRY(const json all, get_all(aggregation, "/v1/aggregations?job=" + job));
    FetchedRound found;
    ATOLL_TRY(found.round, round::rebuild_round(all, number, given.without));
    const auto shown = std::ranges::find_if(all, [&](const json& one) { return one.at("round") == number; });
    if (text(*shown, "state") != "completed")
        return conflict(
            "round " + std::to_string(number) + " has no model: its aggregation is " + text(*shown, "state"), "round");
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(found.base, store_client::fetch_manifest(store, found.round.base));
    ATOLL_TRY(found.model, store_client::fetch_manifest(store, text(*shown, "version")));
    if (const std::string state = text(*shown, "optimizer_state"); !state.empty()) {
        ATOLL_TRY(found.optimizer, store_client::fetch_manifest(store, state));
    }
    return found;
}

}  // namespace

Status verify_round(const Context& context, const std::string& job, std::int64_t number,
                    const RoundVerification& given) {
    if (given.out && fs::exists(*given.out))
        return conflict(given.out->string() + " exists: name a directory that does not", "--out");
    ATOLL_TRY(FetchedRound fetched, find_round(context, job, number, given));
    std::optional<TemporaryDirectory> passing;
    fetched.directory = given.dir ? *given.dir : passing.emplace("atoll-verify").path();
    ATOLL_RETURN_IF_ERROR(fetch_files(fetched, context));
    ATOLL_TRY(aggregate::Aggregator aggregator, open_aggregator(fetched));
    ATOLL_TRY(const aggregate::Prepared prepared, measure(aggregator, fetched.round));
    ATOLL_TRY(const std::vector<Part> parts, make_parts(aggregator, fetched));
    const Manifest made = assemble(fetched.base, parts);
    const std::string digest = store_client::manifest_digest(made);
    const std::string version = store_client::manifest_digest(fetched.model);
    if (given.out) ATOLL_RETURN_IF_ERROR(aggregate::write_aggregate(aggregator, fetched.base_directory(), *given.out));
    const json shares = contributions(fetched.round, prepared);
    if (context.json) {
        json answer = {{"job", job}, {"round", number}, {"version", version}, {"made", digest}};
        answer.update({{"is_same", digest == version}, {"without", given.without}, {"contributions", shares}});
        if (given.out) answer["out"] = given.out->string();
        ATOLL_RETURN_IF_ERROR(print_json(answer));
    } else {
        print_shares(shares);
    }
    std::string difference = digest == version ? "" : round::first_difference(made, fetched.model);
    if (difference.empty() && fetched.optimizer)
        difference = round::first_difference(assemble_optimizer_state(fetched.base, parts), *fetched.optimizer);
    const std::string model = "round " + std::to_string(number) + "'s model " + version.substr(0, kDigitsShown);
    if (given.without.empty() && digest != version)
        return conflict(
            model + " is not what its base and its updates give: " + round::first_difference(made, fetched.model),
            "round");
    if (context.json) return {};
    if (given.without.empty())
        print_line(model +
                   " is what its base and its updates give, byte for byte: " + human_bytes(fetched.model.size_bytes()));
    else
        print_line("without " + join(given.without) + " it would have been " + digest.substr(0, kDigitsShown) +
                   " in place of " + version.substr(0, kDigitsShown));
    if (given.out) print_line(given.out->string() + " has it");
    return {};
}

}  // namespace atl::cli
