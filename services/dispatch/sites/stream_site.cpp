#include "services/dispatch/sites/stream_site.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/image_command.h"
#include "services/dispatch/sites/stream_ranges.h"
#include "shared/digest/digest.h"
#include "shared/json/bounded.h"
#include "shared/json/printable.h"
#include "shared/site/attempt_files.h"
#include "shared/site/exit_status.h"
#include "shared/site/staging.h"
#include "shared/store_client/transfer.h"

namespace atl::dispatch {
namespace {

using store_client::Manifest;

constexpr std::chrono::seconds kStoreTimeMax{10};
constexpr std::chrono::seconds kScriptTimeMax{20};  // that moves no data
constexpr std::int64_t kNotYet_ms = 5000;           // until the next try of who has no turn,
constexpr std::int64_t kYield_ms = 6000;            // and of who has had one while others waited
constexpr std::size_t kSealValuesMax = 300'000;
constexpr std::size_t kSealBytesMax = (4U << 20) - (64U << 10);  // what a script may print: an update of some 350 GB
constexpr const char* kStaging = "staging models";

std::shared_ptr<store_client::ClientPool> connect_store(const std::string& url, const std::string& token) {
    http::ClientOptions options;
    options.base_url = url;
    options.token = token;
    options.timeout = kStoreTimeMax;
    options.attempts_max = 2;
    return std::make_shared<store_client::ClientPool>(std::move(options));
}

// As ScriptSite says it of what `atoll stage` exits with.
Error staging_error(const Error& error) {
    const std::string message = std::string(kStaging) + ": " + json::printable(describe(error));
    switch (site::judge_staging(error)) {
        case site::StagingEnd::kTryLater:
            return unavailable(message);
        case site::StagingEnd::kAbsent:
            return with_cause(not_found(message), Cause::kService);
        case site::StagingEnd::kBadInput:
            return invalid_argument({}, message);
        case site::StagingEnd::kUncertain:
            break;
    }
    return internal_error(message);
}

Moving moving_of(const Manifest& manifest, std::uint64_t missing, const StreamTurns::Turn* turn) {
    const auto total = static_cast<std::int64_t>(manifest.size_bytes());
    std::int64_t pause_ms = kNotYet_ms;
    if (turn != nullptr) pause_ms = turn->is_wanted() ? kYield_ms : 0;
    return {total - static_cast<std::int64_t>(missing), total, pause_ms};
}

std::set<std::string> digests_of(const Manifest& manifest) {
    std::set<std::string> digests;
    for (const auto& place : store_client::chunk_places(manifest)) digests.insert(place.chunk.sha256);
    return digests;
}

Result<Manifest> read_sealed_manifest(const std::string& text) {
    if (text.size() > kSealBytesMax)
        return invalid_argument(site::kSeal, "has more than " + std::to_string(kSealBytesMax) + " bytes");
    ATOLL_TRY(const json::Json seal, json::parse_bounded(text, kSealValuesMax));
    if (!seal.is_object() || !seal.contains("manifest")) return invalid_argument(site::kSeal, "has no manifest");
    return store_client::parse_manifest(seal.at("manifest"));
}

// As `atoll push` does it.
PushAnswer create_update(store_client::ClientPool& store, const PushOrder& order, const Manifest& manifest) {
    store_client::VersionDetails details;
    details.kind = "update";
    details.parents = order.meta.value("parents", details.parents);
    details.job = order.meta.value("job", "");
    if (order.meta.contains("round")) details.round = order.meta.at("round").get<std::int64_t>();
    details.metrics = order.meta.value("metrics", details.metrics);
    const auto version = store_client::create_version(*store.take(), order.model, manifest, details);
    if (version.ok()) return {version->value("digest", ""), {}};
    if (!is_refusal(version.error())) return to_push_answer(version.error());
    // What the store has lost since it was handed in is no refusal: the next step sends it again.
    const auto missing = store_client::find_missing(*store.take(), digests_of(manifest));
    if (missing.ok() && missing->empty()) return to_push_answer(version.error());
    return to_push_answer(unavailable(version.error().message));
}

// What a script is told of ranges; of what lies together at once.
std::vector<std::string> range_words(const std::vector<Range>& ranges) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < ranges.size();) {
        const std::uint64_t begin = ranges[i].begin();
        std::uint64_t end = begin;
        const std::string& path = ranges[i].path;
        for (; i < ranges.size() && ranges[i].path == path && ranges[i].begin() == end; ++i) end += ranges[i].size();
        words.insert(words.end(), {path, std::to_string(begin), std::to_string(end - begin)});
    }
    return words;
}

}  // namespace

// What is there of the first of an order's versions that is not: bytes of its files by name. No digest: all are there.
struct StreamSite::Arrived {
    std::string digest;
    std::map<std::string, std::uint64_t> sizes;
    std::int64_t bytes = 0;  // once all are there: that were brought for the attempt
};

StreamSite::StreamSite(Facility facility, std::shared_ptr<Transport> transport, std::string programs,
                       StreamTurns& turns)
    : ScriptSite(std::move(facility), std::move(transport), std::move(programs)), turns_(turns) {}

Result<StageAnswer> StreamSite::stage(const StageOrder& order) {
    Slice slice;
    const auto store = connect_store(order.store_url, order.token);
    std::unique_ptr<StreamTurns::Turn> turn;
    Manifest manifest;
    std::string digest;
    std::string named;
    std::string spoilt;
    std::uint64_t missing_before = 0;
    for (;;) {
        ATOLL_TRY(const Arrived arrived, find_arrived(order));
        if (arrived.digest.empty()) return StageAnswer{{}, arrived.bytes};
        if (digest != arrived.digest) {
            auto fetched = store_client::fetch_manifest(*store->take(), arrived.digest);
            if (!fetched.ok()) return staging_error(fetched.error());
            manifest = std::move(fetched).value();
            digest = arrived.digest;
            missing_before = manifest.size_bytes() + 1;
        }
        const auto ranges = missing_ranges(manifest, arrived.sizes, spoilt);
        if (!ranges.ok()) {
            ATOLL_RETURN_IF_ERROR(run({"cd \"$1\" && rm -rf \"$2\"",
                                       {facility().work_dir + "/models", "." + digest + ".stream.partial"},
                                       {},
                                       kScriptTimeMax},
                                      kStaging));
            return unavailable(std::string(kStaging) + ": " + ranges.error().message + "; it is sent again");
        }
        if (ranges->empty()) {
            if (std::exchange(named, digest) == digest)
                return unavailable(std::string(kStaging) + ": what has arrived gets no name in " + facility().work_dir);
            ATOLL_RETURN_IF_ERROR(
                run({std::string(kSitesScriptsStageFinishSh),
                     {facility().work_dir, digest, order.pin, order.attempt, std::to_string(manifest.size_bytes())},
                     {},
                     kScriptTimeMax},
                    kStaging));
            continue;
        }
        const std::uint64_t missing = total_size(*ranges);
        if (turn == nullptr) turn = turns_.take(facility().name);
        if (turn == nullptr || slice.is_over()) return StageAnswer{moving_of(manifest, missing, turn.get())};
        if (missing >= missing_before && spoilt.empty())
            return unavailable(std::string(kStaging) + ": what is sent does not arrive in " + facility().work_dir);
        missing_before = missing;
        ATOLL_TRY(spoilt, send(*store, digest, *ranges, slice));
    }
}

Result<StreamSite::Arrived> StreamSite::find_arrived(const StageOrder& order) {
    RemoteScript script{with_programs(work_dir_setting() + std::string(kSitesScriptsMovingSh) +
                                      std::string(kSitesScriptsPrepareStageSh) + std::string(kSitesScriptsStageListSh)),
                        {program("atoll"), program("atoll-trainer"), "", facility().work_dir, order.pin, order.attempt},
                        {},
                        kScriptTimeMax};
    script.arguments.insert(script.arguments.end(), order.digests.begin(), order.digests.end());
    ATOLL_TRY(const CommandResult result, run(std::move(script), kStaging));
    Arrived arrived;
    std::istringstream lines(result.out);
    if (!std::getline(lines, arrived.digest)) return Arrived();
    if (arrived.digest.starts_with("moved ")) return Arrived{{}, {}, read_moved(arrived.digest)};
    if (std::find(order.digests.begin(), order.digests.end(), arrived.digest) == order.digests.end())
        return unavailable(std::string(kStaging) + ": the site names a version that it was not asked for");
    for (std::string line; std::getline(lines, line);) {
        char* name = nullptr;
        const std::uint64_t size = std::strtoull(line.c_str(), &name, 10);
        if (name != line.c_str() && *name == ' ') arrived.sizes[name + 1] = size;
    }
    return arrived;
}

Result<std::string> StreamSite::send(store_client::ClientPool& store, const std::string& digest,
                                     const std::vector<Range>& missing, Slice& slice) {
    const auto ranges = take_ranges(missing, slice.bytes());
    RangeSource source(store, ranges, slice);
    const auto skipped = source.skipped();
    if (!skipped.ok()) return staging_error(skipped.error());
    RemoteScript script{std::string(kSitesScriptsStageReceiveSh),
                        {facility().work_dir, digest, std::to_string(skipped->size()), digest::sha256(*skipped)},
                        {},
                        slice.session_time()};
    for (const Range& range : ranges) {  // each for itself: it is on the disk before the next one begins
        const auto words = range_words({range});
        script.arguments.insert(script.arguments.end(), words.begin(), words.end());
    }
    script.source = [&] { return source.take(); };
    const auto begin = std::chrono::steady_clock::now();
    ATOLL_TRY(const CommandResult result, run_any(std::move(script)));
    if (result.exit_code == site::kExitSpoilt) return ranges.front().path;
    ATOLL_RETURN_IF_ERROR(check_exit(result, kStaging));
    if (!source.fault().ok()) return staging_error(source.fault().error());
    slice.note(source.taken(), std::chrono::steady_clock::now() - begin);
    return std::string();
}

Result<PushAnswer> StreamSite::push(const PushOrder& order) {
    Slice slice;
    const auto turn = turns_.take(facility().name);
    if (turn == nullptr) return PushAnswer{{}, {}, false, Moving{0, 0, kNotYet_ms}};
    ATOLL_TRY(const CommandResult sealed,
              run_moving({with_programs(render_know_image(facility()) + std::string(kSitesScriptsSealedSh)),
                          {program("atoll"), order.directory, std::to_string(kSealBytesMax + 1)},
                          {}},
                         kSitesScriptsSealMoverSh));
    if (sealed.exit_code == site::kExitMoving) return PushAnswer{{}, {}, false, Moving{}};
    if (sealed.exit_code == site::kExitAbsent)
        return refuse_hand_in("what was trained is not there any more: " + order.directory);
    if (sealed.exit_code != 0) {
        const auto answer = read_push_answer(sealed.out);
        if (answer && answer->error) return *answer;
    }
    ATOLL_RETURN_IF_ERROR(check_exit(sealed, "sealing the update"));
    const auto manifest = read_sealed_manifest(sealed.out);
    if (!manifest.ok()) return PushAnswer{{}, manifest.error(), true};
    const auto store = connect_store(order.store_url, order.token);
    auto missing = store_client::find_missing(*store->take(), digests_of(*manifest));
    if (!missing.ok()) return to_push_answer(missing.error());
    for (;;) {
        const auto ranges = ranges_of(*manifest, *missing);
        if (ranges.empty()) return create_update(*store, order, *manifest);
        if (slice.is_over()) return PushAnswer{{}, {}, false, moving_of(*manifest, total_size(ranges), turn.get())};
        ATOLL_TRY(const auto refusal, receive(*store, order, ranges, slice, turn->in_hand(), *missing));
        if (refusal) return *refusal;
    }
}

Result<std::optional<PushAnswer>> StreamSite::receive(store_client::ClientPool& store, const PushOrder& order,
                                                      const std::vector<Range>& unsent, Slice& slice,
                                                      ChunkInHand& in_hand, std::set<std::string>& missing) {
    auto ranges = take_ranges(unsent, slice.bytes());
    if (in_hand.sha256 == ranges.front().place.chunk.sha256) ranges.front().skipped = in_hand.bytes.size();
    RemoteScript script{std::string(kSitesScriptsSendSh), {order.directory}, {}, slice.session_time()};
    const auto words = range_words(ranges);
    script.arguments.insert(script.arguments.end(), words.begin(), words.end());
    RangeSink sink(store, ranges, slice, in_hand);
    script.sink = [&](std::string_view bytes) { return sink.take(bytes); };
    const auto begin = std::chrono::steady_clock::now();
    const auto result = run_any(std::move(script));
    sink.finish();
    for (const std::string& sha256 : sink.handed_in()) missing.erase(sha256);
    if (sink.refusal()) return sink.refusal();
    if (!result.ok() && slice.is_over()) return std::optional<PushAnswer>();  // the sink has ended it
    ATOLL_RETURN_IF_ERROR(result);
    if (result->exit_code == site::kExitAbsent || (result->exit_code == 0 && !sink.is_whole()))
        return std::optional(
            refuse_hand_in("the files of the update are not there any more, or not as they were "
                           "sealed: " +
                           order.directory));
    ATOLL_RETURN_IF_ERROR(check_exit(*result, "handing in the update"));
    slice.note(sink.taken(), std::chrono::steady_clock::now() - begin);
    return std::optional<PushAnswer>();
}

}  // namespace atl::dispatch
