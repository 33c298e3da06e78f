#include "services/registry/db/repository.h"

#include <nlohmann/json.hpp>

namespace atl::registry {
namespace {

const std::string kSelectDataset =
    "SELECT d.*, coalesce((SELECT max(version) FROM dataset_versions v WHERE v.dataset = d.name), 0) AS latest, "
    "json_build_object('name', name, 'language', language, 'license', license, 'description', description, "
    "'template', template, 'source', source, 'latest_version', "
    "(SELECT max(version) FROM dataset_versions v WHERE v.dataset = d.name), 'created_by', created_by, "
    "'created_at', " +
    pg::rfc3339("created_at") + ", 'updated_at', " + pg::rfc3339("updated_at") + ") AS shown FROM datasets d ";

const std::string kSelectVersion =
    "SELECT json_build_object('dataset', dataset, 'version', version, 'tokenizer_sha256', tokenizer_sha256, "
    "'tokenizer', tokenizer, 'tokenizer_reader', tokenizer_reader, "
    "'seq_len', seq_len, 'batching', batching, "
    "'train', json_build_object('documents', train_documents, 'rows', train_rows, 'tokens', train_tokens), "
    "'validation', json_build_object('documents', validation_documents, 'rows', validation_rows, 'tokens', "
    "validation_tokens), 'fingerprint', fingerprint, 'statistics', statistics, 'created_by', created_by, "
    "'created_at', " +
    pg::rfc3339("created_at") + ") AS shown FROM dataset_versions ";

const std::string kSelectCopy =
    "SELECT json_build_object('dataset', dataset, 'version', version, 'facility', facility, 'path', path, "
    "'updated_by', updated_by, 'updated_at', " +
    pg::rfc3339("updated_at") + ") AS shown FROM copies ";

// The fingerprints that data had which were prepared with just these files ($2) by that reader ($3; 0: any).
const std::string kSelectKnown =
    "SELECT DISTINCT tokenizer_sha256 FROM dataset_versions WHERE tokenizer->'vocabulary' = $2::jsonb->'vocabulary' "
    "AND tokenizer->'settings' = $2::jsonb->'settings' AND $3::integer IN (0, tokenizer_reader)";

// Whether a version `v` was prepared with that tokenizer; NULL: not known. Another vocabulary file is another
// tokenizer; the same with other settings beside it may be the same. A fingerprint stands for the reader, too.
const std::string kFits =
    "CASE WHEN jsonb_typeof($2::jsonb) = 'null' THEN NULL "
    "WHEN v.tokenizer_sha256 IN (SELECT tokenizer_sha256 FROM known) THEN true "
    "WHEN $3::integer NOT IN (0, v.tokenizer_reader) OR EXISTS (SELECT FROM known) THEN false "
    "WHEN v.tokenizer IS NULL OR EXISTS (SELECT FROM jsonb_each(v.tokenizer->'vocabulary') a JOIN "
    "jsonb_each($2::jsonb->'vocabulary') b ON a.key = b.key AND a.value = b.value) THEN NULL "
    "ELSE false END";

std::vector<json::Json> shown_rows(const pg::Rows& rows) {
    std::vector<json::Json> items;
    for (int row = 0; row < rows.size(); ++row) items.push_back(rows.json(row, "shown"));
    return items;
}

// The copies of which `condition` is true, which are forgotten.
Result<std::vector<json::Json>> take_copies(pg::Transaction& transaction, const std::string& condition,
                                            const std::vector<pg::Param>& params) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(kSelectCopy + "WHERE " + condition + " ORDER BY version, facility", params));
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM copies WHERE " + condition, params));
    return shown_rows(rows);
}

json::Json shown_dataset(const pg::Rows& rows, int row) {
    json::Json shown = rows.json(row, "shown");
    shown["fields"] = fields_of(rows.text(row, "template"));
    return shown;
}

Error no_version(const std::string& dataset, std::int64_t version) {
    return not_found("the dataset " + dataset + " has no version " + std::to_string(version), "version");
}

}  // namespace

Result<Registered> registered_by(pg::Transaction& transaction, const std::string& subject) {
    ATOLL_TRY(
        const pg::Rows rows,
        transaction.query("SELECT (SELECT count(*) FROM datasets WHERE created_by = $1) AS datasets, count(v.*) AS "
                          "versions, coalesce(sum(pg_column_size(v.statistics)), 0) + (SELECT "
                          "coalesce(sum(octet_length(description) + octet_length(template) + "
                          "octet_length(source)), 0) FROM datasets WHERE created_by = $1) AS bytes FROM "
                          "dataset_versions v JOIN datasets d ON d.name = v.dataset WHERE d.created_by = $1",
                          {subject}));
    return Registered{rows.integer(0, "datasets"), rows.integer(0, "versions"), rows.integer(0, "bytes")};
}

Status insert_dataset(pg::Transaction& transaction, const DatasetSpec& spec, const std::string& subject) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("INSERT INTO datasets (name, language, license, description, template, source, "
                                "created_by) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
                                {spec.name, spec.language, spec.license, spec.description, spec.template_text,
                                 spec.source, subject}));
    if (rows.affected() == 0) return conflict("there is a dataset " + spec.name + " already", "name");
    return {};
}

Result<StoredDataset> find_dataset(pg::Transaction& transaction, const std::string& name, bool for_update) {
    // The lock is a statement of its own: the next one then sees what the lock's last holder committed.
    if (for_update) ATOLL_RETURN_IF_ERROR(transaction.query("SELECT FROM datasets WHERE name = $1 FOR UPDATE", {name}));
    ATOLL_TRY(const pg::Rows rows, transaction.query(kSelectDataset + "WHERE name = $1", {name}));
    if (rows.empty()) return not_found("there is no dataset " + name, "dataset");
    StoredDataset dataset;
    dataset.spec = {.name = name,
                    .language = rows.text(0, "language"),
                    .license = rows.text(0, "license"),
                    .description = rows.text(0, "description"),
                    .template_text = rows.text(0, "template"),
                    .source = rows.text(0, "source")};
    dataset.revision = rows.integer(0, "revision");
    dataset.latest_version = rows.integer(0, "latest");
    dataset.versions_made = rows.integer(0, "versions_made");
    dataset.created_by = rows.text(0, "created_by");
    dataset.shown = shown_dataset(rows, 0);
    return dataset;
}

Status update_dataset(pg::Transaction& transaction, const DatasetSpec& spec) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "UPDATE datasets SET language = $2, license = $3, description = $4, template = $5, source = $6, "
        "revision = revision + 1, updated_at = now() WHERE name = $1",
        {spec.name, spec.language, spec.license, spec.description, spec.template_text, spec.source}));
    return {};
}

Result<std::vector<json::Json>> list_datasets(pg::Transaction& transaction, const http::Page& page) {
    ATOLL_TRY(const pg::Rows rows, transaction.query(kSelectDataset + "WHERE name > $1 ORDER BY name LIMIT $2",
                                                     {page.after, page.limit + 1}));
    std::vector<json::Json> items;
    for (int row = 0; row < rows.size(); ++row) items.push_back(shown_dataset(rows, row));
    return items;
}

Status insert_version(pg::Transaction& transaction, const std::string& dataset, std::int64_t version,
                      const VersionSpec& spec, const std::string& subject) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "UPDATE datasets SET revision = revision + 1, versions_made = $2 WHERE name = $1", {dataset, version}));
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "INSERT INTO dataset_versions (dataset, version, tokenizer_sha256, seq_len, batching, train_documents, "
        "train_rows, train_tokens, validation_documents, validation_rows, validation_tokens, fingerprint, statistics, "
        "created_by, tokenizer, tokenizer_reader) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
        "nullif($15, 'null')::jsonb, $16)",
        {dataset, version, spec.tokenizer_sha256, spec.seq_len, spec.batching, spec.train.documents, spec.train.rows,
         spec.train.tokens, spec.validation.documents, spec.validation.rows, spec.validation.tokens, spec.fingerprint,
         spec.statistics, subject, spec.tokenizer, spec.tokenizer_reader}));
    return {};
}

Result<json::Json> find_version(pg::Transaction& transaction, const std::string& dataset, std::int64_t version) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(kSelectVersion + "WHERE dataset = $1 AND version = $2", {dataset, version}));
    if (rows.empty()) return no_version(dataset, version);
    return rows.json(0, "shown");
}

Result<json::Json> find_same_version(pg::Transaction& transaction, const std::string& dataset,
                                     const VersionSpec& spec) {
    // What was registered without its reader is told it: the tokenizer's fingerprint stands for the reader, too.
    ATOLL_RETURN_IF_ERROR(
        transaction.query("UPDATE dataset_versions SET tokenizer_reader = $4 WHERE dataset = $1 AND fingerprint = $2 "
                          "AND tokenizer_sha256 = $3 AND tokenizer_reader = 0",
                          {dataset, spec.fingerprint, spec.tokenizer_sha256, spec.tokenizer_reader}));
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(kSelectVersion + "WHERE dataset = $1 AND fingerprint = $2 AND tokenizer_sha256 = $3",
                                {dataset, spec.fingerprint, spec.tokenizer_sha256}));
    return rows.empty() ? json::Json() : rows.json(0, "shown");
}

Result<std::vector<json::Json>> list_versions(pg::Transaction& transaction, const std::string& dataset,
                                              const std::string& facility, std::int64_t after, std::int64_t limit) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(
                  kSelectVersion + "WHERE dataset = $1 AND version > $2 AND ($4 = '' OR EXISTS (SELECT 1 FROM copies c "
                                   "WHERE c.dataset = dataset_versions.dataset AND c.version = "
                                   "dataset_versions.version AND c.facility = $4)) ORDER BY version LIMIT $3",
                  {dataset, after, limit + 1, facility}));
    return shown_rows(rows);
}

Result<bool> put_copy(pg::Transaction& transaction, const std::string& dataset, std::int64_t version,
                      const std::string& facility, const std::string& path, const std::string& subject) {
    // xmax is 0 in a row that was inserted rather than updated.
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("INSERT INTO copies (dataset, version, facility, path, updated_by) "
                                "SELECT dataset, version, $3, $4, $5 FROM dataset_versions "
                                "WHERE dataset = $1 AND version = $2 "
                                "ON CONFLICT (dataset, version, facility) DO UPDATE SET path = excluded.path, "
                                "updated_by = excluded.updated_by, updated_at = now() "
                                "RETURNING xmax = 0 AS inserted",
                                {dataset, version, facility, path, subject}));
    if (rows.empty()) return no_version(dataset, version);
    return rows.boolean(0, "inserted");
}

Result<json::Json> find_copy(pg::Transaction& transaction, const std::string& dataset, std::int64_t version,
                             const std::string& facility) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(kSelectCopy + "WHERE dataset = $1 AND version = $2 AND facility = $3",
                                {dataset, version, facility}));
    if (rows.empty())
        return not_found(facility + " has no copy of version " + std::to_string(version) + " of " + dataset,
                         "facility");
    return rows.json(0, "shown");
}

Result<std::vector<json::Json>> find_copies(pg::Transaction& transaction, const WantedCopies& wanted) {
    json::Json list = json::Json::array();
    for (const WantedCopy& copy : wanted.copies)
        list.push_back({{"dataset", copy.dataset}, {"facility", copy.facility}, {"version", copy.version}});
    ATOLL_TRY(
        const pg::Rows rows,
        transaction.query(
            "WITH known AS (" + kSelectKnown + "), fitting AS (SELECT v.*, " + kFits +
                " AS fits FROM dataset_versions v) "
                "SELECT found.shown FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS wanted (copy, "
                "position) "
                "LEFT JOIN LATERAL (SELECT json_build_object('dataset', c.dataset, 'version', c.version, "
                "'facility', c.facility, 'path', c.path, 'seq_len', v.seq_len, 'train', "
                "json_build_object('documents', v.train_documents, 'rows', v.train_rows, 'tokens', "
                "v.train_tokens), 'validation', json_build_object('documents', v.validation_documents, 'rows', "
                "v.validation_rows, 'tokens', v.validation_tokens), 'tokenizer', CASE WHEN v.tokenizer IS NOT "
                "NULL THEN json_build_object('model', v.tokenizer->'model', 'version', v.tokenizer->'version') "
                "END, 'tokenizer_reader', v.tokenizer_reader, 'fits', v.fits, 'fingerprint', v.fingerprint) AS shown "
                "FROM copies c JOIN fitting v ON v.dataset = c.dataset AND v.version = c.version "
                "WHERE c.dataset = wanted.copy->>'dataset' AND c.facility = wanted.copy->>'facility' AND "
                "(wanted.copy->>'version')::integer IN (0, c.version) "
                "ORDER BY CASE WHEN v.fits THEN 2 WHEN v.fits IS NULL THEN 1 ELSE 0 END DESC, c.version DESC "
                "LIMIT 1) found ON true ORDER BY wanted.position",
            {list, wanted.tokenizer, wanted.tokenizer_reader}));
    return shown_rows(rows);
}

Result<std::vector<json::Json>> list_copies(pg::Transaction& transaction, const std::string& dataset,
                                            std::int64_t version, const http::Page& page) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(kSelectCopy + "WHERE dataset = $1 AND version = $2 AND facility > $3 "
                                              "ORDER BY facility LIMIT $4",
                                {dataset, version, page.after, page.limit + 1}));
    return shown_rows(rows);
}

Result<std::vector<json::Json>> delete_dataset(pg::Transaction& transaction, const std::string& dataset) {
    // Whoever adds a copy waits at its version's row, and then finds none.
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT 1 FROM dataset_versions WHERE dataset = $1 ORDER BY version FOR UPDATE", {dataset}));
    ATOLL_TRY(auto copies, take_copies(transaction, "dataset = $1", {dataset}));
    for (const char* rows : {"dataset_versions WHERE dataset", "datasets WHERE name"})
        ATOLL_RETURN_IF_ERROR(transaction.query(std::string("DELETE FROM ") + rows + " = $1", {dataset}));
    return copies;
}

Result<std::vector<json::Json>> delete_version(pg::Transaction& transaction, const std::string& dataset,
                                               std::int64_t version) {
    ATOLL_TRY(const pg::Rows known,
              transaction.query("SELECT 1 FROM dataset_versions WHERE dataset = $1 AND version = $2 FOR UPDATE",
                                {dataset, version}));
    if (known.empty()) return no_version(dataset, version);
    ATOLL_TRY(auto copies, take_copies(transaction, "dataset = $1 AND version = $2", {dataset, version}));
    ATOLL_RETURN_IF_ERROR(
        transaction.query("DELETE FROM dataset_versions WHERE dataset = $1 AND version = $2", {dataset, version}));
    ATOLL_RETURN_IF_ERROR(transaction.query("UPDATE datasets SET revision = revision + 1 WHERE name = $1", {dataset}));
    return copies;
}

Result<std::vector<json::Json>> delete_copy(pg::Transaction& transaction, const std::string& dataset,
                                            std::int64_t version, const std::string& facility) {
    ATOLL_RETURN_IF_ERROR(find_copy(transaction, dataset, version, facility));
    return take_copies(transaction, "dataset = $1 AND version = $2 AND facility = $3", {dataset, version, facility});
}

}  // namespace atl::registry
