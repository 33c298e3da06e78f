#include "services/store/blobs/model_file.h"
#include "services/store/blobs/update_check.h"
#include "services/store/blobs/version_check.h"
#include "services/store/db/repository.h"
#include "services/store/db/retention.h"
#include "services/store/domain/version_reference.h"
#include "services/store/routes/routes.h"
#include "services/store/work/sweep.h"
#include "shared/auth/subjects.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"
#include "shared/events/events.h"
#include "shared/json/bounded.h"
#include "shared/service/names.h"
#include "shared/service/routes.h"

namespace atl::store {
namespace {

constexpr std::uint64_t kHeadBytesMax = 64U << 20;    // what is parsed of a version's files
constexpr std::size_t kLargeVersionBytes = 1U << 20;  // of its manifest, its base's, and what is read of their files
constexpr std::size_t kManifestValuesMax = 1'000'000;
constexpr std::int64_t kModelsMax = 2000;  // of one owner, that operators and their jobs make
constexpr std::int64_t kTagsMax = 256;     // of a model, that operators set

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

// The manifest goes into the answer as the text that it is kept as.
Response full_version_response(const StoredVersion& stored) {
    Response response = version_response(200, stored.version);
    response.body.pop_back();  // the object's end
    response.body += R"(,"manifest":)" + stored.manifest + "}";
    return response;
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

// Of models and tags, which all lists show. Admins have no such bound.
Status check_model_quota(Transaction& transaction, const auth::Principal& writer, const std::string& owner) {
    if (writer.role == Role::kAdmin) return {};
    ATOLL_TRY(const std::int64_t count, count_models_of(transaction, owner));
    if (count <= kModelsMax) return {};
    return Error{ErrorCode::kTooLarge,
                 owner + " would have more than " + std::to_string(kModelsMax) +
                     " models, all that an operator may: remove models that you do not need (`atoll model rm`)",
                 "model"};
}

Status check_tag_quota(Transaction& transaction, const auth::Principal& writer, const std::string& model) {
    if (writer.role == Role::kAdmin) return {};
    ATOLL_TRY(const std::int64_t count, count_tags_of(transaction, model));
    if (count <= kTagsMax) return {};
    return Error{ErrorCode::kTooLarge,
                 "the model " + model + " would have more than " + std::to_string(kTagsMax) +
                     " tags: remove some first (`atoll model untag " + model + "@TAG`)",
                 "tag"};
}

Result<Response> post_model(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(NewModel model, parse_new_model(body));
    ATOLL_RETURN_IF_ERROR(may_name_owner(*request.principal, model));
    if (model.owner.empty()) model.owner = request.principal->subject;
    ATOLL_TRY(const Json created, insert_model(transaction, model, request.principal->subject));
    ATOLL_RETURN_IF_ERROR(check_model_quota(transaction, *request.principal, model.owner));
    return Response::json(201, created);
}

Result<Response> get_models(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    return service::list(page, {"name"},
                         [&](const http::Page& piece) { return list_models(transaction.connection(), piece); });
}

Result<Response> get_model(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json model, find_model(transaction.connection(), request.param("model")));
    return with_etag(Response::json(200, model), digest::sha256(model.dump()).substr(0, 16));
}

// kNotFound: there is no such model. kPermissionDenied: it belongs to somebody else.
Status require_own_model(pg::Connection& connection, const Request& request, const std::string& model) {
    ATOLL_TRY(const Json found, find_model(connection, model));
    return service::require_owner(request, found.at("owner").get<std::string>(), "the model " + model);
}

// Whether this writer may add versions to the model, as far as it is there already.
Status may_add_to_model(pg::Connection& connection, const Request& request, const std::string& model) {
    const auth::Principal& writer = *request.principal;
    if (writer.role == Role::kFacility || auth::is_service(writer, auth::kAggregation)) return {};
    if (auth::is_service(writer, auth::kDispatch)) return {};  // the adapter that a job begins with
    const Status own = require_own_model(connection, request, model);
    return !own.ok() && own.error().code == ErrorCode::kNotFound ? Status() : own;
}

// Nothing if there is no such version.
Result<std::optional<store_client::Manifest>> find_manifest(Routing& routing, const std::string& digest) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    const auto found = find_version_anywhere(*connection, digest);
    if (!found.ok() && found.error().code == ErrorCode::kNotFound) return std::optional<store_client::Manifest>();
    ATOLL_RETURN_IF_ERROR(found);
    ATOLL_TRY(const Json tree, json::parse(found->manifest));
    ATOLL_TRY(auto manifest, store_client::parse_manifest(tree));
    return std::optional(std::move(manifest));
}

// A manifest takes some twenty times its bytes while it is looked at, and a header ten times: versions of large ones
// are made one at a time.
class LargeTurn {
  public:
    LargeTurn(FairTurn& turns, const auth::Principal& caller)
        : turns_(turns), caller_(std::string(to_string(caller.role)) + " " + caller.subject) {}
    // Counts what is about to be read, and waits for the turn where that is large: no database connection is held
    // meanwhile. Errors are those of FairTurn::take().
    Status require(std::uint64_t bytes) {
        bytes_ += bytes;
        if (bytes_ <= kLargeVersionBytes || hold_) return {};
        ATOLL_TRY(auto hold, turns_.take(caller_));
        hold_.emplace(std::move(hold));
        return {};
    }

  private:
    FairTurn& turns_;
    const std::string caller_;
    std::optional<FairTurn::Hold> hold_;
    std::uint64_t bytes_ = 0;
};

// An update that could never be averaged with the others is no version.
Status check_parents(Routing& routing, const NewVersion& version, LargeTurn& turn) {
    if (version.kind != Kind::kUpdate) return {};
    for (const std::string& digest : version.parents) {
        ATOLL_TRY(const auto manifest, find_manifest(routing, digest));
        if (!manifest) continue;  // named when it is saved
        ATOLL_TRY(const std::uint64_t head, head_bytes(*manifest, routing.blobs));
        ATOLL_RETURN_IF_ERROR(turn.require(head));
        ATOLL_RETURN_IF_ERROR(check_same_tensors(version.manifest, *manifest, routing.blobs));
    }
    return {};
}

// An adapter belongs to the model that is its parent.
Status check_adapter_of(Routing& routing, const NewVersion& version, LargeTurn& turn) {
    if (version.kind != Kind::kAdapter) return {};
    ATOLL_TRY(const auto model, find_manifest(routing, version.parents.front()));
    if (!model) return {};  // named when it is saved
    ATOLL_TRY(const std::uint64_t head, head_bytes(*model, routing.blobs));
    ATOLL_RETURN_IF_ERROR(turn.require(head));
    return check_adapter(version.manifest, *model, routing.blobs);
}

// A person's version has no blob that they know from an update, or control variates, which they may not read: it would
// be theirs to read then.
Status check_blobs_of_person(Routing& routing, const auth::Principal& writer, const NewVersion& version) {
    if (!is_person(writer)) return {};
    ATOLL_RETURN_IF_ERROR(check_repeats(version.manifest));
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_TRY(const auto foreign, blobs_of_others(*connection, writer.subject, blobs_of(version.manifest)));
    if (foreign.empty()) return {};
    return permission_denied("blob " + *foreign.begin() +
                             " is of a site's update, or of control variates, which you may not read: upload it, if "
                             "you have it, or leave control_variate/ out, and try again");
}

// What a person or a service hands in.
Status check_files(Routing& routing, const auth::Principal& writer, const NewVersion& version, LargeTurn& turn) {
    ATOLL_RETURN_IF_ERROR(check_blobs_of_person(routing, writer, version));
    ATOLL_RETURN_IF_ERROR(check_blobs(version.manifest, routing.blobs));
    ATOLL_TRY(const std::uint64_t head, head_bytes(version.manifest, routing.blobs));
    if (head > kHeadBytesMax)  // the largest models have some megabytes
        return invalid_argument("manifest.files", "have headers and an index of " + human_bytes(head) +
                                                      " together, of " + human_bytes(kHeadBytesMax) + " at most");
    ATOLL_RETURN_IF_ERROR(turn.require(head));
    ATOLL_RETURN_IF_ERROR(check_model_files(version.manifest, routing.blobs));
    ATOLL_RETURN_IF_ERROR(check_adapter_of(routing, version, turn));
    return check_parents(routing, version, turn);
}

// What a site hands in: nothing in it is believed.
Status check_files_of_site(Routing& routing, const auth::TaskScope& scope, const NewVersion& version, LargeTurn& turn) {
    const std::string base = base_of_update(scope);
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(const auto foreign, foreign_blobs(*connection, scope, blobs_of(version.manifest)));
        if (!foreign.empty())
            return permission_denied("this token may not name blob " + *foreign.begin() +
                                     ": its base does not have it, and its task has not uploaded it");
    }
    ATOLL_RETURN_IF_ERROR(check_blobs(version.manifest, routing.blobs));
    if (version.digest == base) return {};  // a training that changed nothing
    ATOLL_TRY(const std::uint64_t head, head_bytes(version.manifest, routing.blobs));
    ATOLL_RETURN_IF_ERROR(turn.require(head));
    ATOLL_TRY(const auto manifest, find_manifest(routing, base));
    if (!manifest) return invalid_argument("parents[0]", "there is no version " + base);
    ATOLL_TRY(const std::uint64_t of_base, head_bytes(*manifest, routing.blobs));
    ATOLL_RETURN_IF_ERROR(turn.require(of_base));
    return check_update(version.manifest, *manifest, routing.blobs);
}

// Manifests lie in the database. An attempt hands in one version, whose size its base bounds.
Status check_manifest_quota(Transaction& transaction, const std::string& subject, std::int64_t bytes_max) {
    ATOLL_TRY(const std::int64_t bytes, manifest_bytes_by(transaction, subject));
    if (bytes <= bytes_max) return {};
    return Error{ErrorCode::kTooLarge,
                 "the manifests and metrics of your versions would take " +
                     human_bytes(static_cast<std::uint64_t>(bytes)) + " of " +
                     human_bytes(static_cast<std::uint64_t>(bytes_max)) +
                     ", all that an operator may (store.operator_manifest_bytes_max): remove versions that you do not "
                     "need (`atoll model rm`)",
                 "manifest"};
}

Result<Response> save_version(Routing& routing, Transaction& transaction, const Request& request,
                              const NewVersion& version) {
    const std::string& model = request.param("model");
    const auth::Principal& writer = *request.principal;
    if (writer.role == Role::kFacility) {
        ATOLL_RETURN_IF_ERROR(record_submission(transaction, *writer.scope, version.digest));
        // Dispatch has made a job's output model; one that was removed since is the admins'.
        ATOLL_RETURN_IF_ERROR(ensure_model(transaction, {model, {}}, writer.subject));
    } else if (version.new_model) {  // likewise of what a person brings
        ATOLL_RETURN_IF_ERROR(service::check_name(model, "model"));
        ATOLL_TRY(const bool is_new,
                  ensure_model(transaction, {model, *version.new_model, writer.subject}, writer.subject));
        if (is_new) ATOLL_RETURN_IF_ERROR(check_model_quota(transaction, writer, writer.subject));
    }
    ATOLL_RETURN_IF_ERROR(may_add_to_model(transaction.connection(), request, model));
    ATOLL_RETURN_IF_ERROR(lock_blobs_shared(transaction));
    if (is_person(writer))
        ATOLL_RETURN_IF_ERROR(require_readable_parents(transaction.connection(), writer.subject, version.parents));
    if (auth::is_service(writer, auth::kAggregation))  // whose round it is the updates say
        ATOLL_RETURN_IF_ERROR(require_contributions_in(transaction, model, version.contributions));
    ATOLL_RETURN_IF_ERROR(
        check_blobs(version.manifest, routing.blobs));  // once more: none has gone since, none goes now
    ATOLL_RETURN_IF_ERROR(routing.blobs.sync_names());
    ATOLL_TRY(InsertedVersion saved, insert_version(transaction, model, version, writer.subject));
    if (saved.is_new && is_person(writer))
        ATOLL_RETURN_IF_ERROR(check_manifest_quota(transaction, writer.subject, routing.operator_manifest_bytes_max));
    if (saved.is_new) {
        const std::string key = version.job ? *version.job : model;
        ATOLL_RETURN_IF_ERROR(events::add_to_outbox(transaction, routing.topic, key, created_event(saved.version)));
    }
    return version_response(saved.is_new ? 201 : 200, saved.version);
}

// What a site sends is not even parsed when it is larger than a manifest of its base's shape can be.
Status check_body_size(Routing& routing, const auth::TaskScope& scope, std::size_t bytes, LargeTurn& turn) {
    std::int64_t of_base = 0;
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(of_base, manifest_bytes_of(*connection, {base_of_update(scope)}));
    }
    ATOLL_RETURN_IF_ERROR(turn.require(static_cast<std::uint64_t>(of_base)));
    const std::int64_t bytes_max = update_body_bytes_max(of_base);
    if (static_cast<std::int64_t>(bytes) <= bytes_max) return {};
    return Error{ErrorCode::kTooLarge,
                 "a version of this base is described in " + std::to_string(bytes_max) + " bytes at most", "body"};
}

Result<NewVersion> read_new_version(const Request& request) {
    const bool is_large = request.body.size() > kLargeVersionBytes;
    ATOLL_TRY(const Json body, is_large ? json::parse_bounded(request.body, kManifestValuesMax) : request.json());
    return parse_new_version(body);
}

// What has been looked at is not looked at again: a version of this model, or what this attempt has handed in before.
Result<bool> is_known(Routing& routing, const std::string& model, const NewVersion& version,
                      const auth::Principal& writer) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    if (writer.role != Role::kFacility) return has_version(*connection, model, version.digest);
    return has_handed_in(*connection, *writer.scope, version.digest);
}

Result<Response> post_version(Routing& routing, const Request& request) {
    LargeTurn turn(routing.large_versions, *request.principal);
    ATOLL_RETURN_IF_ERROR(turn.require(request.body.size()));
    const std::string& model = request.param("model");
    const auth::Principal& writer = *request.principal;
    if (writer.role == Role::kFacility)
        ATOLL_RETURN_IF_ERROR(check_body_size(routing, *writer.scope, request.body.size(), turn));
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_RETURN_IF_ERROR(may_add_to_model(*connection, request, model));
    }
    ATOLL_TRY(NewVersion version, read_new_version(request));
    ATOLL_RETURN_IF_ERROR(may_write_version(writer, model, version));
    if (writer.role == Role::kFacility) ATOLL_RETURN_IF_ERROR(take_origin(*writer.scope, version));
    ATOLL_TRY(const bool known, is_known(routing, model, version, writer));
    if (!known)
        ATOLL_RETURN_IF_ERROR(writer.role == Role::kFacility
                                  ? check_files_of_site(routing, *writer.scope, version, turn)
                                  : check_files(routing, writer, version, turn));
    const auto save = [&](Transaction& transaction) { return save_version(routing, transaction, request, version); };
    // An attempt's one version is its own key: whatever a facility sends again, no more is kept.
    if (writer.role == Role::kFacility) return service::in_transaction(routing.pool, save);
    return service::idempotent(routing.pool, request, save);
}

Result<Response> get_versions(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    const auto wanted = [&](const char* key) {
        const auto found = request.query.find(key);
        return found == request.query.end() ? "" : found->second;
    };
    ATOLL_TRY(const VersionFilter filter, parse_version_filter(wanted("kind"), wanted("job"), wanted("round")));
    ATOLL_RETURN_IF_ERROR(find_model(transaction.connection(), request.param("model")));
    return service::list(page, {"sequence", false}, [&](const http::Page& piece) {
        return list_versions(transaction.connection(), request.param("model"), filter, piece);
    });
}

// An update is between its site, the coordinator and whoever owns the model that it is for: what a site has learnt in
// one round tells of its texts.
Status may_read_update(pg::Connection& connection, const auth::Principal& principal, const std::string& digest) {
    if (reads_everything(principal) || principal.role == Role::kFacility) return {};
    ATOLL_TRY(const bool is_of_others, is_update_of_others(connection, principal.subject, digest));
    if (!is_of_others) return {};
    return permission_denied("version " + digest + " is a site's update: only the model's owner and admins read it");
}

Result<Response> get_version(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredVersion stored,
              find_version(transaction.connection(), request.param("model"), request.param("reference")));
    ATOLL_RETURN_IF_ERROR(
        may_read_update(transaction.connection(), *request.principal, stored.version.at("digest").get<std::string>()));
    return full_version_response(stored);
}

Status may_read_by_scope(pg::Connection& connection, const auth::Principal& principal, const std::string& digest) {
    Status named = may_read_version(principal, digest);
    if (named.ok() || !principal.scope || !principal.scope->read_updates) return named;
    ATOLL_TRY(const bool is_update, is_update_of_round(connection, *principal.scope, digest));
    return is_update ? Status() : named;
}

Result<Response> get_version_anywhere(Routing&, Transaction& transaction, const Request& request) {
    const std::string& digest = request.param("digest");
    ATOLL_RETURN_IF_ERROR(may_read_by_scope(transaction.connection(), *request.principal, digest));
    ATOLL_RETURN_IF_ERROR(may_read_update(transaction.connection(), *request.principal, digest));
    // Dispatch asks for what a job is about to need: a paused one may fetch it much later.
    if (request.principal->role == Role::kFacility || auth::is_service(*request.principal, auth::kDispatch))
        ATOLL_RETURN_IF_ERROR(record_reading(transaction, digest));
    ATOLL_TRY(const StoredVersion stored, find_version_anywhere(transaction.connection(), digest));
    return full_version_response(stored);
}

Result<Response> remove_version(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(require_own_model(transaction.connection(), request, request.param("model")));
    const std::string& digest = request.param("reference");
    if (!digest::is_sha256(digest))
        return invalid_argument("reference", "a version is removed by its digest, 64 hexadecimal characters");
    ATOLL_RETURN_IF_ERROR(delete_version(transaction, request.param("model"), digest));
    return Response::empty(204);
}

Result<Response> remove_model(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(require_own_model(transaction.connection(), request, request.param("model")));
    ATOLL_RETURN_IF_ERROR(delete_model(transaction, request.param("model")));
    return Response::empty(204);
}

Result<Response> remove_tag(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(require_own_model(transaction.connection(), request, request.param("model")));
    ATOLL_RETURN_IF_ERROR(delete_tag(transaction, request.param("model"), request.param("tag")));
    return Response::empty(204);
}

// An operator prunes models of their own, an admin all.
Result<PruneScope> prune_scope(pg::Pool& pool, const Request& request, const std::string& model) {
    PruneScope scope{model, {}};
    if (request.principal->role != Role::kAdmin) scope.owner = request.principal->subject;
    if (model.empty()) return scope;
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_RETURN_IF_ERROR(require_own_model(*connection, request, model));
    return scope;
}

Result<Response> post_prune(Routing& routing, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const PruneOrder order, parse_prune_order(body));
    if (order.unused_blob_hours && *order.unused_blob_hours < routing.unused_blob_hours &&
        request.principal->role != Role::kAdmin)
        return permission_denied("uploads under way may need blobs that nobody has asked for in " +
                                 std::to_string(routing.unused_blob_hours) +
                                 " hours: only an admin removes younger ones");
    ATOLL_TRY(const PruneScope scope, prune_scope(routing.pool, request, order.model));
    const std::unique_lock pruning(routing.pruning, std::try_to_lock);
    if (!pruning)
        return Error{ErrorCode::kResourceExhausted, "another prune is under way; try again when it has ended", {}};
    const std::int64_t rounds = order.keep_updates_rounds.value_or(routing.keep_updates_rounds);
    ATOLL_TRY(const auto versions, prune_versions(routing.pool, rounds, scope, order.dry_run));
    const std::chrono::hours age(order.unused_blob_hours.value_or(routing.unused_blob_hours));
    const bool sweeps = order.unused_blob_hours || age.count() > 0;
    ATOLL_TRY(const BlobCount swept,
              sweeps ? sweep(routing.pool, routing.blobs, age, order.dry_run) : Result<BlobCount>(BlobCount()));
    std::uint64_t bytes = 0;
    for (const Json& version : versions) bytes += version.at("size").get<std::uint64_t>();
    return Response::json(200, {{"dry_run", order.dry_run},
                                {"versions", versions},
                                {"version_bytes", bytes},
                                {"blobs", swept.blobs},
                                {"blob_bytes", swept.bytes}});
}

Result<Response> get_upload(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json upload,
              find_upload(transaction.connection(), request.param("task"), request.param("attempt")));
    return Response::json(200, upload);
}

Result<Response> put_model_tag(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(require_own_model(transaction.connection(), request, request.param("model")));
    const std::string& tag = request.param("tag");
    ATOLL_RETURN_IF_ERROR(check_tag(tag));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const TagTarget target, parse_tag_target(body));
    ATOLL_TRY(const Json tagged, put_tag(transaction, request.param("model"), tag, target, request.principal->subject));
    ATOLL_RETURN_IF_ERROR(check_tag_quota(transaction, *request.principal, request.param("model")));
    return Response::json(200, tagged);
}

}  // namespace

void add_model_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("store", server, routing);
    routes.add(Method::kPost, "/v1/models", post_model);
    routes.add(Method::kGet, "/v1/models", get_models);
    routes.add(Method::kGet, "/v1/models/:model", get_model);
    routes.add(Method::kPost, "/v1/models/:model/versions", post_version);
    routes.add(Method::kGet, "/v1/models/:model/versions", get_versions);
    routes.add(Method::kGet, "/v1/models/:model/versions/:reference", get_version);
    routes.add(Method::kPut, "/v1/models/:model/tags/:tag", put_model_tag);
    routes.add(Method::kGet, "/v1/versions/:digest", get_version_anywhere);
    routes.add(Method::kDelete, "/v1/models/:model", remove_model);
    routes.add(Method::kDelete, "/v1/models/:model/versions/:reference", remove_version);
    routes.add(Method::kDelete, "/v1/models/:model/tags/:tag", remove_tag);
    routes.add(Method::kPost, "/v1/prune", post_prune);
    routes.add(Method::kGet, "/v1/uploads/:task/:attempt", get_upload);
}

}  // namespace atl::store
