#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/store/db/repository.h"

// What of the versions somebody needs, and the removal of others: SQL. The bytes go with the next sweep.
namespace atl::store {

// Records that a site's token has read a version, or a job is about to: it is needed for a while.
Status record_reading(pg::Transaction& transaction, const std::string& digest);

// kNotFound; kConflict names what needs it: a tag, a version that has it as its base, a site that has read it in the
// last seven days, or its job, whose newest model it is. A digest that another model has too is needed by tags alone.
Status delete_version(pg::Transaction& transaction, const std::string& model, const std::string& digest);
// The model with its versions; the same of any of them, but that a job's newest goes, too.
Status delete_model(pg::Transaction& transaction, const std::string& model);
Status delete_tag(pg::Transaction& transaction, const std::string& model, const std::string& tag);

// Which models are pruned.
struct PruneScope {
    std::string model = {};  // empty: all
    std::string owner = {};  // empty: of everybody
};

// Updates and optimizer states of rounds before the newest `rounds` of their job, those that nothing needs, oldest
// first: {"model","digest","kind","job","round","size"} each.
Result<std::vector<Json>> outdated_versions(pg::Connection& connection, std::int64_t rounds, const PruneScope& scope,
                                            std::int64_t count_max);
// Removes versions of outdated_versions(), in whose transaction it must be.
Status delete_versions(pg::Transaction& transaction, const std::vector<Json>& versions);

// Blobs whose bytes have changed on the disk: {"sha256","found_at","versions":[{"model","digest"}]} each.
Result<Json> list_damaged(pg::Connection& connection);
Result<std::vector<std::string>> damaged_blobs(pg::Connection& connection);
// Puts it on the list, and says which versions it hits, as "MODEL@DIGEST".
Result<std::vector<std::string>> add_damaged(pg::Connection& connection, const std::string& blob);
Status remove_damaged(pg::Connection& connection, const std::string& blob);

// The directory of blobs that was looked through last, "ab/cd"; empty: none.
Result<std::string> last_scrubbed(pg::Connection& connection);
Status set_last_scrubbed(pg::Connection& connection, const std::string& directory);

}  // namespace atl::store
