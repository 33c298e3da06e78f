#include "services/store/domain/version.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "shared/auth/subjects.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "shared/service/names.h"

namespace atl::store {
namespace {

using json::Json;
using json::ObjectReader;

constexpr std::size_t kParentsMax = 4096;         // a mean's are its base and its updates
constexpr std::size_t kParentsOfPersonsMax = 16;  // what a person brings comes from few
constexpr std::size_t kDigestsMax = 4096;
constexpr std::size_t kDescriptionBytesMax = 4096;
constexpr std::size_t kMetricsBytesMax = 64U << 10;
constexpr std::int64_t kCountMax = std::int64_t{1} << 53;
constexpr std::int64_t kRoundMax = 1'000'000;
constexpr std::int64_t kUploadFactor = 4;
constexpr std::uint64_t kRepeatsMax = 16;
constexpr std::uint64_t kRepeatsAllowanceBytes = std::uint64_t{16} << 20;  // many small files may be the same
constexpr std::int64_t kManifestFactor = 4;
constexpr std::int64_t kManifestAllowanceBytes = std::int64_t{512} << 10;
constexpr std::int64_t kUploadAllowanceBytes = std::int64_t{64}
                                               << 20;  // small models have large tokenizers beside them

bool contains(const std::vector<std::string>& list, const std::string& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

std::string at(const std::string& list, std::size_t index) {
    return list + "[" + std::to_string(index) + "]";
}

Result<std::vector<std::string>> parse_digests(const Json& values, const std::string& field, std::size_t count_max) {
    std::vector<std::string> digests;
    if (values.is_null()) return digests;
    if (values.size() > count_max)
        return invalid_argument(field, "must hold at most " + std::to_string(count_max) + " digests");
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!values[i].is_string() || !digest::is_sha256(values[i].get_ref<const std::string&>()))
            return invalid_argument(at(field, i), "must be 64 lower-case hexadecimal characters");
        digests.push_back(values[i].get<std::string>());
    }
    return digests;
}

Status check_description(const std::string& text, const std::string& field) {
    return text.size() <= kDescriptionBytesMax ? Status() : invalid_argument(field, "must be at most 4096 bytes");
}

Result<Json> parse_contribution(const Json& value, const std::string& field) {
    ObjectReader reader(value, field);
    const std::string facility = reader.required_string("facility");
    const std::string version = reader.required_string("version");
    const double weight = reader.number_or("weight", 1.0, 0.0, 1e300);
    const std::int64_t samples = reader.integer_or("samples", 0, 0, kCountMax);
    const std::int64_t tokens = reader.integer_or("tokens", 0, 0, kCountMax);
    Json figures = Json::object();
    for (const auto& [key, min, max] : {std::tuple{"norm", 0.0, 1e300},
                                        {"cosine", -1.0, 1.0},
                                        {"counted", 0.0, 1.0},
                                        {"control_variate_norm", 0.0, 1e300},
                                        {"control_variate_counted", 0.0, 1.0}})
        if (const double number = reader.number_or(key, -2, min, max); number >= min) figures[key] = number;
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!digest::is_sha256(version))
        return invalid_argument(reader.field("version"), "must be 64 lower-case hexadecimal characters");
    Json contribution = {
        {"facility", facility}, {"version", version}, {"weight", weight}, {"samples", samples}, {"tokens", tokens}};
    contribution.update(figures);
    return contribution;
}

Result<Json> parse_contributions(const Json& values) {
    Json contributions = Json::array();
    for (std::size_t i = 0; i < values.size(); ++i) {
        ATOLL_TRY(Json contribution, parse_contribution(values[i], at("contributions", i)));
        contributions.push_back(std::move(contribution));
    }
    return contributions;
}

// What rounds make: a person's version cannot pass for it.
Status may_write_as_operator(const NewVersion& version) {
    const auto denied = [](const char* field, const std::string& what) {
        return Error{ErrorCode::kPermissionDenied, "only aggregation makes " + what, field};
    };
    if (version.kind == Kind::kGlobal || version.kind == Kind::kOptimizerState)
        return denied("kind", std::string("versions of kind ") + to_string(version.kind));
    if (version.job || version.round) return denied(version.job ? "job" : "round", "versions of a job's round");
    if (!version.contributions.empty()) return denied("contributions", "versions with contributions");
    if (version.parents.size() > kParentsOfPersonsMax)
        return invalid_argument("parents", "must be at most " + std::to_string(kParentsOfPersonsMax) + " versions");
    const std::set<std::string> distinct(version.parents.begin(), version.parents.end());
    if (distinct.size() < version.parents.size()) return invalid_argument("parents", "must each be named once");
    return {};
}

Kind parse_kind(ObjectReader& reader) {
    const std::string kind = reader.one_of("kind", {"base", "update", "global", "optimizer_state", "adapter"}, "base");
    for (const Kind candidate : {Kind::kUpdate, Kind::kGlobal, Kind::kOptimizerState, Kind::kAdapter})
        if (kind == to_string(candidate)) return candidate;
    return Kind::kBase;
}

}  // namespace

const char* to_string(Kind kind) {
    switch (kind) {
        case Kind::kUpdate:
            return "update";
        case Kind::kGlobal:
            return "global";
        case Kind::kOptimizerState:
            return "optimizer_state";
        case Kind::kAdapter:
            return "adapter";
        case Kind::kBase:
            break;
    }
    return "base";
}

Result<VersionFilter> parse_version_filter(const std::string& kind, const std::string& job, const std::string& round) {
    const auto is_kind = [&](Kind candidate) { return kind == to_string(candidate); };
    constexpr Kind kAll[] = {Kind::kBase, Kind::kUpdate, Kind::kGlobal, Kind::kOptimizerState, Kind::kAdapter};
    if (!kind.empty() && std::none_of(std::begin(kAll), std::end(kAll), is_kind))
        return invalid_argument("kind", "must be base, update, global, optimizer_state or adapter");
    VersionFilter filter{kind, job, 0};
    const char* end = round.data() + round.size();
    const auto [parsed, error] = std::from_chars(round.data(), end, filter.round);
    if (!round.empty() && (error != std::errc() || parsed != end || filter.round < 0 || filter.round > kRoundMax))
        return invalid_argument("round", "must be a whole number from 0 to " + std::to_string(kRoundMax));
    if (job.empty() != round.empty())
        return invalid_argument(job.empty() ? "job" : "round", "job and round are given together or not at all");
    return filter;
}

Result<NewModel> parse_new_model(const Json& body) {
    ObjectReader reader(body);
    NewModel model;
    model.name = reader.required_string("name");
    model.description = reader.string_or("description", "");
    model.owner = reader.string_or("owner", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_RETURN_IF_ERROR(service::check_name(model.name, "name"));
    if (!model.owner.empty()) ATOLL_RETURN_IF_ERROR(service::check_name(model.owner, "owner"));
    ATOLL_RETURN_IF_ERROR(check_description(model.description, "description"));
    return model;
}

Result<NewVersion> parse_new_version(const Json& body) {
    ObjectReader reader(body);
    NewVersion version;
    const Json& manifest = reader.required_object("manifest");
    const Json& parents = reader.array_or_null("parents");
    const Json& contributions = reader.array_or_null("contributions");
    const Json& metrics = reader.object_or_null("metrics");
    const Json& new_model = reader.object_or_null("new_model");
    const std::string job = reader.string_or("job", "");
    const std::int64_t round = reader.integer_or("round", -1, 0, kRoundMax);
    version.kind = parse_kind(reader);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(version.manifest, store_client::parse_manifest(manifest));
    version.digest = store_client::manifest_digest(version.manifest);
    ATOLL_TRY(version.parents, parse_digests(parents, "parents", kParentsMax));
    ATOLL_TRY(version.contributions, parse_contributions(contributions));
    version.metrics = metrics.is_null() ? Json::object() : metrics;
    if (version.kind == Kind::kAdapter && version.parents.size() != 1)
        return invalid_argument("parents",
                                "must name exactly one version for an adapter: the model that it was trained on");
    if (version.kind == Kind::kAdapter) version.adapter_of = version.parents.front();
    if (version.metrics.dump().size() > kMetricsBytesMax) return invalid_argument("metrics", "must be at most 64 KiB");
    if (!job.empty()) version.job = job;
    if (round >= 0) version.round = round;
    if (!new_model.is_null()) {
        ObjectReader model(new_model, "new_model");
        version.new_model = model.string_or("description", "");
        ATOLL_RETURN_IF_ERROR(model.finish());
        ATOLL_RETURN_IF_ERROR(check_description(*version.new_model, model.field("description")));
    }
    return version;
}

Result<TagTarget> parse_tag_target(const Json& body) {
    ObjectReader reader(body);
    TagTarget target;
    target.digest = reader.required_string("digest");
    target.moves = reader.boolean_or("move", true);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!digest::is_sha256(target.digest))
        return invalid_argument("digest", "must be 64 lower-case hexadecimal characters");
    return target;
}

Result<std::vector<std::string>> parse_digest_list(const Json& body) {
    ObjectReader reader(body);
    const Json& digests = reader.required_array("digests");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return parse_digests(digests, "digests", kDigestsMax);
}

Result<PruneOrder> parse_prune_order(const Json& body) {
    ObjectReader reader(body);
    PruneOrder order;
    order.model = reader.string_or("model", "");
    order.dry_run = reader.boolean_or("dry_run", false);
    const std::int64_t rounds = reader.integer_or("keep_updates_rounds", -1, 1, 1'000'000);
    const std::int64_t hours = reader.integer_or("unused_blob_hours", -1, 0, 24L * 366);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (rounds >= 0) order.keep_updates_rounds = rounds;
    if (hours >= 0) order.unused_blob_hours = hours;
    return order;
}

bool reads_everything(const auth::Principal& principal) {
    return principal.role == auth::Role::kAdmin ||
           (principal.role == auth::Role::kOperator && auth::is_reserved_subject(principal.subject));
}

bool is_person(const auth::Principal& principal) {
    return principal.role == auth::Role::kOperator && !auth::is_reserved_subject(principal.subject);
}

Status may_read_version(const auth::Principal& principal, const std::string& digest) {
    if (principal.role != auth::Role::kFacility) return {};
    if (principal.scope && contains(principal.scope->read_versions, digest)) return {};
    return permission_denied("this token may not read version " + digest);
}

Status may_write_blobs(const auth::Principal& principal) {
    if (principal.role != auth::Role::kFacility) return {};
    if (principal.scope && !principal.scope->write_model.empty()) return {};
    return permission_denied("this token's task hands in no model: it may not store blobs");
}

std::int64_t upload_quota(std::int64_t readable_bytes) {
    return kUploadFactor * readable_bytes + kUploadAllowanceBytes;
}

std::int64_t update_body_bytes_max(std::int64_t base_manifest_bytes) {
    return kManifestFactor * base_manifest_bytes + kManifestAllowanceBytes;
}

Status may_name_owner(const auth::Principal& principal, const NewModel& model) {
    const bool may_name = principal.role == auth::Role::kAdmin || auth::is_service(principal, auth::kDispatch);
    if (may_name || model.owner.empty() || model.owner == principal.subject) return {};
    return Error{ErrorCode::kPermissionDenied, "only an admin makes a model for somebody else", "owner"};
}

Status may_write_version(const auth::Principal& principal, const std::string& model, const NewVersion& version) {
    if (principal.role == auth::Role::kAdmin || auth::is_service(principal, auth::kAggregation)) return {};
    if (auth::is_service(principal, auth::kDispatch) && version.kind != Kind::kAdapter)
        return permission_denied("dispatch may only create versions of kind adapter");
    if (principal.role == auth::Role::kOperator) return may_write_as_operator(version);
    if (principal.role != auth::Role::kFacility || !principal.scope)
        return permission_denied("this token may not write versions");
    const auth::TaskScope& scope = *principal.scope;
    if (model != scope.write_model) return permission_denied("this token may not write versions of model " + model);
    if (version.kind != Kind::kUpdate) return permission_denied("this token may write only versions of kind update");
    if (!version.contributions.empty()) return permission_denied("an update has no contributions");
    return {};
}

std::string base_of_update(const auth::TaskScope& scope) {
    return scope.read_versions.empty() ? "" : scope.read_versions.front();
}

Status take_origin(const auth::TaskScope& scope, NewVersion& version) {
    if (scope.read_versions.empty() || scope.read_versions.size() > 2)
        return permission_denied("this token names no one base of an update");
    if (version.job.value_or(scope.job) != scope.job)
        return invalid_argument("job", "is " + *version.job + ", but this token is of job " + scope.job);
    if (version.round.value_or(scope.round) != scope.round)
        return invalid_argument("round", "is " + std::to_string(*version.round) + ", but this token is of round " +
                                             std::to_string(scope.round));
    const std::vector<std::string> parents = {base_of_update(scope)};
    if (!version.parents.empty() && version.parents != parents)
        return invalid_argument("parents", "must be the base that this token reads, " + parents.front());
    version.job = scope.job;
    version.round = scope.round;
    version.parents = parents;
    if (scope.read_versions.size() == 2) version.adapter_of = scope.read_versions.back();
    return {};
}

Status check_repeats(const store_client::Manifest& manifest) {
    std::map<std::string, std::uint64_t> distinct;
    for (const auto& file : manifest.files)
        for (const auto& chunk : file.chunks) distinct.emplace(chunk.sha256, chunk.size);
    std::uint64_t bytes = 0;
    for (const auto& [sha256, size] : distinct) bytes += size;
    if (manifest.size_bytes() <= kRepeatsMax * bytes + kRepeatsAllowanceBytes) return {};
    return invalid_argument("manifest.files", "are " + std::to_string(manifest.size_bytes()) + " bytes made of only " +
                                                  std::to_string(bytes) + " different ones");
}

std::set<std::string> blobs_of(const store_client::Manifest& manifest) {
    std::set<std::string> blobs;
    for (const auto& file : manifest.files)
        for (const auto& chunk : file.chunks) blobs.insert(chunk.sha256);
    return blobs;
}

}  // namespace atl::store
