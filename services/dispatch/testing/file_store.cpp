#include "services/dispatch/testing/file_store.h"

#include "shared/digest/digest.h"
#include "shared/store_client/local_file.h"
#include "shared/store_client/transfer.h"

namespace atl::dispatch {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

FileStore::FileStore() {
    http::ServerOptions options;
    options.request_bytes_max = 65U << 20;
    server_ = std::make_unique<http::TestServer>([this](http::Server& server) { add_routes(server); }, options);
}

std::string FileStore::add_version(const std::filesystem::path& directory) {
    const auto manifest = store_client::scan_directory(directory, 2).value();
    for (const auto& place : store_client::chunk_places(manifest)) {
        const auto file = store_client::LocalFile::open(directory / manifest.files[place.file].path).value();
        check(write_file_atomic(blob(place.chunk.sha256), file.read(place.offset, place.chunk.size).value()).ok(),
              "a blob cannot be written");
    }
    const std::lock_guard lock(mutex_);
    manifests_[store_client::manifest_digest(manifest)] = store_client::to_json(manifest);
    return store_client::manifest_digest(manifest);
}

Json FileStore::created() const {
    const std::lock_guard lock(mutex_);
    return created_;
}

std::optional<Response> FileStore::refusal() const {
    const std::lock_guard lock(mutex_);
    return refusal_;
}

void FileStore::add_routes(http::Server& server) {
    const auto add = [&](Method method, const char* path, std::function<Response(const Request&)> answer) {
        server.route(method, path, http::Access::roles({auth::Role::kAdmin}),
                     [this, answer = std::move(answer)](const Request& request) {
                         if (auto refused = refusal()) return *std::move(refused);
                         return answer(request);
                     });
    };
    add(Method::kGet, "/v1/versions/:digest", [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        const auto found = manifests_.find(request.param("digest"));
        if (found == manifests_.end()) return Response::problem(not_found("there is none", "version"));
        return Response::json(200, {{"manifest", found->second}});
    });
    add(Method::kGet, "/v1/blobs/:sha256", [this](const Request& request) {
        auto bytes = read_file(blob(request.param("sha256")));
        if (!bytes.ok()) return Response::problem(not_found("there is none", "sha256"));
        return Response::text(200, std::move(bytes).value(), "application/octet-stream");
    });
    add(Method::kPut, "/v1/blobs/:sha256", [this](const Request& request) {
        if (digest::sha256(request.body) != request.param("sha256"))
            return Response::problem(invalid_argument("sha256", "are other bytes"));
        check(write_file_atomic(blob(request.param("sha256")), request.body).ok(), "a blob cannot be written");
        ++blobs_taken_;
        return Response::json(201, Json::object());
    });
    add(Method::kPost, "/v1/blobs/missing", [this](const Request& request) {
        Json missing = Json::array();
        const Json asked = request.json().value();
        for (const Json& sha256 : asked.at("digests"))
            if (!std::filesystem::exists(blob(sha256.get<std::string>()))) missing.push_back(sha256);
        return Response::json(200, {{"missing", missing}});
    });
    add(Method::kPost, "/v1/models/:name/versions", [this](const Request& request) {
        const std::lock_guard lock(mutex_);
        created_ = request.json().value();
        created_["model"] = request.param("name");
        const auto manifest = store_client::parse_manifest(created_.at("manifest")).value();
        return Response::json(201, {{"digest", store_client::manifest_digest(manifest)}});
    });
}

}  // namespace atl::dispatch
