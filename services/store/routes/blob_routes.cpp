#include "services/store/routes/blob_routes.h"

#include <algorithm>
#include <charconv>

#include "services/store/db/repository.h"
#include "services/store/domain/version.h"
#include "services/store/routes/route.h"
#include "shared/digest/digest.h"
#include "shared/log/log.h"
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

bool parse_number(std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

http::Response unsatisfiable(std::uint64_t size, const Error& error, const std::string& request_id) {
    http::Response response = http::Response::problem(error, request_id);
    response.status = 416;
    return std::move(response).with("Content-Range", "bytes */" + std::to_string(size));
}

}  // namespace

Result<ByteRange> parse_range(const std::string& header, std::uint64_t size) {
    const ByteRange whole{0, size};
    if (!header.starts_with("bytes=")) return whole;
    const std::string_view spec = std::string_view(header).substr(6);
    const auto dash = spec.find('-');
    if (dash == std::string_view::npos) return whole;
    std::uint64_t first = 0;
    std::uint64_t last = size == 0 ? 0 : size - 1;
    if (dash == 0) {
        std::uint64_t suffix = 0;
        if (!parse_number(spec.substr(1), suffix)) return whole;
        first = size - std::min(suffix, size);
    } else {
        if (!parse_number(spec.substr(0, dash), first)) return whole;
        if (dash + 1 < spec.size() && !parse_number(spec.substr(dash + 1), last)) return whole;
    }
    if (first >= size || last < first) return invalid_argument("Range", "lies outside the blob");
    return ByteRange{first, std::min(last + 1, size)};
}

BlobRoutes::BlobRoutes(pg::Pool& pool, BlobStore& blobs, const Settings& settings, metrics::Registry& metrics)
    : pool_(pool),
      blobs_(blobs),
      accel_prefix_(settings.accel_prefix),
      puts_(settings.put_concurrency),
      bytes_in_(metrics.counter("atoll_store_blob_bytes_received_total", "Bytes of new blobs")),
      bytes_out_(
          metrics.counter("atoll_store_blob_bytes_sent_total", "Bytes of blobs handed out, also by the gateway")),
      refused_(metrics.counter("atoll_store_blob_puts_refused_total", "Bodies refused because too many were in hand")) {
}

void BlobRoutes::add_to(http::Server& server) {
    const auto readers = http::Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer, Role::kFacility});
    const auto writers = http::Access::roles({Role::kAdmin, Role::kOperator, Role::kFacility});
    server.route(http::Method::kGet, "/v1/blobs/:sha256", readers,
                 answer_with([this](const http::Request& request) { return get(request); }));
    server.route(http::Method::kPut, "/v1/blobs/:sha256", writers,
                 answer_with([this](const http::Request& request) { return put(request); }));
    server.route(http::Method::kPost, "/v1/blobs/missing", writers,
                 answer_with([this](const http::Request& request) { return missing(request); }));
}

Status BlobRoutes::may_read(const auth::Principal& principal, const std::string& sha256) {
    if (reads_everything(principal)) return {};
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const bool allowed, any_version_holds(*connection, principal.scope->read_versions, sha256));
    if (!allowed) return permission_denied("this token may not read blob " + sha256);
    return {};
}

// A facility that uploads more than any update of its base could need fills no disk. Only what becomes a new blob
// counts in the end: what is there costs nothing, and what could not be kept is uploaded again.
Result<BlobStore::Stored> BlobRoutes::store(const auth::Principal& principal, const std::string& sha256,
                                            const std::string& body) {
    const bool counts = principal.role == Role::kFacility && !blobs_.blob_size(sha256).ok();
    if (counts) ATOLL_RETURN_IF_ERROR(reserve(*principal.scope, body.size()));
    const auto stored = blobs_.put(sha256, body);
    const bool is_new = stored.ok() && *stored == BlobStore::Stored::kNew;
    if (counts && !is_new) refund(*principal.scope, body.size());
    return stored;
}

Status BlobRoutes::reserve(const auth::TaskScope& scope, std::size_t bytes) {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(const std::int64_t readable, bytes_of_versions(*connection, scope.read_versions));
    const std::int64_t quota = upload_quota(readable);
    ATOLL_TRY(const bool fits, count_upload(*connection, scope, bytes, quota));
    if (fits) return {};
    return Error{ErrorCode::kTooLarge,
                 "attempt " + scope.attempt + " of task " + scope.task + " may upload " + std::to_string(quota) +
                     " bytes, some times the size of its base, and has done so",
                 "body"};
}

void BlobRoutes::refund(const auth::TaskScope& scope, std::size_t bytes) {
    const auto give_back = [&]() -> Status {
        ATOLL_TRY(auto connection, pool_.acquire());
        return uncount_upload(*connection, scope, bytes);
    };
    if (const Status status = give_back(); !status.ok())
        spdlog::warn("bytes of task {} that were not kept stay counted: {}", scope.task, describe(status.error()));
}

Result<http::Response> BlobRoutes::get(const http::Request& request) {
    ATOLL_TRY(const std::string sha256, digest_param(request));
    ATOLL_RETURN_IF_ERROR(may_read(*request.principal, sha256));
    ATOLL_TRY(const std::uint64_t size, blobs_.blob_size(sha256));
    http::Response response;
    response.content_type = kBinary;
    response.headers = {{"ETag", "\"" + sha256 + "\""}, {"Accept-Ranges", "bytes"}};
    if (!accel_prefix_.empty() && request.header("x-atoll-gateway") == "1") {
        bytes_out_.Increment(static_cast<double>(size));
        return std::move(response).with("X-Accel-Redirect", accel_prefix_ + BlobStore::relative_path(sha256));
    }
    const auto range = parse_range(request.header("range"), size);
    if (!range.ok()) return unsatisfiable(size, range.error(), request.request_id);
    ATOLL_TRY(response.body, blobs_.read(sha256, range->begin, range->end - range->begin));
    bytes_out_.Increment(static_cast<double>(response.body.size()));
    if (response.body.size() == size) return response;
    response.status = 206;
    return std::move(response).with("Content-Range", "bytes " + std::to_string(range->begin) + "-" +
                                                         std::to_string(range->end - 1) + "/" + std::to_string(size));
}

Result<http::Response> BlobRoutes::put(const http::Request& request) {
    ATOLL_TRY(const std::string sha256, digest_param(request));
    if (request.body.empty()) return invalid_argument("body", "a blob has at least one byte");
    if (request.body.size() > store_client::kChunkBytesMax)
        return Error{ErrorCode::kTooLarge, "a blob has at most 64 MiB; cut the file into chunks", "body"};
    ATOLL_RETURN_IF_ERROR(may_write_blobs(*request.principal));
    if (!puts_.try_acquire()) {
        refused_.Increment();
        return http::Response::problem(unavailable("too many blobs are being written; try again"), request.request_id)
            .with("Retry-After", "1");
    }
    const auto stored = store(*request.principal, sha256, request.body);
    puts_.release();
    if (!stored.ok()) return stored.error();
    const bool is_new = *stored == BlobStore::Stored::kNew;
    if (is_new) bytes_in_.Increment(static_cast<double>(request.body.size()));
    return http::Response::json(is_new ? 201 : 200, {{"sha256", sha256}, {"size", request.body.size()}})
        .with("ETag", "\"" + sha256 + "\"");
}

Result<http::Response> BlobRoutes::missing(const http::Request& request) {
    ATOLL_RETURN_IF_ERROR(may_write_blobs(*request.principal));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const std::vector<std::string> digests, parse_digest_list(body));
    Json missing = Json::array();
    for (const std::string& sha256 : digests) {
        ATOLL_TRY(const bool is_there, blobs_.touch(sha256));
        if (!is_there) missing.push_back(sha256);
    }
    return http::Response::json(200, {{"missing", std::move(missing)}});
}

}  // namespace atl::store
