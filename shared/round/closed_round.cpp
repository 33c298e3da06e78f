#include "shared/round/closed_round.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "shared/delta/control_variate.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"

namespace atl::round {
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
    const Json& assigned = reader.object_or_null("assigned");
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(update.assigned, aggregate::parse_assignment(assigned, path + ".assigned"));
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

// The parts of the base's tensors and of the control variates put together, or those beside them; each behind those
// before it.
void append(store_client::Manifest& manifest, const std::vector<Part>& parts, const store_client::Manifest& base,
            bool of_base) {
    for (const Part& part : parts) {
        const bool is_of_base = base.find(part.path) != nullptr || delta::is_control_variate(part.path);
        if (is_of_base != of_base) continue;
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
    const Json& missing = reader.array_or_null("missing");
    for (const Json& facility : missing) {
        if (!facility.is_string()) reader.fail("missing", "must be names of facilities");
        if (facility.is_string()) round.missing.push_back(facility.get<std::string>());
    }
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
                          {"tokens", update.tokens},
                          {"assigned", aggregate::to_json(update.assigned)}});
    return values;
}

Json to_json(const std::vector<RefusedUpdate>& refused) {
    Json values = Json::array();
    for (const RefusedUpdate& one : refused) {
        values.push_back({{"facility", one.update.facility},
                          {"task", one.update.task},
                          {"version", one.update.version},
                          {"reason", one.reason},
                          {"fault", one.is_sites_fault ? "site" : "store"}});
    }
    return values;
}

Status leave_out(ClosedRound& round, const Json& refused) {
    for (const Json& one : refused) {
        ObjectReader reader(one, "refused");
        const std::string task = reader.required_string("task");
        const std::string reason = reader.required_string("reason");
        const bool is_sites_fault = reader.one_of("fault", {"site", "store"}, "site") == "site";
        reader.allow_unknown();
        ATOLL_RETURN_IF_ERROR(reader.finish());
        const auto at = std::find_if(round.updates.begin(), round.updates.end(),
                                     [&](const Update& update) { return update.task == task; });
        if (at == round.updates.end()) continue;
        round.refused.push_back({std::move(*at), reason, is_sites_fault});
        round.updates.erase(at);
    }
    std::sort(round.refused.begin(), round.refused.end(), [](const RefusedUpdate& a, const RefusedUpdate& b) {
        return std::tie(a.update.facility, a.update.task) < std::tie(b.update.facility, b.update.task);
    });
    return {};
}

Weights averaging_weights(const ClosedRound& round) {
    std::vector<double> weights;
    std::vector<aggregate::Assignment> assigned;
    const auto add = [&](std::int64_t tokens, const aggregate::Assignment& given) {
        weights.push_back(round.strategy.weighs_by_tokens ? static_cast<double>(tokens) : 1.0);
        assigned.push_back(given);
    };
    for (const Update& update : round.updates) add(update.tokens, update.assigned);
    for (const AbsentSite& site : round.absent) add(site.tokens, site.assigned);
    const auto absent = weights.begin() + static_cast<std::ptrdiff_t>(round.updates.size());
    if (std::all_of(weights.begin(), absent, [](double weight) { return weight == 0; }))
        std::fill(weights.begin(), weights.end(), 1.0);
    if (round.strategy.weighs_by_tokens && !round.strategy.max_share)
        weights = aggregate::believable_weights(std::move(weights), assigned);
    const auto split = weights.begin() + static_cast<std::ptrdiff_t>(round.updates.size());
    return {{weights.begin(), split}, {split, weights.end()}};
}

void take_absent(ClosedRound& round, const Json& rows) {
    for (const std::string& facility : round.missing) {
        for (const Json& row : rows) {
            const Json refused = row.value("refused", Json::array());
            const auto counted = [&](const Update& update) {
                return update.facility == facility &&
                       std::none_of(refused.begin(), refused.end(),
                                    [&](const Json& one) { return one.value("task", "") == update.task; });
            };
            const auto updates = parse_updates(row.value("updates", Json::array()));
            if (!updates.ok()) continue;
            const auto last = std::find_if(updates->begin(), updates->end(), counted);
            if (last == updates->end()) continue;
            round.absent.push_back({facility, last->tokens, last->assigned});
            break;
        }
    }
}

void take_earlier(ClosedRound& round, const Json& rows) {
    for (const Json& row : rows) {
        std::map<std::pair<std::string, std::string>, double> efforts;
        for (const Json& value : row.value("updates", Json::array()))
            if (const auto update = parse_update(value, "updates"); update.ok())
                efforts[{update->facility, update->version}] = update->assigned.effort;
        for (const Json& one : row.value("contributions", Json::array())) {
            ObjectReader reader(one);
            const std::string facility = reader.required_string("facility");
            const std::string version = reader.required_string("version");
            const double norm = reader.number_or("norm", 0, 0, std::numeric_limits<double>::max());
            const double counted = reader.number_or("counted", 1, 0, 1);
            reader.allow_unknown();
            const auto effort = efforts.find({facility, version});
            if (!reader.finish().ok() || effort == efforts.end()) continue;
            const auto same = std::find_if(round.updates.begin(), round.updates.end(),
                                           [&](const Update& update) { return update.facility == facility; });
            aggregate::EarlierNorm earlier{norm * counted, effort->second, {}};
            if (same != round.updates.end()) earlier.update = same - round.updates.begin();
            round.earlier.push_back(earlier);
        }
    }
}

namespace {

Status leave_out_facility(ClosedRound& round, const std::string& facility) {
    Json left_out = Json::array();
    for (const Update& update : round.updates)
        if (update.facility == facility) left_out.push_back({{"task", update.task}, {"reason", "asked for"}});
    if (left_out.empty())
        return not_found(facility + " has no update in round " + std::to_string(round.round) + " that counts",
                         "without");
    return leave_out(round, left_out);
}

}  // namespace

Result<ClosedRound> rebuild_round(const Json& aggregations, std::int64_t number, const std::set<std::string>& without) {
    std::map<std::int64_t, Json, std::greater<>> before;  // the newest first
    Json shown;
    for (const Json& one : aggregations) {
        const std::int64_t at = one.value("round", std::int64_t{0});
        if (at == number) shown = one;
        if (at < number && one.value("state", "") == "completed") before[at] = one;
    }
    if (shown.is_null()) return not_found("round " + std::to_string(number) + " was not aggregated", "round");
    ATOLL_TRY(ClosedRound round, parse_closed_round(shown));
    Json earlier = Json::array(), last = Json::array();
    for (const auto& [at, one] : before) {
        if (one.value("version", Json()) == round.base && !round.base_is_jobs) {
            round.base_is_jobs = true;
            if (const Json state = one.value("optimizer_state", Json()); state.is_string())
                round.optimizer_state = state;
        }
        const bool tells = round.updates.size() < kManyUpdates && earlier.size() < kEarlierRoundsMax;
        if (tells) earlier.push_back(one);
        if (at >= number - kAbsentRoundsMax) last.push_back(one);
    }
    ATOLL_RETURN_IF_ERROR(leave_out(round, shown.value("refused", Json::array())));
    for (const std::string& facility : without) ATOLL_RETURN_IF_ERROR(leave_out_facility(round, facility));
    if (round.updates.empty()) return invalid_argument("without", "no update would be left");
    take_earlier(round, earlier);
    take_absent(round, last);
    return round;
}

Json to_json(const std::vector<aggregate::ExactSum>& statistics) {
    Json sums = Json::array();
    for (const aggregate::ExactSum& sum : statistics)
        sums.push_back(std::vector<double>(sum.terms().begin(), sum.terms().end()));
    return sums;
}

Status add_statistics(std::vector<aggregate::ExactSum>& sums, const Json& part) {
    const auto is_number = [](const Json& term) { return term.is_number(); };
    if (!part.is_array() || part.size() != sums.size()) return unavailable("a part has not been measured");
    for (std::size_t i = 0; i < sums.size(); ++i) {
        if (!part[i].is_array() || !std::all_of(part[i].begin(), part[i].end(), is_number))
            return internal_error("what was measured of a part cannot be read");
        for (const Json& term : part[i]) sums[i].add(term.get<double>());
    }
    return {};
}

Result<double> relative_error(const std::vector<Json>& lost) {
    std::vector<aggregate::ExactSum> sums(2);
    for (const Json& part : lost) ATOLL_RETURN_IF_ERROR(add_statistics(sums, part));
    return aggregate::Truncation{sums[0], sums[1]}.relative_error();
}

Json contributions(const ClosedRound& round, const aggregate::Prepared& prepared) {
    Json contributions = Json::array();
    for (std::size_t i = 0; i < round.updates.size(); ++i) {
        contributions.push_back({{"facility", round.updates[i].facility},
                                 {"version", round.updates[i].version},
                                 {"weight", prepared.shares[i]},
                                 {"samples", round.updates[i].samples},
                                 {"tokens", round.updates[i].tokens}});
        if (prepared.figures.empty()) continue;
        const aggregate::UpdateFigures& figures = prepared.figures[i];
        contributions.back()["norm"] = figures.norm;
        contributions.back()["counted"] = figures.counted;
        if (figures.cosine) contributions.back()["cosine"] = *figures.cosine;
        if (const auto& variate = figures.control_variate)
            contributions.back().update(
                {{"control_variate_norm", variate->norm}, {"control_variate_counted", variate->counted}});
    }
    return contributions;
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

std::string first_difference(const store_client::Manifest& made, const store_client::Manifest& model) {
    for (const store_client::ManifestFile& file : model.files) {
        const auto* ours = made.find(file.path);
        if (ours == nullptr) return "it has no " + file.path;
        std::uint64_t begin = 0;
        for (std::size_t i = 0; i < file.chunks.size(); ++i) {
            const std::uint64_t end = begin + file.chunks[i].size;
            if (i >= ours->chunks.size() || ours->chunks[i].sha256 != file.chunks[i].sha256)
                return file.path + " differs in bytes " + std::to_string(begin) + " to " + std::to_string(end - 1);
            begin = end;
        }
        if (ours->size != file.size) return file.path + " is longer";
    }
    return made.files.size() == model.files.size() ? "" : "it has more files";
}

bool is_safetensors(const std::string& path) {
    return path.ends_with(".safetensors");
}

}  // namespace atl::round
