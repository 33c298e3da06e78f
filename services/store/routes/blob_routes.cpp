#include "services/store/db/repository.h"
#include "services/store/db/retention.h"
#include "services/store/domain/byte_range.h"
#include "services/store/domain/version.h"
#include "services/store/metrics.h"
#include "services/store/routes/routes.h"
#include "services/store/work/scrub.h"
#include "shared/base/on_exit.h"
#include "shared/digest/digest.h"
#include "shared/service/routes.h"
#include "shared/store_client/manifest.h"

namespace atl::store {
namespace {

using auth::Role;

const std::string kBinary = "application/octet-stream";

Result<std::string> digest_param(const http::Request& request) {
    const std::string& sha256 = request.param("sha256");
    if (!digest::is_sha256(sha256)) return invalid_argument("sha256", "must be 64 lower-case hexadecimal characters");
    return sha256;
}

http::Response unsatisfiable(std::uint64_t size, const Error& error, const std::string& request_id) {
    http::Response response = http::Response::problem(error, request_id);
    response.status = 416;
    return std::move(response).with("Content-Range", "bytes */" + std::to_string(size));
}

Status may_read(Routing& routing, const auth::Principal& principal, const std::string& sha256) {
    if (reads_everything(principal)) return {};
    const bool is_attempt = principal.role == Role::kFacility;
    if (!is_attempt) ATOLL_RETURN_IF_ERROR(routing.blobs.blob_size(sha256));  // else it is not found
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_TRY(const bool allowed, is_attempt ? reads_blob(*connection, *principal.scope, sha256)
                                             : may_see_blob(*connection, principal.subject, sha256));
    if (!allowed) return permission_denied("this token may not read blob " + sha256);
    return {};
}

Result<http::Response> get_blob(Routing& routing, const http::Request& request) {
    ATOLL_TRY(const std::string sha256, digest_param(request));
    ATOLL_RETURN_IF_ERROR(may_read(routing, *request.principal, sha256));
    ATOLL_TRY(const std::uint64_t size, routing.blobs.blob_size(sha256));
    http::Response response;
    response.content_type = kBinary;
    response.headers = {{"ETag", "\"" + sha256 + "\""}, {"Accept-Ranges", "bytes"}};
    if (!routing.accel_prefix.empty() && request.header("x-atoll-gateway") == "1") {
        routing.bytes_out.Increment(static_cast<double>(size));
        return std::move(response).with("X-Accel-Redirect", routing.accel_prefix + BlobStore::relative_path(sha256));
    }
    const auto range = parse_range(request.header("range"), size);
    if (!range.ok()) return unsatisfiable(size, range.error(), request.request_id);
    ATOLL_TRY(response.body, routing.blobs.read(sha256, range->begin, range->end - range->begin));
    routing.bytes_out.Increment(static_cast<double>(response.body.size()));
    if (response.body.size() == size) return response;
    response.status = 206;
    return std::move(response).with("Content-Range", "bytes " + std::to_string(range->begin) + "-" +
                                                         std::to_string(range->end - 1) + "/" + std::to_string(size));
}

Result<http::Response> put_blob(Routing& routing, const http::Request& request) {
    ATOLL_TRY(const std::string sha256, digest_param(request));
    if (request.body.empty()) return invalid_argument("body", "a blob has at least one byte");
    if (request.body.size() > store_client::kChunkBytesMax)
        return Error{ErrorCode::kTooLarge, "a blob has at most 16 MiB; cut the file into chunks", "body"};
    ATOLL_RETURN_IF_ERROR(may_write_blobs(*request.principal));
    if (!routing.puts.try_acquire()) {
        routing.refused.Increment();
        return http::Response::problem(unavailable("too many blobs are being written; try again"), request.request_id)
            .with("Retry-After", "1");
    }
    const OnExit release([&] { routing.puts.release(); });
    const auto stored = routing.intake.keep(*request.principal, sha256, request.body);
    if (!stored.ok()) return stored.error();
    const bool is_new = *stored == BlobStore::Stored::kNew;
    if (is_new) routing.bytes_in.Increment(static_cast<double>(request.body.size()));
    return http::Response::json(is_new ? 201 : 200, {{"sha256", sha256}, {"size", request.body.size()}})
        .with("ETag", "\"" + sha256 + "\"");
}

Result<http::Response> get_damaged(Routing&, pg::Transaction& transaction, const http::Request&) {
    ATOLL_TRY(const Json damaged, list_damaged(transaction.connection()));
    return http::Response::json(200, damaged);
}

// Whoever has found a blob damaged has it looked at now.
Result<http::Response> check_blob(Routing& routing, const http::Request& request) {
    ATOLL_TRY(const std::string sha256, digest_param(request));
    if (!routing.blobs.is_damaged(sha256)) ATOLL_RETURN_IF_ERROR(routing.blobs.blob_size(sha256));
    ATOLL_RETURN_IF_ERROR(scrub_blob(routing.pool, routing.blobs, sha256));
    return http::Response::json(200, {{"sha256", sha256}, {"damaged", routing.blobs.is_damaged(sha256)}});
}

Result<http::Response> post_missing(Routing& routing, const http::Request& request) {
    ATOLL_RETURN_IF_ERROR(may_write_blobs(*request.principal));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const std::vector<std::string> digests, parse_digest_list(body));
    std::set<std::string> foreign;  // whether they are there is nothing to this token
    if (request.principal->role == Role::kFacility) {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(foreign, foreign_blobs(*connection, *request.principal->scope, {digests.begin(), digests.end()}));
    } else if (is_person(*request.principal)) {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_TRY(foreign, blobs_of_others(*connection, request.principal->subject, {digests.begin(), digests.end()}));
    }
    Json missing = Json::array();
    for (const std::string& sha256 : digests) {
        bool is_there = false;
        if (!foreign.contains(sha256)) {
            ATOLL_TRY(is_there, routing.blobs.touch(sha256));
        }
        if (!is_there) missing.push_back(sha256);
    }
    return http::Response::json(200, {{"missing", std::move(missing)}});
}

}  // namespace

Routing::Routing(pg::Pool& database, BlobStore& blob_store, const Settings& settings, metrics::Registry& metrics)
    : pool(database),
      blobs(blob_store),
      intake(database, blob_store, settings),
      topic(settings.topic_prefix + "atoll.models"),
      accel_prefix(settings.accel_prefix),
      keep_updates_rounds(settings.keep_updates_rounds),
      unused_blob_hours(settings.unused_blob_hours),
      operator_manifest_bytes_max(settings.operator_manifest_bytes_max),
      puts(settings.put_concurrency),
      bytes_in(metrics.counter(kMetrics["atoll_store_received_bytes_total"])),
      bytes_out(metrics.counter(kMetrics["atoll_store_sent_bytes_total"])),
      refused(metrics.counter(kMetrics["atoll_store_bodies_refused_total"])) {}

void add_blob_routes(http::Server& server, Routing& routing) {
    using http::Method;
    const service::Routes routes("store", server, routing);
    routes.add(Method::kGet, "/v1/damaged-blobs", get_damaged);
    routes.add(Method::kGet, "/v1/blobs/:sha256", get_blob);
    routes.add(Method::kPut, "/v1/blobs/:sha256", put_blob);
    routes.add(Method::kPost, "/v1/blobs/:sha256/check", check_blob);
    routes.add(Method::kPost, "/v1/blobs/missing", post_missing);
}

}  // namespace atl::store
