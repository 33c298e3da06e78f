#include "services/dispatch/clients/catalog.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>

#include "services/dispatch/domain/tokenizer_files.h"
#include "shared/adapter/adapter.h"
#include "shared/base/id.h"
#include "shared/base/spelling.h"
#include "shared/delta/control_variate.h"
#include "shared/delta/delta.h"
#include "shared/digest/digest.h"
#include "shared/http/client/client.h"
#include "shared/json/bounded.h"
#include "shared/model_config/tensors.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/service/names.h"
#include "shared/store_client/remote_file.h"
#include "shared/store_client/transfer.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr int kAbsentMax = 8;  // copies that are not there, of which resolve() asks why
constexpr std::chrono::minutes kTokenLife{5};
constexpr std::size_t kFileValuesMax = 50'000;  // of a JSON file of a version
constexpr std::chrono::minutes kTokenUse{2};    // then there is a new one: what has begun ends with the old

http::ClientOptions options_for(const std::string& url, std::string token) {
    http::ClientOptions options;
    options.base_url = url;
    options.token = std::move(token);
    options.timeout = std::chrono::seconds(5);  // a request of our own waits for it, through every repetition
    return options;
}

// A member of another service's answer that the contract promises.
template <class T>
Result<T> member(const Json& value, const char* key) {
    const auto found = value.find(key);
    if (found == value.end()) return internal_error(std::string("an answer lacks \"") + key + "\"");
    try {
        return found->template get<T>();
    } catch (const Json::exception&) {
        return internal_error(std::string("an answer's \"") + key + "\" has the wrong type");
    }
}

Result<bool> has_control_variates(const Json& version) {
    ATOLL_TRY(const Json body, member<Json>(version, "manifest"));
    ATOLL_TRY(const auto manifest, store_client::parse_manifest(body));
    return std::ranges::any_of(manifest.files, [](const auto& file) { return delta::is_control_variate(file.path); });
}

std::string versions_path(const std::string& dataset) {
    return "/v1/datasets/" + http::percent_encode(dataset) + "/versions";
}

std::string copies_path(const std::string& dataset, std::int64_t version) {
    return versions_path(dataset) + "/" + std::to_string(version) + "/copies";
}

Status read_numbers(const Json& version, NamedCopy& copy) {
    DatasetCopy& data = *copy.data;
    ATOLL_TRY(data.seq_len, member<std::int64_t>(version, "seq_len"));
    ATOLL_TRY(const Json train, member<Json>(version, "train"));
    ATOLL_TRY(data.rows, member<std::int64_t>(train, "rows"));
    ATOLL_TRY(copy.train_tokens, member<std::int64_t>(train, "tokens"));
    ATOLL_TRY(const Json validation, member<Json>(version, "validation"));
    ATOLL_TRY(data.validation_tokens, member<std::int64_t>(validation, "tokens"));
    ATOLL_TRY(data.fingerprint, member<std::string>(version, "fingerprint"));
    return {};
}

// The facility holds no copy of the version; the error names the newest that it does.
Error no_copy_error(const DatasetCopy& data, const std::map<std::int64_t, Json>& held, const std::string& path) {
    constexpr int kNamedMax = 8;
    const std::string facility = "facility \"" + data.facility + "\" holds ";
    const std::string dataset = " of dataset \"" + data.dataset + "\"";
    if (held.empty())
        return invalid_argument(path + ".dataset", facility + "no version" + dataset + ": `atoll dataset show " +
                                                       data.dataset + "` says where its copies are");
    std::string numbers;
    int named = 0;
    for (auto one = held.rbegin(); one != held.rend() && named < kNamedMax; ++one, ++named)
        numbers += (named > 0 ? ", " : "") + std::to_string(one->first);
    if (static_cast<std::size_t>(named) < held.size()) numbers += ", …";
    return invalid_argument(path + ".dataset_version", facility + (held.size() == 1 ? "version " : "versions ") +
                                                           numbers + dataset + ", not " + std::to_string(data.version));
}

Status check_path(const DatasetCopy& data) {
    if (service::is_safe_relative_path(data.path)) return {};
    return internal_error("the registry does not say where facility \"" + data.facility + "\" holds version " +
                          std::to_string(data.version) + " of dataset \"" + data.dataset + "\"");
}

// A copy as the registry has found it.
Status read_found(const Json& item, NamedCopy& copy) {
    constexpr std::size_t kShownCharacters = 8;  // of a digest
    DatasetCopy& data = *copy.data;
    ATOLL_TRY(data.version, member<std::int64_t>(item, "version"));
    ATOLL_TRY(data.path, member<std::string>(item, "path"));
    ATOLL_RETURN_IF_ERROR(check_path(data));
    ATOLL_TRY(const Json fits, member<Json>(item, "fits"));
    if (fits.is_boolean()) copy.fits = fits.get<bool>();
    ATOLL_TRY(copy.tokenizer_reader, member<std::int64_t>(item, "tokenizer_reader"));
    ATOLL_TRY(const Json tokenizer, member<Json>(item, "tokenizer"));
    if (!tokenizer.is_null()) {
        ATOLL_TRY(const auto model, member<std::string>(tokenizer, "model"));
        ATOLL_TRY(const auto version, member<std::string>(tokenizer, "version"));
        copy.prepared_with = model + "@" + version.substr(0, kShownCharacters);
    }
    return read_numbers(item, copy);
}

}  // namespace

Catalog::Catalog(std::string registry_url, std::string store_url, auth::Issuer issuer, std::string aggregation_url)
    : registry_url_(std::move(registry_url)),
      store_url_(std::move(store_url)),
      issuer_(std::move(issuer)),
      aggregation_url_(std::move(aggregation_url)) {}

struct Catalog::Session {
    Session(const Catalog& catalog, const std::string& token)
        : registry(options_for(catalog.registry_url_, token)),
          aggregation(options_for(catalog.aggregation_url_, token)),
          store(std::make_shared<store_client::ClientPool>(options_for(catalog.store_url_, token))) {}

    store_client::ClientPool registry;
    store_client::ClientPool aggregation;
    std::shared_ptr<store_client::ClientPool> store;
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};

std::shared_ptr<Catalog::Session> Catalog::session() const {
    const std::lock_guard lock(mutex_);
    if (session_ != nullptr && std::chrono::steady_clock::now() - session_->began < kTokenUse) return session_;
    auth::Principal self;
    self.subject = "dispatch";
    self.role = auth::Role::kOperator;
    const auto token = issuer_.issue(std::move(self), kTokenLife);
    check(token.ok(), "cannot sign a token with the private key");
    session_ = std::make_shared<Session>(*this, *token);
    return session_;
}

Result<Json> Catalog::ask(Service service, const Question& question) const {
    const auto ask_in = [&](Session& asked) {
        store_client::ClientPool& pool = service == Service::kRegistry      ? asked.registry
                                         : service == Service::kAggregation ? asked.aggregation
                                                                            : *asked.store;
        return question(*pool.take());
    };
    const auto first = session();
    auto answer = ask_in(*first);
    if (answer.ok() || answer.error().code != ErrorCode::kUnauthenticated) return answer;
    forget(first);
    answer = ask_in(*session());
    if (answer.ok() || answer.error().code != ErrorCode::kUnauthenticated) return answer;
    return unavailable("dispatch's own token is not taken: " + answer.error().message);
}

void Catalog::forget(const std::shared_ptr<Session>& session) const {
    const std::lock_guard lock(mutex_);
    if (session_ == session) session_.reset();
}

Result<Json> Catalog::get(Service service, const std::string& path) const {
    return ask(service, [&](http::Client& client) { return client.get_json(path); });
}

Result<Json> Catalog::get_as(Service service, const std::string& path, const std::string& field,
                             const std::string& what) const {
    auto value = get(service, path);
    if (!value.ok() &&
        (is_absent(value.error()) || (value.error().code == ErrorCode::kInvalidArgument && is_answer(value.error()))))
        return invalid_argument(field, "there is no " + what);
    return value;
}

Status Catalog::for_each_item(Service service, const std::string& list,
                              const std::function<Status(const Json&)>& take) const {
    std::string cursor;
    do {
        ATOLL_TRY(const Json page, get(service, list + cursor));
        ATOLL_TRY(const auto items, member<Json::array_t>(page, "items"));
        for (const Json& item : items) ATOLL_RETURN_IF_ERROR(take(item));
        ATOLL_TRY(const Json next, member<Json>(page, "next"));
        cursor = next.is_string() ? "&after=" + http::percent_encode(next.get<std::string>()) : "";
    } while (!cursor.empty());
    return {};
}

// Empty where the list cannot be had: the names are only for guesses, which need no more than a page.
std::vector<std::string> Catalog::names_of(Service service, const std::string& list) const {
    std::vector<std::string> names;
    const auto page = get(service, list + "?limit=1000");
    if (!page.ok()) return names;
    const auto items = member<Json::array_t>(*page, "items");
    if (!items.ok()) return names;
    for (const Json& item : *items)
        if (auto known = member<std::string>(item, "name"); known.ok()) names.push_back(std::move(known).value());
    return names;
}

Result<Json> Catalog::get_named(Service service, const std::string& list, const std::string& name,
                                const std::string& field, const std::string& what, Names& known) const {
    auto value = get_as(service, list + "/" + http::percent_encode(name), field, what + " \"" + name + "\"");
    if (value.ok() || value.error().code != ErrorCode::kInvalidArgument) return value;
    if (!known) known = names_of(service, list);
    return invalid_argument(field, value.error().message + did_you_mean(name, *known));
}

Result<std::string> Catalog::model_digest(const std::string& model, const std::string& version, const std::string& path,
                                          const std::string& name_key, const auth::Principal& reader) const {
    Names names;
    ATOLL_TRY(const Json known, get_named(Service::kStore, "/v1/models", model, path + "." + name_key, "model", names));
    const auto found = get(Service::kStore,
                           "/v1/models/" + http::percent_encode(model) + "/versions/" + http::percent_encode(version));
    // A beginning of a digest that is too short, or that several have: the store says which.
    if (!found.ok() && found.error().code == ErrorCode::kInvalidArgument)
        return invalid_argument(path + ".version", found.error().message);
    if (!found.ok() && is_absent(found.error())) {
        ATOLL_TRY(const Json by_name, member<Json>(known, "tags"));
        std::vector<std::string> tags;
        for (const auto& tag : by_name.items()) tags.push_back(tag.key());
        return invalid_argument(path + ".version", "there is no version \"" + version + "\" of model \"" + model +
                                                       "\"" + did_you_mean(version, tags));
    }
    if (!found.ok()) return found.error();
    ATOLL_TRY(std::string digest, member<std::string>(*found, "digest"));
    if (!digest::is_sha256(digest)) return internal_error("the store gave a version without a digest");
    ATOLL_TRY(const std::string kind, member<std::string>(*found, "kind"));
    ATOLL_TRY(const std::string owner, member<std::string>(known, "owner"));
    if (reader.role == auth::Role::kAdmin || reader.subject == owner) return digest;
    const auto denied = [&](const char* why) {
        return Error{ErrorCode::kPermissionDenied, "version \"" + version + "\" of model \"" + model + "\" " + why,
                     path + ".version"};
    };
    if (kind == "update") return denied("is a site's update, which is its owner's alone: begin with a global model");
    ATOLL_TRY(const bool has_variates, has_control_variates(*found));  // a site stages all of a version
    if (has_variates)
        return denied(
            "holds control variates, mean gradients of its sites' trainings, which are its owner's alone: `atoll model "
            "pull` leaves them out, and what it gets can be pushed as a model of your own");
    return digest;
}

Status Catalog::require_no_base(const std::string& model, const std::string& field) const {
    const auto page = get(Service::kStore, "/v1/models/" + http::percent_encode(model) + "/versions?kind=base&limit=1");
    if (!page.ok()) return is_absent(page.error()) ? Status() : Status(page.error());
    ATOLL_TRY(const auto bases, member<Json::array_t>(*page, "items"));
    if (bases.empty()) return {};
    return invalid_argument(field,
                            "the model \"" + model + "\" holds imported versions; give a job's results another name");
}

Result<std::optional<std::string>> Catalog::model_owner(const std::string& model) const {
    const auto found = get(Service::kStore, "/v1/models/" + http::percent_encode(model));
    if (!found.ok() && is_absent(found.error())) return std::optional<std::string>();
    ATOLL_RETURN_IF_ERROR(found);
    ATOLL_TRY(std::string owner, member<std::string>(*found, "owner"));
    return std::optional(std::move(owner));
}

Result<bool> Catalog::make_model(const std::string& model, const std::string& owner) const {
    const Json wanted = {{"name", model}, {"owner", owner}};
    const auto made = ask(Service::kStore, [&, key = new_id()](http::Client& client) {
        return client.post_json("/v1/models", wanted, key);
    });
    if (!made.ok() && made.error().code != ErrorCode::kConflict) return made.error();
    return made.ok();
}

Status Catalog::require_model_of(const std::string& model, const std::string& owner) const {
    ATOLL_TRY(auto found, model_owner(model));
    if (!found) {
        ATOLL_TRY(const bool made, make_model(model, owner));
        if (made) return {};
        ATOLL_TRY(found, model_owner(model));
    }
    if (found == owner) return {};
    return conflict("the model \"" + model + "\" that the job was submitted for was removed; the one of that name is " +
                        (found && !found->empty() ? *found + "'s" : "the admins'") +
                        ": submit a new job with another output_model",
                    "output_model");
}

Result<DatasetInfo> Catalog::dataset(const std::string& name, const std::string& field) const {
    Names known;
    return dataset(name, field, known);
}

Result<DatasetInfo> Catalog::dataset(const std::string& name, const std::string& field, Names& known) const {
    ATOLL_TRY(const Json found, get_named(Service::kRegistry, "/v1/datasets", name, field, "dataset", known));
    ATOLL_TRY(std::string prompt_template, member<std::string>(found, "template"));
    ATOLL_TRY(std::string owner, member<std::string>(found, "created_by"));
    Json identity;
    for (const char* key : {"created_by", "created_at", "language", "template"}) {
        ATOLL_TRY(identity[key], member<std::string>(found, key));
    }
    return DatasetInfo{name, std::move(prompt_template), std::move(owner), std::move(identity)};
}

Result<Json> Catalog::model_version(const std::string& model, const std::string& digest) const {
    return get(Service::kStore,
               "/v1/models/" + http::percent_encode(model) + "/versions/" + http::percent_encode(digest));
}

Result<bool> Catalog::hold_version(const std::string& digest) const {
    const auto found = get(Service::kStore, "/v1/versions/" + http::percent_encode(digest));
    if (!found.ok() && is_absent(found.error())) return false;
    ATOLL_RETURN_IF_ERROR(found);
    return true;
}

Result<Json> Catalog::global_of_round(const std::string& model, const std::string& job, std::int64_t round,
                                      const std::string& digest) const {
    const auto page = get(Service::kStore, "/v1/models/" + http::percent_encode(model) + "/versions?kind=global&job=" +
                                               http::percent_encode(job) + "&round=" + std::to_string(round));
    if (!page.ok() && is_absent(page.error())) return Json();
    if (!page.ok()) return page.error();
    ATOLL_TRY(const auto items, member<Json::array_t>(*page, "items"));
    for (const Json& item : items) {
        ATOLL_TRY(const auto made, member<std::string>(item, "digest"));
        if (made == digest) return item;
    }
    return Json();
}

Result<std::string> Catalog::handed_in_version(const std::string& task, std::int64_t attempt) const {
    const auto upload =
        get(Service::kStore, "/v1/uploads/" + http::percent_encode(task) + "/" + std::to_string(attempt));
    if (!upload.ok() && is_absent(upload.error())) return std::string();
    if (!upload.ok()) return upload.error();
    ATOLL_TRY(const Json version, member<Json>(*upload, "version"));
    if (version.is_null()) return std::string();
    return member<std::string>(*upload, "version");
}

Result<Json> Catalog::version(const std::string& digest) const {
    return get(Service::kStore, "/v1/versions/" + http::percent_encode(digest));
}

Result<std::optional<std::string>> Catalog::read_small(const store_client::Manifest& manifest, const char* path) const {
    constexpr std::uint64_t kBytesMax = 1U << 20;
    const store_client::ManifestFile* file = manifest.find(path);
    if (file == nullptr || file->size > kBytesMax) return std::optional<std::string>();
    std::string text(file->size, '\0');
    ATOLL_RETURN_IF_ERROR(
        store_client::RemoteFile(session()->store, *file).read(0, std::as_writable_bytes(std::span(text))));
    if (!json::parse_bounded(text, kFileValuesMax).ok()) return std::optional<std::string>();
    return std::optional(std::move(text));
}

Result<Json> Catalog::read_object(const Json& version, const char* path) const {
    ATOLL_TRY(const Json body, member<Json>(version, "manifest"));
    ATOLL_TRY(const auto manifest, store_client::parse_manifest(body));
    ATOLL_TRY(const auto text, read_small(manifest, path));
    if (!text) return Json();
    ATOLL_TRY(Json object, json::parse_bounded(*text, kFileValuesMax));
    return object.is_object() ? std::move(object) : Json();
}

Result<BaseModel> Catalog::base_model(const Json& version) const {
    ATOLL_TRY(const Json body, member<Json>(version, "manifest"));
    ATOLL_TRY(const auto manifest, store_client::parse_manifest(body));
    BaseModel base;
    base.bytes = manifest.size_bytes();
    for (const auto& file : manifest.files)
        if (file.path.ends_with(".safetensors") && !delta::is_control_variate(file.path))
            base.weight_bytes += file.size;
    base.is_change = manifest.find(delta::kFile) != nullptr;
    base.tokenizer = tokenizer_files(manifest);
    if (version.contains("adapter_of") && !version["adapter_of"].is_null()) {
        ATOLL_TRY(base.adapter_of, member<std::string>(version, "adapter_of"));
    }
    ATOLL_TRY(const auto text, read_small(manifest, "config.json"));
    base.config = text ? model_config::parse_config(*text, "config.json")
                       : invalid_argument("config.json", "the model has no config.json, or it is too large");
    return base;
}

Result<std::optional<safetensors::Header>> Catalog::read_header(const store_client::ManifestFile& file) const {
    constexpr std::uint64_t kHeaderBytesMax = 16U << 20, kUnhurriedBytes = 1U << 20;
    const store_client::RemoteFile remote(session()->store, file);
    std::string text(8, '\0');
    if (file.size < text.size()) return std::optional<safetensors::Header>();
    ATOLL_RETURN_IF_ERROR(remote.read(0, std::as_writable_bytes(std::span(text))));
    const auto length = safetensors::header_length(text, file.size);
    if (!length.ok() || *length > kHeaderBytesMax) return std::optional<safetensors::Header>();
    static std::mutex large;  // of many small tensors it takes twenty times its bytes: one at a time
    std::unique_lock turn(large, std::defer_lock);
    if (*length > kUnhurriedBytes) turn.lock();
    text.resize(*length);
    ATOLL_RETURN_IF_ERROR(remote.read(8, std::as_writable_bytes(std::span(text))));
    auto header = safetensors::parse_header(text, file.size);
    return header.ok() ? std::optional(std::move(header).value()) : std::optional<safetensors::Header>();
}

Result<std::string> Catalog::find_ignored_tensor(const Json& version, const model_config::ModelConfig& config) const {
    ATOLL_TRY(const Json body, member<Json>(version, "manifest"));
    ATOLL_TRY(const auto manifest, store_client::parse_manifest(body));
    const std::vector<std::string> ignorable = model_config::ignorable_tensors(config);
    for (const auto& file : manifest.files) {
        if (!file.path.ends_with(".safetensors")) continue;
        ATOLL_TRY(const auto header, read_header(file));
        if (!header) continue;
        for (const auto& tensor : header->tensors)
            if (model_config::is_ignorable(tensor.name, ignorable)) return tensor.name;
    }
    return std::string();
}

// What is there already is not sent again, so that a request that is repeated is quick.
Result<store_client::ManifestFile> Catalog::send_file(const std::string& path, std::uint64_t size,
                                                      const ReadBytes& read) const {
    store_client::ManifestFile file{path, size, {}};
    std::string bytes;
    for (std::uint64_t at = 0; at < size; at += bytes.size()) {
        bytes.resize(std::min(store_client::kChunkBytes, size - at));
        read(at, std::as_writable_bytes(std::span(bytes)));
        const std::string sha256 = digest::sha256(bytes);
        const auto put = [&](http::Client& client) -> Result<Json> {
            ATOLL_TRY(const auto missing, store_client::find_missing(client, {sha256}));
            if (missing.empty()) return Json();
            http::CallOptions options;
            options.headers.emplace_back("Content-Type", "application/octet-stream");
            ATOLL_TRY(const auto answer, client.call(http::Method::kPut, "/v1/blobs/" + sha256, bytes, options));
            ATOLL_RETURN_IF_ERROR(answer.check());
            return Json();
        };
        ATOLL_RETURN_IF_ERROR(ask(Service::kStore, put));
        file.chunks.push_back({sha256, bytes.size()});
    }
    return file;
}

Result<std::string> Catalog::make_adapter(const std::string& model, const std::string& adapter_of,
                                          const std::string& config_text,
                                          const adapter::InitialAdapter& weights) const {
    store_client::Manifest manifest;  // sorted by path
    ATOLL_TRY(auto config,
              send_file(adapter::kConfigFile, config_text.size(), [&](std::uint64_t at, std::span<std::byte> into) {
                  std::memcpy(into.data(), config_text.data() + at, into.size());
              }));
    manifest.files.push_back(std::move(config));
    ATOLL_TRY(auto file, send_file(adapter::kWeightsFile, weights.size(),
                                   [&](std::uint64_t at, std::span<std::byte> into) { weights.read(at, into); }));
    manifest.files.push_back(std::move(file));
    store_client::VersionDetails details;
    details.kind = "adapter";
    details.parents = {adapter_of};
    ATOLL_RETURN_IF_ERROR(ask(Service::kStore, [&](http::Client& client) {
        return store_client::create_version(client, model, manifest, details);
    }));
    return store_client::manifest_digest(manifest);
}

Result<std::map<std::int64_t, Json>> Catalog::versions_at(const std::string& facility,
                                                          const std::string& dataset) const {
    std::map<std::int64_t, Json> versions;
    const std::string list = versions_path(dataset) + "?limit=1000&facility=" + http::percent_encode(facility);
    ATOLL_RETURN_IF_ERROR(for_each_item(Service::kRegistry, list, [&](const Json& item) -> Status {
        ATOLL_TRY(const auto number, member<std::int64_t>(item, "version"));
        versions[number] = item;
        return {};
    }));
    return versions;
}

Status Catalog::resolve(std::vector<NamedCopy>& copies, const Json& tokenizer) const {
    Json wanted = Json::array();
    for (const NamedCopy& copy : copies) {
        wanted.push_back({{"dataset", copy.data->dataset}, {"facility", copy.data->facility}});
        if (copy.data->version > 0) wanted.back()["version"] = copy.data->version;
    }
    const Json question = {
        {"copies", wanted}, {"tokenizer", tokenizer}, {"tokenizer_reader", prompt::kTokenizerReader}};
    // With a key it is repeated as a GET is, when no answer comes.
    ATOLL_TRY(const Json answer, ask(Service::kRegistry, [&, key = new_id()](http::Client& client) {
                  return client.post_json("/v1/copies/find", question, key);
              }));
    ATOLL_TRY(const auto items, member<Json::array_t>(answer, "items"));
    if (items.size() != copies.size()) return internal_error("the registry gave an item too many or too few");
    int asked = 0;
    Names datasets;
    for (std::size_t i = 0; i < items.size(); ++i) {
        NamedCopy& copy = copies[i];
        if (items[i].is_null() && ++asked > kAbsentMax)
            copy.found = invalid_argument(copy.path + ".dataset",
                                          "facility \"" + copy.data->facility + "\" has no such copy of dataset \"" +
                                              copy.data->dataset + "\"; correct the ones before it first");
        else
            copy.found = items[i].is_null() ? resolve_alone(copy, datasets) : read_found(items[i], copy);
        if (!copy.found.ok() && copy.found.error().code != ErrorCode::kInvalidArgument) return copy.found;
    }
    return {};
}

Status Catalog::resolve_alone(NamedCopy& copy, Names& datasets) const {
    DatasetCopy& data = *copy.data;
    ATOLL_RETURN_IF_ERROR(dataset(data.dataset, copy.path + ".dataset", datasets));
    ATOLL_TRY(const auto held, versions_at(data.facility, data.dataset));
    if (data.version == 0 && !held.empty()) data.version = held.rbegin()->first;
    const auto found = held.find(data.version);
    if (found == held.end()) return no_copy_error(data, held, copy.path);
    const std::string list = copies_path(data.dataset, data.version) + "?limit=1000";
    ATOLL_RETURN_IF_ERROR(for_each_item(Service::kRegistry, list, [&](const Json& item) -> Status {
        ATOLL_TRY(const auto facility, member<std::string>(item, "facility"));
        if (facility != data.facility) return {};
        ATOLL_TRY(data.path, member<std::string>(item, "path"));
        return {};
    }));
    ATOLL_RETURN_IF_ERROR(check_path(data));
    return read_numbers(found->second, copy);
}

Result<std::int64_t> Catalog::register_version(const std::string& dataset, const Json& version,
                                               const std::string& idempotency_key) const {
    ATOLL_TRY(const Json made, ask(Service::kRegistry, [&](http::Client& client) {
                  return client.post_json(versions_path(dataset), version, idempotency_key);
              }));
    return member<std::int64_t>(made, "version");
}

Status Catalog::register_copy(const std::string& dataset, std::int64_t version, const std::string& facility,
                              const std::string& path, const std::string& fingerprint) const {
    ATOLL_RETURN_IF_ERROR(ask(Service::kRegistry, [&](http::Client& client) {
        return client.put_json(copies_path(dataset, version) + "/" + http::percent_encode(facility),
                               {{"path", path}, {"fingerprint", fingerprint}});
    }));
    return {};
}

Result<Json> Catalog::aggregation(const std::string& job, std::int64_t round) const {
    return ask(Service::kAggregation, [&](http::Client& client) {
        return client.put_json("/v1/aggregations/" + http::percent_encode(job) + "/" + std::to_string(round),
                               Json::object());
    });
}

}  // namespace atl::dispatch
