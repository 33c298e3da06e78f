#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/http/server/server.h"
#include "shared/json/json.h"

namespace atl::dispatch {

// The base model's and the tokenizer's digest in the made-up store.
extern const std::string kBaseDigest;

// A registry and a store of a few fixed things, on one port: the model "tiny" with the tag "base", the datasets "it"
// (version 1 at "leonardo") and "cs" (version 1 at "karolina"), and what dispatch registers. They want a real token.
class FakeCatalog {
  public:
    // `pushed` is where the site's programs leave what they push: <model>/<digest>, the version's meta.json, and
    // by/<task>/<attempt>, its digest.
    FakeCatalog(const auth::KeyPair& keys, std::filesystem::path pushed);

    std::string url() const;
    int versions_made() const { return versions_made_; }
    std::int64_t requests() const;  // answered so far
    // A version of "it" or "cs" with rows of `seq_len` tokens, of which a facility holds a copy.
    void add_version(const std::string& dataset, int version, const std::string& facility, int seq_len = 128,
                     std::int64_t rows = 100);
    // Whether a version fits the model's tokenizer (null: not known), and the model that it was prepared for.
    void set_fits(const std::string& dataset, int version, json::Json fits, const std::string& prepared_with) {
        const std::lock_guard lock(mutex_);
        json::Json& shape = shapes_[dataset][version];
        shape["fits"] = std::move(fits);
        shape["tokenizer"] = {{"model", prepared_with}, {"version", kBaseDigest}};
    }
    // How many tokens a version has to validate on.
    void set_validation_tokens(const std::string& dataset, int version, std::int64_t tokens) {
        const std::lock_guard lock(mutex_);
        shapes_[dataset][version]["validation"]["tokens"] = tokens;
    }
    // The reader of tokenizers that prepared a version.
    void set_tokenizer_reader(const std::string& dataset, int version, std::int64_t reader) {
        const std::lock_guard lock(mutex_);
        shapes_[dataset][version]["tokenizer_reader"] = reader;
    }
    // Who has registered the datasets.
    void set_dataset_owner(std::string owner) {
        const std::lock_guard lock(mutex_);
        dataset_owner_ = std::move(owner);
    }
    // The store has no version of that digest any more.
    void remove_version(const std::string& digest) {
        const std::lock_guard lock(mutex_);
        removed_.insert(digest);
    }
    // Somebody removes the model of that name and makes one of their own.
    void replace_model(const std::string& name, const std::string& owner) {
        const std::lock_guard lock(mutex_);
        models_[name] = {{"name", name}, {"owner", owner}};
    }
    // What the base model's config.json says beside what it needs; null: it has none.
    void set_config(const json::Json& config) {
        const std::lock_guard lock(mutex_);
        config_ = tiny_config();
        if (config.is_null())
            config_ = nullptr;
        else
            config_.merge_patch(config);
    }
    // From now on the base model has these bytes as its model.safetensors.
    void set_weights(std::string bytes) {
        const std::lock_guard lock(mutex_);
        weights_ = std::move(bytes);
    }
    // From now on the base model has a tokenizer of these files, by their sha256; of none: it has no tokenizer.
    void set_tokenizer(json::Json files) {
        const std::lock_guard lock(mutex_);
        tokenizer_ = std::move(files);
    }
    // What preparations have registered of tokenizers and their readers, and the files that versions of copies were to
    // fit when they were last asked for.
    json::Json registered_tokenizer() const;
    json::Json registered_reader() const;
    json::Json wanted_tokenizer() const {
        const std::lock_guard lock(mutex_);
        return wanted_tokenizer_;
    }
    // From now on the base model holds control variates.
    void set_control_variates() {
        const std::lock_guard lock(mutex_);
        has_control_variates_ = true;
    }
    // Whether the store was told to keep the version.
    bool is_held(const std::string& digest) const {
        const std::lock_guard lock(mutex_);
        return held_.contains(digest);
    }
    // Makes it a global model of the store: {"digest", "job", "round", "parents", "contributions"}.
    void add_global(const std::string& model, json::Json version) {
        const std::lock_guard lock(mutex_);
        globals_[model].push_back(std::move(version));
    }
    // From now on answers all questions about one version of a model, one upload, what a round has made, and whatever
    // would register a version, with this status; 0: as it should.
    void set_refusal(int status) { refusal_ = status; }
    // Called whenever a model's version is asked for.
    void set_on_model(std::function<void()> on_model) {
        const std::lock_guard lock(mutex_);
        on_model_ = std::move(on_model);
    }

    // From now on only tokens that these keys have signed are taken.
    void replace_keys(const std::string& public_pem) { check(verifier_.replace_keys(public_pem).ok(), "no keys"); }

  private:
    void add_registry(http::Server& server);
    void add_copies(http::Server& server);
    void add_store(http::Server& server);

    // A route that set_refusal() is for.
    void add_reading(http::Server& server, const char* path, http::Handler handler);
    http::Response find_upload(const std::string& task, const std::string& attempt);
    http::Response show_model(const std::string& name);
    http::Response find_version(const std::string& model, const std::string& reference);
    json::Json find_globals(const std::string& model, const std::string& job, const std::string& round);
    json::Json find_copy(const json::Json& wanted) const;  // null: none
    json::Json versions_at(const std::string& dataset, const std::string& facility) const;

    std::filesystem::path pushed_;
    std::function<void()> on_model_;
    metrics::Registry metrics_;
    auth::Verifier verifier_;
    mutable std::mutex mutex_;
    std::map<std::string, json::Json> versions_;               // by Idempotency-Key
    std::map<std::string, std::map<int, json::Json>> shapes_;  // by dataset and version
    std::string dataset_owner_ = "tester";
    static json::Json tiny_config();
    json::Json config_ = tiny_config();
    std::string weights_;
    json::Json tokenizer_ = {{"tokenizer.json", std::string(64, 'd')}};
    json::Json wanted_tokenizer_;
    std::map<std::string, std::vector<json::Json>> globals_;  // by model
    bool has_control_variates_ = false;
    std::set<std::string> removed_;
    std::set<std::string> held_;
    std::map<std::string, json::Json> models_;            // those that jobs write, by name
    std::map<std::string, json::Json> copies_;            // "dataset/version/facility"
    std::map<std::string, std::set<int>> versions_held_;  // by "dataset/facility"
    int versions_made_ = 0;
    std::atomic<int> refusal_ = 0;
    http::Server server_;  // the last: what its handlers use outlives it
};

}  // namespace atl::dispatch
