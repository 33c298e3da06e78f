#include "services/store/db/retention.h"

#include "shared/json/json.h"

namespace atl::store {
namespace {

// Whether another model has the version v as well: then removing v takes nothing from anybody.
constexpr const char* kIsElsewhere =
    "EXISTS (SELECT 1 FROM versions o WHERE o.digest = v.digest AND o.model <> v.model)";
// Whether its child c keeps v: one of the same owner, or one that a job has made. Somebody else's word that v is its
// parent keeps nothing. What a job makes of adapters keeps their model, too.
constexpr const char* kKeepsItsBase =
    "c.digest <> v.digest AND (c.parents->>0 = v.digest AND (c.job IS NOT NULL OR (SELECT owner FROM models WHERE name "
    "="
    " c.model) = (SELECT owner FROM models WHERE name = v.model)) OR c.adapter_of = v.digest AND c.job IS NOT NULL)";
constexpr const char* kIsRead = "v.read_at > now() - interval '7 days'";

Status drop_manifests(pg::Transaction& transaction, const Json& digests) {
    for (const char* from : {"manifest_blobs WHERE manifest", "manifests WHERE digest"})
        ATOLL_RETURN_IF_ERROR(
            transaction.query(std::string("DELETE FROM ") + from +
                                  " IN (SELECT value FROM jsonb_array_elements_text($1::jsonb)"
                                  " WHERE NOT EXISTS (SELECT 1 FROM versions WHERE versions.digest = value))",
                              {digests}));
    return {};
}

std::string name_of(const pg::Rows& rows, const char* digest) {
    return rows.text(0, "model") + "@" + rows.text(0, digest);
}

Error needed(const std::string& what, const std::string& by) {
    return conflict(what + " is needed: " + by);
}

// kConflict if somebody outside `model` needs what v names ("v.model = $1 …").
Status check_others(pg::Transaction& transaction, const std::string& which, const std::string& child,
                    const std::vector<pg::Param>& values, const std::string& what) {
    ATOLL_TRY(const auto children,
              transaction.query(std::string("SELECT c.model AS model, c.digest AS digest FROM versions v"
                                            " JOIN versions c ON ") +
                                    kKeepsItsBase + " WHERE " + which + " AND " + child + " AND NOT " + kIsElsewhere +
                                    " LIMIT 1",
                                values));
    if (!children.empty()) return needed(what, "it is the base of " + name_of(children, "digest"));
    ATOLL_TRY(const auto reads,
              transaction.query("SELECT " + pg::rfc3339("v.read_at") + " AS read_at FROM versions v WHERE " + which +
                                    " AND " + kIsRead + " AND NOT " + kIsElsewhere + " LIMIT 1",
                                values));
    if (reads.empty()) return {};
    return needed(what, "a job has begun with it, or a site has fetched it, at " + reads.text(0, "read_at") +
                            ", less than seven days ago");
}

// kConflict if a version of the model has a tag: that one where there is a digest.
Status check_untagged(pg::Transaction& transaction, const std::string& model, const std::string& digest,
                      const std::string& what) {
    ATOLL_TRY(const auto tags,
              transaction.query("SELECT tag FROM tags WHERE model = $1 AND $2 IN ('', digest) ORDER BY tag LIMIT 1",
                                {model, digest}));
    if (tags.empty()) return {};
    const std::string tag = tags.text(0, "tag");
    return needed(what, "it has the tag " + tag + "; `atoll model untag " + model + "@" + tag + "` removes the tag");
}

}  // namespace

Status record_reading(pg::Transaction& transaction, const std::string& digest) {
    ATOLL_RETURN_IF_ERROR(
        transaction.query("UPDATE versions SET read_at = now() WHERE digest = $1"
                          " AND (read_at IS NULL OR read_at < now() - interval '1 hour')",
                          {digest}));
    return {};
}

Status delete_version(pg::Transaction& transaction, const std::string& model, const std::string& digest) {
    ATOLL_RETURN_IF_ERROR(lock_blobs_alone(transaction));
    const std::string what = model + "@" + digest;
    ATOLL_TRY(const auto found,
              transaction.query("SELECT 1 FROM versions WHERE model = $1 AND digest = $2", {model, digest}));
    if (found.empty()) return not_found("model " + model + " has no version " + digest, "digest");
    ATOLL_RETURN_IF_ERROR(check_untagged(transaction, model, digest, what));
    ATOLL_RETURN_IF_ERROR(check_others(transaction, "v.model = $1 AND v.digest = $2", "true", {model, digest}, what));
    ATOLL_TRY(const auto newest,
              transaction.query(std::string("SELECT v.job FROM round_versions v WHERE model = $1 AND digest = $2"
                                            " AND NOT ") +
                                    kIsElsewhere +
                                    " AND kind = 'global' AND round >= (SELECT max(round) FROM round_versions o"
                                    " WHERE o.job = v.job AND o.kind = 'global') ORDER BY v.job LIMIT 1",
                                {model, digest}));
    if (!newest.empty()) return needed(what, "it is the newest model of job " + newest.text(0, "job"));
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM versions WHERE model = $1 AND digest = $2", {model, digest}));
    return drop_manifests(transaction, Json::array({digest}));
}

Status delete_model(pg::Transaction& transaction, const std::string& model) {
    ATOLL_RETURN_IF_ERROR(lock_blobs_alone(transaction));
    ATOLL_RETURN_IF_ERROR(find_model(transaction.connection(), model));
    ATOLL_RETURN_IF_ERROR(check_untagged(transaction, model, "", model));
    ATOLL_RETURN_IF_ERROR(check_others(transaction, "v.model = $1", "c.model <> $1", {model}, model));
    ATOLL_TRY(const auto removed, transaction.query("DELETE FROM versions WHERE model = $1 RETURNING digest", {model}));
    Json digests = Json::array();
    for (int row = 0; row < removed.size(); ++row) digests.push_back(removed.text(row, "digest"));
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM models WHERE name = $1", {model}));
    return drop_manifests(transaction, digests);
}

Status delete_tag(pg::Transaction& transaction, const std::string& model, const std::string& tag) {
    ATOLL_TRY(const auto removed, transaction.query("DELETE FROM tags WHERE model = $1 AND tag = $2", {model, tag}));
    if (removed.affected() == 0) return not_found("model " + model + " has no tag " + tag, "tag");
    return {};
}

Result<std::vector<Json>> outdated_versions(pg::Connection& connection, std::int64_t rounds, const PruneScope& scope,
                                            std::int64_t count_max) {
    ATOLL_TRY(
        const auto rows,
        connection.query(
            std::string("WITH newest AS MATERIALIZED (SELECT job, max(round) AS round FROM round_versions"
                        " WHERE kind IN ('update', 'global') GROUP BY job)"
                        " SELECT v.model AS model, v.digest AS digest, v.kind AS kind, v.job AS job,"
                        " v.round AS round, m.size_bytes AS size FROM versions v"
                        " JOIN manifests m ON m.digest = v.digest"
                        " WHERE v.kind IN ('update', 'optimizer_state') AND v.job IS NOT NULL AND v.round IS NOT NULL"
                        " AND NOT EXISTS (SELECT 1 FROM round_versions r JOIN newest ON newest.job = r.job"
                        " WHERE r.model = v.model AND r.digest = v.digest AND r.round > newest.round - $1::int)"
                        " AND ($2 = '' OR v.model = $2)"
                        " AND ($4 = '' OR v.model IN (SELECT name FROM models WHERE owner = $4))"
                        " AND (v.read_at IS NULL OR v.read_at < now() - interval '1 day')"
                        " AND NOT EXISTS (SELECT 1 FROM tags t WHERE t.model = v.model AND t.digest = v.digest)"
                        " AND NOT EXISTS (SELECT 1 FROM versions c WHERE ") +
                kKeepsItsBase + ") ORDER BY v.sequence LIMIT $3",
            {rounds, scope.model, count_max, scope.owner}));
    std::vector<Json> outdated;
    for (int row = 0; row < rows.size(); ++row)
        outdated.push_back({{"model", rows.text(row, "model")},
                            {"digest", rows.text(row, "digest")},
                            {"kind", rows.text(row, "kind")},
                            {"job", rows.text(row, "job")},
                            {"round", rows.integer(row, "round")},
                            {"size", rows.integer(row, "size")}});
    return outdated;
}

Status delete_versions(pg::Transaction& transaction, const std::vector<Json>& versions) {
    Json digests = Json::array();
    for (const Json& version : versions) digests.push_back(version.at("digest"));
    ATOLL_RETURN_IF_ERROR(
        transaction.query("DELETE FROM versions USING jsonb_array_elements($1::jsonb) AS gone"
                          " WHERE versions.model = gone->>'model' AND versions.digest = gone->>'digest'",
                          {Json(versions)}));
    return drop_manifests(transaction, digests);
}

Result<Json> list_damaged(pg::Connection& connection) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT blob, " + pg::rfc3339("found_at") +
                               " AS found_at, (SELECT coalesce(jsonb_agg(jsonb_build_object('model', v.model, 'digest',"
                               " v.digest) ORDER BY v.sequence), '[]') FROM versions v WHERE v.digest IN"
                               " (SELECT manifest FROM manifest_blobs m WHERE m.blob = d.blob)) AS versions"
                               " FROM damaged_blobs d ORDER BY blob LIMIT 1000"));
    Json items = Json::array();
    for (int row = 0; row < rows.size(); ++row)
        items.push_back({{"sha256", rows.text(row, "blob")},
                         {"found_at", rows.text(row, "found_at")},
                         {"versions", rows.json(row, "versions")}});
    return Json{{"items", std::move(items)}};
}

Result<std::vector<std::string>> damaged_blobs(pg::Connection& connection) {
    ATOLL_TRY(const auto rows, connection.query("SELECT blob FROM damaged_blobs"));
    std::vector<std::string> blobs;
    for (int row = 0; row < rows.size(); ++row) blobs.push_back(rows.text(row, "blob"));
    return blobs;
}

Result<std::vector<std::string>> add_damaged(pg::Connection& connection, const std::string& blob) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("INSERT INTO damaged_blobs (blob) VALUES ($1) ON CONFLICT (blob) DO NOTHING", {blob}));
    ATOLL_TRY(const auto rows,
              connection.query("SELECT model, digest FROM versions WHERE digest IN (SELECT manifest FROM manifest_blobs"
                               " WHERE blob = $1) ORDER BY sequence LIMIT 100",
                               {blob}));
    std::vector<std::string> versions;
    for (int row = 0; row < rows.size(); ++row)
        versions.push_back(rows.text(row, "model") + "@" + rows.text(row, "digest"));
    return versions;
}

Status remove_damaged(pg::Connection& connection, const std::string& blob) {
    ATOLL_RETURN_IF_ERROR(connection.query("DELETE FROM damaged_blobs WHERE blob = $1", {blob}));
    return {};
}

Result<std::string> last_scrubbed(pg::Connection& connection) {
    ATOLL_TRY(const auto rows, connection.query("SELECT directory FROM scrub"));
    return rows.empty() ? std::string() : rows.text(0, "directory");
}

Status set_last_scrubbed(pg::Connection& connection, const std::string& directory) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("INSERT INTO scrub (one, directory) VALUES (true, $1)"
                         " ON CONFLICT (one) DO UPDATE SET directory = excluded.directory, at = now()",
                         {directory}));
    return {};
}

}  // namespace atl::store
