#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/base/result.h"
#include "shared/store_client/manifest.h"

// What the store's requests mean and who may make them: pure functions, no database, no disk.
namespace atl::store {

struct NewModel {
    std::string name;
    std::string description;
    std::string owner = {};  // the subject who may change it; empty: who makes it
};

// kAdapter: a LoRA adapter that somebody brings, or that a job begins with; its one parent is the model that it belongs
// to. The updates and global models that come from it are adapters too.
enum class Kind { kBase, kUpdate, kGlobal, kOptimizerState, kAdapter };
const char* to_string(Kind kind);

// Which versions of a model are listed.
struct VersionFilter {
    std::string kind;  // empty: all
    std::string job;   // empty: of all; else those that this round of the job has made
    std::int64_t round = 0;
};
// From a list's query, "" what is not there. kInvalidArgument names what is wrong.
Result<VersionFilter> parse_version_filter(const std::string& kind, const std::string& job, const std::string& round);

struct NewVersion {
    store_client::Manifest manifest;
    std::string digest;  // of the manifest
    Kind kind = Kind::kBase;
    std::vector<std::string> parents;       // version digests
    std::optional<std::string> adapter_of;  // the model that an adapter, or an update of one, belongs to
    std::optional<std::string> job;
    std::optional<std::int64_t> round;
    nlohmann::json contributions;  // [{"facility","version","weight","samples","tokens"[,"norm"]}]
    nlohmann::json metrics;        // an object, as given
    // The model's description, if the model is to be made with this version should there be none of that name.
    std::optional<std::string> new_model;
};

// kInvalidArgument naming the field.
Result<NewModel> parse_new_model(const nlohmann::json& body);
Result<NewVersion> parse_new_version(const nlohmann::json& body);
struct TagTarget {
    std::string digest;
    bool moves = true;  // a tag that is on another version
};
Result<TagTarget> parse_tag_target(const nlohmann::json& body);                  // {"digest", "move"?}
Result<std::vector<std::string>> parse_digest_list(const nlohmann::json& body);  // {"digests": at most 4096}

// {"model", "dry_run", "keep_updates_rounds", "unused_blob_hours"}, all optional; what is not there is the setting's.
struct PruneOrder {
    std::string model;  // empty: all
    bool dry_run = false;
    std::optional<std::int64_t> keep_updates_rounds;
    std::optional<std::int64_t> unused_blob_hours;
};
Result<PruneOrder> parse_prune_order(const nlohmann::json& body);

// Admins and services. A person reads all but others' updates, which the database knows (is_update_of_others()).
bool reads_everything(const auth::Principal& principal);
// An operator who is none of the services: one who has quotas.
bool is_person(const auth::Principal& principal);
// As far as the token says it: a facility's reads its scope's read_versions, and what is_update_of_round() where it
// reads its round's updates.
Status may_read_version(const auth::Principal& principal, const std::string& digest);
// A facility stores blobs only for an update that it is to hand in.
Status may_write_blobs(const auth::Principal& principal);
// Bytes that one attempt may upload, when its token reads versions of so many: room for wider types and repeats.
std::int64_t upload_quota(std::int64_t readable_bytes);
// Bytes that the description of its update may take, when its base's manifest has so many: room for four times the
// chunks, and for metrics.
std::int64_t update_body_bytes_max(std::int64_t base_manifest_bytes);
// kPermissionDenied for what this writer may not say of a version: a facility makes only updates of its own model, and
// only aggregation (or an admin) global models, optimizer states, and versions that name a job and a round. Whose the
// model is must be checked beside it.
Status may_write_version(const auth::Principal& principal, const std::string& model, const NewVersion& version);
// A model belongs to whoever makes it; only dispatch, for the owner of a job, and admins name another owner.
Status may_name_owner(const auth::Principal& principal, const NewModel& model);
// The version that an update of this token is trained from: the first that it reads. Behind an adapter stands the model
// that it belongs to. Empty: the token reads none.
std::string base_of_update(const auth::TaskScope& scope);
// An update has its job, its round and its one parent, the base, from the token that hands it in. kInvalidArgument
// names what the body says otherwise; kPermissionDenied: the token reads no base, or more than one and its model.
Status take_origin(const auth::TaskScope& scope, NewVersion& version);
// kInvalidArgument: the files are many times as large as what is kept of them, the same blobs over and over. Whoever
// fetches the version would have to keep it whole.
Status check_repeats(const store_client::Manifest& manifest);
std::set<std::string> blobs_of(const store_client::Manifest& manifest);

}  // namespace atl::store
