#include "services/aggregation/work/remote_models.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "shared/adapter/adapter.h"
#include "shared/aggregate/settings.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/delta/control_variate.h"
#include "shared/digest/digest.h"
#include "shared/http/client/client.h"
#include "shared/json/bounded.h"
#include "shared/model_config/token_counts.h"
#include "shared/store_client/transfer.h"

namespace atl::aggregation {
namespace {

using store_client::CheckedFile;
using store_client::ClientPool;
using store_client::Manifest;
using store_client::RemoteFile;

// Of a call to the store, whose own trouble is waited for.
template <class T>
Result<T> of_store(Result<T> result) {
    if (result.ok()) return result;
    return answer_of_store(result.error());
}

constexpr std::size_t kBlockBytes = 1U << 20;  // the window holds it, so a block costs no request
constexpr std::size_t kCountsWindowBytes = 64U << 10;

Result<std::shared_ptr<ClientPool>> connect(const Settings& settings) {
    http::ClientOptions options;
    options.base_url = settings.store_url;
    ATOLL_TRY(options.token, read_token(settings));
    return std::make_shared<ClientPool>(std::move(options));
}

// `folder`: "" or one of the manifest's, with its slash, whose files alone are the input's. "": all but the mean of the
// control variates.
aggregate::Input make_input(const std::shared_ptr<ClientPool>& store, const std::string& name, const Manifest& manifest,
                            std::size_t window_bytes, const std::string& folder = "") {
    aggregate::Input input;
    input.name = name;
    const auto window = std::make_shared<Window>();
    for (const auto& file : manifest.files) {
        if (file.path == model_config::kTokenCountsFile)  // read between tensors: it must not push their window out
            input.token_counts = std::make_shared<ReadAhead>(CheckedFile(RemoteFile(store, file)), name,
                                                             std::make_shared<Window>(), kCountsWindowBytes);
        else if (file.path == delta::kControlVariateFile)  // read apart from the tensors
            input.control_variate =
                std::make_shared<ReadAhead>(CheckedFile(RemoteFile(store, file)), name, window, window_bytes);
        else if (round::is_safetensors(file.path) && file.path.starts_with(folder) &&
                 (!folder.empty() || !delta::is_control_variate(file.path)))
            input.files.push_back({file.path, std::make_shared<ReadAhead>(CheckedFile(RemoteFile(store, file)), name,
                                                                          window, window_bytes)});
    }
    return input;
}

Result<Manifest> fetch_manifest(ClientPool& store, const std::string& name, const std::string& digest) {
    auto manifest = store_client::fetch_manifest(*store.take(), digest);
    if (manifest.ok()) return manifest;
    Error error = answer_of_store(manifest.error());
    error.message = name + ": " + describe(manifest.error());
    return error;
}

std::string describe_base(const round::ClosedRound& round) {
    return "the base (" + round.base.substr(0, 12) + ")";
}

// So that it names the blob as damaged, and takes it from whoever sends it again. It finds it by itself within weeks.
void tell_store(ClientPool& store, const std::string& chunk) {
    if (chunk.empty()) return;
    const auto looked = store.take()->post_json("/v1/blobs/" + chunk + "/check", nlohmann::json::object());
    if (!looked.ok()) spdlog::warn("the store does not look at blob {}: {}", chunk, describe(looked.error()));
}

// What an adapter's matrices are multiplied with. `is_damaged`: the store has other bytes than were handed in, as it is
// then told.
Result<aggregate::LoraScale> fetch_lora_scale(const std::shared_ptr<ClientPool>& store, const std::string& name,
                                              const Manifest& manifest, bool& is_damaged) {
    constexpr std::uint64_t kBytesMax = 1U << 20;  // the store takes no larger one
    const store_client::ManifestFile* file = manifest.find(adapter::kConfigFile);
    if (file == nullptr || file->size > kBytesMax)
        return invalid_argument(adapter::kConfigFile, name + " is no adapter: product takes nothing else");
    std::string text(file->size, '\0');
    CheckedFile content{RemoteFile(store, *file)};
    Status read = content.read(0, std::as_writable_bytes(std::span(text)));
    if (read.ok()) read = content.finish();
    is_damaged = !content.damaged_chunk().empty();
    tell_store(*store, content.damaged_chunk());
    if (!read.ok()) {
        Error error = answer_of_store(read.error());
        error.message = name + ": " + error.message;
        return error;
    }
    const auto config = json::parse_bounded(text, 100'000);
    auto scale = config.ok() ? aggregate::parse_lora_scale(*config) : Result<aggregate::LoraScale>(config.error());
    if (scale.ok()) return scale;
    return invalid_argument(adapter::kConfigFile, name + ": " + adapter::kConfigFile + ": " + describe(scale.error()));
}

// The updates, in their order.
Result<std::vector<aggregate::Input>> open_updates(const std::shared_ptr<ClientPool>& store,
                                                   const round::ClosedRound& round, bool are_adapters,
                                                   std::size_t window_bytes, const RemoteModels::OnFault& on_fault) {
    std::vector<aggregate::Input> inputs;
    for (std::size_t i = 0; i < round.updates.size(); ++i) {
        const std::string name = describe(round.updates[i]);
        auto manifest = fetch_manifest(*store, name, round.updates[i].version);
        if (!manifest.ok()) {
            on_fault(i, /*is_stores=*/true);
            return manifest.error();
        }
        inputs.push_back(make_input(store, name, *manifest, window_bytes));
        if (!are_adapters) continue;
        bool is_damaged = false;
        const auto scale = fetch_lora_scale(store, name, *manifest, is_damaged);
        if (!scale.ok()) on_fault(i, /*is_stores=*/is_damaged);
        ATOLL_RETURN_IF_ERROR(scale);
        inputs.back().lora = *scale;
    }
    return inputs;
}

// The base, with what the strategy left in the round that made it.
Result<aggregate::RoundBase> open_base(const std::shared_ptr<ClientPool>& store, const round::ClosedRound& round,
                                       const aggregate::Strategy& strategy, const Manifest& base,
                                       std::size_t window_bytes) {
    aggregate::RoundBase start;
    start.base = make_input(store, describe_base(round), base, window_bytes);
    start.digest = round.base;
    start.is_jobs = round.base_is_jobs;
    if (strategy.is_of_adapters()) {
        bool is_damaged = false;
        ATOLL_TRY(start.base.lora, fetch_lora_scale(store, describe_base(round), base, is_damaged));
    }
    if (round.strategy.control_variate && round.base_is_jobs) {  // of another's nobody knows whose it is the mean
        aggregate::Input kept =
            make_input(store, describe_base(round), base, window_bytes, delta::kControlVariateFolder);
        if (!kept.files.empty()) start.control_variate = std::move(kept);
    }
    if (strategy.state().empty() || round.optimizer_state.empty()) return start;
    const std::string name = "the optimizer's state (" + round.optimizer_state.substr(0, 12) + ")";
    ATOLL_TRY(const Manifest kept, fetch_manifest(*store, name, round.optimizer_state));
    for (const std::string_view state : strategy.state())
        start.state.emplace(state, make_input(store, name, kept, window_bytes, std::string(state) + "/"));
    return start;
}

}  // namespace

RemoteModels::RemoteModels(std::shared_ptr<ClientPool> store, Manifest base, std::vector<Source> sources,
                           OnFault on_fault, aggregate::Aggregator aggregator)
    : store_(std::move(store)),
      base_manifest_(std::move(base)),
      sources_(std::move(sources)),
      on_fault_(std::move(on_fault)),
      aggregator_(std::move(aggregator)),
      workspace_(aggregator_) {}

Result<RemoteModels> RemoteModels::open(const Settings& settings, const round::ClosedRound& round,
                                        const OnFault& on_fault) {
    ATOLL_TRY(auto store, connect(settings));
    ATOLL_TRY(const auto strategy, aggregate::make_strategy(round.strategy));
    const std::size_t window_bytes = window_bytes_for(round.updates.size() + 1 + strategy->state().size() +
                                                      (round.strategy.control_variate ? 1 : 0));
    ATOLL_TRY(Manifest base, fetch_manifest(*store, describe_base(round), round.base));
    ATOLL_TRY(std::vector<aggregate::Input> inputs,
              open_updates(store, round, strategy->is_of_adapters(), window_bytes, on_fault));
    ATOLL_TRY(aggregate::RoundBase start, open_base(store, round, *strategy, base, window_bytes));
    std::vector<Source> sources;
    const auto add = [&](const aggregate::Input& input, std::optional<std::size_t> update) {
        for (const auto& file : input.files)
            sources.push_back({update, std::static_pointer_cast<const ReadAhead>(file.bytes)});
        if (input.token_counts)
            sources.push_back({update, std::static_pointer_cast<const ReadAhead>(input.token_counts)});
        if (input.control_variate)
            sources.push_back({update, std::static_pointer_cast<const ReadAhead>(input.control_variate)});
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) add(inputs[i], i);
    add(start.base, std::nullopt);
    if (start.control_variate) add(*start.control_variate, std::nullopt);
    for (const auto& [name, kept] : start.state) add(kept, std::nullopt);
    aggregate::AggregatorOptions options;
    options.block_bytes = kBlockBytes;
    options.on_fault = [on_fault](std::size_t update) { on_fault(update, /*is_stores=*/false); };
    round::Weights weights = averaging_weights(round);
    start.absent = std::move(weights.absent);
    auto aggregator =
        aggregate::Aggregator::plan(round.strategy, std::move(inputs), weights.updates, options, std::move(start));
    if (!aggregator.ok()) return blame_store_first(*store, sources, on_fault, aggregator.error());
    return RemoteModels(std::move(store), std::move(base), std::move(sources), on_fault, std::move(aggregator).value());
}

Result<std::size_t> RemoteModels::find_file(const std::string& path) const {
    const auto& files = aggregator_.files();
    const auto at = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.path == path; });
    if (at == files.end()) return internal_error("the base has no file " + path);
    return static_cast<std::size_t>(at - files.begin());
}

Result<std::vector<aggregate::ExactSum>> RemoteModels::measure_part(const round::Part& part) {
    ATOLL_TRY(const std::size_t file, find_file(part.path));
    std::vector<aggregate::ExactSum> statistics(aggregator_.statistics_count());
    ATOLL_RETURN_IF_ERROR(believe(aggregator_.measure(file, part.begin, part.size, statistics, workspace_)));
    return statistics;
}

Status RemoteModels::check_chunks(ClientPool& store, const std::vector<Source>& sources, const OnFault& on_fault) {
    for (const Source& source : sources) {
        const Status status = source.file->check_chunks();
        if (status.ok()) continue;
        on_fault(source.update, /*is_stores=*/true);
        tell_store(store, source.file->damaged_chunk());
        return status;
    }
    return {};
}

Error RemoteModels::blame_store_first(ClientPool& store, const std::vector<Source>& sources, const OnFault& on_fault,
                                      const Error& error) {
    if (error.code != ErrorCode::kInvalidArgument) return error;
    const Status chunks = check_chunks(store, sources, on_fault);
    return chunks.ok() ? error : chunks.error();
}

Status RemoteModels::believe(const Status& work) const {
    if (work.ok()) return check_chunks(*store_, sources_, on_fault_);
    return blame_store_first(*store_, sources_, on_fault_, work.error());
}

Result<aggregate::Prepared> RemoteModels::prepare(const round::ClosedRound& round) {
    for (const Source& source : sources_) source.file->forget_checks();  // the updates are read a second time from here
    std::vector<aggregate::Assignment> assigned;
    for (const round::Update& update : round.updates) assigned.push_back(update.assigned);
    return aggregator_.prepare(round.statistics, assigned, round.earlier);
}

Result<MadePart> RemoteModels::make_part(const round::Part& part) {
    ATOLL_TRY(const std::size_t file, find_file(part.path));
    std::string bytes(part.size, '\0');
    workspace_.take_truncation();  // of a part that failed
    ATOLL_RETURN_IF_ERROR(
        believe(aggregator_.read(file, part.begin, std::as_writable_bytes(std::span(bytes)), workspace_)));
    const std::string sha256 = digest::sha256(bytes);
    http::CallOptions options;
    options.headers.emplace_back("Content-Type", "application/octet-stream");
    auto client = store_->take();
    ATOLL_TRY(const auto response, client->call(http::Method::kPut, "/v1/blobs/" + sha256, bytes, options));
    ATOLL_RETURN_IF_ERROR(of_store(response.check()));
    if (!aggregator_.truncates()) return MadePart{sha256};
    const aggregate::Truncation lost = workspace_.take_truncation();
    return MadePart{sha256, round::to_json(std::vector{lost.left_out, lost.whole})};
}

Result<std::set<std::string>> RemoteModels::missing(const std::vector<round::Part>& parts) {
    std::set<std::string> digests;
    for (const round::Part& part : parts) digests.insert(part.sha256);
    return of_store(store_client::find_missing(*store_->take(), digests));
}

std::vector<round::Part> RemoteModels::without_left_out(std::vector<round::Part> parts) const {
    for (std::size_t file = 0; file < aggregator_.files().size(); ++file)
        if (aggregator_.leaves_out(file))
            std::erase_if(parts, [&](const round::Part& part) { return part.path == aggregator_.files()[file].path; });
    return parts;
}

Result<Published> RemoteModels::publish(const round::ClosedRound& round, const std::vector<round::Part>& made,
                                        const nlohmann::json& contributions, const nlohmann::json& metrics) {
    Published published;
    const std::vector<round::Part> parts = without_left_out(made);
    const Manifest manifest = round::assemble(base_manifest_, parts);
    const Manifest state = round::assemble_optimizer_state(base_manifest_, parts);
    store_client::VersionDetails details;
    details.parents = {round.base};
    details.job = round.job;
    details.round = round.round;
    auto client = store_->take();
    store_client::VersionDetails of_state = details;
    details.kind = "global";
    for (const round::Update& update : round.updates)
        if (update.version != round.base) details.parents.push_back(update.version);
    details.contributions = contributions;
    details.metrics = metrics;
    ATOLL_RETURN_IF_ERROR(of_store(store_client::create_version(*client, round.model, manifest, details)));
    if (!state.files.empty()) {  // after it, as the store refuses what belongs into another model of that name
        of_state.kind = "optimizer_state";
        ATOLL_RETURN_IF_ERROR(of_store(store_client::create_version(*client, round.model, state, of_state)));
        published.optimizer_state = store_client::manifest_digest(state);
    }
    published.version = store_client::manifest_digest(manifest);
    return published;
}

}  // namespace atl::aggregation
