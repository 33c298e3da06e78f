#include "services/aggregation/domain/closed_round.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>
#include <tuple>

#include "shared/digest/digest.h"
#include "shared/json/json.h"

namespace atl::aggregation {
namespace {

using json::Json;
using json::ObjectReader;

constexpr std::int64_t kCountMax = 1LL << 53;
constexpr std::size_t kUpdatesMax = 1000;  // dispatch takes no larger job

std::string required_digest(ObjectReader& reader, const char* key) {
    std::string text = reader.required_string(key);
    if (!digest::is_sha256(text)) reader.fail(key, "must be a version's digest, 64 hexadecimal digits");
    return text;
}

Result<Update> parse_update(const Json& value, const std::string& path) {
    ObjectReader reader(value, path);
    Update update;
    update.facility = reader.required_string("facility");
    update.task = reader.required_string("task");
    update.version = required_digest(reader, "version");
    update.samples = reader.required_integer("samples", 0, kCountMax);
    update.tokens = reader.required_integer("tokens", 0, kCountMax);
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return update;
}

Result<std::vector<Update>> parse_updates(const Json& values) {
    if (values.empty() || values.size() > kUpdatesMax)
        return invalid_argument("updates", "must be from 1 to " + std::to_string(kUpdatesMax));
    std::vector<Update> updates;
    std::set<std::string> tasks;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string path = "updates[" + std::to_string(i) + "]";
        ATOLL_TRY(Update update, parse_update(values[i], path));
        if (!tasks.insert(update.task).second)
            return invalid_argument(path + ".task", "task " + update.task + " counts twice");
        updates.push_back(std::move(update));
    }
    std::sort(updates.begin(), updates.end(), [](const Update& a, const Update& b) {
        return std::tie(a.facility, a.task) < std::tie(b.facility, b.task);
    });
    return updates;
}

// The base's tensors' parts put together, or those beside them; each behind those before it.
void append(store_client::Manifest& manifest, const std::vector<Part>& parts, const store_client::Manifest& base,
            bool of_base) {
    for (const Part& part : parts) {
        if ((base.find(part.path) != nullptr) != of_base) continue;
        if (part.begin == 0) manifest.files.push_back({part.path, 0, {}});
        auto& file = manifest.files.back();
        check(file.path == part.path && file.size == part.begin && !part.sha256.empty(), "parts with a gap");
        file.chunks.push_back({part.sha256, part.size});
        file.size += part.size;
    }
}

void sort_files(store_client::Manifest& manifest) {
    std::sort(manifest.files.begin(), manifest.files.end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
}

}  // namespace

Result<ClosedRound> parse_closed_round(const Json& data) {
    ObjectReader reader(data);
    ClosedRound round;
    round.job = reader.required_string("job");
    round.round = reader.required_integer("round", 1, 1'000'000);
    round.model = reader.required_string("model");
    round.base = required_digest(reader, "base");
    const Json& strategy = reader.required_object("strategy");
    const Json& updates = reader.required_array("updates");
    const std::int64_t quorum = reader.integer_or("quorum", kCountMax, 1, kCountMax);
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(round.strategy, aggregate::parse_strategy(strategy));
    ATOLL_TRY(round.updates, parse_updates(updates));
    round.quorum = std::min(round.updates.size(), static_cast<std::size_t>(quorum));
    return round;
}

Json to_json(const std::vector<Update>& updates) {
    Json values = Json::array();
    for (const Update& update : updates)
        values.push_back({{"facility", update.facility},
                          {"task", update.task},
                          {"version", update.version},
                          {"samples", update.samples},
                          {"tokens", update.tokens}});
    return values;
}

Json to_json(const std::vector<RefusedUpdate>& refused) {
    Json values = Json::array();
    for (const RefusedUpdate& one : refused) {
        values.push_back({{"facility", one.update.facility},
                          {"task", one.update.task},
                          {"version", one.update.version},
                          {"reason", one.reason}});
        if (one.norm) values.back()["norm"] = *one.norm;
        if (one.bound) values.back()["bound"] = *one.bound;
    }
    return values;
}

Status leave_out(ClosedRound& round, const Json& refused) {
    for (const Json& one : refused) {
        ObjectReader reader(one, "refused");
        const std::string task = reader.required_string("task");
        const std::string reason = reader.required_string("reason");
        const auto number = [&](const char* key) {
            const double value = reader.number_or(key, -1, 0, std::numeric_limits<double>::max());
            return value < 0 ? std::nullopt : std::optional(value);
        };
        const auto norm = number("norm"), bound = number("bound");
        reader.allow_unknown();
        ATOLL_RETURN_IF_ERROR(reader.finish());
        const auto at = std::find_if(round.updates.begin(), round.updates.end(),
                                     [&](const Update& update) { return update.task == task; });
        if (at == round.updates.end()) continue;
        round.refused.push_back({std::move(*at), reason, norm, bound});
        round.updates.erase(at);
    }
    std::sort(round.refused.begin(), round.refused.end(), [](const RefusedUpdate& a, const RefusedUpdate& b) {
        return std::tie(a.update.facility, a.update.task) < std::tie(b.update.facility, b.update.task);
    });
    return {};
}

std::vector<double> averaging_weights(const ClosedRound& round) {
    std::vector<double> weights;
    for (const Update& update : round.updates)
        weights.push_back(round.strategy.weighs_by_tokens ? static_cast<double>(update.tokens) : 1.0);
    return weights;
}

Json statistics_by_task(const ClosedRound& round, const std::vector<double>& statistics) {
    const std::size_t per_update = statistics.size() / round.updates.size();
    Json by_task = Json::object();
    for (std::size_t i = 0; i < round.updates.size(); ++i)
        by_task[round.updates[i].task] =
            std::vector<double>(statistics.begin() + i * per_update, statistics.begin() + (i + 1) * per_update);
    return by_task;
}

void take_statistics(ClosedRound& round, const Json& by_task, std::size_t per_update) {
    std::vector<double> statistics;
    for (const Update& update : round.updates) {
        const auto at = by_task.find(update.task);
        if (at == by_task.end() || !at->is_array() || at->size() != per_update) return;
        for (const Json& number : *at) {
            if (!number.is_number()) return;
            statistics.push_back(number.get<double>());
        }
    }
    round.statistics = std::move(statistics);
}

Json contributions(const ClosedRound& round, const aggregate::Prepared& prepared) {
    Json contributions = Json::array();
    for (std::size_t i = 0; i < round.updates.size(); ++i) {
        contributions.push_back({{"facility", round.updates[i].facility},
                                 {"version", round.updates[i].version},
                                 {"weight", prepared.shares[i]},
                                 {"samples", round.updates[i].samples},
                                 {"tokens", round.updates[i].tokens}});
        if (!prepared.norms.empty()) contributions.back()["norm"] = prepared.norms[i];
    }
    return contributions;
}

double decided_bound(const ClosedRound& round) {
    for (const RefusedUpdate& one : round.refused)
        if (one.bound) return *one.bound;
    return 0;
}

std::vector<RefusedUpdate> beyond_bound(const ClosedRound& round, const aggregate::Prepared& prepared) {
    std::vector<RefusedUpdate> refused;
    for (const std::size_t i : prepared.refused) {
        char why[160];
        std::snprintf(why, sizeof why, " has the norm %.6g, above %.6g: %.6g times the median of what updates have",
                      prepared.norms[i], prepared.bound, *round.strategy.norm_bound);
        refused.push_back({round.updates[i], describe(round.updates[i]) + why, prepared.norms[i], prepared.bound});
    }
    return refused;
}

std::string describe(const Update& update) {
    return "the update of " + update.facility + " (" + update.version.substr(0, 12) + ")";
}

std::vector<Part> cut_into_parts(const std::vector<aggregate::Aggregator::OutputFile>& files,
                                 std::uint64_t part_bytes) {
    std::vector<Part> parts;
    for (const auto& file : files)
        for (std::uint64_t begin = 0; begin < file.size; begin += part_bytes)
            parts.push_back({file.path, begin, std::min(part_bytes, file.size - begin), {}});
    return parts;
}

store_client::Manifest assemble(const store_client::Manifest& base, const std::vector<Part>& parts) {
    store_client::Manifest manifest;
    for (const auto& file : base.files)
        if (!is_safetensors(file.path)) manifest.files.push_back(file);
    append(manifest, parts, base, /*of_base=*/true);
    sort_files(manifest);
    return manifest;
}

store_client::Manifest assemble_optimizer_state(const store_client::Manifest& base, const std::vector<Part>& parts) {
    store_client::Manifest manifest;
    append(manifest, parts, base, /*of_base=*/false);
    sort_files(manifest);
    return manifest;
}

bool is_safetensors(const std::string& path) {
    return path.ends_with(".safetensors");
}

}  // namespace atl::aggregation
