#include "services/store/blobs/version_check.h"
#include "services/store/db/repository.h"
#include "services/store/routes/routes.h"
#include "shared/digest/digest.h"
#include "shared/events/events.h"
#include "shared/service/names.h"
#include "shared/service/routes.h"

namespace atl::store {
namespace {

using auth::Role;
using http::Method;
using http::Request;
using http::Response;
using pg::Transaction;

Response with_etag(Response response, const std::string& tag) {
    return std::move(response).with("ETag", "\"" + tag + "\"");
}

Response version_response(int status, const Json& version) {
    return with_etag(Response::json(status, version), version.at("digest").get<std::string>());
}

events::Event created_event(const Json& version) {
    Json data;
    for (const char* key : {"model", "digest", "kind", "size", "parents", "job", "round"}) data[key] = version.at(key);
    events::Event event;
    event.type = "atoll.version.created.v1";
    event.source = "/store";
    event.subject =
        "models/" + version.at("model").get<std::string>() + "/versions/" + version.at("digest").get<std::string>();
    event.data = std::move(data);
    return event;
}

Result<Response> post_model(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const NewModel model, parse_new_model(body));
    ATOLL_TRY(const Json created, insert_model(transaction, model, request.principal->subject));
    return Response::json(201, created);
}

Result<Response> get_models(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(const Json models, list_models(transaction.connection(), page));
    return Response::json(200, models);
}

Result<Response> get_model(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json model, find_model(transaction.connection(), request.param("model")));
    return with_etag(Response::json(200, model), digest::sha256(model.dump()).substr(0, 16));
}

// An update that could never be averaged with the others is no version.
Status check_parents(Routing& routing, const NewVersion& version) {
    if (version.kind != Kind::kUpdate) return {};
    for (const std::string& digest : version.parents) {
        Json parent;
        {
            ATOLL_TRY(auto connection, routing.pool.acquire());
            auto found = find_version_anywhere(*connection, digest);
            if (!found.ok() && found.error().code == ErrorCode::kNotFound) continue;  // named when it is saved
            ATOLL_TRY(parent, std::move(found));
        }
        ATOLL_TRY(const auto manifest, store_client::parse_manifest(parent.at("manifest")));
        ATOLL_RETURN_IF_ERROR(check_same_tensors(version.manifest, manifest, routing.blobs));
    }
    return {};
}

Result<Response> save_version(Routing& routing, Transaction& transaction, const std::string& model,
                              const NewVersion& version, const auth::Principal& writer) {
    if (writer.role == Role::kFacility) {
        ATOLL_RETURN_IF_ERROR(record_submission(transaction, *writer.scope, version.digest));
        // A job's first update makes its output model, so that one that fails before leaves no empty model.
        ATOLL_RETURN_IF_ERROR(ensure_model(transaction, {model, {}}, writer.subject));
    }
    ATOLL_RETURN_IF_ERROR(lock_blobs_shared(transaction));
    ATOLL_RETURN_IF_ERROR(
        check_blobs(version.manifest, routing.blobs));  // once more: none has gone since, none goes now
    ATOLL_RETURN_IF_ERROR(routing.blobs.sync_names());
    ATOLL_TRY(InsertedVersion saved, insert_version(transaction, model, version, writer.subject));
    if (saved.is_new) {
        const std::string key = version.job ? *version.job : model;
        ATOLL_RETURN_IF_ERROR(events::add_to_outbox(transaction, routing.topic, key, created_event(saved.version)));
    }
    saved.version.erase("manifest");  // the caller has it
    return version_response(saved.is_new ? 201 : 200, saved.version);
}

Result<Response> post_version(Routing& routing, const Request& request) {
    const std::string& model = request.param("model");
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const NewVersion version, parse_new_version(body));
    ATOLL_RETURN_IF_ERROR(may_write_version(*request.principal, model, version));
    ATOLL_RETURN_IF_ERROR(check_blobs(version.manifest, routing.blobs));
    ATOLL_RETURN_IF_ERROR(check_model_files(version.manifest, routing.blobs));
    ATOLL_RETURN_IF_ERROR(check_parents(routing, version));
    const auth::Principal& writer = *request.principal;
    const auto save = [&](Transaction& transaction) {
        return save_version(routing, transaction, model, version, writer);
    };
    // An attempt's one version is its own key: whatever a facility sends again, no more is kept.
    if (writer.role == Role::kFacility) return service::in_transaction(routing.pool, save);
    return service::idempotent(routing.pool, request, save);
}

Result<Response> get_versions(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(const Json versions, list_versions(transaction.connection(), request.param("model"), page));
    return Response::json(200, versions);
}

Result<Response> get_version(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json version,
              find_version(transaction.connection(), request.param("model"), request.param("reference")));
    return version_response(200, version);
}

Result<Response> get_version_anywhere(Routing&, Transaction& transaction, const Request& request) {
    const std::string& digest = request.param("digest");
    ATOLL_RETURN_IF_ERROR(may_read_version(*request.principal, digest));
    ATOLL_TRY(const Json version, find_version_anywhere(transaction.connection(), digest));
    return version_response(200, version);
}

Result<Response> put_model_tag(Routing&, Transaction& transaction, const Request& request) {
    const std::string& tag = request.param("tag");
    ATOLL_RETURN_IF_ERROR(service::check_name(tag, "tag"));  // never looks like a digest: it is shorter
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const std::string digest, parse_tag_target(body));
    ATOLL_TRY(const Json tagged, put_tag(transaction, request.param("model"), tag, digest, request.principal->subject));
    return Response::json(200, tagged);
}

}  // namespace

void add_model_routes(http::Server& server, Routing& routing) {
    using service::readers;
    using service::writers;
    const service::Routes routes(server, routing);
    routes.add(Method::kPost, "/v1/models", writers(), post_model);
    routes.add(Method::kGet, "/v1/models", readers(), get_models);
    routes.add(Method::kGet, "/v1/models/:model", readers(), get_model);
    routes.add(Method::kPost, "/v1/models/:model/versions", service::writers_and_facilities(), post_version);
    routes.add(Method::kGet, "/v1/models/:model/versions", readers(), get_versions);
    routes.add(Method::kGet, "/v1/models/:model/versions/:reference", readers(), get_version);
    routes.add(Method::kPut, "/v1/models/:model/tags/:tag", writers(), put_model_tag);
    routes.add(Method::kGet, "/v1/versions/:digest", service::readers_and_facilities(), get_version_anywhere);
}

}  // namespace atl::store
