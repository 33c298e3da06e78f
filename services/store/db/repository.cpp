#include "services/store/db/repository.h"

#include <set>

#include "services/store/db/version_names.h"
#include "shared/delta/control_variate.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"

namespace atl::store {
namespace {

constexpr const char* kSweepLock = "hashtextextended('atoll.store.sweep', 0)";
constexpr std::int64_t kManifestCostMin = 4096;  // of a quota: a version costs the database more than its manifest
constexpr std::int64_t kFullAttemptsMax = 3;     // of a task, that may upload as much as one may

std::string time_column(const std::string& column) {
    return pg::rfc3339(column) + " AS " + column;
}

std::string model_columns() {
    return "name, description, owner, created_by, " + time_column("created_at") +
           ", (SELECT count(*) FROM versions WHERE versions.model = models.name) AS version_count"
           ", (SELECT coalesce(jsonb_object_agg(tag, digest), '{}') FROM tags WHERE tags.model = models.name) AS tags";
}

Json read_model(const pg::Rows& rows, int row) {
    return {{"name", rows.text(row, "name")},
            {"description", rows.text(row, "description")},
            {"version_count", rows.integer(row, "version_count")},
            {"tags", rows.json(row, "tags")},
            {"owner", rows.text(row, "owner")},
            {"created_by", rows.text(row, "created_by")},
            {"created_at", rows.text(row, "created_at")}};
}

// The versions of rounds as these made them: another round may have been the first to make the same bytes.
constexpr const char* kOfRounds =
    "(SELECT sequence, model, digest, r.kind, r.parents, adapter_of, r.job, r.round, r.contributions, metrics,"
    " r.created_by, r.created_at FROM versions JOIN round_versions r USING (model, digest)) v";

std::string version_query(bool with_manifest, const std::string& rest, const char* from = "versions v") {
    return "SELECT sequence, model, v.digest AS digest, kind, parents, adapter_of, job, round, contributions, "
           "metrics, created_by, " +
           time_column("created_at") + ", size_bytes, file_count, " + (with_manifest ? "body" : "NULL AS body") +
           ", (SELECT coalesce(jsonb_agg(tag ORDER BY tag), '[]') FROM tags t"
           " WHERE t.model = v.model AND t.digest = v.digest) AS tags"
           " FROM " +
           from + " JOIN manifests m ON m.digest = v.digest " + rest;
}

Json read_version(const pg::Rows& rows, int row) {
    Json version = {{"model", rows.text(row, "model")},
                    {"digest", rows.text(row, "digest")},
                    {"kind", rows.text(row, "kind")},
                    {"size", rows.integer(row, "size_bytes")},
                    {"file_count", rows.integer(row, "file_count")},
                    {"parents", rows.json(row, "parents")},
                    {"adapter_of", nullptr},
                    {"job", nullptr},
                    {"round", nullptr},
                    {"contributions", rows.json(row, "contributions")},
                    {"metrics", rows.json(row, "metrics")},
                    {"tags", rows.json(row, "tags")},
                    {"created_by", rows.text(row, "created_by")},
                    {"created_at", rows.text(row, "created_at")}};
    if (!rows.is_null(row, "adapter_of")) version["adapter_of"] = rows.text(row, "adapter_of");
    if (!rows.is_null(row, "job")) version["job"] = rows.text(row, "job");
    if (!rows.is_null(row, "round")) version["round"] = rows.integer(row, "round");
    return version;
}

StoredVersion read_stored_version(const pg::Rows& rows) {
    return {read_version(rows, 0), rows.text(0, "body")};
}

Error no_model(const std::string& name) {
    return not_found("there is no model " + name, "model");
}

store_client::Manifest without_variates(store_client::Manifest manifest) {
    std::erase_if(manifest.files, [](const auto& file) { return delta::is_control_variate(file.path); });
    return manifest;
}

Status insert_manifest(pg::Transaction& transaction, const NewVersion& version) {
    const auto& manifest = version.manifest;
    ATOLL_TRY(const auto inserted,
              transaction.query("INSERT INTO manifests (digest, body, size_bytes, file_count) VALUES ($1, $2, $3, $4)"
                                " ON CONFLICT (digest) DO NOTHING",
                                {version.digest, store_client::canonical_json(manifest), manifest.size_bytes(),
                                 manifest.files.size()}));
    if (inserted.affected() == 0) return {};
    ATOLL_RETURN_IF_ERROR(
        transaction.query("INSERT INTO manifest_blobs (manifest, blob, is_variate)"
                          " SELECT $1, value, value NOT IN (SELECT jsonb_array_elements_text($3::jsonb))"
                          " FROM jsonb_array_elements_text($2::jsonb)",
                          {version.digest, Json(blobs_of(manifest)), Json(blobs_of(without_variates(manifest)))}));
    return {};
}

Status check_parents(pg::Transaction& transaction, const std::vector<std::string>& parents) {
    ATOLL_TRY(const auto unknown,
              transaction.query("SELECT position - 1 AS position, value FROM jsonb_array_elements_text($1::jsonb)"
                                " WITH ORDINALITY AS p (value, position)"
                                " WHERE NOT EXISTS (SELECT 1 FROM versions WHERE digest = value)"
                                " ORDER BY position LIMIT 1",
                                {Json(parents)}));
    if (unknown.empty()) return {};
    return invalid_argument("parents[" + unknown.text(0, "position") + "]",
                            "there is no version " + unknown.text(0, "value"));
}

Result<bool> add_to_upload(pg::Connection& connection, const auth::TaskScope& scope, std::size_t bytes,
                           std::int64_t bytes_max) {
    ATOLL_TRY(
        const auto counted,
        connection.query(
            "INSERT INTO uploads AS u (task, attempt, bytes) SELECT $1, $2, $3::bigint WHERE $3::bigint <= $4::bigint"
            " AND (SELECT coalesce(sum(bytes), 0) FROM uploads WHERE task = $1 AND attempt <> $2) < $5::bigint"
            " ON CONFLICT (task, attempt) DO UPDATE SET bytes = u.bytes + excluded.bytes"
            " WHERE u.bytes + excluded.bytes <= $4::bigint",
            {scope.task, scope.attempt, bytes, bytes_max, kFullAttemptsMax * bytes_max}));
    return counted.affected() == 1;
}

// From what its attempts have sent, once a second at most: a store that was killed while it wrote took nothing back.
Result<bool> count_uploads_anew(pg::Connection& connection, const std::string& task) {
    ATOLL_TRY(const auto counted,
              connection.query("UPDATE uploads AS u SET counted_at = now(), bytes = (SELECT coalesce(sum(b.bytes), 0)"
                               " FROM uploaded_blobs b WHERE b.task = u.task AND b.attempt = u.attempt)"
                               " WHERE u.task = $1 AND u.counted_at < now() - interval '1 second'",
                               {task}));
    return counted.affected() > 0;
}

}  // namespace

Result<bool> ensure_model(pg::Transaction& transaction, const NewModel& model, const std::string& subject) {
    ATOLL_TRY(const auto inserted,
              transaction.query("INSERT INTO models (name, description, owner, created_by) VALUES ($1, $2, $3, $4)"
                                " ON CONFLICT (name) DO NOTHING",
                                {model.name, model.description, model.owner, subject}));
    return inserted.affected() == 1;
}

Result<std::int64_t> count_models_of(pg::Transaction& transaction, const std::string& owner) {
    ATOLL_TRY(const auto rows, transaction.query("SELECT count(*) AS n FROM models WHERE owner = $1", {owner}));
    return rows.integer(0, "n");
}

Result<std::int64_t> count_tags_of(pg::Transaction& transaction, const std::string& model) {
    ATOLL_TRY(const auto rows, transaction.query("SELECT count(*) AS n FROM tags WHERE model = $1", {model}));
    return rows.integer(0, "n");
}

Result<Json> insert_model(pg::Transaction& transaction, const NewModel& model, const std::string& subject) {
    ATOLL_TRY(const bool is_new, ensure_model(transaction, model, subject));
    if (!is_new) return conflict("there is a model " + model.name + " already", "name");
    return find_model(transaction.connection(), model.name);
}

Result<Json> find_model(pg::Connection& connection, const std::string& name) {
    ATOLL_TRY(const auto rows, connection.query("SELECT " + model_columns() + " FROM models WHERE name = $1", {name}));
    if (rows.empty()) return no_model(name);
    return read_model(rows, 0);
}

Result<std::vector<Json>> list_models(pg::Connection& connection, const http::Page& page) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT " + model_columns() + " FROM models WHERE name > $1 ORDER BY name LIMIT $2",
                               {page.after, page.limit + 1}));
    std::vector<Json> models;
    for (int row = 0; row < rows.size(); ++row) models.push_back(read_model(rows, row));
    return models;
}

Result<InsertedVersion> insert_version(pg::Transaction& transaction, const std::string& model,
                                       const NewVersion& version, const std::string& subject) {
    ATOLL_TRY(const auto known, transaction.query("SELECT 1 FROM models WHERE name = $1", {model}));
    if (known.empty()) return no_model(model);
    ATOLL_RETURN_IF_ERROR(check_parents(transaction, version.parents));
    ATOLL_RETURN_IF_ERROR(insert_manifest(transaction, version));
    ATOLL_TRY(
        const auto inserted,
        transaction.query("INSERT INTO versions (model, digest, kind, parents, job, round, contributions, metrics,"
                          // Whoever reads it reads it under any name: a copy is kept for as long.
                          " created_by, read_at, adapter_of) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,"
                          " (SELECT max(read_at) FROM versions WHERE digest = $2), coalesce($10, CASE WHEN $3 ="
                          // What a round makes of adapters is one of their model. Under another name the same bytes
                          // may be anybody's adapter of anything.
                          " 'global' THEN (SELECT adapter_of FROM versions WHERE model = $1 AND digest IN (SELECT"
                          " jsonb_array_elements_text($4::jsonb)) ORDER BY kind = 'update' DESC LIMIT 1) END))"
                          // The mean of one update, or of equal ones, is that update: it becomes the global model.
                          " ON CONFLICT (model, digest) DO UPDATE SET kind = 'global', job = excluded.job,"
                          " round = excluded.round, contributions = excluded.contributions,"
                          " metrics = excluded.metrics, created_by = excluded.created_by, created_at = now() WHERE "
                          "versions.kind = 'update' AND excluded.kind = 'global'",
                          {model, version.digest, to_string(version.kind), Json(version.parents), version.job,
                           version.round, version.contributions, version.metrics, subject, version.adapter_of}));
    if (version.job && version.round)
        ATOLL_RETURN_IF_ERROR(
            transaction.query("INSERT INTO round_versions (job, round, kind, model, digest, parents, contributions,"
                              " created_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
                              {version.job, version.round, to_string(version.kind), model, version.digest,
                               Json(version.parents), version.contributions, subject}));
    ATOLL_TRY(const auto rows,
              transaction.query(version_query(false, "WHERE v.model = $1 AND v.digest = $2"), {model, version.digest}));
    return InsertedVersion{read_version(rows, 0), inserted.affected() == 1};
}

Status require_contributions_in(pg::Transaction& transaction, const std::string& model, const Json& contributions) {
    ATOLL_TRY(
        const auto foreign,
        transaction.query("SELECT c->>'version' AS version FROM jsonb_array_elements($2::jsonb) AS c WHERE NOT EXISTS"
                          " (SELECT 1 FROM versions v WHERE v.model = $1 AND v.digest = c->>'version') LIMIT 1",
                          {model, contributions}));
    if (foreign.empty()) return {};
    return invalid_argument("contributions", "model " + model + " has no version " + foreign.text(0, "version") +
                                                 ": the one that the job's updates went to was removed");
}

Result<bool> has_version(pg::Connection& connection, const std::string& model, const std::string& digest) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT 1 FROM versions WHERE model = $1 AND digest = $2", {model, digest}));
    return !rows.empty();
}

Result<StoredVersion> find_version(pg::Connection& connection, const std::string& model, const std::string& reference) {
    const auto find = [&](const std::string& name) {
        return connection.query(version_query(true,
                                              "WHERE v.model = $1 AND v.digest = coalesce((SELECT digest FROM tags"
                                              " WHERE tags.model = $1 AND tag = $2), $2)"),
                                {model, name});
    };
    ATOLL_TRY(const auto named, find(reference));
    if (!named.empty()) return read_stored_version(named);
    ATOLL_RETURN_IF_ERROR(find_model(connection, model));
    ATOLL_TRY(const std::string digest, resolve_version(connection, model, reference));
    ATOLL_TRY(const auto resolved, find(digest));
    if (resolved.empty()) return not_found("model " + model + " has no version " + digest, "version");
    return read_stored_version(resolved);
}

Result<StoredVersion> find_version_anywhere(pg::Connection& connection, const std::string& digest) {
    ATOLL_TRY(const auto rows,
              connection.query(version_query(true, "WHERE v.digest = $1 ORDER BY sequence LIMIT 1"), {digest}));
    if (rows.empty()) return not_found("there is no version " + digest, "digest");
    return read_stored_version(rows);
}

Result<std::vector<Json>> list_versions(pg::Connection& connection, const std::string& model,
                                        const VersionFilter& filter, const http::Page& page) {
    std::int64_t after = 0;
    for (const char digit : page.after) {
        if (digit < '0' || digit > '9' || page.after.size() > 18)
            return invalid_argument("after", "must be the `next` of an earlier page");
        after = after * 10 + (digit - '0');
    }
    ATOLL_TRY(const auto rows,
              connection.query(version_query(false,
                                             "WHERE v.model = $1 AND sequence > $2 AND ($4 = '' OR v.kind = $4)"
                                             " AND ($5 = '' OR (v.job = $5 AND v.round = $6))"
                                             " ORDER BY sequence LIMIT $3",
                                             filter.job.empty() ? "versions v" : kOfRounds),
                               {model, after, page.limit + 1, filter.kind, filter.job, filter.round}));
    std::vector<Json> versions;
    for (int row = 0; row < rows.size(); ++row) {
        versions.push_back(read_version(rows, row));
        versions.back()["sequence"] = rows.integer(row, "sequence");
    }
    return versions;
}

Result<Json> put_tag(pg::Transaction& transaction, const std::string& model, const std::string& tag,
                     const TagTarget& target, const std::string& subject) {
    ATOLL_TRY(const auto known,
              transaction.query("SELECT 1 FROM versions WHERE model = $1 AND digest = $2", {model, target.digest}));
    if (known.empty()) return not_found("model " + model + " has no version " + target.digest, "digest");
    ATOLL_TRY(const auto rows,
              transaction.query("INSERT INTO tags (model, tag, digest, updated_by) VALUES ($1, $2, $3, $4)"
                                " ON CONFLICT (model, tag) DO UPDATE SET digest = excluded.digest,"
                                " updated_by = excluded.updated_by, updated_at = now()"
                                " WHERE $5 OR tags.digest = excluded.digest RETURNING " +
                                    time_column("updated_at"),
                                {model, tag, target.digest, subject, target.moves}));
    if (!rows.empty())
        return Json{
            {"model", model}, {"tag", tag}, {"digest", target.digest}, {"updated_at", rows.text(0, "updated_at")}};
    ATOLL_TRY(const auto other,
              transaction.query("SELECT digest FROM tags WHERE model = $1 AND tag = $2", {model, tag}));
    return conflict("the tag " + tag + " is on another version of model " + model +
                        (other.empty() ? "" : ", " + other.text(0, "digest")),
                    "tag");
}

Result<std::int64_t> manifest_bytes_of(pg::Connection& connection, const std::vector<std::string>& versions) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT coalesce(sum(octet_length(body)), 0)::bigint AS bytes FROM manifests"
                               " WHERE digest IN (SELECT jsonb_array_elements_text($1::jsonb))",
                               {Json(versions)}));
    return rows.integer(0, "bytes");
}

Result<std::int64_t> bytes_of_versions(pg::Connection& connection, const std::vector<std::string>& versions) {
    ATOLL_TRY(const auto rows, connection.query("SELECT coalesce(sum(size_bytes), 0)::bigint AS bytes FROM manifests"
                                                " WHERE digest IN (SELECT jsonb_array_elements_text($1::jsonb))",
                                                {Json(versions)}));
    return rows.integer(0, "bytes");
}

Result<std::int64_t> manifest_bytes_by(pg::Transaction& transaction, const std::string& subject) {
    ATOLL_TRY(const auto rows,
              transaction.query("SELECT coalesce(sum(greatest(octet_length(m.body), $2::int) +"
                                " octet_length(v.parents::text) + octet_length(v.metrics::text)), 0)::bigint AS bytes"
                                " FROM versions v JOIN manifests m USING (digest) WHERE v.created_by = $1",
                                {subject, kManifestCostMin}));
    return rows.integer(0, "bytes");
}

Result<bool> count_upload(pg::Connection& connection, const auth::TaskScope& scope, std::size_t bytes,
                          std::int64_t bytes_max) {
    ATOLL_TRY(const bool fits, add_to_upload(connection, scope, bytes, bytes_max));
    if (fits) return true;
    ATOLL_TRY(const bool is_recounted, count_uploads_anew(connection, scope.task));
    if (!is_recounted) return false;
    return add_to_upload(connection, scope, bytes, bytes_max);
}

Status uncount_upload(pg::Connection& connection, const auth::TaskScope& scope, std::size_t bytes) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("UPDATE uploads SET bytes = greatest(bytes - $3::bigint, 0) WHERE task = $1 AND attempt = $2",
                         {scope.task, scope.attempt, bytes}));
    return {};
}

Status delete_old_uploads(pg::Connection& connection) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("DELETE FROM uploads WHERE began_at < now() - interval '30 days'"
                         " AND NOT EXISTS (SELECT 1 FROM versions WHERE digest = uploads.version)"));
    ATOLL_RETURN_IF_ERROR(
        connection.query("DELETE FROM uploaded_blobs AS b WHERE at < now() - interval '30 days'"
                         " OR (at < now() - interval '1 day' AND EXISTS"
                         " (SELECT 1 FROM uploads WHERE task = b.task AND version IS NOT NULL))"));
    return {};
}

Status record_upload(pg::Connection& connection, const auth::TaskScope& scope, const std::string& blob,
                     std::size_t cost) {
    // One that was swept and comes again is counted for the attempt that sends it.
    ATOLL_RETURN_IF_ERROR(
        connection.query("INSERT INTO uploaded_blobs AS b (task, blob, attempt, bytes) VALUES ($1, $2, $3, $4)"
                         " ON CONFLICT (task, blob) DO UPDATE SET at = now(),"
                         " attempt = CASE WHEN excluded.bytes > 0 THEN excluded.attempt ELSE b.attempt END,"
                         " bytes = CASE WHEN excluded.bytes > 0 THEN excluded.bytes ELSE b.bytes END",
                         {scope.task, blob, scope.attempt, cost}));
    return {};
}

Result<std::set<std::string>> foreign_blobs(pg::Connection& connection, const auth::TaskScope& scope,
                                            const std::set<std::string>& blobs) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT value FROM jsonb_array_elements_text($1::jsonb) WHERE NOT EXISTS"
                               " (SELECT 1 FROM uploaded_blobs WHERE task = $2 AND blob = value) AND NOT EXISTS"
                               " (SELECT 1 FROM manifest_blobs WHERE blob = value AND manifest IN"
                               " (SELECT jsonb_array_elements_text($3::jsonb)))",
                               {Json(blobs), scope.task, Json(scope.read_versions)}));
    std::set<std::string> foreign;
    for (int row = 0; row < rows.size(); ++row) foreign.insert(rows.text(row, "value"));
    return foreign;
}

Result<Json> find_upload(pg::Connection& connection, const std::string& task, const std::string& attempt) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT version, bytes FROM uploads WHERE task = $1 AND attempt = $2", {task, attempt}));
    if (rows.empty()) return not_found("attempt " + attempt + " of task " + task + " has uploaded nothing", "attempt");
    Json upload = {{"task", task}, {"attempt", attempt}, {"version", nullptr}, {"bytes", rows.integer(0, "bytes")}};
    if (!rows.is_null(0, "version")) upload["version"] = rows.text(0, "version");
    return upload;
}

Result<bool> has_handed_in(pg::Connection& connection, const auth::TaskScope& scope, const std::string& digest) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT 1 FROM uploads WHERE task = $1 AND attempt = $2 AND version = $3",
                               {scope.task, scope.attempt, digest}));
    return !rows.empty();
}

Status record_submission(pg::Transaction& transaction, const auth::TaskScope& scope, const std::string& digest) {
    ATOLL_TRY(const auto noted,
              transaction.query("INSERT INTO uploads AS u (task, attempt, bytes, version) VALUES ($1, $2, 0, $3)"
                                " ON CONFLICT (task, attempt) DO UPDATE SET version = excluded.version"
                                " WHERE u.version IS NULL OR u.version = excluded.version",
                                {scope.task, scope.attempt, digest}));
    if (noted.affected() == 1) return {};
    return conflict("attempt " + scope.attempt + " of task " + scope.task + " has handed in another version",
                    "manifest");
}

Status lock_blobs_shared(pg::Transaction& transaction) {
    ATOLL_RETURN_IF_ERROR(transaction.query(std::string("SELECT pg_advisory_xact_lock_shared(") + kSweepLock + ")"));
    return {};
}

Status lock_blobs_alone(pg::Transaction& transaction) {
    ATOLL_RETURN_IF_ERROR(transaction.query(std::string("SELECT pg_advisory_xact_lock(") + kSweepLock + ")"));
    return {};
}

Result<std::vector<std::string>> unreferenced_blobs(pg::Transaction& transaction,
                                                    const std::vector<std::string>& blobs) {
    ATOLL_RETURN_IF_ERROR(lock_blobs_alone(transaction));
    ATOLL_TRY(const auto rows, transaction.query("SELECT value FROM jsonb_array_elements_text($1::jsonb)"
                                                 " WHERE NOT EXISTS (SELECT 1 FROM manifest_blobs WHERE blob = value)",
                                                 {Json(blobs)}));
    std::vector<std::string> unneeded;
    for (int row = 0; row < rows.size(); ++row) unneeded.push_back(rows.text(row, "value"));
    return unneeded;
}

Result<bool> is_update_of_others(pg::Connection& connection, const std::string& subject, const std::string& digest) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT 1 FROM versions v JOIN models m ON m.name = v.model WHERE v.digest = $1"
                               " HAVING bool_and(v.kind = 'update' AND (m.owner = '' OR m.owner <> $2))",
                               {digest, subject}));
    return !rows.empty();
}

Status require_readable_parents(pg::Connection& connection, const std::string& subject,
                                const std::vector<std::string>& parents) {
    for (std::size_t i = 0; i < parents.size(); ++i) {
        ATOLL_TRY(const bool is_of_others, is_update_of_others(connection, subject, parents[i]));
        if (is_of_others)
            return Error{ErrorCode::kPermissionDenied,
                         "version " + parents[i] + " is a site's update, which you may not read: name a global model",
                         "parents[" + std::to_string(i) + "]"};
    }
    return {};
}

Result<bool> may_see_blob(pg::Connection& connection, const std::string& subject, const std::string& blob) {
    ATOLL_TRY(const auto rows,
              connection.query(
                  "SELECT 1 WHERE EXISTS (SELECT 1 FROM manifest_blobs b JOIN versions v ON v.digest = b.manifest"
                  " JOIN models m ON m.name = v.model WHERE b.blob = $1"
                  " AND (v.kind <> 'update' AND NOT b.is_variate OR (m.owner <> '' AND m.owner = $2)))"
                  " OR EXISTS (SELECT 1 FROM operator_blobs WHERE blob = $1 AND subject = $2)",
                  {blob, subject}));
    return !rows.empty();
}

Result<std::set<std::string>> blobs_of_others(pg::Connection& connection, const std::string& subject,
                                              const std::set<std::string>& blobs) {
    ATOLL_TRY(
        const auto rows,
        connection.query("SELECT value FROM jsonb_array_elements_text($1::jsonb)"
                         " WHERE EXISTS (SELECT 1 FROM manifest_blobs WHERE blob = value)"
                         " AND NOT EXISTS (SELECT 1 FROM manifest_blobs b JOIN versions v ON v.digest = b.manifest"
                         " JOIN models m ON m.name = v.model WHERE b.blob = value"
                         " AND (v.kind <> 'update' AND NOT b.is_variate OR (m.owner <> '' AND m.owner = $2)))"
                         " AND NOT EXISTS (SELECT 1 FROM operator_blobs WHERE blob = value AND subject = $2)",
                         {Json(blobs), subject}));
    std::set<std::string> of_others;
    for (int row = 0; row < rows.size(); ++row) of_others.insert(rows.text(row, "value"));
    return of_others;
}

Result<bool> is_update_of_round(pg::Connection& connection, const auth::TaskScope& scope, const std::string& digest) {
    ATOLL_TRY(const auto rows, connection.query("SELECT 1 FROM round_versions WHERE job = $1 AND round = $2"
                                                " AND kind = 'update' AND digest = $3 LIMIT 1",
                                                {scope.job, scope.round, digest}));
    return !rows.empty();
}

Result<bool> reads_blob(pg::Connection& connection, const auth::TaskScope& scope, const std::string& blob) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT 1 FROM manifest_blobs WHERE blob = $1 AND (manifest IN"
                               " (SELECT jsonb_array_elements_text($2::jsonb)) OR ($3 AND EXISTS"
                               " (SELECT 1 FROM round_versions WHERE job = $4 AND round = $5"
                               " AND kind = 'update' AND digest = manifest))) LIMIT 1",
                               {blob, Json(scope.read_versions), scope.read_updates, scope.job, scope.round}));
    return !rows.empty();
}

}  // namespace atl::store
