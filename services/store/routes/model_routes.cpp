#include "services/store/routes/model_routes.h"

#include "services/store/blobs/version_check.h"
#include "services/store/db/repository.h"
#include "services/store/routes/route.h"
#include "shared/digest/digest.h"
#include "shared/events/events.h"
#include "shared/service/idempotency.h"
#include "shared/service/names.h"

namespace atl::store {
namespace {

using auth::Role;
using http::Access;
using http::Method;
using http::Request;
using http::Response;

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

}  // namespace

ModelRoutes::ModelRoutes(pg::Pool& pool, BlobStore& blobs, const Settings& settings)
    : pool_(pool), blobs_(blobs), topic_(settings.topic_prefix + "atoll.models") {}

void ModelRoutes::add_to(http::Server& server) {
    const auto readers = Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer});
    const auto writers = Access::roles({Role::kAdmin, Role::kOperator});
    const auto readers_and_facilities = Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer, Role::kFacility});
    const auto writers_and_facilities = Access::roles({Role::kAdmin, Role::kOperator, Role::kFacility});
    const auto add = [&](Method method, const char* pattern, Access access, auto member) {
        server.route(method, pattern, access,
                     answer_with([this, member](const Request& request) { return (this->*member)(request); }));
    };
    add(Method::kPost, "/v1/models", writers, &ModelRoutes::create_model);
    add(Method::kGet, "/v1/models", readers, &ModelRoutes::list_models);
    add(Method::kGet, "/v1/models/:model", readers, &ModelRoutes::get_model);
    add(Method::kPost, "/v1/models/:model/versions", writers_and_facilities, &ModelRoutes::create_version);
    add(Method::kGet, "/v1/models/:model/versions", readers, &ModelRoutes::list_versions);
    add(Method::kGet, "/v1/models/:model/versions/:reference", readers, &ModelRoutes::get_version);
    add(Method::kPut, "/v1/models/:model/tags/:tag", writers, &ModelRoutes::put_tag);
    add(Method::kGet, "/v1/versions/:digest", readers_and_facilities, &ModelRoutes::get_version_anywhere);
}

Result<Response> ModelRoutes::create_model(const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const NewModel model, parse_new_model(body));
    return service::idempotent(pool_, request, [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_TRY(const Json created, insert_model(transaction, model, request.principal->subject));
        return Response::json(201, created);
    });
}

Result<Response> ModelRoutes::list_models(const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const Json models, store::list_models(*connection, page));
    return Response::json(200, models);
}

Result<Response> ModelRoutes::get_model(const Request& request) {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const Json model, find_model(*connection, request.param("model")));
    return with_etag(Response::json(200, model), digest::sha256(model.dump()).substr(0, 16));
}

Result<Response> ModelRoutes::create_version(const Request& request) {
    const std::string& model = request.param("model");
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const NewVersion version, parse_new_version(body));
    ATOLL_RETURN_IF_ERROR(may_write_version(*request.principal, model, version));
    ATOLL_RETURN_IF_ERROR(check_blobs(version.manifest, blobs_));
    ATOLL_RETURN_IF_ERROR(check_model_files(version.manifest, blobs_));
    ATOLL_RETURN_IF_ERROR(check_parents(version));
    const auth::Principal& writer = *request.principal;
    const auto save = [&](pg::Transaction& transaction) { return save_version(transaction, model, version, writer); };
    // An attempt's one version is its own key: whatever a facility sends again, no more is kept.
    if (writer.role == Role::kFacility) return service::in_transaction(pool_, request, save);
    return service::idempotent(pool_, request, save);
}

// An update that could never be averaged with the others is no version.
Status ModelRoutes::check_parents(const NewVersion& version) {
    if (version.kind != Kind::kUpdate) return {};
    for (const std::string& digest : version.parents) {
        Json parent;
        {
            ATOLL_TRY(auto connection, pool_.acquire());
            auto found = find_version_anywhere(*connection, digest);
            if (!found.ok() && found.error().code == ErrorCode::kNotFound) continue;  // named when it is saved
            ATOLL_TRY(parent, std::move(found));
        }
        ATOLL_TRY(const auto manifest, store_client::parse_manifest(parent.at("manifest")));
        ATOLL_RETURN_IF_ERROR(check_same_tensors(version.manifest, manifest, blobs_));
    }
    return {};
}

Result<Response> ModelRoutes::save_version(pg::Transaction& transaction, const std::string& model,
                                           const NewVersion& version, const auth::Principal& writer) {
    if (writer.role == Role::kFacility) {
        ATOLL_RETURN_IF_ERROR(record_submission(transaction, *writer.scope, version.digest));
        // A job's first update makes its output model, so that one that fails before leaves no empty model.
        ATOLL_RETURN_IF_ERROR(ensure_model(transaction, {model, {}}, writer.subject));
    }
    ATOLL_RETURN_IF_ERROR(lock_blobs_shared(transaction));
    ATOLL_RETURN_IF_ERROR(check_blobs(version.manifest, blobs_));  // once more: none has gone since, none goes now
    ATOLL_RETURN_IF_ERROR(blobs_.sync_names());
    ATOLL_TRY(InsertedVersion saved, insert_version(transaction, model, version, writer.subject));
    if (saved.is_new) {
        const std::string key = version.job ? *version.job : model;
        ATOLL_RETURN_IF_ERROR(events::add_to_outbox(transaction, topic_, key, created_event(saved.version)));
    }
    saved.version.erase("manifest");  // the caller has it
    return version_response(saved.is_new ? 201 : 200, saved.version);
}

Result<Response> ModelRoutes::list_versions(const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const Json versions, store::list_versions(*connection, request.param("model"), page));
    return Response::json(200, versions);
}

Result<Response> ModelRoutes::get_version(const Request& request) {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const Json version, find_version(*connection, request.param("model"), request.param("reference")));
    return version_response(200, version);
}

Result<Response> ModelRoutes::get_version_anywhere(const Request& request) {
    const std::string& digest = request.param("digest");
    ATOLL_RETURN_IF_ERROR(may_read_version(*request.principal, digest));
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const Json version, find_version_anywhere(*connection, digest));
    return version_response(200, version);
}

Result<Response> ModelRoutes::put_tag(const Request& request) {
    const std::string& tag = request.param("tag");
    ATOLL_RETURN_IF_ERROR(service::check_name(tag, "tag"));  // never looks like a digest: it is shorter
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const std::string digest, parse_tag_target(body));
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
    ATOLL_TRY(const Json tagged,
              store::put_tag(transaction, request.param("model"), tag, digest, request.principal->subject));
    ATOLL_RETURN_IF_ERROR(transaction.commit());
    return Response::json(200, tagged);
}

}  // namespace atl::store
