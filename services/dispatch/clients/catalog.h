#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/dispatch/domain/job_spec.h"
#include "shared/adapter/initial_adapter.h"
#include "shared/auth/auth.h"
#include "shared/http/client/client.h"
#include "shared/model_config/model_config.h"
#include "shared/safetensors/safetensors.h"
#include "shared/store_client/manifest.h"

namespace atl::dispatch {

struct DatasetInfo {
    std::string name;
    std::string prompt_template;
    std::string owner;  // who registered it: they and admins change it
    // What its versions depend on, and what tells it from a later one of its name: {created_by, created_at, language,
    // template}.
    json::Json identity;
};

// Where a job's training or evaluation finds its data. `path` is the field to name: "participants[0]".
struct NamedCopy {
    DatasetCopy* data = nullptr;
    std::string path;
    // As resolve() finds it.
    Status found = {};                  // why the facility holds no such copy
    std::optional<bool> fits = {};      // it was prepared with the tokenizer that was asked for; none: not known
    std::string prepared_with = {};     // the model whose tokenizer that was, "llama@57e7f10e"; empty: not known
    std::int64_t tokenizer_reader = 0;  // of the trainer that prepared it (prompt::kTokenizerReader); 0: not known
    std::int64_t train_tokens = 0;
};

// What a job needs to know of the model that it trains, or trains adapters of.
struct BaseModel {
    std::uint64_t bytes = 0;          // of all its files
    std::uint64_t weight_bytes = 0;   // of its safetensors files
    json::Json tokenizer;             // tokenizer_files()
    std::string adapter_of;           // of an adapter: the digest of the model that it belongs to
    bool is_change = false;           // it is no model but the change of one: an update of update_format int8 or int4
    std::string ignored_tensor;       // of its weights, one that no update of it would have; empty: none
    std::uint64_t adapter_bytes = 0;  // of the adapter that a job trains on this model; 0: it trains the weights
    std::uint64_t adapter_parameters = 0;  // the same, whatever its dtype
    // Of config.json. An error: it has none, or one that the trainer cannot read.
    Result<model_config::ModelConfig> config = Error{};
    Status refusal = {};  // an error: no job with these settings starts from it; then nothing else is known
};

// The registry, the store and aggregation as dispatch asks them, by their REST APIs over connections that stay open and
// with a token of its own, good for some minutes. Thread-safe.
class Catalog {
  public:
    // aggregation_url empty: that is not asked.
    Catalog(std::string registry_url, std::string store_url, auth::Issuer issuer, std::string aggregation_url = {});

    // The digest of a model's version, named by digest or tag, that `reader` may send to a site: an
    // update is its model's owner's, and so is what holds control variates. kInvalidArgument and kPermissionDenied name
    // "<path>.<name_key>" or "<path>.version".
    Result<std::string> model_digest(const std::string& model, const std::string& version, const std::string& path,
                                     const std::string& name_key, const auth::Principal& reader) const;
    // kInvalidArgument that names `field`: the model holds versions that somebody imported or pushed as a base, among
    // which a job's updates and global models would get lost.
    Status require_no_base(const std::string& model, const std::string& field) const;
    // Who may change that model; nothing: there is no such model. Empty: admins alone.
    Result<std::optional<std::string>> model_owner(const std::string& model) const;
    // kConflict: the model of that name is somebody else's. Where there is none it is made for the owner.
    Status require_model_of(const std::string& model, const std::string& owner) const;
    // Makes the model for its owner. False: there is one of that name, which stays as it is.
    Result<bool> make_model(const std::string& model, const std::string& owner) const;
    Result<DatasetInfo> dataset(const std::string& name, const std::string& field) const;
    // Has the store keep the version for a week, as if a site had fetched it. False: there is none of that digest.
    Result<bool> hold_version(const std::string& digest) const;
    // What the store knows of a version of that model. kNotFound: the model has none of that digest.
    Result<json::Json> model_version(const std::string& model, const std::string& digest) const;
    // The same of a version of any model. kNotFound: there is none of that digest.
    Result<json::Json> version(const std::string& digest) const;
    // The global model of that digest as this round of the job has made it, without its manifest; null: the store has
    // none.
    Result<json::Json> global_of_round(const std::string& model, const std::string& job, std::int64_t round,
                                       const std::string& digest) const;
    // The version that an attempt has handed in, as the store knows it; empty: none.
    Result<std::string> handed_in_version(const std::string& task, std::int64_t attempt) const;
    // Of a version as model_version() and version() give it.
    Result<BaseModel> base_model(const json::Json& version) const;
    // The first tensor of that version's weights that a trainer reads past and does not write, as the head of a tied
    // model; empty: it has none, or its files cannot be read as safetensors, which is for others to say.
    Result<std::string> find_ignored_tensor(const json::Json& version, const model_config::ModelConfig& config) const;
    // The object in a small file of such a version; null: it has no such file, or no object there.
    Result<json::Json> read_object(const json::Json& version, const char* file) const;
    // Makes a version of the model that is an adapter of `adapter_of`; the same one again is the same version. Its
    // digest.
    Result<std::string> make_adapter(const std::string& model, const std::string& adapter_of,
                                     const std::string& config_text, const adapter::InitialAdapter& weights) const;
    // Fills in version, path and numbers. A version that is not named is the newest that the facility holds of those
    // that fit the tokenizer (tokenizer_files(), null: of all) as this release's trainer reads it, else of those that
    // may. One question for all, and some more about the first few that are not there.
    Status resolve(std::vector<NamedCopy>& copies, const json::Json& tokenizer) const;

    // What aggregation has made of a closed round, or how far it is: {state, version, error, refused}. It takes the
    // round up if nothing has told it so far. kInvalidArgument: it cannot aggregate that round.
    Result<json::Json> aggregation(const std::string& job, std::int64_t round) const;
    bool has_aggregation() const { return !aggregation_url_.empty(); }

    // Registers a prepared version; the same key gives the same number again. kConflict: the dataset is no longer the
    // one that its `prepared_for` says.
    Result<std::int64_t> register_version(const std::string& dataset, const json::Json& version,
                                          const std::string& idempotency_key) const;
    // `fingerprint`: kConflict where the version has another; empty: whatever it has.
    Status register_copy(const std::string& dataset, std::int64_t version, const std::string& facility,
                         const std::string& path, const std::string& fingerprint) const;

  private:
    enum class Service { kRegistry, kStore, kAggregation };
    struct Session;  // clients with one token
    std::shared_ptr<Session> session() const;
    void forget(const std::shared_ptr<Session>& session) const;
    // Once more with a new token where the one in use is not taken, as after the host's clock or the key was changed.
    // kUnavailable: that one is not taken either, which is no fault of whoever asks us.
    using Question = std::function<Result<json::Json>(http::Client&)>;
    Result<json::Json> ask(Service service, const Question& question) const;
    // The items of the registry's list, by number.
    Result<std::map<std::int64_t, json::Json>> versions_at(const std::string& facility,
                                                           const std::string& dataset) const;
    Result<json::Json> get(Service service, const std::string& path) const;
    // The header of a file of safetensors, read without its tensors; nothing: it is not one, or its header is over
    // 16 MiB.
    Result<std::optional<safetensors::Header>> read_header(const store_client::ManifestFile& file) const;
    // The text of a file of JSON; nothing: there is none, or it is too large.
    Result<std::optional<std::string>> read_small(const store_client::Manifest& manifest, const char* path) const;
    // A file of a version on its way into the store, chunk by chunk.
    using ReadBytes = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;
    Result<store_client::ManifestFile> send_file(const std::string& path, std::uint64_t size,
                                                 const ReadBytes& read) const;
    // `list` has a query; its pages are read one after the other.
    Status for_each_item(Service service, const std::string& list,
                         const std::function<Status(const json::Json&)>& take) const;
    // The names in a list, once it was asked for them.
    using Names = std::optional<std::vector<std::string>>;
    std::vector<std::string> names_of(Service service, const std::string& list) const;
    // The item of that name in a list (GET <list>/<name>). kNotFound becomes kInvalidArgument that names the field and
    // the nearest name in the list; `what` is "dataset" or "model".
    Result<json::Json> get_named(Service service, const std::string& list, const std::string& name,
                                 const std::string& field, const std::string& what, Names& known) const;
    Result<DatasetInfo> dataset(const std::string& name, const std::string& field, Names& known) const;
    // kNotFound becomes kInvalidArgument that says there is no `what`.
    Result<json::Json> get_as(Service service, const std::string& path, const std::string& field,
                              const std::string& what) const;
    Status resolve_alone(NamedCopy& copy, Names& datasets) const;

    std::string registry_url_;
    std::string store_url_;
    auth::Issuer issuer_;
    std::string aggregation_url_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<Session> session_;
};

}  // namespace atl::dispatch
