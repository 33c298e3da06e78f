#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/registry/domain/dataset.h"
#include "shared/http/message.h"
#include "shared/pg/pg.h"

// The registry's tables. Functions take the caller's transaction; what they return as JSON is what the API shows.
namespace atl::registry {

struct StoredDataset {
    DatasetSpec spec;
    std::int64_t revision = 0;
    std::int64_t latest_version = 0;  // 0: none
    std::int64_t versions_made = 0;   // the next one's number is one more
    std::string created_by;
    json::Json shown;
};

// How much an operator has registered. Bytes are those of texts and statistics.
struct Registered {
    std::int64_t datasets = 0;
    std::int64_t versions = 0;
    std::int64_t bytes = 0;
};
Result<Registered> registered_by(pg::Transaction& transaction, const std::string& subject);

// kConflict: a dataset of that name exists.
Status insert_dataset(pg::Transaction& transaction, const DatasetSpec& spec, const std::string& subject);
// kNotFound. Locked until the transaction's end with `for_update`.
Result<StoredDataset> find_dataset(pg::Transaction& transaction, const std::string& name, bool for_update = false);
Status update_dataset(pg::Transaction& transaction, const DatasetSpec& spec);
// Up to page.limit + 1, by name; so are the other lists, by number and by facility.
Result<std::vector<json::Json>> list_datasets(pg::Transaction& transaction, const http::Page& page);

// The dataset must be locked. Its revision grows: it shows its latest version.
Status insert_version(pg::Transaction& transaction, const std::string& dataset, std::int64_t version,
                      const VersionSpec& spec, const std::string& subject);
Result<json::Json> find_version(pg::Transaction& transaction, const std::string& dataset, std::int64_t version);
// The version of the same data by the same tokenizer; null: none has their fingerprints. Where its tokenizer's reader
// is not known, that of `spec` is kept.
Result<json::Json> find_same_version(pg::Transaction& transaction, const std::string& dataset, const VersionSpec& spec);
// Only those that `facility` holds a copy of, unless it is empty.
Result<std::vector<json::Json>> list_versions(pg::Transaction& transaction, const std::string& dataset,
                                              const std::string& facility, std::int64_t after, std::int64_t limit);

// True when the facility had no copy yet. kNotFound: no such version.
Result<bool> put_copy(pg::Transaction& transaction, const std::string& dataset, std::int64_t version,
                      const std::string& facility, const std::string& path, const std::string& subject);
Result<json::Json> find_copy(pg::Transaction& transaction, const std::string& dataset, std::int64_t version,
                             const std::string& facility);
// One item for each that is wanted, in their order, with what a training needs to know of the version; null: the
// facility holds none such.
Result<std::vector<json::Json>> find_copies(pg::Transaction& transaction, const WantedCopies& wanted);
Result<std::vector<json::Json>> list_copies(pg::Transaction& transaction, const std::string& dataset,
                                            std::int64_t version, const http::Page& page);

// What goes for good, with the copies that the registry knew of it: the bytes stay at the facilities, and no job needs
// any of this after its submission. kNotFound. The dataset must be locked.
Result<std::vector<json::Json>> delete_dataset(pg::Transaction& transaction, const std::string& dataset);
Result<std::vector<json::Json>> delete_version(pg::Transaction& transaction, const std::string& dataset,
                                               std::int64_t version);
Result<std::vector<json::Json>> delete_copy(pg::Transaction& transaction, const std::string& dataset,
                                            std::int64_t version, const std::string& facility);

}  // namespace atl::registry
