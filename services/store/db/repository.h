#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/store/domain/version.h"
#include "shared/http/message.h"
#include "shared/pg/pg.h"

// The store's SQL. Each function runs in the caller's connection or transaction; answers are the JSON of the API.
namespace atl::store {

using json::Json;

// kConflict (field "name") if there is a model of that name.
Result<Json> insert_model(pg::Transaction& transaction, const NewModel& model, const std::string& subject);
// Its owner is `model.owner`, also an empty one. False, and nothing is changed, if there is a model of that name.
Result<bool> ensure_model(pg::Transaction& transaction, const NewModel& model, const std::string& subject);
// Those of this transaction are among them.
Result<std::int64_t> count_models_of(pg::Transaction& transaction, const std::string& owner);
Result<std::int64_t> count_tags_of(pg::Transaction& transaction, const std::string& model);
Result<Json> find_model(pg::Connection& connection, const std::string& name);
// Up to page.limit + 1 models, by name.
Result<std::vector<Json>> list_models(pg::Connection& connection, const http::Page& page);

// A manifest may have megabytes: it stays the text that it is kept as.
struct StoredVersion {
    Json version;          // without its manifest
    std::string manifest;  // its canonical JSON
};
struct InsertedVersion {
    Json version;  // without its manifest
    bool is_new = false;
};
// kNotFound if there is no such model; kInvalidArgument naming a parent that no model has. The same digest again
// gives the version as it was first made.
Result<InsertedVersion> insert_version(pg::Transaction& transaction, const std::string& model,
                                       const NewVersion& version, const std::string& subject);
// kInvalidArgument: a contribution is of a version that the model does not have. It was made anew since its updates
// came.
Status require_contributions_in(pg::Transaction& transaction, const std::string& model, const Json& contributions);
Result<bool> has_version(pg::Connection& connection, const std::string& model, const std::string& digest);
// By digest, by tag, or by what resolve_version() takes (version_names.h); a tag of such a name goes first.
Result<StoredVersion> find_version(pg::Connection& connection, const std::string& model, const std::string& reference);
// The oldest version of that digest, of any model.
Result<StoredVersion> find_version_anywhere(pg::Connection& connection, const std::string& digest);
// Up to page.limit + 1 versions, by their "sequence", which each has as another member. Those of a round are as it made
// them: with its kind, parents, job, round and contributions.
Result<std::vector<Json>> list_versions(pg::Connection& connection, const std::string& model,
                                        const VersionFilter& filter, const http::Page& page);

// {"model","tag","digest","updated_at"}; kNotFound if the model has no such version, kConflict that names "tag" if the
// tag is on another and does not move. Of two at once one sees what the other has done.
Result<Json> put_tag(pg::Transaction& transaction, const std::string& model, const std::string& tag,
                     const TagTarget& target, const std::string& subject);

// The bytes of these versions' manifests, as canonical JSON, together.
Result<std::int64_t> manifest_bytes_of(pg::Connection& connection, const std::vector<std::string>& versions);
// What this subject's versions take of a quota, those of this transaction too: manifests, parents and metrics.
Result<std::int64_t> manifest_bytes_by(pg::Transaction& transaction, const std::string& subject);
// The sizes of these versions together.
Result<std::int64_t> bytes_of_versions(pg::Connection& connection, const std::vector<std::string>& versions);
// Counts an upload of one attempt; false, and nothing is counted, if it would then have uploaded more than `bytes_max`,
// or the task's other attempts have uploaded three times that. The count is an upper bound, made exact when it reaches
// the quota.
Result<bool> count_upload(pg::Connection& connection, const auth::TaskScope& scope, std::size_t bytes,
                          std::int64_t bytes_max);
// Takes back what count_upload() counted: nothing was kept.
Status uncount_upload(pg::Connection& connection, const auth::TaskScope& scope, std::size_t bytes);
// Notes that a task has sent these bytes, whoever sent them first: its versions may name them. `cost`: what they take
// of the attempt's quota; 0: they were there.
Status record_upload(pg::Connection& connection, const auth::TaskScope& scope, const std::string& blob,
                     std::size_t cost);
// Which of these blobs the token may know nothing of: neither versions that it reads have them, nor has its task sent
// them.
Result<std::set<std::string>> foreign_blobs(pg::Connection& connection, const auth::TaskScope& scope,
                                            const std::set<std::string>& blobs);
// Forgets what attempts have uploaded and not handed in for a month: no round trains that long. Who handed in a version
// is known as long as the version is there.
Status delete_old_uploads(pg::Connection& connection);
// {"task","attempt","version","bytes"}; kNotFound if the attempt has uploaded nothing.
Result<Json> find_upload(pg::Connection& connection, const std::string& task, const std::string& attempt);

// Whether this attempt has handed in that version.
Result<bool> has_handed_in(pg::Connection& connection, const auth::TaskScope& scope, const std::string& digest);
// Notes which version an attempt hands in. kConflict: it has handed in another, and may have only one.
Status record_submission(pg::Transaction& transaction, const auth::TaskScope& scope, const std::string& digest);

// Held to the end of the transaction by who makes a version, from looking for its blobs on: none of them goes then.
Status lock_blobs_shared(pg::Transaction& transaction);
// Held by who removes a version or a blob: nobody makes a version until the end of the transaction.
Status lock_blobs_alone(pg::Transaction& transaction);
// Which of these blobs no version needs, with nobody making one until the end of the transaction.
Result<std::vector<std::string>> unreferenced_blobs(pg::Transaction& transaction,
                                                    const std::vector<std::string>& blobs);

// Whether the version is a site's update and nothing else, of models that belong to others than `subject`: it tells of
// that site's texts. False, too, if there is no such version.
Result<bool> is_update_of_others(pg::Connection& connection, const std::string& subject, const std::string& digest);
// kPermissionDenied that names a parent that is such an update.
Status require_readable_parents(pg::Connection& connection, const std::string& subject,
                                const std::vector<std::string>& parents);
// Whether a version needs the blob that is not such an update, or `subject` has sent it.
Result<bool> may_see_blob(pg::Connection& connection, const std::string& subject, const std::string& blob);
// Which of these blobs only such updates have, and `subject` has not sent: who names one has it from there.
Result<std::set<std::string>> blobs_of_others(pg::Connection& connection, const std::string& subject,
                                              const std::set<std::string>& blobs);
// Whether the version is an update of the round that the token is of.
Result<bool> is_update_of_round(pg::Connection& connection, const auth::TaskScope& scope, const std::string& digest);
// Whether a version that the token reads needs the blob.
Result<bool> reads_blob(pg::Connection& connection, const auth::TaskScope& scope, const std::string& blob);

}  // namespace atl::store
