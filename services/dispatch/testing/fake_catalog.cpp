#include "services/dispatch/testing/fake_catalog.h"

#include <cstdio>
#include <sstream>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/prompt/tokenizer_reader.h"

namespace atl::dispatch {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

const std::string kBaseDigest(64, 'b');

namespace {

Response none() {
    return Response::problem(not_found("there is none"), "");
}

// What a request with that header gets; empty: all of it.
Response bytes_of(const std::string& text, const std::string& range) {
    unsigned long first = 0, last = text.size() - 1;
    const bool is_part = std::sscanf(range.c_str(), "bytes=%lu-%lu", &first, &last) == 2;
    return Response::text(is_part ? 206 : 200, text.substr(first, last - first + 1), "application/octet-stream");
}

http::Access services_only() {
    return http::Access::roles({auth::Role::kOperator});
}

}  // namespace

FakeCatalog::FakeCatalog(const auth::KeyPair& keys, std::filesystem::path pushed)
    : pushed_(std::move(pushed)),
      verifier_(auth::Verifier::from_pem(keys.public_pem).value()),
      server_({}, verifier_, metrics_) {
    add_version("it", 1, "leonardo");
    add_version("cs", 1, "karolina");
    add_registry(server_);
    add_store(server_);
    check(server_.start().ok(), "the fake catalog does not start");
}

std::string FakeCatalog::url() const {
    return "http://127.0.0.1:" + std::to_string(server_.port());
}

std::int64_t FakeCatalog::requests() const {
    std::int64_t count = 0;
    std::istringstream lines(metrics_.expose());
    // Not what is no route here: dispatch looks every 15 s whether the gateway answers.
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("atoll_http_requests_total{") && line.find("route=\"unknown\"") == std::string::npos)
            count += std::stoll(line.substr(line.rfind(' ') + 1));
    return count;
}

void FakeCatalog::add_version(const std::string& dataset, int version, const std::string& facility, int seq_len,
                              std::int64_t rows) {
    const std::lock_guard lock(mutex_);
    shapes_[dataset][version] = {{"version", version},
                                 {"seq_len", seq_len},
                                 {"train", {{"rows", rows}, {"tokens", 120 * rows}}},
                                 {"validation", {{"tokens", 100'000}}},
                                 {"fingerprint", ""}};
    const std::string number = std::to_string(version);
    copies_[dataset + "/" + number + "/" + facility] = {{"facility", facility},
                                                        {"path", "datasets/" + dataset + "/" + number}};
    versions_held_[dataset + "/" + facility].insert(version);
}

// All if no facility is named.
Json FakeCatalog::versions_at(const std::string& dataset, const std::string& facility) const {
    Json items = Json::array();
    for (const auto& [number, shape] : shapes_.at(dataset))
        if (facility.empty() || copies_.contains(dataset + "/" + std::to_string(number) + "/" + facility))
            items.push_back(shape);
    return items;
}

Json FakeCatalog::find_copy(const Json& wanted) const {
    const auto dataset = shapes_.find(wanted.at("dataset"));
    if (dataset == shapes_.end()) return {};
    const std::string facility = wanted.at("facility");
    const auto held = versions_held_.find(dataset->first + "/" + facility);
    if (held == versions_held_.end()) return {};
    int version = *held->second.rbegin();
    for (const int one : held->second)
        if (dataset->second.at(one).value("fits", Json()) == true) version = one;
    version = wanted.value("version", version);
    const auto copy = copies_.find(dataset->first + "/" + std::to_string(version) + "/" + facility);
    if (copy == copies_.end() || !dataset->second.contains(version)) return {};
    Json found = {{"fits", nullptr}, {"tokenizer", nullptr}, {"tokenizer_reader", 0}};
    found.update(dataset->second.at(version));
    found.update(copy->second);
    return found;
}

void FakeCatalog::add_registry(http::Server& server) {
    server.route(Method::kPost, "/v1/copies/find", services_only(), [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        const Json body = request.json().value();
        wanted_tokenizer_ = body.at("tokenizer");
        check(body.at("tokenizer_reader") == prompt::kTokenizerReader, "data of other readers would fit");
        Json items = Json::array();
        for (const Json& wanted : body.at("copies")) items.push_back(find_copy(wanted));
        return Response::json(200, {{"items", items}});
    });
    const auto known = [](const std::string& name) { return name == "it" || name == "cs"; };
    server.route(Method::kGet, "/v1/datasets", services_only(), [](const Request&) {
        return Response::json(200, {{"items", {{{"name", "cs"}}, {{"name", "it"}}}}, {"next", nullptr}});
    });
    server.route(Method::kGet, "/v1/datasets/:name", services_only(), [this, known](const Request& request) {
        if (!known(request.param("name"))) return none();
        const std::lock_guard lock(mutex_);
        return Response::json(200, {{"name", request.param("name")},
                                    {"template", "scrivi:: {{text}}"},
                                    {"created_by", dataset_owner_},
                                    {"created_at", "2026-03-01T12:00:00Z"},
                                    {"language", "it"}});
    });
    server.route(Method::kGet, "/v1/datasets/:name/versions", services_only(), [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        const auto facility = request.query.find("facility");
        const std::string of = facility == request.query.end() ? "" : facility->second;
        return Response::json(200, {{"items", versions_at(request.param("name"), of)}, {"next", nullptr}});
    });
    server.route(Method::kPost, "/v1/datasets/:name/versions", services_only(), [this](const Request& request) {
        Response refused;
        refused.status = refusal_;
        if (refused.status != 0) return refused;
        const std::lock_guard lock(mutex_);
        if (request.json()->at("prepared_for").at("created_by") != dataset_owner_)
            return Response::problem(conflict("it is another dataset by now", "prepared_for"));
        Json& made = versions_[request.header("idempotency-key")];
        if (made.is_null()) {
            const Json body = request.json().value();
            for (const auto& [key, other] : versions_)  // the same data are the same version
                if (!other.is_null() && other["body"]["fingerprint"] == body["fingerprint"]) made = other;
            if (!made.is_null()) return Response::json(200, made);
            made = {{"version", 2 + versions_made_++}, {"body", body}};
            shapes_[request.param("name")][made["version"]] = {{"version", made["version"]},
                                                               {"seq_len", body["seq_len"]},
                                                               {"train", body["train"]},
                                                               {"validation", body["validation"]},
                                                               {"fingerprint", body["fingerprint"]}};
        }
        return Response::json(201, made);
    });
    add_copies(server);
}

void FakeCatalog::add_copies(http::Server& server) {
    server.route(Method::kGet, "/v1/datasets/:name/versions/:version/copies", services_only(),
                 [this](const Request& request) {
                     if (request.param("version") == "9") return none();
                     const std::lock_guard lock(mutex_);
                     Json items = Json::array();
                     const std::string prefix = request.param("name") + "/" + request.param("version") + "/";
                     for (const auto& [key, copy] : copies_)
                         if (key.starts_with(prefix)) items.push_back(copy);
                     return Response::json(200, {{"items", items}, {"next", nullptr}});
                 });
    server.route(Method::kPut, "/v1/datasets/:name/versions/:version/copies/:facility", services_only(),
                 [this](const Request& request) {
                     const std::lock_guard lock(mutex_);
                     Json copy = request.json().value();
                     copy["facility"] = request.param("facility");
                     copies_[request.param("name") + "/" + request.param("version") + "/" + request.param("facility")] =
                         copy;
                     versions_held_[request.param("name") + "/" + request.param("facility")].insert(
                         std::stoi(request.param("version")));
                     return Response::json(200, copy);
                 });
}

void FakeCatalog::add_store(http::Server& server) {
    server.route(Method::kGet, "/v1/models", services_only(), [](const Request&) {
        return Response::json(200, {{"items", {{{"name", "tiny"}}}}, {"next", nullptr}});
    });
    server.route(Method::kGet, "/v1/models/:name", services_only(), [this](const Request& request) {
        return request.param("name") == "tiny"
                   ? Response::json(200, {{"name", "tiny"}, {"tags", {{"base", kBaseDigest}}}, {"owner", "tester"}})
                   : show_model(request.param("name"));
    });
    server.route(Method::kPost, "/v1/models", services_only(), [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        const Json body = request.json().value();
        if (!models_.emplace(body.at("name"), body).second)
            return Response::problem(conflict("there is a model of that name already", "name"), "");
        return Response::json(201, body);
    });
    server.route(Method::kGet, "/v1/models/:name/versions", services_only(), [this](const Request& request) {
        const auto job = request.query.find("job");
        if (job != request.query.end() && refusal_ != 0) return Response::empty(refusal_);
        if (job != request.query.end())
            return Response::json(
                200, {{"items", find_globals(request.param("name"), job->second, request.query.at("round"))},
                      {"next", nullptr}});
        if (request.param("name") != "tiny") return none();
        Json items = Json::array();
        const auto kind = request.query.find("kind");
        if (kind == request.query.end() || kind->second == "base")
            items.push_back({{"digest", kBaseDigest}, {"kind", "base"}});
        return Response::json(200, {{"items", items}, {"next", nullptr}});
    });
    add_reading(server, "/v1/models/:name/versions/:version", [this](const Request& request) {
        std::function<void()> on_model;
        {
            const std::lock_guard lock(mutex_);
            on_model = on_model_;
        }
        if (on_model) on_model();
        return find_version(request.param("name"), request.param("version"));
    });
    add_reading(server, "/v1/uploads/:task/:attempt", [this](const Request& request) {
        return find_upload(request.param("task"), request.param("attempt"));
    });
    server.route(Method::kGet, "/v1/versions/:digest", services_only(), [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        const std::string digest = request.param("digest");
        if (removed_.contains(digest)) return none();
        held_.insert(digest);
        return Response::json(200, {{"digest", digest}});
    });
    server.route(Method::kGet, "/v1/blobs/:sha256", services_only(), [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        for (const std::string& text : {config_.dump(), weights_})
            if (request.param("sha256") == digest::sha256(text)) return bytes_of(text, request.header("range"));
        return none();
    });
}

Json FakeCatalog::tiny_config() {
    return {{"model_type", "llama"},          {"vocab_size", 320},      {"hidden_size", 8},
            {"intermediate_size", 12},        {"num_hidden_layers", 1}, {"num_attention_heads", 2},
            {"num_key_value_heads", 1},       {"head_dim", 4},          {"tie_word_embeddings", true},
            {"max_position_embeddings", 2048}};
}

Json FakeCatalog::registered_tokenizer() const {
    const std::lock_guard lock(mutex_);
    return versions_.empty() ? Json() : versions_.begin()->second.at("body").at("tokenizer");
}

Json FakeCatalog::registered_reader() const {
    const std::lock_guard lock(mutex_);
    return versions_.empty() ? Json() : versions_.begin()->second.at("body").at("tokenizer_reader");
}

Response FakeCatalog::show_model(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(name);
    return found == models_.end() ? none() : Response::json(200, found->second);
}

Json FakeCatalog::find_globals(const std::string& model, const std::string& job, const std::string& round) {
    const std::lock_guard lock(mutex_);
    Json items = Json::array();
    for (const Json& version : globals_[model])
        if (version.at("job") == job && version.at("round").dump() == round) items.push_back(version);
    return items;
}

void FakeCatalog::add_reading(http::Server& server, const char* path, http::Handler handler) {
    server.route(Method::kGet, path, services_only(), [this, handler = std::move(handler)](const Request& request) {
        Response refused;
        refused.status = refusal_;
        return refused.status == 0 ? handler(request) : refused;
    });
}

Response FakeCatalog::find_upload(const std::string& task, const std::string& attempt) {
    const auto digest = read_file(pushed_ / "by" / task / attempt);
    if (!digest.ok()) return Response::problem(not_found("it has uploaded nothing", "attempt"), "");
    return Response::json(200, {{"task", task}, {"attempt", attempt}, {"version", *digest}, {"bytes", 7}});
}

Response FakeCatalog::find_version(const std::string& model, const std::string& reference) {
    if (reference == "base" || reference == kBaseDigest) {
        const std::lock_guard lock(mutex_);
        const std::string text = config_.dump();
        const Json chunk = {{"sha256", digest::sha256(text)}, {"size", text.size()}};
        const Json file = {{"path", config_.is_null() ? "adapter.safetensors" : "config.json"},
                           {"size", text.size()},
                           {"chunks", Json::array({chunk})}};
        Json files = Json::array({file});
        if (!weights_.empty())
            files.push_back(
                {{"path", "model.safetensors"},
                 {"size", weights_.size()},
                 {"chunks", Json::array({{{"sha256", digest::sha256(weights_)}, {"size", weights_.size()}}})}});
        if (has_control_variates_)
            files.push_back({{"path", "control_variate/model.safetensors"}, {"size", 0}, {"chunks", Json::array()}});
        for (const auto& [path, sha256] : tokenizer_.items())
            files.push_back(
                {{"path", path}, {"size", 9}, {"chunks", Json::array({{{"sha256", sha256}, {"size", 9}}})}});
        return Response::json(
            200, {{"digest", kBaseDigest}, {"kind", "base"}, {"manifest", {{"schema", 1}, {"files", files}}}});
    }
    const auto meta = read_file(pushed_ / model / reference);
    if (!meta.ok()) return Response::problem(not_found("there is none", "version"), "");
    Json version = Json::parse(*meta);
    version["kind"] = "update";
    return Response::json(200, version);
}

}  // namespace atl::dispatch
